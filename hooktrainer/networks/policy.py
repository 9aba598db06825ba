"""`Policy`: a network and a distribution, with a TensorDict interface and a fast one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from tensordict import NestedKey, TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torch import Tensor, nn

from ..errors import ConfigError
from .deterministic import Box
from .distributions import ActionDistribution, Categorical, DiagonalGaussian, SquashedGaussian
from .distributions.action_distribution import Draws
from .distributions.continuous import Bound
from .inference import Inference
from .inputs import arguments, check_inputs, is_deterministic, split_mask
from .memory import States, next_states, step_through, through


class Policy(TensorDictModuleBase):
    """A stochastic policy, without distribution objects where speed counts.

    It is used in three ways, which agree:

    - ``policy.act(observation)`` returns ``out_keys`` as a dict, for fast collectors;
    - ``policy(tensordict)`` writes the same into a TensorDict, for all others;
    - ``policy.get_dist(tensordict)`` is the distribution, for TorchRL's losses.

    The first two have no gradient. Actions are random, or the distribution's mode under TorchRL's
    ``set_exploration_type``. Random numbers come from torch's global generator, whose state
    checkpoints hold.

    Args:
        network: Maps the inputs to the distribution's parameters, ``[*batch, parameter_features]``.
            If its ``forward`` takes one tensor, it gets the inputs joined along their last
            dimension; if it takes several, one for each of ``in_keys``.
        distribution: What the action is drawn from.
        in_keys: Entries the network reads.
        out_keys: Entries the policy writes; a choice from ``entries``.
        action_mask_key: Entry of booleans, ``[*batch, mask_size]``; what is false there is never
            chosen. `act` takes the mask after the other inputs.
        trunk: A network that the policy shares with others: it takes the inputs, and ``network``
            its result. A loss whose networks have one trunk calls it once. With a `MemoryTrunk`,
            ``in_keys`` are its ``in_keys``, and the policy writes the next hidden states as well.

    Attributes:
        action_features: Size of an action, all its dimensions together.
        entries: Everything the policy can write.
        log_prob_keys: Where the log-probability is written, for TorchRL's losses.
        dist_sample_keys: Where the action is written, likewise.

    Raises:
        ConfigError: If the policy cannot write one of ``out_keys``, or there is nothing to mask. At
            the first call, if the inputs are not as many as ``in_keys``, or the network does not
            return ``parameter_features``.

    Examples:
        >>> space = gymnasium.spaces.MultiDiscrete([3, 4])  # doctest: +SKIP
        >>> policy = Policy(mlp(8, 7), distribution_for(space))  # doctest: +SKIP
    """

    def __init__(
        self,
        network: nn.Module,
        distribution: ActionDistribution,
        in_keys: Sequence[NestedKey] = ("observation",),
        out_keys: Sequence[str] = ("action", "action_log_prob"),
        action_mask_key: NestedKey | None = None,
        trunk: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.entries = ("action", "action_log_prob", *distribution.entries)
        unknown = [key for key in out_keys if key not in self.entries]
        if unknown or "action" not in out_keys:
            raise ConfigError(
                f"{type(self).__name__}: out_keys={list(out_keys)} must hold 'action' and may hold "
                f"{[key for key in self.entries if key != 'action']}."
            )
        if action_mask_key is not None and _takes_no_mask(distribution):
            raise ConfigError(
                f"{type(self).__name__}: action_mask_key={action_mask_key!r}, but in a "
                f"{type(distribution).__name__} there is nothing to choose from: leave it out."
            )
        self.network = network
        self.distribution = distribution
        self.trunk = trunk
        self.action_features = math.prod(distribution.shape)
        self.action_mask_key = action_mask_key
        masks = [] if action_mask_key is None else [action_mask_key]
        self.in_keys = [*in_keys, *masks]
        self.out_keys = [*out_keys, *next_states(trunk)]
        self._wanted = list(out_keys)
        self.log_prob_keys = ["action_log_prob"]
        self.dist_sample_keys = ["action"]
        self._infer = Inference(network, type(self).__name__)
        self._is_checked = False

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Write ``out_keys``, without gradient, and return ``tensordict``."""
        for key, value in self.act(*self.inputs(tensordict)).items():
            tensordict.set(key, value)
        return tensordict

    def act(self, *inputs: Tensor) -> dict[Any, Tensor]:
        """Return ``out_keys`` for some observations, without gradient, as fast as possible.

        Args:
            *inputs: The entries ``in_keys``, ``[*batch, ...]`` each.
        """
        sample, states = self._sample(*inputs)
        return {**self.complete(sample), **states} if states else self.complete(sample)

    def sample(self, *inputs: Tensor) -> dict[str, Tensor]:
        """The half of `act` that has to be done at every step: the action, and what it came from.

        Args:
            *inputs: The entries ``in_keys``, ``[*batch, ...]`` each.
        """
        return self._sample(*inputs)[0]

    def _sample(self, *inputs: Tensor) -> tuple[dict[str, Tensor], States]:
        parameters, states = self.infer(*inputs)
        return self.draw(parameters), states

    def draw(self, parameters: Tensor) -> dict[str, Tensor]:
        """What `sample` returns, where the distribution's parameters are known."""
        return self.distribution.sample(parameters, self._wanted, is_deterministic())

    @property
    def inference(self) -> Inference:
        """What calls the network without gradient."""
        return self._infer

    def draws(self, outputs: Mapping[str, Tensor]) -> Draws | None:
        """What draws as `sample` does where all there is to that is a network of one entry.

        Args:
            outputs: See `ActionDistribution.draws`.

        Returns:
            ``None`` if the policy is another one, or has not been called yet.
        """
        is_plain = self.trunk is None and self.action_mask_key is None and len(self.in_keys) == 1
        kind, family = type(self), type(self.distribution)
        as_written = all(
            getattr(kind, name) is getattr(Policy, name) for name in ("sample", "infer", "draw")
        ) and _owner(family, "draws") is _owner(family, "sample")
        if not (is_plain and as_written and self._is_checked):
            return None
        return self.distribution.draws(outputs)

    def infer(self, *inputs: Tensor) -> tuple[Tensor, States]:
        """The distribution's parameters and the next hidden states, without gradient.

        The former are those of `evaluate`, as fast as possible; the latter are to be written, under
        their keys.

        Args:
            *inputs: The entries ``in_keys``, ``[*batch, ...]`` each.
        """
        states: States = {}
        if not self._is_checked:
            check_inputs(self, self.in_keys, inputs)
        seen, mask = split_mask(inputs, self.action_mask_key is not None)
        if self.trunk is not None:
            seen, states = step_through(self.trunk, seen)
        parameters = self._infer(*seen)
        if not self._is_checked:
            self._check_parameters(parameters)
            self._is_checked = True
        if mask is not None:
            parameters = self.distribution.masked(parameters, mask)
        return parameters, states

    def complete(self, sample: dict[str, Tensor]) -> dict[str, Tensor]:
        """The other half, which can be done for all steps of a rollout at once.

        Args:
            sample: What `sample` returned, or many such results stacked.

        Returns:
            ``out_keys``.
        """
        return self.distribution.complete(sample, self._wanted)

    def evaluate(self, *inputs: Tensor, features: Tensor | None = None) -> Tensor:
        """The distribution's parameters, ``[*batch, parameter_features]``, with gradient.

        Args:
            *inputs: The entries ``in_keys``, ``[*batch, ...]`` each.
            features: What the trunk makes of them, if that is known.
        """
        seen, mask = split_mask(inputs, self.action_mask_key is not None)
        seen = through(self.trunk, seen, features)
        parameters = self.network(*arguments(seen, self._infer.joins))
        self._check_parameters(parameters)
        return parameters if mask is None else self.distribution.masked(parameters, mask)

    def mode(self, *inputs: Tensor, features: Tensor | None = None) -> Tensor:
        """The action that `act` takes if it is deterministic, ``[*batch, *shape]``, with gradient.

        Args:
            *inputs: The entries ``in_keys``, ``[*batch, ...]`` each.
            features: What the trunk makes of them, if that is known.

        Raises:
            NotImplementedError: If actions are discrete.
        """
        return self.distribution.mode(self.evaluate(*inputs, features=features))

    def log_prob_and_entropy(
        self, inputs: Sequence[Tensor], action: Tensor, features: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The log-probability of ``action`` and the entropy, ``[*batch]`` each, with gradient.

        Args:
            inputs: The entries ``in_keys``, ``[*batch, ...]`` each.
            action: ``[*batch, *shape]``.
            features: What the trunk makes of the inputs, if that is known.
        """
        return self.distribution.log_prob_and_entropy(
            self.evaluate(*inputs, features=features), action
        )

    def rsample(self, *inputs: Tensor, features: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """A random action and its log-probability, both differentiable in the parameters.

        Args:
            *inputs: The entries ``in_keys``.
            features: What the trunk makes of them, if that is known.

        Returns:
            Shapes ``[*batch, *shape]`` and ``[*batch]``.

        Raises:
            NotImplementedError: If actions are discrete.
        """
        return self.distribution.rsample(self.evaluate(*inputs, features=features))

    def inputs(self, tensordict: TensorDictBase) -> list[Tensor]:
        """The entries ``in_keys`` of ``tensordict``."""
        return [tensordict.get(key) for key in self.in_keys]

    def get_dist(self, tensordict: TensorDictBase) -> torch.distributions.Distribution:
        """The distribution of the action, ``[*batch]``, with gradient."""
        return self.distribution.as_torch(self.evaluate(*self.inputs(tensordict)))

    def _check_parameters(self, parameters: Tensor) -> None:
        found, needed = parameters.shape[-1], self.distribution.parameter_features
        if needed and found != needed:  # 0: any number of choices
            raise ConfigError(
                f"{type(self).__name__}: the network returns {found} features, but a "
                f"{type(self.distribution).__name__} needs {needed}: make its last layer as wide "
                "as distribution.parameter_features."
            )


def _owner(kind: type, name: str) -> type:
    """The class that defines what objects of a kind have under this name."""
    return next(base for base in kind.__mro__ if name in base.__dict__)


def _takes_no_mask(distribution: ActionDistribution) -> bool:
    return distribution.parameter_features > 0 and not distribution.mask_size


# -- Policies over vectors of continuous actions.


class DiagonalGaussianPolicy(Policy):
    """A normal distribution whose mean depends on the observation and whose deviation does not.

    The usual policy of PPO. Writes ``"action"`` ``[*batch, features]``, ``"action_log_prob"``
    ``[*batch]`` and, if asked, ``"loc"`` and ``"scale"``, shaped as the action. Actions are not
    bounded; clip them in the environment.

    Args:
        network: Maps an observation to the mean, ``[*batch, features]``.
        action_features: Size of the action's last dimension.
        log_std: Logarithm of the initial standard deviation.
        in_keys: Entries the network reads.
        out_keys: Entries the policy writes.
        trunk: As for `Policy`.
    """

    def __init__(
        self,
        network: nn.Module,
        action_features: int,
        log_std: float = 0.0,
        in_keys: Sequence[NestedKey] = ("observation",),
        out_keys: Sequence[str] = ("action", "action_log_prob"),
        trunk: nn.Module | None = None,
    ) -> None:
        distribution = DiagonalGaussian((action_features,), log_std)
        super().__init__(network, distribution, in_keys, out_keys, trunk=trunk)


class TanhGaussianPolicy(Policy):
    """A normal distribution squashed into a box by tanh; the policy of SAC.

    Writes ``"action"`` ``[*batch, features]`` and, if asked, ``"action_log_prob"`` ``[*batch]``.
    Mean and log-deviation both depend on the observation; the latter is clipped to ``[-20, 2]`` as
    in the paper's code (Haarnoja et al., 2018, Soft Actor-Critic).

    Args:
        network: Maps an observation to mean and log-deviation, ``[*batch, 2 * features]``.
        action_features: Size of an action, or its shape.
        low: Least action, one number or one for each feature.
        high: Greatest action, likewise.
        in_keys: Entries the network reads.
        out_keys: Entries the policy writes.
        trunk: As for `Policy`.

    Raises:
        ConfigError: If ``low`` is not below ``high``, or one of them is infinite.
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
        trunk: nn.Module | None = None,
    ) -> None:
        shape = (action_features,) if isinstance(action_features, int) else action_features
        squashed = SquashedGaussian(shape, low, high)
        super().__init__(network, squashed, in_keys, out_keys, trunk=trunk)

    @property
    def box(self) -> Box:
        """The bounds of the action."""
        return self.distribution.box


# -- Policy over one discrete action.


class CategoricalPolicy(Policy):
    """Chooses one of n actions with probabilities ``softmax(logits)``.

    Writes ``"action"`` (an index, ``[*batch]``, int64), ``"action_log_prob"`` ``[*batch]`` and, if
    asked, ``"logits"`` ``[*batch, n]``.

    Args:
        network: Maps an observation to ``[*batch, n]`` logits.
        in_keys: Entries the network reads.
        out_keys: Entries the policy writes.
        action_mask_key: Entry of booleans, ``[*batch, n]``; actions where it is false are never
            chosen. `act` takes the mask after the other inputs.
        trunk: As for `Policy`.

    Examples:
        >>> policy = CategoricalPolicy(mlp(4, 2))
        >>> policy.act(torch.zeros(3, 4))["action"].shape
        torch.Size([3])
    """

    def __init__(
        self,
        network: nn.Module,
        in_keys: Sequence[NestedKey] = ("observation",),
        out_keys: Sequence[str] = ("action", "action_log_prob"),
        action_mask_key: NestedKey | None = None,
        trunk: nn.Module | None = None,
    ) -> None:
        super().__init__(network, Categorical(), in_keys, out_keys, action_mask_key, trunk)
