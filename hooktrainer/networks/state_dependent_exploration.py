"""`StateDependentExploration`: exploration noise as a function of the state (gSDE)."""

from __future__ import annotations

from typing import Any, Final

import torch
from tensordict import NestedKey
from torch import Tensor

from ..base.checks import check_count
from ..errors import ConfigError
from .distributions.continuous import StateDependentGaussian
from .head import Actor
from .inputs import is_deterministic
from .policy import Policy

_MATRIX: Final = ("exploration", "matrix")
_AGE: Final = ("exploration", "age")
_NONE: Final = -1  # the age of the matrix before the first is drawn, as an episode begins


class StateDependentExploration(Actor):
    """Explores with a `StateDependentGaussian`, whose noise matrix is kept for some steps.

    Equal states get equal noise, and actions change smoothly. Tasks such as MountainCarContinuous
    need that: independent noise averages out (Raffin et al., 2021, arXiv:2005.05719). Each
    environment has a matrix, redrawn when an episode begins and after ``interval`` steps.

    It writes the policy's entries. The matrix and its age are hidden states, which collectors carry
    and checkpoints hold. TorchRL's ``set_exploration_type`` switches the noise off, except with
    ``RANDOM``.

    Args:
        policy: The policy that a loss trains; its memory, if it has one, is carried as well.
        interval: Steps for which a matrix is kept; ``None`` for a whole episode.

    Raises:
        ConfigError: If the policy has another distribution, or ``interval`` is not positive.
    """

    def __init__(self, policy: Policy, interval: int | None = 32) -> None:
        super().__init__()
        if interval is not None:
            check_count("interval", interval)
        if not isinstance(policy.distribution, StateDependentGaussian):
            raise ConfigError(
                f"StateDependentExploration: the policy's distribution is a "
                f"{type(policy.distribution).__name__}; it has to be a StateDependentGaussian."
            )
        self.policy = policy
        self.interval = interval
        self.in_keys: list[NestedKey] = [*policy.in_keys, _MATRIX, _AGE]
        self.out_keys: list[NestedKey] = [*policy.out_keys, ("next", *_MATRIX), ("next", *_AGE)]

    @torch.no_grad()
    def act(self, *inputs: Tensor) -> dict[Any, Tensor]:
        """Return ``out_keys``: the policy's entries and the next hidden state.

        Args:
            *inputs: The entries ``in_keys``: the policy's inputs, the matrices ``[num_envs,
                features, action_features]``, and their ages ``[num_envs, 1]``.
        """
        *seen, matrix, age = inputs
        if is_deterministic():
            out = self.policy.act(*seen)
        else:
            is_due = age == _NONE
            if self.interval is not None:
                is_due = is_due | (age >= self.interval)
            # Drawn whether one is due or not: how many numbers are drawn depends on nothing.
            matrix = torch.where(is_due.unsqueeze(-1), torch.randn_like(matrix), matrix)
            age = torch.where(is_due, 0, age) + 1
            parameters, states = self.policy.infer(*seen)
            distribution: Any = self.policy.distribution
            drawn = distribution.perturbed(parameters, matrix, self.policy.out_keys)
            out = {**self.policy.complete(drawn), **states}
        return {**out, ("next", *_MATRIX): matrix, ("next", *_AGE): age}

    def make_tensordict_primer(self) -> Any:
        """TorchRL's primer of the initial hidden state."""
        from torchrl.data import Composite, Unbounded
        from torchrl.envs import TensorDictPrimer

        shape = self.policy.distribution.log_std.shape
        spec = Composite()
        spec[_MATRIX] = Unbounded(shape)
        spec[_AGE] = Unbounded((1,), dtype=torch.int64)
        return TensorDictPrimer(spec, default_value={_MATRIX: 0.0, _AGE: _NONE})
