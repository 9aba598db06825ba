"""`MultiStepReplay`: stores transitions of several steps in a replay buffer."""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDictBase

from ..base.checks import check_count, check_fraction
from ..base.tensordicts import device_of, mask_of
from ..errors import ConfigError
from ..objectives.multi_step import STEPS, multi_step_return, multi_step_rows
from .replay_buffer import ContinuedReplay

_WAITS, _ENDS = "_waits", "_ends"  # of each step: not stored yet, and last of its window
_COUNT = ("next", "step_count")


class MultiStepReplay(ContinuedReplay):
    """Stores transitions of ``n_steps`` steps in a replay buffer, for n-step returns.

    The reward is the discounted sum of the next ``n_steps`` rewards, and what follows, such as the
    next observation, is that of the last of these steps, as with TorchRL's ``MultiStep``. At the
    end of an episode there are fewer; ``"steps_to_next_obs"``, ``[*batch, 1]``, has their number,
    which the losses of `hooktrainer.objectives` read. Windows continue across batches: a transition
    is stored once its last step was collected. They do not continue where the episode does not, by
    ``("next", "step_count")``, as after a reset by `Curriculum`. Optimizer steps are skipped until
    there is a transition.

    Args:
        replay_buffer: As for `ReplayBufferTrainer`. If it has ``keys``, they have
            ``"steps_to_next_obs"``.
        n_steps: Steps of a transition.
        gamma: Discount factor.
        batch_size: Size of a sample; by default the buffer's.

    Raises:
        ConfigError: If the buffer does not store ``"steps_to_next_obs"``.
    """

    def __init__(
        self,
        replay_buffer: Any,
        n_steps: int,
        *,
        gamma: float = 0.99,
        batch_size: int | None = None,
    ) -> None:
        super().__init__(replay_buffer, batch_size)
        check_count("n_steps", n_steps)
        self.n_steps = n_steps
        self.gamma = check_fraction("gamma", gamma)
        keys = getattr(replay_buffer, "keys", None)
        if keys is not None and STEPS not in keys:
            raise ConfigError(
                f"MultiStepReplay: the buffer's keys have to include {STEPS!r}: "
                f"keys=[*loss_module.in_keys, {STEPS!r}]."
            )
        self._open: TensorDictBase | None = None  # the last n_steps - 1 steps

    def extend(self, batch: TensorDictBase) -> TensorDictBase:
        """Store the transitions that are complete with ``batch``, and return it unchanged.

        Args:
            batch: ``[num_envs, time]``, the continuation of the previous batch.
        """
        steps = self._steps_of(batch)
        if self._open is not None and len(self._open) == len(steps):
            before = self._open.to(device_of(steps))
            if (counts := before.get(_COUNT, None)) is not None:
                follows = steps[_COUNT].flatten(1)[:, :1] == counts.flatten(1)[:, -1:] + 1
                before[_ENDS][:, -1:] |= ~follows  # an episode left early has no end
            steps = torch.cat([before, steps], 1)
        reward, ends, waits = steps["next", "reward"], steps[_ENDS], steps[_WAITS]
        total, number = multi_step_return(reward.flatten(1), ends, self.n_steps, self.gamma)
        last = torch.arange(steps.shape[1], device=ends.device) + number - 1
        complete = waits & ((number == self.n_steps) | ends.gather(1, last))
        env, time = complete.nonzero(as_tuple=True)
        if len(env):
            rows = steps.exclude("next", _ENDS, _WAITS)[env, time]
            following = steps["next"][env, last[env, time]]
            joined = multi_step_rows(rows, following, total[env, time], number[env, time])
            self.replay_buffer.extend(joined)
        steps[_WAITS] = waits & ~complete
        keep = min(self.n_steps - 1, steps.shape[1])
        self._open = steps[:, steps.shape[1] - keep :].clone()
        return batch

    def _steps_of(self, batch: TensorDictBase) -> TensorDictBase:
        """Return what is stored of each step, with which ones wait and end a window."""
        keys = getattr(self.replay_buffer, "keys", None)
        read = batch.keys(True, True) if keys is None else [key for key in keys if key != STEPS]
        steps = batch.select(*read, ("next", "reward"))
        if (count := batch.get(_COUNT, None)) is not None:
            steps[_COUNT] = count
        if (device := getattr(self.replay_buffer, "device", None)) is not None:
            steps = steps.to(device)
        done, mask = batch["next", "done"].flatten(1), mask_of(batch)
        waits = torch.ones_like(done) if mask is None else mask
        ends = done.clone()
        ends[:, :-1] |= ~waits[:, 1:]  # padding follows
        there = steps["next", "reward"].device
        return steps.set(_WAITS, waits.to(there)).set(_ENDS, ends.to(there))
