"""`ActorCriticLoss`, the base of losses with an actor and Q-functions; `DDPGLoss`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ..base.checks import check_count
from ..networks.layers import fresh_copy
from .common import Entries, KeyOf, next_key, this_key
from .sequences import ReplayLoss
from .targets import target_copies, target_copy


class ActorCriticLoss(ReplayLoss):
    """Base class of off-policy losses with one actor and one or several Q-functions Q(s, a).

    A shared memory learns from the Q-functions alone: the actor reads its features without gradient
    (Yarats et al., 2021, arXiv:1910.01741).

    Args:
        actor_network: The policy.
        critic: The Q-functions; or one, which is copied with new weights.
        num_qvalue_nets: Number of Q-functions made from one; ``None`` for one that is no list.
        **options: Further arguments of `ReplayLoss`.
    """

    actor_network: Any
    qvalue_network: Any
    target_qvalue_network: Any
    _critic = "qvalue_network"  # its name
    _may_hold_all = False  # whether one module is all Q-functions, and is not copied
    _has_target = True
    _delays_actor = False
    _more_keys: ClassVar = {"state_action_value": "state_action_value"}

    def __init__(
        self,
        actor_network: nn.Module,
        critic: Any,
        *,
        num_qvalue_nets: int | None = 2,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.actor_network = actor_network
        if num_qvalue_nets is not None:
            check_count("num_qvalue_nets", num_qvalue_nets)
            if isinstance(critic, nn.Module):
                copies = 0 if self._may_hold_all else num_qvalue_nets - 1
                critic = [critic, *(fresh_copy(critic) for _ in range(copies))]
            critic = nn.ModuleList(critic)
        setattr(self, self._critic, critic)
        if self._delays_actor:
            self.target_actor_network, target = target_copies(actor_network, critic)
        else:
            target = target_copy(critic) if self._has_target else None
        setattr(self, f"target_{self._critic}", target)
        self._use_memory()

    @property
    def _critics(self) -> Sequence[Any]:
        """The Q-functions that are trained."""
        return _listed(getattr(self, self._critic))

    @property
    def _networks(self) -> Sequence[Any]:
        return [self.actor_network, *self._critics]

    def _values(
        self,
        networks: Iterable[Any],
        entries: Entries,
        action: Tensor,
        at: KeyOf = this_key,
        frozen: bool = False,
    ) -> Tensor:
        """Return the value of ``action`` by every network, ``[networks, batch]``.

        With ``frozen``, gradients reach the action alone.
        """
        key, given = self.tensor_keys.state_action_value, {self.tensor_keys.action: action}
        values = (self._output(each, entries, key, at, given, frozen) for each in networks)
        return torch.cat([self._by_network(value) for value in values])

    # The form of values and targets. Losses of distributions override these.

    def _by_network(self, value: Tensor) -> Tensor:
        """Return what a module wrote, ``[*batch, networks]``, as ``[networks, batch]``."""
        return value.reshape(-1, value.shape[-1]).t()

    def _target(self, entries: Entries, following: Tensor, cost: Tensor | float = 0.0) -> Tensor:
        """Return the target ``[batch]``, given the next states' values and their cost ``[batch]``.

        The values are ``[networks, batch]``.
        """
        return self._one_step_target(entries, self._for_target(following) - cost)

    def _for_target(self, values: Tensor) -> Tensor:
        """Return the values ``[batch]`` of the next states, of ``[networks, batch]``."""
        return values.amin(0)

    def _errors(self, values: Tensor, target: Tensor) -> Tensor:
        """Sum the distances of ``values``, ``[networks, batch]``, to the target: ``[batch]``."""
        return self._distance(values, target.expand_as(values), reduction="none").sum(0)

    def _means(self, values: Tensor) -> Tensor:
        """Return the expected returns ``[networks, batch]``."""
        return values

    def _target_means(self, target: Tensor) -> Tensor:
        """Return the expected returns of the target, ``[batch]``."""
        return target


def _listed(networks: Any) -> Any:
    return networks if isinstance(networks, nn.ModuleList) else [networks]


class DelayedActorLoss(ActorCriticLoss):
    """Base class of losses that train the actor at some calls only.

    Args:
        actor_network: The policy.
        critic: As for `ActorCriticLoss`.
        policy_delay: The actor is trained at every n-th call.
        **options: Further arguments of `ActorCriticLoss`.
    """

    _trains_actor = True

    def __init__(
        self, actor_network: nn.Module, critic: Any, *, policy_delay: int = 1, **options: Any
    ) -> None:
        super().__init__(actor_network, critic, **options)
        check_count("policy_delay", policy_delay)
        self.policy_delay = policy_delay

    @property
    def variant(self) -> bool:
        """Whether this call trains the actor."""
        return self._trains_actor

    def compute_always_the_same(self) -> bool:
        """Return whether every call trains the actor."""
        return self.policy_delay == 1

    def _begin(self) -> None:
        super()._begin()
        self._trains_actor = self._calls % self.policy_delay == 0


class DeterministicLoss(DelayedActorLoss):
    """Base class of the losses of deterministic policies, DDPG and TD3."""

    out_keys: Sequence[str] = ("loss_actor", "loss_value")
    _value_loss = "loss_value"
    target_actor_network: Any
    _delays_actor = True

    def _row_losses(self, entries: Entries) -> dict[str, Tensor]:
        out = {}
        if self._trains_actor:
            inputs, known = self._called_with(self.actor_network, entries, detached=True)
            action = self.actor_network.evaluate(*inputs, **known)
            gain = self._means(self._values(self._critics[:1], entries, action, frozen=True))[0]
            out["loss_actor"] = self._reduce(self._actor_loss(gain, action, entries), entries)
        with torch.no_grad():
            target = self._target(entries, self._next_values(entries))
        values = self._values(self._critics, entries, entries[self.tensor_keys.action])
        now, later = self._means(values.detach()), self._target_means(target)
        return {
            **out,
            self._value_loss: self._reduce(self._errors(values, target), entries),
            "pred_value": now.mean(),
            "target_value": later.mean(),
            "td_error": (now - later).square().amax(0),
        }

    def _next_values(self, entries: Entries) -> Tensor:
        """Return the values of the next states, ``[networks, batch]``."""
        noise = self._noise(entries)  # drawn first
        actor = self.target_actor_network
        inputs, known = self._called_with(actor, entries, next_key)
        action = actor.evaluate(*inputs, **known)
        if noise is not None:
            action = actor.box.perturb(action, noise)
        targets = _listed(getattr(self, f"target_{self._critic}"))
        return self._values(targets, entries, action, next_key)

    def _actor_loss(self, gain: Tensor, action: Tensor, entries: Entries) -> Tensor:
        """Return the actor's loss ``[batch]`` for the values of its actions, ``[batch]``."""
        return -gain

    def _noise(self, entries: Entries) -> Tensor | None:
        """Return the noise on the target's action, in halves of its box."""
        return None


# -- Deep deterministic policy gradient (Lillicrap et al., 2015, arXiv:1509.02971).


class DDPGLoss(DeterministicLoss):
    """The DDPG loss, with the values and gradients of TorchRL's with ``delay_actor=True``.

    Returns ``loss_actor`` and ``loss_value``, which train separate parameters, and the means
    ``pred_value`` and ``target_value``. Writes ``"td_error"``, squared errors ``[*batch]``. What it
    reads, and further arguments, are those of `ReplayLoss`.

    Args:
        actor_network: The policy, a `DeterministicPolicy` or any module with its ``evaluate``.
        value_network: A module that writes ``"state_action_value"``.
    """

    _critic = "value_network"

    def __init__(
        self,
        actor_network: nn.Module,
        value_network: nn.Module,
        *,
        loss_function: str = "l2",
        **options: Any,
    ) -> None:
        options["loss_function"] = loss_function
        super().__init__(actor_network, value_network, num_qvalue_nets=None, **options)
