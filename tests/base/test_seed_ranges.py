"""Seeds of training, tuning and evaluation are kept apart."""

from __future__ import annotations

import inspect

import pytest

from hooktrainer.algorithms import PPO
from hooktrainer.base.checks import (
    EVALUATION_SEED,
)
from hooktrainer.errors import ConfigError
from hooktrainer.hooks import Evaluate
from hooktrainer.policies import saved as evaluation


def test_evaluations_have_the_seed_that_is_kept_for_them():
    assert inspect.signature(Evaluate).parameters["seed"].default == EVALUATION_SEED
    assert evaluation.SEED == EVALUATION_SEED


def test_a_run_is_not_trained_from_a_seed_of_evaluations():
    with pytest.raises(ConfigError, match=r"seed=2000000011 is kept for evaluation.*such as 11\."):
        PPO(env="CartPole-v1", total_frames=100, seed=2_000_000_011).trainer()
