"""What is searched: the ranges beside the fields, a file in their place, and what is fixed."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest
from small_sweep import small

from hooktrainer import ConfigError
from hooktrainer.algorithms import DQN, SAC
from hooktrainer.run import Between, OneOf
from hooktrainer.sweep import SearchSpace


def test_it_is_what_the_fields_say():
    space = SearchSpace.of(small())
    assert set(space.candidates) == {"lr", "gamma", "lmbda", "entropy_coeff", "clip_epsilon"}
    assert space.candidates["lr"] == Between(1e-4, 3e-2, log=True)
    sac = SAC(env="Pendulum-v1", total_frames=100)
    assert set(SearchSpace.of(sac).candidates) == {"lr", "gamma", "tau"}
    assert "eps_end" not in SearchSpace.of(replace(dqn(), noisy=True)).candidates
    space = SearchSpace.of(dqn())
    assert set(space.candidates) == {"lr", "gamma", "eps_end", "target_interval"}
    lr, interval = (space.distributions()[n] for n in ("lr", "target_interval"))
    assert (type(lr).__name__, type(interval).__name__) == ("FloatDistribution", "IntDistribution")
    assert lr.log
    assert interval.log


def dqn():
    return DQN(env="CartPole-v1", total_frames=100)


def test_what_is_fixed_is_not_searched_and_a_file_takes_the_place_of_fields():
    given = {
        "gamma": None,
        "clip_epsilon": {"low": "1e-2", "high": 1},
        "num_cells": [[64, 64], [256]],
        "num_epochs": {"low": 2, "high": 8},
    }
    space = SearchSpace.of(small(), fixed=["lr", "lmbda"], given=given)
    assert space.candidates == {
        "entropy_coeff": Between(0.0, 0.05),
        "clip_epsilon": Between(0.01, 1),
        "num_cells": OneOf(((64, 64), (256,))),
        "num_epochs": Between(2, 8),
    }
    known = space.distributions()["num_cells"].choices
    assert space.settings({"num_cells": known[1]}) == {"num_cells": (256,)}
    epochs = space.distributions()["num_epochs"]
    assert (type(epochs).__name__, epochs.low, epochs.high) == ("IntDistribution", 2, 8)


def test_the_default_settings_are_a_point_of_it_or_none_is():
    space = SearchSpace.of(small(), given={"gamma": None, "lmbda": None, "clip_epsilon": None})
    assert space.defaults() == {"lr": 3e-3, "entropy_coeff": 0.0}
    assert SearchSpace.of(small(lr=1.0)).defaults() is None
    assert SearchSpace.of(small(gamma=0.5)).defaults() is None


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"lrr": [1, 2]}, r"ppo has no option 'lrr'. Did you mean lr"),
        ({"lr": {"low": 1}}, r"lr: {'low': 1} is neither"),
        ({"lr": {"low": 1, "high": 2, "step": 1}}, r"lr: there is no option step"),
        ({"lr": 0.1}, r"lr: 0.1 is neither"),
        ({"lr": {"low": 2, "high": 1}}, r"lr: give finite numbers, low=2.0 below high=1.0"),
        ({"lr": {"low": 0, "high": 1, "log": True}}, r"lr: .*low=0.0 .* above 0"),
        ({"lr": [[1], [2]]}, r"lr: \[1\] is not a valid value"),
        ({"lr": {"low": -math.inf, "high": 1}}, r"lr: give finite numbers, low=-inf"),
        ({"num_epochs": {"low": 1, "high": 10**400}}, r"num_epochs: high: .* is not a valid value"),
        ({"info_keys": [["--run-dir=x"], ["y"]]}, r"info_keys: \['--run-dir=x'\] is not a valid"),
        ({"lr": [0.1]}, r"lr: \[0.1\] leave no choice"),
        ({"lr": {"low": -1, "high": 1}}, r"ppo: lr=-1"),
        ({"gamma": [0.9, 1.5]}, r"ppo: gamma=1.5"),
        ({"num_epochs": {"low": 0.5, "high": 4}}, r"num_epochs: a float is not a valid value"),
        ({"activation": ["tanh", "tan"]}, r"activation: 'tan' is not a valid value"),
        ({"activation": {"low": 0, "high": 1}}, r"activation: a float is not a valid value"),
        ({"num_cells": {"low": 1, "high": 8}}, r"num_cells is no number"),
        ({"total_frames": [10, 20]}, r"total_frames cannot be searched"),
        ({"run_dir": ["a", "b"]}, r"run_dir cannot be searched"),
        ({"seed": [1, 2]}, r"seed cannot be searched"),
    ],
)
def test_what_cannot_be_is_refused_in_a_line(given, said):
    with pytest.raises(ConfigError, match=said) as caught:
        SearchSpace.of(small(), given=given)
    assert "\n" not in re.sub(r"^space: ", "", str(caught.value))
