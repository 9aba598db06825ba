"""Losses of several agents with central critics: MADDPG, and soft actor-critic likewise."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from tensordict import NestedKey
from torch import Tensor, nn

from ..base.checks import check_positive
from ..networks import CentralQNetwork
from .agents import AgentsReplayLoss
from .common import Entries, KeyOf, call_frozen, next_key, this_key
from .targets import target_copies, target_copy


class CentralCriticLoss(AgentsReplayLoss):
    """Base class of losses whose critics see the observations and actions of all agents.

    Reads, for each group, the networks' inputs, ``(group, "action")`` ``[*batch, agents,
    features]`` and, under ``"next"``, ``(group, "reward")`` and ``(group, "terminated")``,
    ``[*batch, agents, 1]``. If there is a ``(group, "mask")``, the actions of agents that do not
    act are 0, and they are left out of every mean.

    An agent is trained on the value of its own new action and, of all others, those of the batch.
    Entries of several groups get the group's name: ``loss_actor_wolf``.

    Policies may have a memory, see `ReplayLoss`. Critics may read its features: one step's
    observations lack what was seen before. Both losses then train the memory, since a state may
    tell the critics what only the policies have to remember.

    Args:
        actors: By group, the policy of its agents.
        critics: By group, its Q-functions: one `CentralQNetwork` or several, of which the least
            value counts.
        gamma: Discount factor.
        loss_function: As for `ReplayLoss`.
        burn_in: As for `ReplayLoss`.
    """

    reward_by_agent = True
    _acting = "actors"
    actors: Any
    critics: Any
    target_critics: Any

    def __init__(
        self,
        actors: Mapping[str, nn.Module],
        critics: Mapping[str, Sequence[CentralQNetwork]],
        *,
        gamma: float = 0.99,
        loss_function: str = "l2",
        burn_in: int = 0,
    ) -> None:
        super().__init__(gamma=gamma, loss_function=loss_function, burn_in=burn_in)
        self.actors = nn.ModuleDict(actors)
        self.critics = nn.ModuleDict({name: nn.ModuleList(own) for name, own in critics.items()})
        self.state_keys = [key for own in critics.values() for one in own for key in one.in_keys]
        self._make_targets()
        self._use_memory()

    def _make_targets(self) -> None:
        self.target_critics = target_copy(self.critics)

    @property
    def out_keys(self) -> list[str]:
        """Entries that are minimized."""
        return [self._named(key, name) for name in self.actors for key in self._loss_keys]

    _loss_keys: Sequence[str] = ("loss_actor", "loss_value")

    @property
    def _ends(self) -> Sequence[NestedKey]:
        return [(name, key) for name in self.actors for key in ("reward", "terminated")]

    def _row_losses(self, entries: Entries) -> dict[str, Tensor]:
        taken = {name: entries[name, "action"] for name in self.actors}
        with torch.no_grad():
            following = {name: self._next_action(name, entries) for name in self.actors}
        drawn = {name: action for name, (action, _) in following.items()}
        then, now = self._joint(drawn, entries, next_key), self._joint(taken, entries)
        out, errors = dict[str, Tensor](), []
        for name in self.actors:
            weights = self._weights(name, entries)
            with torch.no_grad():
                value = self._values(self.target_critics[name], entries, then, next_key).amin(0)
                reward, over = (
                    entries["next", name, key].squeeze(-1) for key in ("reward", "terminated")
                )
                value = value - following[name][1]
                target = reward + self.gamma * torch.where(over, 0.0, value)
            values = self._values(self.critics[name], entries, now)
            distance = self._distance(values, target.expand_as(values), reduction="none").sum(0)
            found = self._actor_losses(name, entries, now, weights)
            found |= {"loss_value": _mean(distance, weights)}
            found |= {"pred_value": _mean(values.detach()[0], weights)}
            out |= {self._named(key, name): entry for key, entry in found.items()}
            errors.append((values.detach() - target).abs().amax(0) * weights)
        return {**out, "td_error": torch.cat(errors, -1).amax(-1)}

    @abstractmethod
    def _actor_losses(
        self, name: str, entries: Entries, taken: Mapping[str, Tensor], weights: Tensor
    ) -> dict[str, Tensor]:
        """Return losses and diagnostics of a group's actor."""

    @abstractmethod
    def _next_action(self, name: str, entries: Entries) -> tuple[Tensor, Tensor | float]:
        """Return the next actions of a group, and what is subtracted from their value."""

    def _named(self, key: str, group: str) -> str:
        return key if len(self.actors) == 1 else f"{key}_{group}"

    def _weights(self, name: str, entries: Entries, at: KeyOf = this_key) -> Tensor:
        """Return which agents act, ``[batch, agents]``, as numbers."""
        mask = entries.get(at((name, "mask")))
        like = entries["next", name, "reward"].squeeze(-1)
        return torch.ones_like(like) if mask is None else mask.to(like.dtype)

    def _joint(
        self, actions: Mapping[str, Tensor], entries: Entries, at: KeyOf = this_key
    ) -> dict[str, Tensor]:
        """Return the actions by group, ``[batch, agents, features]``; 0 if one does not act."""
        return {
            name: action.reshape(*action.shape[:2], -1)
            * self._weights(name, entries, at).unsqueeze(-1)
            for name, action in actions.items()
        }

    def _values(
        self,
        critics: Any,
        entries: Entries,
        actions: Mapping[str, Tensor],
        at: KeyOf = this_key,
    ) -> Tensor:
        """Return the agents' values by every critic, ``[critics, batch, agents]``."""
        joint = torch.cat([action.flatten(1) for action in actions.values()], -1)
        return torch.stack([one(joint, *self._seen(one, entries, at)) for one in critics])

    def _seen(
        self, critic: Any, entries: Entries, at: KeyOf = this_key, detached: bool = False
    ) -> list[Tensor]:
        """Return what a critic's encoder takes."""
        remembered = [self._remembered(one, entries, at, detached) for one in critic.trunks]
        return [*(entries[at(key)] for key in critic.in_keys), *remembered]

    def _own_values(
        self, name: str, entries: Entries, taken: Mapping[str, Tensor], new: Tensor
    ) -> Tensor:
        """Return each agent's value of its new action, ``[batch, agents]``.

        Gradients reach the new actions alone.
        """
        agents = new.shape[1]
        own = torch.eye(agents, dtype=torch.bool, device=new.device).view(agents, 1, agents, 1)
        # [agents, batch, features]: in row i, only the action of agent i is new.
        varied = torch.where(own, new.reshape(*new.shape[:2], -1), taken[name])
        parts = [
            varied.flatten(2) if group == name else action.flatten(1).expand(agents, -1, -1)
            for group, action in taken.items()
        ]
        joint, found = torch.cat(parts, -1), []
        for critic in self.critics[name]:
            values = call_frozen(critic, joint, *self._seen(critic, entries, detached=True))
            # The diagonal, [batch, agents]; inductor's `diagonal` warns.
            index = torch.arange(agents, device=values.device).view(-1, 1, 1)
            own_values = values.gather(-1, index.expand(-1, values.shape[1], 1))
            found.append(own_values.squeeze(-1).t())
        return torch.stack(found).amin(0)


def _mean(x: Tensor, weights: Tensor) -> Tensor:
    """Return the mean over the agents that act."""
    return (x * weights).sum() / weights.sum().clamp_min(1.0)


class MADDPGLoss(CentralCriticLoss):
    """The loss of multi-agent deep deterministic policy gradient (Lowe et al., 2017).

    arXiv:1706.02275. Returns ``loss_actor`` and ``loss_value``, which train separate parameters
    except for memories, and ``pred_value``. For one agent without a memory it is `DDPGLoss`. For
    what it reads and its arguments see `CentralCriticLoss`; actors are `DeterministicPolicy`.
    """

    target_actors: Any

    def _make_targets(self) -> None:
        self.target_actors, self.target_critics = target_copies(self.actors, self.critics)

    def _next_action(self, name: str, entries: Entries) -> tuple[Tensor, Tensor | float]:
        actor = self.target_actors[name]
        inputs, known = self._called_with(actor, entries, next_key)
        return actor.evaluate(*inputs, **known), 0.0

    def _actor_losses(
        self, name: str, entries: Entries, taken: Mapping[str, Tensor], weights: Tensor
    ) -> dict[str, Tensor]:
        actor = self.actors[name]
        inputs, known = self._called_with(actor, entries)
        new = actor.evaluate(*inputs, **known)
        return {"loss_actor": _mean(-self._own_values(name, entries, taken, new), weights)}


class MASACLoss(CentralCriticLoss):
    """The loss of soft actor-critic with central critics, and a temperature for each group.

    Returns ``loss_actor``, ``loss_value`` and ``loss_alpha``, which train separate parameters
    except for memories, ``alpha``, ``entropy`` and ``pred_value``. For one agent without a memory
    it is `SACLoss`. For what it reads see `CentralCriticLoss`; actors are `TanhGaussianPolicy`.

    Args:
        actors: As for `CentralCriticLoss`.
        critics: As for `CentralCriticLoss`; two for each group in the paper.
        alpha_init: Initial temperature, the weight of the entropy.
        target_entropy: Target of each agent's entropy; ``"auto"`` for minus the number of its
            action's features.
        **options: ``gamma``, ``loss_function`` and ``burn_in``.
    """

    _loss_keys = ("loss_actor", "loss_value", "loss_alpha")

    def __init__(
        self,
        actors: Mapping[str, Any],
        critics: Mapping[str, Sequence[CentralQNetwork]],
        *,
        alpha_init: float = 1.0,
        target_entropy: float | str = "auto",
        **options: Any,
    ) -> None:
        super().__init__(actors, critics, **options)
        check_positive("alpha_init", alpha_init)
        initial = math.log(alpha_init)
        self.log_alphas = nn.ParameterDict(
            {name: nn.Parameter(torch.tensor(initial)) for name in actors}
        )
        self.target_entropies = {
            name: float(-actor.action_features if target_entropy == "auto" else target_entropy)
            for name, actor in actors.items()
        }

    def _drawn(self, name: str, entries: Entries, at: KeyOf = this_key) -> tuple[Tensor, Tensor]:
        actor = self.actors[name]
        inputs, known = self._called_with(actor, entries, at)
        return actor.rsample(*inputs, **known)

    def _next_action(self, name: str, entries: Entries) -> tuple[Tensor, Tensor | float]:
        action, log_prob = self._drawn(name, entries, next_key)
        return action, self.log_alphas[name].detach().exp() * log_prob

    def _actor_losses(
        self, name: str, entries: Entries, taken: Mapping[str, Tensor], weights: Tensor
    ) -> dict[str, Tensor]:
        new, log_prob = self._drawn(name, entries)
        log_alpha, surprise = self.log_alphas[name], log_prob.detach()
        alpha = log_alpha.detach().exp()
        value = self._own_values(name, entries, taken, new)
        return {
            "loss_actor": _mean(alpha * log_prob - value, weights),
            "loss_alpha": _mean(-log_alpha * (surprise + self.target_entropies[name]), weights),
            "alpha": alpha,
            "entropy": _mean(-surprise, weights),
        }
