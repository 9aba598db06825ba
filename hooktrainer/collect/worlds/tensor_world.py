"""`TensorWorld`: the protocol of batched tensor environments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

import torch
from gymnasium import spaces
from tensordict import NestedKey

Observations: TypeAlias = dict[NestedKey, torch.Tensor]
"""Observations of all environments: each entry of the observation space, ``[num_envs, ...]``."""


class Outcome(NamedTuple):
    """The result of one step of all environments.

    Attributes:
        observation: The present observations: after an episode's end the first of the next episode.
        reward: float32 ``[num_envs]``.
        terminated: Whether the episode ended in a terminal state, bool ``[num_envs]``.
        truncated: Whether the episode was truncated, bool ``[num_envs]``.
        final: At an episode's end its **true final observation**, elsewhere ``observation``;
            ``None`` if the simulator does not return it.
        log: Numbers by name, scalars or ``[num_envs]``, NaN for environments without a value; or
            ``None``.
        entries: Further entries of a batch's ``"next"``, ``[num_envs, ...]``, the same at every
            step; or ``None``.
    """

    observation: Observations
    reward: torch.Tensor
    terminated: torch.Tensor
    truncated: torch.Tensor
    final: Observations | None = None
    log: Mapping[str, torch.Tensor] | None = None
    entries: Mapping[NestedKey, torch.Tensor] | None = None


@runtime_checkable
class TensorWorld(Protocol):
    """A batch of environments with one agent, as tensors on one device.

    `hooktrainer.collect.VectorCollector` collects from any object with these members.
    Environments that end start their next episode within the same step.

    **Steps must not wait for the device**: no ``.item()``, no ``.any()`` in a condition, no
    ``nonzero``, no indexing by a boolean mask. Use ``torch.where``.

    The next `step` may write to the tensors that `reset` and `step` returned: copy those to be
    kept. `step` must not change its actions. They are in the form of the action space: int64
    ``[num_envs]`` for a ``Discrete``, float32 ``[num_envs, *shape]`` for a ``Box``, clipped only if
    the collector clips.

    Attributes:
        observation_space: The observation space of one environment. A plain space has the entry
            ``"observation"``. A ``spaces.Dict`` has an entry for each key: value networks read only
            ``"critic"`` if there is one, policies ``"policy"`` if there is one, else all but
            ``"critic"``.
        action_space: The action space of one environment.
        name: Name for messages.
        num_envs: Number of environments.
        device: Device of its tensors.
        frame_skip: Frames of the simulator per step, for counting.
        shares: Whether an episode depends only on the seed, its environment's index and its own
            index, so that processes can divide the environments.
        episodes: Index of each environment's running episode, -1 before the first; always -1 if
            they are not counted. Setting it before a `reset` skips the episodes up to these.
        lost: Why running episodes cannot be saved; ``None`` if they can.
    """

    observation_space: spaces.Space[Any]
    action_space: spaces.Space[Any]
    name: str
    num_envs: int
    device: torch.device
    frame_skip: int
    shares: bool
    episodes: list[int]
    lost: str | None

    def seed(self, seed: int) -> None:
        """Seed all environments and start at their first episodes."""

    def reset(self) -> Observations:
        """Start the next episode of every environment."""

    def step(self, actions: Any) -> Outcome:
        """Step all environments and reset those that ended."""

    def state_dict(self) -> dict[str, Any]:
        """The running episodes and the random state, except what is ``lost``."""

    def load_state_dict(self, state: Mapping[str, Any]) -> bool:
        """Restore a `state_dict`, after `seed`.

        Returns:
            Whether running episodes continue; if not, new ones have to start.

        Raises:
            StateMismatchError: If the state is of another environment.
        """

    def close(self) -> None:
        """Close all environments. Safe to call again."""
