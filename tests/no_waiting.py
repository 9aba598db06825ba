"""A mode in which whatever would wait for the device is an error."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

_READS = ("_local_scalar_dense", "nonzero", "masked_select", "unique", "is_nonzero", "equal")


class NoWaiting(TorchDispatchMode):
    """Refuses to read what tensors hold, to index by what they hold, and to leave their device.

    On a CPU ``.item()`` and so on are dispatched as on a GPU; copies between devices show when the
    tensors are on the device ``meta``, from which nothing can be read at all.
    """

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.name().split("::")[1].split(".")[0]
        assert name not in _READS, f"{func} waits for the device"
        if name in ("index", "index_put", "index_put_"):
            kinds = [index.dtype for index in args[1] if index is not None]
            assert torch.bool not in kinds, f"{func} by a boolean mask waits for the device"
        out = func(*args, **(kwargs or {}))
        if name in ("_to_copy", "copy_"):
            places = {x.device.type for x in (*args[:2], out) if isinstance(x, torch.Tensor)}
            assert len(places) == 1, f"{func} copies between {sorted(places)}"
        return out
