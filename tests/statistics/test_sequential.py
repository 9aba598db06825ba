"""Sequential comparison."""

from __future__ import annotations

import numpy as np
import pytest
from marks import slow_except

from hooktrainer.statistics import decide, looks


def test_looks_are_planned():
    assert looks(30) == [5, 9, 16, 30]
    assert looks(5) == [5]
    assert looks(100)[-1] == 100
    with pytest.raises(ValueError, match="a budget of 4 seeds"):
        looks(4)


def test_an_early_look_spends_its_share_of_the_error():
    """All of five better has p = 2 / 252: more than a sixth of 4 %, less than a quarter."""
    scores = {"a": np.arange(9) + 0.5, "b": np.arange(9) + 100.0}
    five = {name: of[:5] for name, of in scores.items()}
    assert (decide(five, 30).best, decide(five, 100).best) == ("b", None)
    assert decide(scores, 100).best == "b"


def test_the_next_look_is_returned():
    scores = np.random.default_rng(0).normal(size=(2, 7))
    for count, seen, following in ((0, 0, 5), (3, 0, 5), (4, 0, 5), (5, 5, 9), (7, 5, 9)):
        decision = decide({"a": scores[0, :count], "b": scores[1, :count]}, 30)
        assert (decision.best, decision.seeds, decision.next_look) == (None, seen, following)


def test_decisions_are_final():
    random = np.random.default_rng(1)
    scores = {"a": random.normal(3, 1, 12), "b": random.normal(0, 1, 12)}
    early = decide({n: s[:9] for n, s in scores.items()}, 30)
    assert early.best == "a"
    turned = {"a": np.append(scores["a"][:9], [-9.0] * 3), "b": scores["b"]}
    assert decide(turned, 30).best == "a"


def test_the_best_of_three_is_better_than_both():
    random = np.random.default_rng(2)
    scores = {name: random.normal(mean, 1, 18) for name, mean in (("a", 0), ("b", 4), ("c", 0))}
    decision = decide(scores, 18)
    assert decision.best == "b"
    assert set(decision.better) == {("b", "a"), ("b", "c")}
    assert decide({n: -s for n, s in scores.items()}, 18, minimize=True) == decision


def test_better_than_one_of_two_is_not_the_best():
    random = np.random.default_rng(2)
    scores = {name: random.normal(mean, 1, 12) for name, mean in (("a", 0), ("b", 4), ("c", 4))}
    decision = decide(scores, 12)
    assert set(decision.better) == {("b", "a"), ("c", "a")}
    assert decision.best is None


def test_one_group_leaves_nothing_to_decide():
    with pytest.raises(ValueError, match="nothing to decide"):
        decide({"a": [1.0]}, 5)


@pytest.mark.parametrize("shape", slow_except(["normal", "skewed", "many ties"], 1))
def test_the_error_of_repeated_looks_is_at_most_five_percent(shape):
    """1,000 studies in which both score alike. At 5 % a look they would be some 14 %."""
    random = np.random.default_rng(4)
    draw = {
        "normal": lambda size: random.normal(size=size),
        "skewed": lambda size: random.lognormal(size=size),
        "many ties": lambda size: np.minimum(random.normal(size=size), 0.0),
    }[shape]
    wrong = 0
    for study in range(1000):
        scores = draw((2, 18))
        found = decide({"a": scores[0], "b": scores[1]}, 18, permutations=399, seed=study)
        wrong += found.best is not None
    assert wrong <= 50


def test_all_tasks_are_used():
    random = np.random.default_rng(6)
    scores = {"a": random.normal(1, 1, (8, 10)), "b": random.normal(0, 1, (8, 10))}
    assert decide(scores, 8).best == "a"


def test_many_equal_groups_are_not_told_apart():
    """Six pairs of four groups that score alike: at 5 % a pair, it would be one study in five."""
    random = np.random.default_rng(8)
    wrong = 0
    for study in range(200):
        scores = dict(zip("abcd", random.normal(size=(4, 8)), strict=True))
        wrong += bool(decide(scores, 8, permutations=999, seed=study).better)
    assert wrong <= 16  # 10, and two standard deviations of chance
