from __future__ import annotations

import copy
import pickle
import re
from typing import get_args

import hooktrainer.loop.hook_points as module
from hooktrainer import HOOK_POINTS


def test_the_ten_in_loop_order():
    assert HOOK_POINTS == (
        "batch_process",
        "pre_steps_log",
        "pre_optim_steps",
        "process_optim_batch",
        "post_loss",
        "optimizer",
        "post_optim",
        "post_optim_log",
        "post_steps",
        "post_steps_log",
    )


def test_kind_and_arguments_of_each_point():
    one = {"transform": (1,), "log": (1,), "action": (0,)}
    per_step = HOOK_POINTS[3:8]
    kinds = [*("transform", "log", "action"), *("transform", "transform", "transform")]
    kinds += [*("action", "log"), *("action", "log")]
    assert [point.kind for point in HOOK_POINTS] == kinds
    for point in HOOK_POINTS:
        assert point.per_step == (point in per_step)
        assert point == "optimizer" or (len(point.receives),) == one[point.kind]
    assert HOOK_POINTS[5].call == "optimizer(losses, clip_grad_norm, clip_norm, index)"


def test_copies_and_pickles_of_a_point_are_identical():
    for point in HOOK_POINTS:
        assert pickle.loads(pickle.dumps(point)) is point
        assert copy.deepcopy(point) is point


def test_the_drawing_in_the_docstring_calls_every_point_in_order():
    drawing = (module.__doc__ or "").split("::", 1)[1]
    calls = re.findall(r"\b(\w+)\(", drawing)
    assert [c for c in calls if c in HOOK_POINTS] == list(HOOK_POINTS)


def test_type_checkers_know_the_names():
    assert get_args(module.HookPointName) == HOOK_POINTS
