"""`Policy`: a network and a distribution, with a TensorDict interface and a fast one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import torch
from tensordict import NestedKey, TensorDictBase
from torch import Tensor, nn

from ..base.checks import check_count
from ..errors import ConfigError
from .deterministic import Box
from .distributions.continuous import (
    Bound,
    DiagonalGaussian,
    SquashedGaussian,
    StateDependentGaussian,
)
from .distributions.discrete import ActionDistribution, Categorical
from .head import Actor, Head, Inference, Step, is_deterministic
from .memory import primer


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
        ConfigError: If the policy cannot write one of ``out_keys``, or its actions take no mask; at
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
        if action_mask_key and distribution.parameter_features and not distribution.mask_size:
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
        parameters, states = self.remember(*inputs)
        drawn = self.distribution.sample(parameters, self._wanted, is_deterministic())
        return {**self.complete(drawn), **states}

    def sample(self, *inputs: Tensor) -> dict[str, Tensor]:
        """The part of `act` needed at every step: the action, and the inputs of `complete`."""
        parameters, _ = self.remember(*inputs)
        return self.distribution.sample(parameters, self._wanted, is_deterministic())

    def complete(self, sample: dict[str, Tensor]) -> dict[str, Tensor]:
        """The rest of `act` for one result of `sample`, or for many stacked: ``out_keys``."""
        return self.distribution.complete(sample, self._wanted)

    def array_steps(
        self, seen: Sequence[Tensor], outputs: Mapping[Any, Tensor]
    ) -> ArraySteps | None:
        """A fast equivalent of `sample` for all steps of a rollout; ``None`` if there is none.

        It is for a categorical policy whose network reads one entry.

        Args:
            seen: That entry, ``[*batch, features]`` for each step, on the CPU.
            outputs: Where the results of `sample` are written, ``[time, *batch, ...]`` each.
        """
        # Of a subclass `sample` may be another.
        known = type(self) in (Policy, CategoricalPolicy) and type(self.distribution) is Categorical
        if not known or self.trunk is not None or len(self.in_keys) != 1:
            return None
        worth = seen[0].ndim == 2 and len(seen) >= _WORTH
        return ArraySteps(self._infer, seen, outputs) if worth else None

    def _result(self, out: Tensor, mask: Tensor | None) -> Tensor:
        found, needed = out.shape[-1], self.distribution.parameter_features
        if needed and found != needed:  # 0: any number of choices
            raise ConfigError(
                f"{type(self).__name__}: the network returns {found} features, but a "
                f"{type(self.distribution).__name__} needs {needed} (parameter_features)."
            )
        return out if mask is None else self.distribution.masked(out, mask)

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
        """The distribution's `rsample`, of the arguments of `evaluate`."""
        return self.distribution.rsample(self.evaluate(*inputs, features=features))

    def encoded(self, action: Tensor) -> Tensor:
        """Actions ``[*batch, *shape]`` as inputs of Q-functions; see `ActionDistribution`."""
        return self.distribution.encoded(action)

    def get_dist(self, tensordict: TensorDictBase) -> torch.distributions.Distribution:
        """The distribution of the action, ``[*batch]``, with gradient."""
        return self.distribution.as_torch(self.evaluate(*self.inputs(tensordict)))


_WORTH = 8  # steps of a rollout from which on `ArraySteps` is faster


class ArraySteps:
    """Acts as `Policy.sample` does, bit for bit, in a fraction of the time.

    Parameters do not change within a rollout, and its random numbers can be drawn before it. A step
    is NumPy alone, in memory that is allocated once.
    """

    def __init__(
        self, infer: Inference, seen: Sequence[Tensor], outputs: Mapping[Any, Tensor]
    ) -> None:
        self._infer = infer
        self._inputs = len(seen[0]), seen[0].dtype
        self._seen = [rows.numpy() for rows in seen]
        self._layers: Sequence[Step] = ()
        self._logits = list(outputs["logits"].numpy())
        self._actions = list(outputs["action"].numpy())
        noise = torch.empty_like(outputs["logits"])
        self._noise, self._clocks = noise.unbind(0), list(noise.numpy())
        self._scores = np.empty_like(self._logits[0])

    def begin(self) -> bool:
        """Begin a rollout; return whether the current parameters allow it."""
        self._layers = self._infer.steps(*self._inputs)
        if self._layers:
            deterministic = is_deterministic()
            for noise in self._noise:  # one call a step, as what is drawn depends on the size
                noise.zero_() if deterministic else noise.exponential_().log_()
        return bool(self._layers)

    def __call__(self, t: int) -> np.ndarray:
        """The actions of step ``t``, ``[*batch]``, written with all other outputs."""
        x = self._seen[t]
        for layer in self._layers:
            x = layer(x)
        self._logits[t][...] = x
        np.subtract(self._logits[t], self._clocks[t], out=self._scores)
        return self._scores.argmax(-1, out=self._actions[t])


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
        self, network: nn.Module, in_keys: Sequence[NestedKey] = ("observation",), **options: Any
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
            parameters, states = self.policy.remember(*seen)
            distribution: Any = self.policy.distribution
            drawn = distribution.perturbed(parameters, matrix, self.policy.out_keys)
            out = {**self.policy.complete(drawn), **states}
        return {**out, ("next", *_MATRIX): matrix, ("next", *_AGE): age}

    def make_tensordict_primer(self) -> Any:
        """TorchRL's primer of the initial hidden state."""
        shape = self.policy.distribution.log_std.shape
        age = torch.zeros(1, dtype=torch.int64)
        return primer({_MATRIX: (torch.zeros(shape), 0), _AGE: (age, _NONE)})
