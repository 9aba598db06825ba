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


def test_kinds():
    kinds = {str(point): point.kind for point in HOOK_POINTS}
    assert [n for n, kind in kinds.items() if kind == "transform"] == [
        "batch_process",
        "process_optim_batch",
        "post_loss",
        "optimizer",
    ]
    assert [n for n, kind in kinds.items() if kind == "log"] == [
        "pre_steps_log",
        "post_optim_log",
        "post_steps_log",
    ]
    assert [n for n, kind in kinds.items() if kind == "action"] == [
        "pre_optim_steps",
        "post_optim",
        "post_steps",
    ]


def test_arguments_follow_the_kind():
    for point in HOOK_POINTS:
        if point == "optimizer":
            assert point.receives == ("losses", "clip_grad_norm", "clip_norm", "index")
        else:
            assert len(point.receives) == (0 if point.kind == "action" else 1)
    assert HOOK_POINTS[5].call == "optimizer(losses, clip_grad_norm, clip_norm, index)"
    assert HOOK_POINTS[2].call == "pre_optim_steps()"


def test_points_of_the_inner_loop():
    assert [str(p) for p in HOOK_POINTS if p.per_step] == [
        "process_optim_batch",
        "post_loss",
        "optimizer",
        "post_optim",
        "post_optim_log",
    ]


def test_a_point_is_its_name():
    point = HOOK_POINTS[0]
    assert isinstance(point, str)
    assert {point: 1}["batch_process"] == 1
    assert str(point) == "batch_process"


def test_copies_and_pickles_are_the_row_itself():
    for point in HOOK_POINTS:
        assert pickle.loads(pickle.dumps(point)) is point
        assert copy.deepcopy(point) is point


def test_the_drawing_in_the_docstring_calls_every_point_in_order():
    drawing = (module.__doc__ or "").split("::", 1)[1]
    calls = re.findall(r"\b(\w+)\(", drawing)
    assert [c for c in calls if c in HOOK_POINTS] == list(HOOK_POINTS)


def test_type_checkers_know_the_names():
    assert get_args(module.HookPointName) == HOOK_POINTS
