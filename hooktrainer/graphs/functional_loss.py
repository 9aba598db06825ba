"""`FunctionalLoss`: a loss module as a function of its parameters and of the entries of a batch."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from functools import partial
from typing import Any

import torch
from tensordict import NestedKey, TensorDict, TensorDictBase
from torch import nn

from ..objectives.common import Entries, Loss

Losses = dict[Any, torch.Tensor]


class FunctionalLoss:
    """A loss module as a function of its parameters and of the entries of a batch.

    A `Loss` is taken apart: what it reads and writes stays outside the function. Of any other
    module the whole ``forward`` is inside, which must then be free of side effects; what it writes
    into the batch is found again by comparing.

    Args:
        module: Maps a TensorDict to a TensorDict of losses.
        autocast: The arguments of ``torch.autocast``, in which the module computes; ``None``: none.

    Attributes:
        names: Every parameter, and what it is called in a call.
    """

    def __init__(
        self,
        module: nn.Module,
        autocast: tuple[str, torch.dtype] | None = None,
    ) -> None:
        self.module = module
        self._autocast = autocast
        self._body = _OfLoss(module) if isinstance(module, Loss) else _OfModule(module)
        # A module that several others hold is met once, a parameter in every module that has it.
        self._places: dict[str, list[str]] = {}
        self._slots: list[tuple[str, nn.Module, str]] = []  # of the buffers
        self.names: dict[nn.Parameter, str] = {}
        for prefix, owner in self._body.named_modules():
            self._slots += [(f"{prefix}.{own}", owner, own) for own in owner._buffers]
            for own, parameter in owner._parameters.items():
                if parameter is not None:
                    name = f"{prefix}.{own}"
                    first = self.names.setdefault(parameter, name)
                    self._places.setdefault(first, []).append(name)

    def __call__(self, parameters: Mapping[str, torch.Tensor], entries: Entries) -> Losses:
        """The losses, and what else the module computes, with these parameters.

        Args:
            parameters: By their names in `names`, and buffers by theirs in `buffers`; the others
                are the module's own.
            entries: What `read` gave.
        """
        placed = {
            place: parameter
            for name, parameter in parameters.items()
            for place in self._places.get(name, (name,))
        }
        if self._autocast is None:
            return torch.func.functional_call(self._body, placed, (entries,), tie_weights=False)
        kind, dtype = self._autocast
        with torch.autocast(kind, dtype):
            out = torch.func.functional_call(self._body, placed, (entries,), tie_weights=False)
        return {key: value.float() if value.dtype is dtype else value for key, value in out.items()}

    @property
    def body(self) -> nn.Module:
        """All that a call computes with, but for its arguments."""
        return self._body

    @property
    def buffers(self) -> dict[str, torch.Tensor]:
        """Every buffer, by what it is called in a call; once in every module that has it."""
        found = ((name, owner._buffers[own]) for name, owner, own in self._slots)
        return {name: buffer for name, buffer in found if buffer is not None}

    @property
    def variant(self) -> Hashable:
        """What this call computes otherwise than another."""
        return self.module.variant if isinstance(self.module, Loss) else None

    def compute_always_the_same(self) -> bool:
        """Have every call compute the same, if that can be; return whether it does."""
        return not isinstance(self.module, Loss) or self.module.compute_always_the_same()

    def read(self, tensordict: TensorDictBase) -> Entries:
        """The entries of a batch that a call needs."""
        return self._body.read(tensordict)

    def replace(self, call: Callable[[TensorDictBase], Losses]) -> None:
        """Have the module call this with its batch, instead of reading it and computing."""
        self._body.replace(call)

    def restore(self) -> None:
        """Have the module compute by itself again."""
        self._body.restore()


class _OfLoss(nn.Module):
    """The computation of a `Loss`."""

    def __init__(self, loss: Loss) -> None:
        super().__init__()
        self.loss = loss

    def forward(self, entries: Entries) -> Losses:
        return type(self.loss).compute(self.loss, entries)

    def read(self, tensordict: TensorDictBase) -> Entries:
        return self.loss.gather(tensordict)

    def replace(self, call: Callable[[TensorDictBase], Losses]) -> None:
        self.loss.__dict__["forward"] = partial(self.loss.call, call)

    def restore(self) -> None:
        self.loss.__dict__.pop("forward", None)


class _OfModule(nn.Module):
    """The ``forward`` of a module that maps TensorDicts."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        self._batch_dims = 1

    def forward(self, entries: Entries) -> Losses:
        shape = next(iter(entries.values())).shape[: self._batch_dims]
        batch = TensorDict({}, shape)
        for key, value in entries.items():
            batch.set(key, value)
        out = type(self.module).forward(self.module, batch)
        written: Losses = {
            ("written", key): value
            for key, value in _leaves(batch).items()
            if entries.get(key) is not value
        }
        return {**written, **_leaves(out)}

    def read(self, tensordict: TensorDictBase) -> Entries:
        self._batch_dims = tensordict.ndim
        wanted = getattr(self.module, "in_keys", None)
        leaves = _leaves(tensordict)
        if not wanted:
            return leaves
        return {key: leaves[key] for key in wanted if key in leaves}

    def replace(self, call: Callable[[TensorDictBase], Losses]) -> None:
        def forward(tensordict: TensorDictBase) -> TensorDict:
            out = call(tensordict)
            for key in [key for key in out if isinstance(key, tuple) and key[0] == "written"]:
                tensordict.set(key[1], out.pop(key))
            return TensorDict(out)

        self.module.__dict__["forward"] = forward

    def restore(self) -> None:
        self.module.__dict__.pop("forward", None)


def _leaves(tensordict: TensorDictBase) -> dict[NestedKey, torch.Tensor]:
    return dict(tensordict.items(include_nested=True, leaves_only=True))
