"""`Policy`: a network and a distribution, with a TensorDict interface and a fast one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch
from tensordict import NestedKey, TensorDictBase
from torch import Tensor, nn

from ..base.checks import check_count
from ..errors import ConfigError
from .deterministic import Box
from .distributions import ActionDistribution, Categorical, DiagonalGaussian, SquashedGaussian
from .distributions.action_distribution import Draws
from .distributions.continuous import Bound, StateDependentGaussian
from .head import Actor, Head
from .inputs import is_deterministic
from .memory import States


class Policy(Head):
    """A stochastic policy that avoids distribution objects where speed matters.

    Three interfaces agree: ``policy.act(observation)`` returns ``out_keys`` as a dict, for fast
    collectors; ``policy(tensordict)`` writes them; ``policy.get_dist(tensordict)`` is the
    distribution, for TorchRL's losses. The first two have no gradient. Actions are random, or the
    mode under TorchRL's ``set_exploration_type``.

    Args:
        network: Maps the inputs, concatenated if it takes one tensor, to the distribution's
            parameters, ``[*batch, parameter_features]``.
        distribution: The distribution of actions.
        in_keys: Entries the network reads.
        out_keys: Entries the policy writes; a choice from ``entries``.
        action_mask_key: Entry of booleans ``[*batch, mask_size]``, false for forbidden actions. It
            is the last input.
        trunk: A network shared with others, which maps the inputs to those of ``network``. A loss
            calls a shared trunk once. With a `MemoryTrunk`, ``in_keys`` are its ``in_keys``, and
            the policy writes the next hidden states as well.

    Attributes:
        action_features: Size of an action, all its dimensions together.
        entries: Everything the policy can write.

    Raises:
        ConfigError: If the policy cannot write one of ``out_keys``, or there is nothing to mask; at
            a call, if the network returns another number of features.
    """

    distribution: Any

    def __init__(
        self,
        network: nn.Module,
        distribution: ActionDistribution,
        in_keys: Sequence[NestedKey] = ("observation",),
        out_keys: Sequence[str] = ("action", "action_log_prob"),
        action_mask_key: NestedKey | None = None,
        trunk: nn.Module | None = None,
    ) -> None:
        entries = ("action", "action_log_prob", *distribution.entries)
        unknown = [key for key in out_keys if key not in entries]
        if unknown or "action" not in out_keys:
            raise ConfigError(
                f"{type(self).__name__}: out_keys={list(out_keys)} must hold 'action' and may hold "
                f"{list(entries[1:])}."
            )
        if action_mask_key is not None and _takes_no_mask(distribution):
            raise ConfigError(
                f"{type(self).__name__}: action_mask_key={action_mask_key!r}, but in a "
                f"{type(distribution).__name__} there is nothing to choose from: leave it out."
            )
        super().__init__(
            network, in_keys, out_keys, trunk, action_mask_key, distribution=distribution
        )
        self.action_features = math.prod(distribution.shape)
        self.entries = entries
        self._wanted = list(out_keys)
        self.log_prob_keys = ["action_log_prob"]
        self.dist_sample_keys = ["action"]

    def act(self, *inputs: Tensor) -> dict[Any, Tensor]:
        """``out_keys`` for the entries ``in_keys``, ``[*batch, ...]`` each, without gradient."""
        parameters, states = self.infer(*inputs)
        out = self.complete(self._draw(parameters))
        return {**out, **states} if states else out

    def sample(self, *inputs: Tensor) -> dict[str, Tensor]:
        """The part of `act` needed at every step: the action, and the inputs of `complete`."""
        return self._draw(self.infer(*inputs)[0])

    def _draw(self, parameters: Tensor) -> dict[str, Tensor]:
        return self.distribution.sample(parameters, self._wanted, is_deterministic())

    def draws(self, outputs: Mapping[str, Tensor]) -> Draws | None:
        """A fast equivalent of `sample` for all steps of a rollout; ``None`` if there is none.

        It is for a categorical policy whose network reads one entry.

        Args:
            outputs: Where the results of `sample` are written, ``[time, *batch, ...]`` each, on the
                CPU.
        """
        # Of a subclass `sample` may be another.
        known = type(self) in (Policy, CategoricalPolicy) and type(self.distribution) is Categorical
        return Draws(outputs) if known and self.trunk is None and len(self.in_keys) == 1 else None

    def infer(self, *inputs: Tensor) -> tuple[Tensor, States]:
        """The distribution's parameters and the next hidden states by key, without gradient."""
        parameters, mask, states = self._inferred(inputs)
        self._check_parameters(parameters)
        if mask is not None:
            parameters = self.distribution.masked(parameters, mask)
        return parameters, states

    def complete(self, sample: dict[str, Tensor]) -> dict[str, Tensor]:
        """The rest of `act` for one result of `sample`, or for many stacked: ``out_keys``."""
        return self.distribution.complete(sample, self._wanted)

    def evaluate(self, *inputs: Tensor, features: Tensor | None = None) -> Tensor:
        """The distribution's parameters ``[*batch, parameter_features]``, with gradient.

        Args:
            *inputs: The entries ``in_keys``, ``[*batch, ...]`` each.
            features: The trunk's output for them, if it is known.
        """
        parameters, mask, _ = self._outputs(inputs, features)
        self._check_parameters(parameters)
        return parameters if mask is None else self.distribution.masked(parameters, mask)

    def mode(self, *inputs: Tensor, features: Tensor | None = None) -> Tensor:
        """The deterministic action ``[*batch, *shape]``, with gradient; arguments of `evaluate`."""
        return self.distribution.mode(self.evaluate(*inputs, features=features))

    def log_prob_and_entropy(
        self, inputs: Sequence[Tensor], action: Tensor, features: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The log-probability of ``action`` and the entropy, ``[*batch]`` each, with gradient.

        Inputs are the entries ``in_keys``; ``features`` as for `evaluate`.
        """
        return self.distribution.log_prob_and_entropy(
            self.evaluate(*inputs, features=features), action
        )

    def rsample(self, *inputs: Tensor, features: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """A differentiable random action and its log-probability; arguments of `evaluate`."""
        return self.distribution.rsample(self.evaluate(*inputs, features=features))

    def get_dist(self, tensordict: TensorDictBase) -> torch.distributions.Distribution:
        """The distribution of the action, ``[*batch]``, with gradient."""
        return self.distribution.as_torch(self.evaluate(*self.inputs(tensordict)))

    def _check_parameters(self, parameters: Tensor) -> None:
        found, needed = parameters.shape[-1], self.distribution.parameter_features
        if needed and found != needed:  # 0: any number of choices
            raise ConfigError(
                f"{type(self).__name__}: the network returns {found} features, but a "
                f"{type(self.distribution).__name__} needs {needed} (parameter_features)."
            )


def _takes_no_mask(distribution: ActionDistribution) -> bool:
    return distribution.parameter_features > 0 and not distribution.mask_size


# -- Policies for the usual action spaces.


class DiagonalGaussianPolicy(Policy):
    """A normal distribution with a constant, learned deviation: the usual policy of PPO.

    It can write ``"action"`` ``[*batch, features]``, ``"action_log_prob"`` ``[*batch]``, ``"loc"``
    and ``"scale"``. Actions are not bounded; clip them in the environment.

    Args:
        network: Maps an observation to the mean, ``[*batch, features]``.
        action_features: Size of the action's last dimension.
        log_std: Logarithm of the initial standard deviation.
        **options: ``in_keys``, ``out_keys`` and ``trunk``, as for `Policy`.
    """

    def __init__(
        self, network: nn.Module, action_features: int, log_std: float = 0.0, **options: Any
    ) -> None:
        super().__init__(network, DiagonalGaussian((action_features,), log_std), **options)


class TanhGaussianPolicy(Policy):
    """A normal distribution squashed into a box by tanh (`SquashedGaussian`): the policy of SAC.

    Args:
        network: Maps an observation to mean and log-deviation, ``[*batch, 2 * features]``.
        action_features: Size of an action, or its shape.
        low: Least action, one number or one for each feature.
        high: Greatest action, likewise.
        in_keys: Entries the network reads.
        out_keys: Entries the policy writes.
        **options: ``trunk``, as for `Policy`.
    """

    distribution: SquashedGaussian

    def __init__(
        self,
        network: nn.Module,
        action_features: int | tuple[int, ...],
        low: Bound = -1.0,
        high: Bound = 1.0,
        in_keys: Sequence[NestedKey] = ("observation",),
        out_keys: Sequence[str] = ("action",),
        **options: Any,
    ) -> None:
        shape = (action_features,) if isinstance(action_features, int) else action_features
        super().__init__(network, SquashedGaussian(shape, low, high), in_keys, out_keys, **options)

    @property
    def box(self) -> Box:
        """The bounds of the action."""
        return self.distribution.box


class CategoricalPolicy(Policy):
    """Chooses one of n actions with probabilities ``softmax(logits)``.

    It can write ``"action"`` (an index, ``[*batch]``, int64), ``"action_log_prob"`` ``[*batch]``
    and ``"logits"`` ``[*batch, n]``.

    Args:
        network: Maps an observation to ``[*batch, n]`` logits.
        in_keys: Entries the network reads.
        **options: ``out_keys``, ``action_mask_key`` and ``trunk``, as for `Policy`.

    Examples:
        >>> CategoricalPolicy(mlp(4, 2)).act(torch.zeros(3, 4))["action"].shape
        torch.Size([3])
    """

    def __init__(
        self,
        network: nn.Module,
        in_keys: Sequence[NestedKey] = ("observation",),
        **options: Any,
    ) -> None:
        super().__init__(network, Categorical(), in_keys, **options)


# -- `StateDependentExploration`: exploration noise as a function of the state (gSDE).


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
