"""Losses that need no new actions: CQL, IQL, behavior cloning, and imitation of a teacher."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

import torch
from tensordict import NestedKey
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from ..base.checks import check_count, check_rate
from ..errors import ConfigError
from .actor_critic import ActorCriticLoss
from .common import Entries, KeyOf, Loss, as_tensordict, next_key, this_key
from .dqn import DQNLoss
from .sac import SACLoss

PREFIX = "teacher_"
"""Prefix of the teacher's entries."""

_MOST_WEIGHT = 100.0  # bound of exp(temperature * advantage), from IQL's code


# -- Conservative Q-learning (Kumar et al., 2020, arXiv:2006.04779).


class CQLLoss(SACLoss):
    """The SAC loss with a penalty on the values of actions outside the data: the paper's CQL(H).

    The penalty, per Q-function and state, is the logarithm of the integral of ``exp(value)`` over
    the action box, minus the value of the data's action. The integral is estimated from uniform
    actions and from the policy's actions in this and the next state, each divided by its density.

    Reads and returns what `SACLoss` does, and also returns ``loss_cql``, which is minimized. Unlike
    ``torchrl.objectives.CQLLoss`` it follows the paper: one sum over all sampled actions, not over
    three at a time; uniform actions from the policy's box, not ``[-1, 1]``; no ``loss_actor_bc``.

    Args:
        actor_network: The policy, a `TanhGaussianPolicy` or any module with its ``rsample`` and
            ``box``.
        qvalue_network: As for `SACLoss`.
        min_q_weight: Weight of the penalty.
        num_random: Actions drawn from each of the three sources.
        **options: Further arguments of `SACLoss`.
    """

    out_keys = ("loss_actor", "loss_qvalue", "loss_cql", "loss_alpha")

    def __init__(
        self,
        actor_network: nn.Module,
        qvalue_network: nn.Module | Sequence[nn.Module],
        *,
        min_q_weight: float = 1.0,
        num_random: int = 10,
        **options: Any,
    ) -> None:
        super().__init__(actor_network, qvalue_network, **options)
        check_count("CQLLoss: num_random", num_random)
        self.min_q_weight = check_rate("CQLLoss: min_q_weight", min_q_weight)
        self.num_random = num_random

    def _penalty(self, entries: Entries, values: Tensor) -> dict[str, Tensor]:
        penalty = (self._soft_maximum(entries) - values).sum(0)
        return {"loss_cql": self._reduce(self.min_q_weight * penalty, entries)}

    def _target(self, entries: Entries, following: Tensor, cost: Tensor | float = 0.0) -> Tensor:
        return super()._target(entries, following)  # without the entropy

    def _soft_maximum(self, entries: Entries) -> Tensor:
        """Return ``[networks, batch]``: the log integral of ``exp(value)`` over the box."""
        actor, number = self.actor_network, self.num_random
        keys = [key for key in self.qvalue_network[0].in_keys if key != self.tensor_keys.action]
        states = {key: entries[key].repeat_interleave(number, 0) for key in keys}
        count = len(next(iter(states.values())))
        sources = [(actor.box.sample(count), -actor.box.half_width.mul(2).log().sum())]
        with torch.no_grad():
            for at in (this_key, next_key):
                inputs = [entries[at(key)].repeat_interleave(number, 0) for key in actor.in_keys]
                action, density = actor.rsample(*inputs)
                sources.append((action, density.reshape(-1)))
        # One pass for all three sources: `states` repeated three times.
        values = self._values(
            self.qvalue_network,
            {key: state.repeat(3, *[1] * (state.ndim - 1)) for key, state in states.items()},
            torch.cat([action for action, _ in sources]),
        )
        densities = torch.cat([density.expand(count) for _, density in sources])
        return (values - densities).view(len(values), 3, -1, number).logsumexp((1, 3))


class DiscreteCQLLoss(DQNLoss):
    """The DQN loss with CQL's penalty on the values of actions outside the data.

    The penalty, ``loss_cql``, is the logarithm of the sum of ``exp(value)`` over all actions, minus
    the value of the data's action. It also reads and returns what `DQNLoss` does. The values are
    those of ``torchrl.objectives.DiscreteCQLLoss``, which halves the DQN loss.

    Args:
        value_network: As for `DQNLoss`.
        min_q_weight: Weight of the penalty.
        **options: Further arguments of `DQNLoss`.
    """

    out_keys = ("loss", "loss_cql")  # type: ignore[assignment]

    def __init__(
        self, value_network: nn.Module, *, min_q_weight: float = 1.0, **options: Any
    ) -> None:
        super().__init__(value_network, **options)
        self.min_q_weight = check_rate("DiscreteCQLLoss: min_q_weight", min_q_weight)

    def _penalty(self, entries: Entries, action_value: Tensor, value: Tensor) -> dict[str, Tensor]:
        penalty = self.min_q_weight * (action_value.logsumexp(-1) - value)
        return {"loss_cql": self._reduce(penalty, entries)}


# -- Implicit Q-learning (Kostrikov et al., 2021, arXiv:2110.06169).


class IQLLoss(ActorCriticLoss):
    """The IQL loss, with the values and gradients of TorchRL's.

    A state's value is an expectile of the values of the data's actions, and the actor imitates
    these actions, weighted by their advantage. No action outside the data is evaluated, so it suits
    data sets.

    Returns ``loss_actor``, ``loss_qvalue`` and ``loss_value``, which train separate parameters, and
    ``entropy``, minus the mean log-probability of the data. Writes ``"td_error"``, squared errors
    ``[*batch]``. What it reads, and further arguments, are those of `ReplayLoss`.

    Args:
        actor_network: The policy, a `DiagonalGaussianPolicy` or any module with its
            ``log_prob_and_entropy`` or TorchRL's ``get_dist``.
        qvalue_network: Modules that write ``"state_action_value"``; or one, which is copied with
            new weights, ``num_qvalue_nets=2`` in all.
        value_network: A module that writes ``"state_value"``.
        temperature: The paper's inverse temperature, per unit of return; 0 for equal weights.
        expectile: The expectile of a state's value, in (0, 1): 0.5 is the mean, near 1 the maximum.
    """

    out_keys = ("loss_actor", "loss_qvalue", "loss_value")
    value_network: Any
    _more_keys = ActorCriticLoss._more_keys | {"value": "state_value"}

    def __init__(
        self,
        actor_network: nn.Module,
        qvalue_network: nn.Module | Sequence[nn.Module],
        value_network: nn.Module,
        *,
        temperature: float = 1.0,
        expectile: float = 0.5,
        **options: Any,
    ) -> None:
        super().__init__(actor_network, qvalue_network, **options)
        if not 0 < expectile < 1 or temperature < 0:
            raise ConfigError(
                f"IQLLoss: {expectile=} must be between 0 and 1, {temperature=} not negative."
            )
        self.value_network = value_network
        self.temperature = temperature
        self.expectile = expectile

    def _row_losses(self, entries: Entries) -> dict[str, Tensor]:
        action = entries[self.tensor_keys.action]
        with torch.no_grad():
            best = self._data_values(self.target_qvalue_network, entries).amin(0)
            target = self._one_step_target(entries, self._state_value(entries, next_key))
        state_value = self._state_value(entries)
        advantage = best - state_value
        weight = torch.where(advantage > 0, self.expectile, 1 - self.expectile)

        imitation = (advantage.detach() * self.temperature).exp().clamp_max(_MOST_WEIGHT)
        log_prob = self._log_prob(entries, action)

        values = self._data_values(self.qvalue_network, entries)
        return {
            "loss_actor": self._reduce(-imitation * log_prob, entries),
            "loss_qvalue": self._reduce(self._errors(values, target), entries),
            "loss_value": self._reduce(weight * advantage.square(), entries),
            "entropy": -log_prob.detach().mean(),
            "td_error": (values.detach() - target).square().amax(0),
        }

    def _data_values(self, networks: Iterable[Any], entries: Entries) -> Tensor:
        """Return the values of the data's actions, ``[networks, batch]``."""
        return self._values(networks, entries, entries[self.tensor_keys.action])

    def _state_value(self, entries: Entries, at: KeyOf = this_key) -> Tensor:
        return self._output(self.value_network, entries, self.tensor_keys.value, at).reshape(-1)

    def _log_prob(self, entries: Entries, action: Tensor) -> Tensor:
        actor, (inputs, _) = self.actor_network, self._called_with(self.actor_network, entries)
        if hasattr(actor, "log_prob_and_entropy"):
            return actor.log_prob_and_entropy(inputs, action)[0].reshape(-1)
        batch = as_tensordict(actor.in_keys, inputs, self._batch_dims)
        return actor.get_dist(batch).log_prob(action).reshape(-1)


class DiscreteIQLLoss(IQLLoss):
    """The IQL loss for one discrete action, with the values and gradients of TorchRL's.

    Args:
        actor_network: The policy, a `CategoricalPolicy`.
        qvalue_network: As for `IQLLoss`, but `QNetwork` in place of values of actions.
        value_network: As for `IQLLoss`.
        **options: Further arguments of `IQLLoss`.
    """

    def _data_values(self, networks: Iterable[Any], entries: Entries) -> Tensor:
        chosen = entries[self.tensor_keys.action].reshape(-1, 1)
        values = (self._output(each, entries, "action_value") for each in networks)
        return torch.stack([value.gather(-1, chosen).reshape(-1) for value in values])


# -- Imitation of a teacher, and of a data set.


class ImitationLoss(Loss):
    """The difference between a student and its teacher, averaged over a batch.

    Reads the student's inputs and the entries of `hooktrainer.Distillation`. Returns
    ``loss_imitation``:

    - ``"mse"``: the squared difference of the best actions, for continuous actions;
    - ``"kl"``: the Kullback-Leibler divergence from the teacher to the student, for normal and
      categorical distributions; if the teacher only gives actions, their negative log-likelihood.

    Args:
        actor_network: The student, from `hooktrainer.networks`.
        kind: ``"mse"`` or ``"kl"``.
        coeff: Factor of the loss.
        certain: Whether the teacher only gives actions.

    Raises:
        ConfigError: If the student does not support this loss.
    """

    hint = "Distillation writes what the teacher does."

    out_keys = ("loss_imitation",)
    actor_network: Any
    coeff: Any

    def __init__(
        self,
        actor_network: nn.Module,
        kind: Literal["mse", "kl"] = "mse",
        *,
        coeff: float = 1.0,
        certain: bool = False,
    ) -> None:
        super().__init__()
        self.actor_network = actor_network
        self.kind = kind
        self._register_coefficients(coeff=coeff)
        distribution = getattr(actor_network, "distribution", None)
        name = type(actor_network).__name__
        self.teacher_keys: tuple[str, ...] = ("action",)
        if kind == "kl":
            if distribution is None or not (certain or distribution.kl_keys):
                raise ConfigError(
                    f"ImitationLoss(kind='kl'): that of {name} has no closed form: use 'mse'."
                )
            self.teacher_keys = ("action",) if certain else distribution.kl_keys
        elif kind != "mse":
            raise ConfigError(f"ImitationLoss(kind={kind!r}): pass 'mse' or 'kl'.")
        elif distribution is not None and not distribution.has_mode:
            raise ConfigError(
                f"ImitationLoss(kind='mse'): the actions of {name} are discrete: use kind='kl'."
            )
        self._certain = certain

    @property
    def in_keys(self) -> list[NestedKey]:
        return [*self.actor_network.in_keys, *(PREFIX + key for key in self.teacher_keys)]

    def losses(self, entries: Entries) -> dict[str, Tensor]:
        actor = self.actor_network
        inputs = [entries[key] for key in actor.in_keys]
        taught = {key: entries[PREFIX + key] for key in self.teacher_keys}
        if self.kind == "mse":
            mine = actor.mode(*inputs)
            loss = mse_loss(mine, taught["action"].view(mine.shape))
        elif self._certain:
            loss = -actor.log_prob_and_entropy(inputs, taught["action"])[0].mean()
        else:
            loss = actor.distribution.kl_from(taught, actor.evaluate(*inputs)).mean()
        return {"loss_imitation": self.coeff * loss}


class BCLoss(Loss):
    """The loss of behavior cloning.

    Reads the policy's inputs and ``"action"``. Returns ``loss_bc``: the mean negative
    log-likelihood of the actions, or the mean squared difference if the policy is deterministic.

    Args:
        actor_network: The policy, from `hooktrainer.networks`.
    """

    hint = "The data set has to have it."
    out_keys = ("loss_bc",)
    actor_network: Any

    def __init__(self, actor_network: nn.Module) -> None:
        super().__init__(action="action")
        self.actor_network = actor_network

    @property
    def in_keys(self) -> list[NestedKey]:
        return [*self.actor_network.in_keys, self.tensor_keys.action]

    def losses(self, entries: Entries) -> dict[str, Tensor]:
        actor, action = self.actor_network, entries[self.tensor_keys.action]
        inputs = [entries[key] for key in actor.in_keys]
        if hasattr(actor, "log_prob_and_entropy"):
            return {"loss_bc": -actor.log_prob_and_entropy(inputs, action)[0].mean()}
        mine = actor.evaluate(*inputs)
        return {"loss_bc": mse_loss(mine, action.reshape(mine.shape))}
