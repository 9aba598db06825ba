"""The steps of a rollout by a policy that is a small network, from observation to action."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from tensordict import NestedKey

from ..networks.distributions.action_distribution import Draws
from ..networks.inference import ArrayNetwork, Inference
from ..networks.inputs import is_deterministic
from ..networks.policy import Policy
from .spaces import Array

# Steps of a rollout from which on it is worth while to look at a network once for all of them.
_WORTH = 8


class ArraySteps:
    """Acts as a policy's `sample` does, bit for bit, in a fraction of the time.

    What is the same at every step is looked at once a rollout: parameters do not change within it,
    and its random numbers depend on nothing that happens in it. What is left is NumPy, in memory
    that is there already.

    Args:
        policy: The policy.
        draws: What draws its actions.
        seen: For each step the observation, ``[num_envs, features]``.

    Attributes:
        network: What calls the policy's network.
        draws: What draws its actions, and where it finds what the network returns.
    """

    def __init__(self, policy: Policy, draws: Draws, seen: Sequence[Array]) -> None:
        self.network: Inference = policy.inference
        self.draws = draws
        self._seen = seen
        self._inputs = seen[0].shape, seen[0].dtype
        self._infer: Callable[..., Any] = self.network

    @classmethod
    def of(
        cls,
        function: Callable[..., Any],
        seen: Sequence[tuple[Any, ...]],
        outputs: Mapping[NestedKey, torch.Tensor],
    ) -> ArraySteps | None:
        """The steps of a function of observations; ``None`` if it is no such policy's.

        Args:
            function: A policy's `sample`.
            seen: For each step its arguments.
            outputs: Where what it returns at all steps is written, ``[time, num_envs, ...]`` each.
        """
        policy = getattr(function, "__self__", None)
        if not isinstance(policy, Policy) or function != policy.sample:
            return None
        observed = [arguments[0] for arguments in seen]
        draws = policy.draws({str(key): rows for key, rows in outputs.items()})
        if draws is None or observed[0].ndim != 2 or len(observed) < _WORTH:
            return None
        return cls(policy, draws, [rows.numpy() for rows in observed])

    def begin(self) -> bool:
        """Begin a rollout; whether it can be, with the parameters as they are now."""
        try:
            self._infer = ArrayNetwork([self.network], *self._inputs)
        except ValueError:
            return False
        self.draws.begin(is_deterministic())
        return True

    def __call__(self, t: int) -> Array:
        """The actions of step ``t``, recorded with all other outputs."""
        self._infer(self._seen[t], self.draws.parameters[t])
        actions: Array = self.draws(t)
        return actions
