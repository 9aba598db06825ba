"""Seeds of training, tuning and evaluation are kept apart."""

from __future__ import annotations

import inspect

import pytest

from hooktrainer.algorithms import PPO
from hooktrainer.base.checks import (
    EVALUATION_SEED,
    EVALUATION_SEEDS,
    TUNING_SEEDS,
    is_for_tuning,
)
from hooktrainer.errors import ConfigError
from hooktrainer.hooks import Evaluate
from hooktrainer.policies import saved as evaluation


def test_no_seed_is_for_two_things():
    assert not set(EVALUATION_SEEDS) & set(range(2_000_000_000 - 10, 2_000_000_000))
    assert EVALUATION_SEED in EVALUATION_SEEDS
    assert EVALUATION_SEED not in TUNING_SEEDS


def test_seeds_of_tuning():
    seeds = (None, 0, 999_999_999, 1_000_000_000, 1_999_999_999, 2_000_000_000)
    assert [is_for_tuning(seed) for seed in seeds] == [False, False, False, True, True, False]


def test_evaluations_have_the_seed_that_is_kept_for_them():
    assert inspect.signature(Evaluate).parameters["seed"].default == EVALUATION_SEED
    assert evaluation.SEED == EVALUATION_SEED


def test_a_run_is_not_trained_from_a_seed_of_evaluations():
    with pytest.raises(ConfigError, match=r"seed=2000000011 is kept for evaluation.*such as 11\."):
        PPO(env="CartPole-v1", total_frames=100, seed=2_000_000_011).trainer()
