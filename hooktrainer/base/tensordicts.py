"""TensorDicts made of entries that are known to fit, without looking at each of them again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from tensordict import NestedKey, TensorDict

# tensordict's own way, which torchrl takes as well; if it should go, the checks come back.
_make: Any = getattr(TensorDict, "_new_unsafe", TensorDict)


def tensordict_of(
    entries: Mapping[NestedKey, Any],
    batch_size: torch.Size,
    device: torch.device | None = None,
) -> TensorDict:
    """A TensorDict of entries that are known to fit, without the checks of each.

    These are most of what the constructor of a small TensorDict costs: more than drawing a batch
    from a replay buffer does.

    Args:
        entries: Key to a tensor ``[*batch_size, ...]`` on ``device``, or a TensorDict of such.
        batch_size: The batch size.
        device: Where the TensorDict says that its entries are.
    """
    tree: dict[str, Any] = {}
    for key, value in entries.items():
        if key.__class__ is str:
            tree[key] = value
            continue
        *parents, name = key
        place = tree
        for parent in parents:
            place = place.setdefault(parent, {})
        place[name] = value
    made: TensorDict = _make(tree, batch_size=batch_size, device=device)
    return made
