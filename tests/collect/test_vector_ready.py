"""Vector environments that the user built: asynchronous, wrapped, and of other kinds."""

from __future__ import annotations

import re
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from gymnasium.wrappers.vector import RecordEpisodeStatistics
from toy_envs import (
    Counter,
    DisabledCounter,
    Masked,
    Nested,
    Opaque,
    SameStepCounter,
    Told,
    VectorCounter,
    recurrent,
)

from hooktrainer import ConfigError, VectorCollector
from hooktrainer.collect.batched_env import autoreset_mode_of

MODES = [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED]


def wrapped(factories: list[Any], mode: AutoresetMode) -> Any:
    """A synchronous vector environment behind a wrapper, so that it is stepped as a whole."""
    return RecordEpisodeStatistics(SyncVectorEnv(factories, autoreset_mode=mode))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("env", [Counter, Nested, Masked, Opaque, Told])
def test_a_wrapped_environment_gives_the_same_data_in_every_mode(
    mode: AutoresetMode, env: Any
) -> None:
    factories = [lambda: env(3), lambda: env(4)]
    plain = VectorCollector(factories, frames_per_batch=20, traj_ids=True)
    ready = VectorCollector(wrapped(factories, mode), frames_per_batch=20, traj_ids=True)
    for _ in range(2):
        assert (plain.collect() == ready.collect()).all()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("env", [Opaque, Masked])
def test_a_wrapped_environment_is_restored_by_replay(mode: AutoresetMode, env: Any) -> None:
    def build() -> VectorCollector:
        lengths = (3, 5, 60)
        factories = [lambda length=length: env(length) for length in lengths]
        return VectorCollector(wrapped(factories, mode), frames_per_batch=21, seed=4)

    collector = build()
    assert {restore.method for restore in collector.envs.restores} == {"replay"}
    for _ in range(3):
        collector.collect()
        state = collector.state_dict()
        resumed = build()
        resumed.load_state_dict(state)
        for _ in range(2):
            assert (resumed.collect() == collector.collect()).all()


def test_cartpole_keeps_what_was_set_since_it_was_built() -> None:
    env: Any = gym.make_vec("CartPole-v1", 3)
    env.max_episode_steps = 4
    collector = VectorCollector(env, frames_per_batch=60)
    assert collector.collect()["next", "step_count"].max() == 4
    assert {restore.method for restore in collector.envs.restores} == {"replay"}


@pytest.mark.parametrize("shared_memory", [True, False])
def test_an_asynchronous_environment(shared_memory: bool) -> None:
    def build() -> VectorCollector:
        mode = AutoresetMode.NEXT_STEP if shared_memory else AutoresetMode.DISABLED
        env = AsyncVectorEnv([Counter, Counter], shared_memory=shared_memory, autoreset_mode=mode)
        return VectorCollector(env, frames_per_batch=14)

    collector, plain = build(), VectorCollector([Counter, Counter], frames_per_batch=14)
    assert (collector.collect() == plain.collect()).all()
    resumed = build()
    resumed.load_state_dict(collector.state_dict())
    assert (resumed.collect() == plain.collect()).all()
    collector.shutdown()
    resumed.shutdown()


def test_an_asynchronous_environment_that_misses_resets_has_gaps() -> None:
    policy = recurrent()  # which forgets where an episode begins
    factories = [lambda: Counter(3, draw=False), lambda: Counter(4, draw=False)]
    env = AsyncVectorEnv(factories, shared_memory=False)
    collector = VectorCollector(env, policy, frames_per_batch=16)
    plain = VectorCollector(factories, policy, frames_per_batch=16)
    assert (collector.collect() == plain.collect()).all()
    collector.shutdown()


class MaskedVector(VectorCounter):
    """Allows nothing where an episode has ended."""

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        *outcome, _ = super().step(actions)
        return *outcome, self._info()

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        return super().reset(**options)[0], self._info()

    def _info(self) -> dict[str, Any]:
        return {"action_mask": np.stack([~self.finished] * 2, -1)}


@pytest.mark.parametrize("kind", [VectorCounter, MaskedVector])
def test_steps_that_only_begin_an_episode_are_no_transitions(kind: type[VectorCounter]) -> None:
    env = kind(2, length=np.array([2, 4]))
    collector = VectorCollector(env, frames_per_batch=10, traj_ids=True)
    first, second = collector.collect(), collector.collect()
    assert first.shape == second.shape == (2, 5)
    # Env 0 took 7 steps for these: two were no transitions. Env 1 took 6, and 1 was none.
    assert first["next", "observation"][..., 1].tolist() == [[1, 2, 1, 2, 1], [1, 2, 3, 4, 1]]
    assert first["observation"][..., 1].tolist() == [[0, 1, 0, 1, 0], [0, 1, 2, 3, 0]]
    assert first["next", "reward"][..., 0].tolist() == [[1, 2, 1, 2, 1], [1, 2, 3, 4, 1]]
    assert first["next", "done"][..., 0].int().tolist() == [[0, 1, 0, 1, 0], [0, 0, 0, 1, 0]]
    assert first["next", "episode_reward"][1, :, 0].tolist() == [1, 3, 6, 10, 1]
    assert first["next", "step_count"][0, :, 0].tolist() == [1, 2, 1, 2, 1]
    assert first["collector", "traj_ids"].tolist() == [[0, 0, 2, 2, 4], [1, 1, 1, 1, 3]]
    same = first["observation"][:, 1:, 0] == first["next", "observation"][:, :-1, 0]
    assert (same | first["next", "done"][:, :-1, 0]).all()
    # Its seventh step, a transition too many, is left out; its return counts on nevertheless.
    assert second["next", "observation"][1, :, 1].tolist() == [3, 4, 1, 2, 3]
    assert second["next", "episode_reward"][1, :2, 0].tolist() == [6, 10]
    assert second["next", "step_count"][1, :2, 0].tolist() == [3, 4]
    assert second["observation"][0, 0, 0] == first["next", "observation"][0, -1, 0]
    assert collector.frames == 20


@pytest.mark.parametrize("mode", [None, "sometimes"])
def test_an_environment_that_does_not_say_when_it_resets(mode: Any) -> None:
    env = VectorCounter(2)
    env.metadata = {"autoreset_mode": mode}
    with pytest.raises(ConfigError, match=f"autoreset_mode={mode!r}.*NEXT_STEP, SAME_STEP or DIS"):
        VectorCollector(env, frames_per_batch=2)


def test_an_environment_that_writes_its_mode_into_the_metadata_all_share(monkeypatch) -> None:
    monkeypatch.setattr(gym.vector.VectorEnv, "metadata", {})

    class LikeAtari(gym.vector.VectorEnv):
        def __init__(self, mode: AutoresetMode):
            self.autoreset_mode = mode
            self.metadata["autoreset_mode"] = mode

    first, _ = LikeAtari(AutoresetMode.NEXT_STEP), LikeAtari(AutoresetMode.DISABLED)
    assert autoreset_mode_of(first) is AutoresetMode.NEXT_STEP


@pytest.mark.parametrize("kind", [VectorCounter, SameStepCounter, DisabledCounter])
def test_an_environment_of_tensors_takes_and_gives_tensors(kind: Any) -> None:
    class Tensors(kind):  # type: ignore[misc]
        def reset(self, *, seed: Any = None, options: Any = None) -> Any:
            return tensors(super().reset(seed=seed, options=options))

        def step(self, actions: Any) -> Any:
            assert isinstance(actions, torch.Tensor)
            assert actions.dtype == torch.int64
            outcome = tensors(super().step(actions))
            final = outcome[4].get("final_obs")
            if final is not None:  # one tensor, not an array of objects
                ended = outcome[2].numpy()
                rows = [final[i] if ended[i] else np.zeros(2) for i in range(len(ended))]
                outcome[4]["final_obs"] = torch.from_numpy(np.stack(rows))
            return outcome

    plain = VectorCollector(kind(4096, length=3), frames_per_batch=4 * 4096)
    ready = VectorCollector(Tensors(4096, length=3), frames_per_batch=4 * 4096)
    assert (plain.collect() == ready.collect()).all()


def tensors(outcome: Any) -> Any:
    return tuple(
        torch.from_numpy(value.copy()) if isinstance(value, np.ndarray) else value
        for value in outcome
    )


@pytest.mark.parametrize("env", [VectorCounter, SameStepCounter, DisabledCounter])
def test_an_environment_that_seeds_itself(env: Any) -> None:
    def build() -> VectorCollector:
        return VectorCollector(env(2, length=3), frames_per_batch=10, seed=3)

    collector = build()
    assert re.search(r"cannot restore .*0-1.*seeds its sub-env", collector.unsaved or "")
    batch = collector.collect()
    assert batch["observation"][0, :, 1].tolist() == [0, 1, 2, 0, 1]
    assert batch["next", "observation"][0, :, 1].tolist() == [1, 2, 3, 1, 2]
    assert batch["next", "episode_reward"][1, :, 0].tolist() == [1, 3, 6, 1, 3]
    assert (build().collect() == batch).all()
    state = collector.state_dict()
    resumed = build()
    with pytest.warns(UserWarning, match="begin a new episode"):
        resumed.load_state_dict(state)
    batch = resumed.collect()
    assert batch["observation"][0, :, 1].tolist() == [0, 1, 2, 0, 1]
    assert batch["next", "step_count"][0, :, 0].tolist() == [1, 2, 3, 1, 2]
    assert resumed.frames == 20


def test_frame_skip_does_not_go_with_a_ready_environment() -> None:
    env = wrapped([Counter], AutoresetMode.DISABLED)
    with pytest.raises(ConfigError, match="frame_skip=2 does not go with"):
        VectorCollector(env, frames_per_batch=1, frame_skip=2)
