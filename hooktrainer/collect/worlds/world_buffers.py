"""`WorldBuffers`: the memory of a rollout of a tensor world, on its device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from tensordict import NestedKey, unravel_key

from ...base.space_parts import Leaf
from ...errors import ConfigError
from ..buffers import env_first
from .rows import Rows
from .tensor_world import Observations, Outcome


class WorldBuffers:
    """What a world writes in a rollout, time first, allocated once.

    Args:
        leaves: The leaves of an observation.
        num_envs: Number of environments.
        horizon: Steps of a rollout.
        device: Where the world is.
        infos: Names of what is kept of the log.

    Attributes:
        keys: The entries of an observation.
        reward: float32 ``[time, num_envs]``.
        terminated: bool ``[time, num_envs]``.
        truncated: bool ``[time, num_envs]``.
        done: Either, likewise.
        info: By name float32 ``[time, num_envs]``; NaN where the world said nothing.
        inputs: For each leaf ``time + 1`` rows ``[num_envs, *shape]``: what the policy acts on, and
            last what it will act on next.
    """

    def __init__(
        self,
        leaves: Sequence[Leaf],
        num_envs: int,
        horizon: int,
        device: torch.device,
        infos: Sequence[str] = (),
    ) -> None:
        self.leaves = tuple(leaves)
        self.keys: list[NestedKey] = [unravel_key(leaf.key) for leaf in leaves]
        shape = (horizon, num_envs)
        kinds = [torch.from_numpy(np.zeros((), leaf.dtype)).dtype for leaf in leaves]
        self._observation = [
            torch.zeros((horizon + 1, num_envs, *leaf.shape), dtype=kind, device=device)
            for leaf, kind in zip(leaves, kinds, strict=True)
        ]
        self._after = [torch.zeros_like(observation[1:]) for observation in self._observation]
        self.reward = torch.zeros(shape, device=device)
        self.terminated, self.truncated, self.done = (
            torch.zeros(shape, dtype=torch.bool, device=device) for _ in range(3)
        )
        self.info = {name: torch.zeros(shape, device=device) for name in infos}
        self._starts = {
            key: torch.as_tensor(leaf.start).to(device)
            for key, leaf in zip(self.keys, leaves, strict=True)
            if leaf.start is not None
        }
        self.inputs = [observation.unbind(0) for observation in self._observation]
        self._afters = [after.unbind(0) for after in self._after]
        self._rows = [
            rows.unbind(0) for rows in (self.reward, self.terminated, self.truncated, self.done)
        ]

    def put(self, observation: Observations, row: int = 0) -> None:
        """Write what is observed now, where the policy finds it in step ``row``."""
        for rows, value in zip(self.inputs, self.values(observation), strict=True):
            rows[row].copy_(value)

    def write(self, t: int, outcome: Outcome) -> torch.Tensor:
        """Write what step ``t`` gave, and return who has ended, bool ``[num_envs]``."""
        reward, terminated, truncated, done = (rows[t] for rows in self._rows)
        reward.copy_(outcome.reward)
        terminated.copy_(outcome.terminated)
        truncated.copy_(outcome.truncated)
        torch.logical_or(terminated, truncated, out=done)
        self.put(outcome.observation, t + 1)
        if outcome.final is not None:
            for afters, value in zip(self._afters, self.values(outcome.final), strict=True):
                afters[t].copy_(value)
        else:  # the last that is known of an episode is what its last action was chosen by
            for afters, rows in zip(self._afters, self.inputs, strict=True):
                ended = done.view(-1, *[1] * (afters[t].ndim - 1))
                torch.where(ended, rows[t], rows[t + 1], out=afters[t])
        for name, values in self.info.items():
            _write_info(name, values[t], outcome.log)
        return done

    def values(self, observation: Observations) -> list[torch.Tensor]:
        """The leaves of an observation, in order; discrete ones count from 0."""
        if not self._starts:
            return [observation[key] for key in self.keys]
        return [
            observation[key] - self._starts[key] if key in self._starts else observation[key]
            for key in self.keys
        ]

    def rows(self, span: slice, sample: Mapping[NestedKey, torch.Tensor]) -> Rows:
        """Where some steps are written.

        Args:
            span: Which.
            sample: Where what the policy returns in them is written.
        """
        after = slice(span.start + 1, span.stop + 1)
        return Rows(
            [observation[after] for observation in self._observation],
            [last[span] for last in self._after],
            self.reward[span],
            self.terminated[span],
            self.truncated[span],
            self.done[span],
            sample,
        )

    def carry(self) -> None:
        """Make the last row of the observations the first one of the next rollout."""
        for observation in self._observation:
            observation[0].copy_(observation[-1])

    def now(self) -> list[torch.Tensor]:
        """Copies of the last row of the observations."""
        return [observation[-1].clone() for observation in self._observation]

    def restore(self, rows: Sequence[torch.Tensor]) -> None:
        """Write what `now` returned."""
        for observation, row in zip(self._observation, rows, strict=True):
            observation[-1].copy_(row)

    def observations(self) -> tuple[dict[NestedKey, torch.Tensor], dict[NestedKey, torch.Tensor]]:
        """Fresh tensors ``[num_envs, time, ...]``: what was acted on, and what that led to."""
        before = {k: env_first(x[:-1]) for k, x in zip(self.keys, self._observation, strict=True)}
        after = {k: env_first(x) for k, x in zip(self.keys, self._after, strict=True)}
        return before, after


def _write_info(name: str, row: torch.Tensor, log: Mapping[str, torch.Tensor] | None) -> None:
    value = None if log is None else log.get(name)
    if value is None:
        row.fill_(float("nan"))
        return
    if value.numel() != row.numel():
        raise ConfigError(
            f"info_keys: the world's log says {name!r} with the shape {list(value.shape)}, not one "
            f"number for each of {row.numel()} environments: leave it out; what the log says is "
            "among the metrics anyway."
        )
    row.copy_(value.reshape(row.shape))
