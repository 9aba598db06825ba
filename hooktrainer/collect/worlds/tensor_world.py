"""`TensorWorld`: a batch of environments of one agent whose state, step and reset are tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

import torch
from gymnasium import spaces
from tensordict import NestedKey


class AnyWorld(Protocol):
    """A batch of environments whose steps are tensors on one device.

    Attributes:
        name: What it is called in messages.
        num_envs: How many environments.
        device: Where its tensors are.
        shares: Whether the episodes of an environment depend on the seed, its index and the number
            of its episode alone, so that processes can share the environments.
        episodes: For each environment the index of its running episode, -1 before the first; where
            they are not counted, -1 always.
        lost: Why running episodes cannot be saved; ``None`` if they can.
    """

    name: str
    num_envs: int
    device: torch.device
    shares: bool
    episodes: list[int]
    lost: str | None

    def seed(self, seed: int) -> None:
        """Start over: the episodes that begin from now on are those of this seed."""

    def state_dict(self) -> dict[str, Any]:
        """The running episodes and the random state; nothing of what is ``lost``."""

    def load_state_dict(self, state: Mapping[str, Any]) -> bool:
        """Restore what `state_dict` returned; the seed was set before.

        Returns:
            Whether the running episodes go on; if not, new ones have to begin.

        Raises:
            StateMismatchError: If it is the state of another world.
        """

    def close(self) -> None:
        """Close all environments; safe to call again."""


Observations: TypeAlias = dict[NestedKey, torch.Tensor]
"""What all environments observe: each entry of the observation space, ``[num_envs, ...]``."""


class Outcome(NamedTuple):
    """What a step of all environments gives.

    Attributes:
        observation: What is observed now: where an episode ended, the first observation of the
            next one.
        reward: float32 ``[num_envs]``.
        terminated: Whether the episode ended in a terminal state, bool ``[num_envs]``.
        truncated: Whether it was broken off, as by a time limit, bool ``[num_envs]``.
        final: What the step led to: where an episode ended, its **true final observation**,
            elsewhere what ``observation`` holds. ``None`` if the simulator does not show it.
        log: What else the simulator has to say: numbers by name, each a scalar or ``[num_envs]``,
            NaN where nothing is said of an environment; ``None`` for nothing.
    """

    observation: Observations
    reward: torch.Tensor
    terminated: torch.Tensor
    truncated: torch.Tensor
    final: Observations | None = None
    log: Mapping[str, torch.Tensor] | None = None


@runtime_checkable
class TensorWorld(AnyWorld, Protocol):
    """A batch of environments of one agent, as tensors on one device.

    What a simulator has to give to be trained in, `hooktrainer.collect.WorldCollector` does the
    rest. Environments that end begin their next episode within the same step.

    **No step waits for the device.** A world on a GPU is given work faster than it does it, so
    `step` must not read what a tensor holds: no ``.item()``, no ``.any()`` in a condition, no
    ``nonzero``, no indexing by a boolean mask. ``torch.where`` does all of it.

    **Tensors** that `reset` and `step` return may be written to by the next `step`: whoever wants
    to keep them copies them. The actions that `step` is given are not to be changed.

    A batch of environments of *several* agents is a `hooktrainer.collect.agents.World`.

    Attributes:
        name: What it is called in messages.
        num_envs: How many environments.
        device: Where its tensors are.
        observation_space: The observation space of one environment. The entry of a plain space is
            ``"observation"``. A ``spaces.Dict`` has an entry for each of its keys, and these are
            what simulators call observation groups: a value network reads ``"critic"`` alone if
            there is one, and a policy ``"policy"`` if there is one, else all but ``"critic"``.
        action_space: The action space of one environment.
        frame_skip: Frames of the simulator in a step, as they are to be counted.
        shares: Whether the episodes of an environment depend on the seed, its index and the number
            of its episode alone, so that processes can share the environments.
        episodes: For each environment the index of its running episode, -1 before the first. Set
            before a `reset`, it says which episodes were begun already. Where they are not counted
            -1 always.
        lost: Why running episodes cannot be saved; ``None`` if they can.
    """

    observation_space: spaces.Space[Any]
    action_space: spaces.Space[Any]
    frame_skip: int

    def reset(self) -> Observations:
        """Begin the next episode of every environment."""

    def step(self, actions: torch.Tensor) -> Outcome:
        """Step all environments, and begin the next episode of those that ended.

        Args:
            actions: As the action space has them: int64 ``[num_envs]`` for a ``Discrete``, float32
                ``[num_envs, *shape]`` for a ``Box``, not clipped unless the collector was told to.
        """
