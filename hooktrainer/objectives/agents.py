"""Losses of several agents: a loss for each group of agents, and mixed values (QMIX, VDN)."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import torch
from tensordict import NestedKey, TensorDictBase
from torch import Tensor, nn

from .common import Entries, KeyOf, Loss, next_key, this_key
from .sequences import ReplayLoss
from .targets import target_copy

# -- `LossByGroup`: combines the losses of groups of agents.


class LossByGroup(Loss):
    """Combines the losses of several groups of agents with separate networks.

    With several groups, entries get the group's name: ``loss_objective_wolf``.

    Args:
        losses: Maps groups to losses that write no entries, such as `ClipPPOLoss`. Their keys are
            those of the whole batch, as from `keys_of`.
    """

    reward_by_agent = True  # and none of all agents together

    def __init__(self, losses: Mapping[str, Loss]) -> None:
        super().__init__()
        self.by_group = nn.ModuleDict(losses)
        single = len(losses) == 1
        self._parts = {"" if single else name: loss for name, loss in losses.items()}

    @property
    def in_keys(self) -> list[NestedKey]:
        return list(dict.fromkeys(key for loss in self._parts.values() for key in loss.in_keys))

    @property
    def out_keys(self) -> list[str]:
        return [_of(key, name) for name, loss in self._parts.items() for key in loss.out_keys]

    @property
    def variant(self) -> Hashable:
        return tuple(loss.variant for loss in self._parts.values())

    def compute_always_the_same(self) -> bool:
        """See `Loss.compute_always_the_same`."""
        same = [loss.compute_always_the_same() for loss in self._parts.values()]
        return all(same)

    def read(self, tensordict: TensorDictBase) -> Entries:
        entries: dict[NestedKey, Tensor] = {}
        for loss in self._parts.values():
            entries.update(loss.read(tensordict))
        return entries | dict(super().read(tensordict))

    def losses(self, entries: Entries) -> dict[str, Tensor]:
        return {
            _of(key, name): value
            for name, loss in self._parts.items()
            for key, value in loss.losses(entries).items()
        }

    def _begin(self) -> None:
        for loss in self._parts.values():
            loss._begin()


def _of(key: str, group: str) -> str:
    """Append a group to an entry's name; ``""`` is a single group."""
    return f"{key}_{group}" if group else key


def keys_of(group: str, *names: str) -> dict[str, NestedKey]:
    """Return arguments for ``set_keys``: the entries of a group.

    Args:
        group: Name of the group.
        *names: Names of the keys, which are also the entries' names.

    Examples:
        >>> keys_of("agents", "advantage")
        {'advantage': ('agents', 'advantage')}
    """
    return {name: (group, name) for name in names}


# -- `AgentsReplayLoss`: the base of the losses of several agents from a replay buffer.


class AgentsReplayLoss(ReplayLoss):
    """Base class of replay losses of several agents, by group.

    If there is a ``(group, "mask")``, now and under ``"next"``, it is read.

    Attributes:
        state_keys: Further inputs, of networks without a memory.
    """

    state_keys: Sequence[NestedKey]
    _may_have_several = True
    _acting: str  # the name of the networks that choose actions, by group

    @property
    def in_keys(self) -> list[NestedKey]:
        states = self.state_keys
        actions: list[NestedKey] = [(name, "action") for name in self._by_group]
        following = map(next_key, (*states, *self._ends))
        return list(dict.fromkeys([*states, *self._reads(*actions), *following]))

    @property
    def _by_group(self) -> Any:
        return getattr(self, self._acting)

    @property
    def _networks(self) -> Sequence[Any]:
        return list(self._by_group.values())

    @property
    def _ends(self) -> Sequence[NestedKey]:
        """Rewards and ends of a step."""
        return [self.tensor_keys.reward, self.tensor_keys.terminated]

    @property
    def _masks(self) -> Sequence[NestedKey]:
        return [(name, "mask") for name in self._by_group]

    @property
    def _optional(self) -> Sequence[NestedKey]:
        return [*self._masks, *map(next_key, self._masks)]

    @property
    def _read_apart(self) -> Sequence[NestedKey]:
        return [*self.state_keys, *self._masks]


# -- Value mixing: QMIX (Rashid et al., 2018, arXiv:1803.11485) and VDN (Sunehag et al., 2018).


class QMixLoss(AgentsReplayLoss):
    """The loss of value mixing, with the values and gradients of TorchRL's ``QMixerLoss``.

    The values of the agents' actions are mixed into a joint value, which is trained as in deep
    Q-learning with the shared reward.

    Reads the networks' inputs, now and under ``"next"``, ``(group, "action")`` (indices ``[*batch,
    agents]``), ``("next", "reward")``, ``("next", "terminated")`` and optionally ``(group,
    "mask")``: an agent that does not act has value 0. Returns ``loss``, and writes ``"td_error"``,
    squared errors ``[*batch, 1]``.

    Targets use delayed copies, moved by `SoftUpdate` or `HardUpdate`. For ``gamma``,
    ``loss_function`` and ``burn_in``, and for networks with a memory, see `ReplayLoss`. The mixer
    has none: it reads ``state_keys`` of its step.

    Args:
        value_networks: By group, a `QNetwork`, or a TensorDict module that writes ``(group,
            "action_value")``, ``[*batch, agents, actions]``.
        mixer: Maps the agents' values, ``[*batch, agents, 1]``, and ``state_keys`` to ``[*batch,
            1]``.
        state_keys: Further inputs of the mixer.
        double: Whether the trained networks choose the next actions, and the targets value them.
    """

    out_keys = ("loss",)
    _error_dims = (1,)
    _acting = "value_networks"
    value_networks: Any
    target_value_networks: Any
    mixer: Any
    target_mixer: Any

    def __init__(
        self,
        value_networks: Mapping[str, nn.Module],
        mixer: nn.Module,
        state_keys: Sequence[NestedKey] = (),
        *,
        gamma: float = 0.99,
        loss_function: str = "l2",
        double: bool = False,
        burn_in: int = 0,
    ) -> None:
        super().__init__(gamma=gamma, loss_function=loss_function, burn_in=burn_in)
        self.value_networks = nn.ModuleDict(value_networks)
        self.mixer = mixer
        self.target_value_networks = target_copy(self.value_networks)
        self.target_mixer = target_copy(mixer)
        self.state_keys = list(state_keys)
        self.double = double
        self._use_memory()

    def _row_losses(self, entries: Entries) -> dict[str, Tensor]:
        chosen = {
            name: values.gather(-1, entries[name, "action"].unsqueeze(-1))
            for name, values in self._action_values(self.value_networks, entries).items()
        }
        value = self._mixed(self.mixer, chosen, entries)
        with torch.no_grad():
            best = self._mixed(self.target_mixer, self._best(entries), entries, next_key)
            target = self._one_step_target(entries, best)
            td_error = (value - target).square()
        return {"loss": self._distance(value, target), "td_error": td_error}

    def _best(self, entries: Entries) -> dict[str, Tensor]:
        """Return the values of the best next actions, by group, ``[*batch, agents, 1]``."""
        values = self._action_values(self.target_value_networks, entries, next_key)
        if not self.double:
            return {name: value.amax(-1, keepdim=True) for name, value in values.items()}
        own = self._action_values(self.value_networks, entries, next_key)
        return {name: v.gather(-1, own[name].argmax(-1, True)) for name, v in values.items()}

    def _action_values(
        self, networks: Any, entries: Entries, at: KeyOf = this_key
    ) -> dict[str, Tensor]:
        """Return the values of all actions, by group, ``[*batch, agents, actions]``."""
        return {
            name: self._output(network, entries, (name, "action_value"), at)
            for name, network in networks.items()
        }

    def _mixed(
        self,
        mixer: Any,
        chosen: Mapping[str, Tensor],
        entries: Entries,
        at: KeyOf = this_key,
    ) -> Tensor:
        """Return the joint value, ``[batch]``."""
        values = []
        for name, value in chosen.items():
            mask = entries.get(at((name, "mask")))
            values.append(value if mask is None else value * mask.unsqueeze(-1))
        states = [entries[at(key)] for key in self.state_keys]
        return mixer(torch.cat(values, -2), *states).reshape(-1)
