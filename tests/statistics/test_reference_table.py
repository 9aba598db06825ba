"""The reference scores that are known."""

from __future__ import annotations

import gymnasium as gym
import pytest

from hooktrainer.statistics.scores import REFERENCES


@pytest.mark.parametrize(
    ("env", "low", "high"),
    [
        ("ALE/Pong-v5", -20.7, 14.6),
        ("ALE/MsPacman-v5", 307.3, 6951.6),
        ("HalfCheetah-v5", -280.178953, 12135.0),
        ("CartPole-v1", 22.2, 500.0),
    ],
)
def test_numbers_are_those_of_the_source(env, low, high):
    assert (REFERENCES[env].low, REFERENCES[env].high) == (low, high)


def test_all_57_games_are_there_and_every_entry_has_a_source():
    assert sum(env.startswith("ALE/") for env in REFERENCES) == 57
    assert all(reference.source for reference in REFERENCES.values())


def test_upper_references_of_gymnasium_are_its_reward_thresholds():
    for env in ("Acrobot-v1", "MountainCarContinuous-v0", "LunarLander-v3", "BipedalWalker-v3"):
        assert REFERENCES[env].high == gym.spec(env).reward_threshold
