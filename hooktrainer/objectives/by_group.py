"""`LossByGroup`: a loss for each group of agents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tensordict import NestedKey, TensorDict, TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torch import nn

from .common import Loss


class LossByGroup(TensorDictModuleBase):
    """The losses of several groups of agents, each with networks of its own.

    Of a single group the entries are called as its loss calls them; of several, the name of the
    group stands behind: ``loss_objective_wolf``.

    Args:
        losses: By the name of a group, its loss, whose keys are those of the whole batch; `keys_of`
            gives them.
    """

    def __init__(self, losses: Mapping[str, Loss]) -> None:
        super().__init__()
        self.losses = nn.ModuleDict(losses)
        single = len(losses) == 1
        self._suffixes = {name: "" if single else f"_{name}" for name in losses}
        self.in_keys: list[NestedKey] = list(
            dict.fromkeys(key for loss in losses.values() for key in loss.in_keys)
        )
        self.out_keys = [
            f"{key}{self._suffixes[name]}" for name, loss in losses.items() for key in loss.out_keys
        ]

    def forward(self, tensordict: TensorDictBase) -> TensorDict:
        """Compute the losses of a batch.

        Raises:
            KeyError: If an entry is missing.
        """
        out: dict[str, Any] = {}
        for name, loss in self.losses.items():
            suffix = self._suffixes[name]
            out |= {f"{key}{suffix}": value for key, value in loss(tensordict).items()}
        return TensorDict(out)

    def compile(self, **kwargs: Any) -> None:
        """Compile each of the losses."""
        for loss in self.losses.values():
            loss.compile(**kwargs)


def keys_of(group: str, *names: str) -> dict[str, NestedKey]:
    """Arguments of ``set_keys``: the entries of a group.

    Args:
        group: Its name.
        *names: Names of keys, each of them the entry that it stands for.

    Examples:
        >>> keys_of("agents", "advantage")
        {'advantage': ('agents', 'advantage')}
    """
    return {name: (group, name) for name in names}
