"""`StateDependentExploration`: noise that is a function of the state, held for some steps."""

from __future__ import annotations

from typing import Any, Final

import torch
from tensordict import NestedKey, TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torch import Tensor

from ..base.checks import check_count
from ..errors import ConfigError
from .distributions.continuous import StateDependentGaussian
from .inputs import check_inputs, is_deterministic
from .policy import Policy

_MATRIX: Final = ("exploration", "matrix")
_AGE: Final = ("exploration", "age")
_NONE: Final = -1  # the age of the matrix before the first is drawn, as an episode begins


class StateDependentExploration(TensorDictModuleBase):
    """Explores with a policy over `StateDependentGaussian`, whose matrix it holds for some steps.

    So the same state brings the same noise, and actions change smoothly: what tasks need that are
    not moved by noise that averages out, as MountainCarContinuous (Raffin et al., 2021,
    arXiv:2005.05719). Each environment has a matrix of its own, drawn anew where an episode begins
    and after ``interval`` steps.

    It writes what the policy writes. It is a TensorDict module with a hidden state, the matrix and
    its age, which collectors carry from step to step and checkpoints hold. Under TorchRL's
    ``set_exploration_type``, anything but ``RANDOM`` switches the noise off.

    Args:
        policy: The policy; it is what a loss trains, and its memory, if it has one, is carried as
            well.
        interval: Steps for which a matrix is held; ``None`` for a whole episode.

    Raises:
        ConfigError: If the policy's distribution is another, or ``interval`` is not positive.
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

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Write what the policy writes and the hidden state of the next step.

        Args:
            tensordict: ``[num_envs]``, with the policy's inputs and the hidden state.

        Returns:
            ``tensordict``.
        """
        for key, value in self.act(*[tensordict.get(key) for key in self.in_keys]).items():
            tensordict.set(key, value)
        return tensordict

    @torch.no_grad()
    def act(self, *inputs: Tensor) -> dict[Any, Tensor]:
        """Return ``out_keys``: what the policy writes and the hidden state of the next step.

        Args:
            *inputs: The entries ``in_keys``: the policy's inputs, the matrices
                ``[num_envs, features, action_features]``, and their ages ``[num_envs, 1]``.

        Raises:
            ConfigError: If the inputs are not as many as ``in_keys``.
        """
        check_inputs(self, self.in_keys, inputs)
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
        """What the hidden state is before the first step, as TorchRL asks for it."""
        from torchrl.data import Composite, Unbounded
        from torchrl.envs import TensorDictPrimer

        shape = self.policy.distribution.log_std.shape
        spec = Composite()
        spec[_MATRIX] = Unbounded(shape)
        spec[_AGE] = Unbounded((1,), dtype=torch.int64)
        return TensorDictPrimer(spec, default_value={_MATRIX: 0.0, _AGE: _NONE})
