"""`HindsightReplay`: replays transitions with goals that were reached later."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import torch
from tensordict import TensorDictBase

from ..base.checks import check_choice, check_count
from ..base.tensordicts import mask_of
from ..errors import ConfigError
from ..replay import ReplayBuffer
from .replay_buffer import ContinuedReplay

Strategy = Literal["future", "final", "episode"]
GoalFunction = Callable[[Any, Any, Any], Any]
_STEP, _LEFT = ("episode", "step"), ("episode", "left")
_ACHIEVED = ("next", "achieved_goal")


class HindsightReplay(ContinuedReplay):
    """Hindsight experience replay (Andrychowicz et al., 2017, arXiv:1707.01495).

    It stores whole episodes, whatever the size of a batch, and replaces goals when sampling: of
    each sample ``goals / (goals + 1)`` of the transitions get a goal that their episode achieved,
    and the reward for it. For environments with observations ``"observation"``,
    ``"achieved_goal"`` and ``"desired_goal"``, as those of gymnasium-robotics. Optimizer steps are
    skipped until an episode has ended. Running episodes are part of the state.

    Args:
        replay_buffer: A `hooktrainer.replay.ReplayBuffer` with ``keys``, to which those needed are
            added.
        compute_reward: As of the environments: maps the achieved goals after the steps, the desired
            goals, ``[n, ...]`` each, and n empty infos to rewards ``[n]``. If it does not return
            one for each row, it is called row by row.
        compute_terminated: Likewise, whether episodes terminate; ``None`` if that does not depend
            on the goal.
        strategy: Which achieved goals: ``"future"``, after any step from this one on; ``"final"``,
            after the episode's last; ``"episode"``, after any of its steps in the buffer.
        goals: Number of transitions with replaced goals for each with its own.
        batch_size: Size of a sample; by default the buffer's.

    Raises:
        ConfigError: If the buffer has no ``keys``, or an argument is out of range.
    """

    def __init__(
        self,
        replay_buffer: ReplayBuffer,
        compute_reward: GoalFunction,
        compute_terminated: GoalFunction | None = None,
        *,
        strategy: Strategy = "future",
        goals: int = 4,
        batch_size: int | None = None,
    ) -> None:
        super().__init__(replay_buffer, batch_size)
        check_choice("HindsightReplay: strategy", strategy, ("future", "final", "episode"))
        check_count("HindsightReplay: goals", goals)
        if replay_buffer.keys is None:
            raise ConfigError(
                "HindsightReplay: give the buffer the keys to store: keys=loss_module.in_keys."
            )
        self.compute_reward = compute_reward
        self.compute_terminated = compute_terminated
        self.strategy = strategy
        self.share = goals / (goals + 1)
        needed = [*replay_buffer.keys, "desired_goal", _ACHIEVED, _STEP, _LEFT]
        replay_buffer.keys = list(dict.fromkeys(needed))
        self._open: list[TensorDictBase | None] = []  # running episodes

    def extend(self, batch: TensorDictBase) -> TensorDictBase:
        """Store the episodes that end in ``batch``, and return it unchanged.

        Args:
            batch: ``[num_envs, time]``, the continuation of the previous batch.
        """
        keys = [key for key in self.replay_buffer.keys if key not in (_STEP, _LEFT)]
        steps = batch.select(*keys, ("next", "done"), ("next", "step_count"), strict=False)
        mask = mask_of(batch)
        if len(self._open) != len(batch):
            self._open = [None] * len(batch)
        for number, rows in enumerate(steps.to(self.replay_buffer.device).unbind(0)):
            self._open[number] = self._stored(
                self._open[number], rows if mask is None else rows[mask[number]]
            )
        return batch

    def _stored(self, open_: TensorDictBase | None, rows: TensorDictBase) -> TensorDictBase | None:
        """Store the episodes of one environment that end; return the steps of the running one."""
        if not len(rows):
            return open_
        begins = rows.get(("next", "step_count"), None)
        if open_ is not None and (begins is None or begins[0] != 1):
            rows = torch.cat([open_, rows])
        start = 0
        for end in (rows["next", "done"].reshape(-1).nonzero().reshape(-1) + 1).tolist():
            self._store(rows[start:end])
            start = end
        if len(rows) - start >= self.replay_buffer.max_size:  # of an episode without end
            self._store(rows[start:])
            start = len(rows)
        return rows[start:].clone() if start < len(rows) else None

    def _store(self, episode: TensorDictBase) -> None:
        step = torch.arange(len(episode), device=self.replay_buffer.device)
        episode = episode.copy().set(_STEP, step).set(_LEFT, step.flip(0))
        self.replay_buffer.extend(episode)

    def sample(self, batch: TensorDictBase) -> TensorDictBase:
        """Return a sample with replaced goals; skip the step if no episode has ended yet.

        Raises:
            ConfigError: If a reward is not one number for each goal.
        """
        sample = super().sample(batch)
        number = round(self.share * len(sample))
        replaced = sample[:number]
        achieved, goal = replaced[_ACHIEVED], self._goals(replaced)
        following = sample["next"]
        sample["desired_goal"][:number] = goal
        if "desired_goal" in following.keys():  # noqa: SIM118
            following["desired_goal"][:number] = goal
        flags = [(self.compute_reward, "reward"), (self.compute_terminated, "terminated")]
        for function, key in flags:
            if function is not None:
                values = following[key]
                found = _called(function, achieved, goal).to(values)
                values[:number] = found.reshape(values[:number].shape)
        return sample.exclude("episode")

    def _goals(self, rows: TensorDictBase) -> torch.Tensor:
        """The goals that the episodes of these rows achieved after some step."""
        buffer, index = self.replay_buffer, rows["index"]
        step, left = rows[_STEP], rows[_LEFT]
        if self.strategy == "final":
            least = left
        elif self.strategy == "future":
            least = torch.zeros_like(left)
        else:  # older rows may have been overwritten
            first = buffer.write_count - len(buffer)
            least = -torch.minimum(step, (index - first) % buffer.max_size)
        drawn = torch.rand(index.shape, device=index.device) * (left - least + 1)
        return buffer.read(_ACHIEVED, (index + least + drawn.long()) % buffer.max_size)


def _called(function: GoalFunction, achieved: torch.Tensor, goal: torch.Tensor) -> torch.Tensor:
    """Return one value for each row, ``[n]``."""
    number = len(goal)
    arrays = achieved.cpu().numpy(), goal.cpu().numpy()
    found = np.asarray(function(*arrays, [{}] * number))
    if found.shape not in ((number,), (number, 1)):
        rows = zip(*arrays, strict=True)
        found = np.asarray([function(ours, wanted, {}) for ours, wanted in rows])
    if found.shape not in ((number,), (number, 1)):
        raise ConfigError(
            f"HindsightReplay: {getattr(function, '__qualname__', function)} returned "
            f"{found.ravel()[:3]} for {number} goals: let it return one number for each."
        )
    return torch.from_numpy(np.ascontiguousarray(found.reshape(number)))
