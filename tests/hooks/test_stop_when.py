"""`StopWhen` and its conditions."""

from __future__ import annotations

import math

import pytest

from hooktrainer.hooks.stop_when import Condition

VALUES = {"loss/actor": 1.0, "loss/critic": math.nan, "train/return": 20.0, "losses": -5.0}


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ("train/return < 100", True),
        ("train/return<20", False),
        ("train/return <= 2e1", True),
        ("train/return == 20.0", True),
        ("train/return != 20", False),
        ("not train/return > 3", False),
        ("finite(loss)", False),  # not of all
        ("finite(loss/actor)", True),
        ("not finite(loss)", True),
        ("loss > 0.5", True),  # of any; losses is another name
        ("loss < 0", False),
        ("losses < -4.5", True),
        ("nothing > 0", False),  # without a value nothing is compared
        ("not finite(nothing)", False),
        ("not nothing > 0", True),
        ("train/return > 3 & loss/actor > 3", False),
        ("train/return > 3 and loss/actor > 3 or losses < 0", True),
        ("train/return > 3 & (loss/actor > 3 | losses < 0)", True),
        ("losses > 0 | loss/actor > 3 & train/return > 3", False),
        ("losses < inf", True),
        ("(((losses > -inf)))", True),
    ],
)
def test_a_condition_holds_or_not(condition, holds):
    assert Condition(condition)(VALUES) is holds


def test_it_tells_its_names():
    condition = Condition("not finite(loss) | train/return < 3 & frames > 10")
    assert condition.names == ["loss", "train/return", "frames"]
    assert condition.reads("loss/actor")
    assert not condition.reads("losses")
