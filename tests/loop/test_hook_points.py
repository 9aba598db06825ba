from __future__ import annotations

import copy
import pickle
from typing import get_args

from hooktrainer import HOOK_POINTS, HookPointName


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


def test_copies_and_pickles_of_a_point_are_equal():
    for point in HOOK_POINTS:
        again = pickle.loads(pickle.dumps(point))
        assert (again, again.kind, again.returns) == (point, point.kind, point.returns)
        assert copy.deepcopy(point) == point


def test_type_checkers_know_the_names():
    assert get_args(HookPointName) == HOOK_POINTS
