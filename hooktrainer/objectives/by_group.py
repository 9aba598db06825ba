"""`LossByGroup`: combines the losses of groups of agents."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from tensordict import NestedKey, TensorDictBase
from torch import Tensor, nn

from .common import Entries, Loss


class LossByGroup(Loss):
    """Combines the losses of several groups of agents with separate networks.

    With several groups, entries get the group's name: ``loss_objective_wolf``.

    Args:
        losses: Maps groups to losses, whose keys are those of the whole batch, as from `keys_of`.
    """

    def __init__(self, losses: Mapping[str, Loss]) -> None:
        super().__init__()
        self.by_group = nn.ModuleDict(losses)
        single = len(losses) == 1
        self._parts = {name if not single else "": loss for name, loss in losses.items()}

    @property
    def in_keys(self) -> list[NestedKey]:
        """Entries they read."""
        return list(dict.fromkeys(key for loss in self._parts.values() for key in loss.in_keys))

    @property
    def out_keys(self) -> list[str]:
        """The losses they return."""
        return [_of(key, name) for name, loss in self._parts.items() for key in loss.out_keys]

    @property
    def variant(self) -> Hashable:
        """See `Loss.variant`."""
        return tuple(loss.variant for loss in self._parts.values())

    def compute_always_the_same(self) -> bool:
        """See `Loss.compute_always_the_same`."""
        same = [loss.compute_always_the_same() for loss in self._parts.values()]
        return all(same)

    def read(self, tensordict: TensorDictBase) -> Entries:
        """See `Loss.read`."""
        entries: dict[NestedKey, Tensor] = {}
        for loss in self._parts.values():
            entries |= loss.read(tensordict)
        return entries

    def losses(self, entries: Entries) -> dict[str, Tensor]:
        """Losses and diagnostics of all groups."""
        return {
            _of(key, name): value
            for name, loss in self._parts.items()
            for key, value in loss.losses(entries).items()
        }

    def _begin(self) -> None:
        for loss in self._parts.values():
            loss._begin()

    def _write(self, out: dict[str, Tensor], tensordict: TensorDictBase) -> None:
        for name, loss in self._parts.items():
            suffix = _of("", name)
            own = {k[: len(k) - len(suffix)]: v for k, v in out.items() if k.endswith(suffix)}
            kept = dict(own)
            loss._write(kept, tensordict)
            for key in own.keys() - kept.keys():
                del out[key + suffix]


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
