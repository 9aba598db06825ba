"""Seeds of training, tuning and evaluation are kept apart."""

from __future__ import annotations

import pytest

from hooktrainer.algorithms import PPO
from hooktrainer.errors import ConfigError


def test_a_run_is_not_trained_from_a_seed_of_evaluations():
    with pytest.raises(ConfigError, match=r"seed=2000000011 is kept for evaluation.*such as 11\."):
        PPO(env="CartPole-v1", total_frames=100, seed=2_000_000_011).trainer()
