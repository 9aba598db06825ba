"""`info_keys`: what environments say in `info`, in every kind of group, and in the metrics."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers.vector import RecordEpisodeStatistics
from toy_envs import Counter, DisabledCounter, SameStepCounter

from hooktrainer import ConfigError, Evaluate, Every, LogEpisodes
from hooktrainer import VectorCollector as Collector
from hooktrainer.testing import check_collector, tiny_trainer

NAN = float("nan")
KEYS = ("distance", "success", "late")


class Goal(Counter):
    """Says its distance to the end at every step, whether it is even at the end alone."""

    def _info(self) -> dict[str, Any]:
        info: dict[str, Any] = {"distance": self.length - self.count, "name": "goal"}
        info["position"] = np.zeros(3)
        if self.count >= self.length:
            info["success"] = self.length % 2 == 0
        if self.count >= 2:
            info["late"] = np.array([self.count / 4], np.float64)
        return info


def goals(*lengths: int) -> list[Any]:
    return [partial(Goal, length) for length in lengths]


def wrapped(factories: list[Any], mode: AutoresetMode) -> Any:
    return RecordEpisodeStatistics(SyncVectorEnv(factories, autoreset_mode=mode))


EXPECTED = {
    "distance": [[1, 0, 1, 0, 1], [2, 1, 0, 2, 1]],
    "success": [[NAN, 1, NAN, 1, NAN], [NAN, NAN, 0, NAN, NAN]],
    "late": [[NAN, 0.5, NAN, 0.5, NAN], [NAN, 0.5, 0.75, NAN, 0.5]],
}


def check_expected(batch: Any) -> None:
    for key, rows in EXPECTED.items():
        entry = batch["next", key]
        assert entry.shape == (2, 5, 1)
        assert entry.dtype == torch.float32
        np.testing.assert_array_equal(entry[..., 0].numpy(), rows)


@pytest.mark.parametrize(
    "env",
    [
        lambda: goals(2, 3),
        *(partial(wrapped, goals(2, 3), mode) for mode in AutoresetMode),
        lambda: SyncVectorEnv(goals(2, 3)),
    ],
    ids=["scalar", *(mode.name for mode in AutoresetMode), "sync"],
)
def test_numbers_by_hand(env: Any) -> None:
    collector = Collector(env(), frames_per_batch=10, info_keys=KEYS)
    check_expected(collector.collect())
    collector.shutdown()


def test_worker_processes_and_stages_give_the_same() -> None:
    whole = Collector(goals(2, 3, 4, 5), frames_per_batch=40, info_keys=KEYS)
    parts = Collector(goals(2, 3, 4, 5), frames_per_batch=40, info_keys=KEYS, workers=2, stages=2)
    for _ in range(2):
        one, other = whole.collect(), parts.collect()
        for key in KEYS:
            torch.testing.assert_close(
                one["next", key], other["next", key], rtol=0, atol=0, equal_nan=True
            )
    parts.shutdown()


def test_of_repeated_actions_the_last_step_counts() -> None:
    collector = Collector(goals(3), frames_per_batch=4, frame_skip=2, info_keys=["distance"])
    assert collector.collect()["next", "distance"].flatten().tolist() == [1, 0, 1, 0]


class Saying:
    """A vector environment's own infos, with one array for each key."""

    def step(self, actions: Any) -> Any:
        *outcome, info = super().step(actions)  # type: ignore[misc]
        ended = outcome[2]
        if "final_obs" in info:
            info["final_info"] = {"won": np.where(ended, 7, 0), "_won": ended}
            info["_final_info"] = ended
            info["won"] = np.full(self.num_envs, 9)  # type: ignore[attr-defined]
            info["_won"] = ~ended  # of the next episode
        else:
            info["won"] = np.where(ended, 7.0, 9.0)
        return (*outcome, info)


class SayingSameStep(Saying, SameStepCounter): ...


class SayingDisabled(Saying, DisabledCounter): ...


@pytest.mark.parametrize("kind", [SayingSameStep, SayingDisabled])
def test_a_vector_environment_of_ones_own(kind: Any) -> None:
    collector = Collector(kind(2, length=3), frames_per_batch=10, info_keys=["won"])
    assert collector.collect()["next", "won"][0].flatten().tolist() == [9, 9, 7, 9, 9]


def test_it_keeps_the_contract_and_resumes_exactly() -> None:
    check_collector(
        lambda: Collector(goals(2, 3), frames_per_batch=10, total_frames=40, info_keys=KEYS)
    )


def _zeros(observation: Any) -> Any:
    return torch.zeros(len(observation), dtype=torch.int64)


def test_their_means_over_episodes_are_logged(logger: Any) -> None:
    collector = Collector(goals(2, 3), frames_per_batch=12, total_frames=12, info_keys=KEYS)
    trainer = tiny_trainer(collector=collector, total_frames=12, logger=logger)
    LogEpisodes(info_keys=KEYS).register(trainer)
    Evaluate(goals(4)[0], _zeros, every=Every(frames=12), episodes=3, info_keys=KEYS).register(
        trainer
    )
    trainer.train()
    # Six steps: three episodes of length 2, which succeed, and two of length 3.
    assert logger.column("train/success") == {12: pytest.approx(3 / 5)}
    assert logger.column("train/late") == {12: pytest.approx((3 * 0.5 + 2 * 0.75) / 5)}
    assert logger.column("train/distance") == {12: 0.0}
    assert logger.column("eval/success") == {12: 1.0}
    assert logger.column("eval/late") == {12: 1.0}


# -- what cannot work -----------------------------------------------------------------------------


def refused(env: Any, *keys: Any, match: str, **options: Any) -> str:
    with pytest.raises(ConfigError, match=match) as caught:
        Collector(env, info_keys=keys, frames_per_batch=6, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_key_that_never_comes_is_refused_before_the_first_batch(workers: int) -> None:
    message = refused(goals(2), "succes", match="no 'succes' in the info at", workers=workers)
    assert "has 'distance', 'late', 'name', 'position', 'success'" in message
    assert "Did you mean success?" in message


def test_a_key_that_is_missing_at_some_end_is_refused_there() -> None:
    class Sometimes(Goal):
        episodes = 0

        def reset(self, **options: Any) -> Any:
            self.episodes += 1
            return super().reset(**options)

        def _info(self) -> dict[str, Any]:
            return super()._info() if self.episodes < 9 else {}

    collector = Collector([partial(Sometimes, 2)], frames_per_batch=2, info_keys=["success"])
    with pytest.raises(ConfigError, match="no 'success' in the info at an episode's end of <So"):
        _collect_ten(collector)
    assert collector.frames > 0


def _collect_ten(collector: Collector) -> None:
    for _ in range(10):
        collector.collect()


def test_what_is_no_number_is_refused() -> None:
    refused(goals(2), "name", match="info\\['name'\\] of .* is 'goal', and no number")
    refused(goals(2), "position", match="of shape \\[3\\] and no number")
    env = wrapped(goals(2), AutoresetMode.DISABLED)
    collector = Collector(env, info_keys=["position"], frames_per_batch=6)
    with pytest.raises(ConfigError, match=r"of shape \[3\] and no number"):
        collector.collect()


@pytest.mark.parametrize(
    ("keys", "match"),
    [
        ("success", "is one string: give a list"),
        (["success", "success"], "strings, each once, not 'success'"),
        ([3], "strings, each once, not 3"),
        *[([key], f"'{key}' is an entry of") for key in ("reward", "return", "observation")],
    ],
)
def test_keys_that_cannot_be(keys: Any, match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        Collector(goals(2), frames_per_batch=2, info_keys=keys)


def test_a_policy_that_writes_the_same_entry() -> None:
    def act(observation: Any) -> Any:
        return {"action": _zeros(observation), ("next", "late"): torch.ones(len(observation), 1)}

    policy = type("Policy", (), {"act": staticmethod(act)})()
    collector = Collector(goals(2), policy, frames_per_batch=2, info_keys=["late"])
    with pytest.raises(ConfigError, match="The policy writes \\('next', 'late'\\), and"):
        collector.collect()
