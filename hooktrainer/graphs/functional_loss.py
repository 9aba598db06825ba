"""`FunctionalLoss`: a loss module as a function of its parameters and of the entries of a batch."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from functools import partial
from typing import Any, ClassVar

import torch
from tensordict import NestedKey, TensorDict, TensorDictBase
from torch import nn

from ..objectives.common import Compute, Entries, Loss

Losses = dict[Any, torch.Tensor]


class FunctionalLoss:
    """A loss module as a function of its parameters and of the entries of a batch.

    What a `Loss` reads and writes stays outside the function. Of any other module the whole
    ``forward`` is inside, which must then be free of side effects but for entries it writes.

    Args:
        module: Maps a TensorDict to a TensorDict of losses.
        autocast: The arguments of ``torch.autocast`` for the computation; ``None`` for none.

    Attributes:
        names: The name of every parameter.
    """

    not_in_graphs: ClassVar = frozenset(("names", "_places"))  # which follow from the module

    def __init__(self, module: nn.Module, autocast: tuple[str, torch.dtype] | None = None) -> None:
        self.module = module
        self._loss = module if isinstance(module, Loss) else _ModuleLoss(module)
        self._body = _Computation(self._loss)
        self._autocast = autocast
        # A module that several others hold is met once, a parameter in every module that has it;
        # functional_call would leave the former changed.
        self.names: dict[nn.Parameter, str] = {}
        self._places: dict[str, list[str]] = {}
        for prefix, owner in self._body.named_modules():
            for own, parameter in owner.named_parameters(prefix, recurse=False):
                first = self.names.setdefault(parameter, own)
                self._places.setdefault(first, []).append(own)

    def __call__(self, parameters: Mapping[str, torch.Tensor], entries: Entries) -> Losses:
        """Return the losses and what else the module computes.

        Args:
            parameters: By their names; the others are the module's own.
            entries: The result of `read`.
        """
        placed = {place: p for name, p in parameters.items() for place in self._places[name]}
        exchange = partial(torch.func.functional_call, tie_weights=False)
        call = partial(exchange, self._body, placed, (entries,))
        if self._autocast is None:
            return call()
        with torch.autocast(*self._autocast):
            out = call()
        half = self._autocast[1]
        return {key: value.float() if value.dtype is half else value for key, value in out.items()}

    @property
    def frozen(self) -> tuple[str, ...]:
        """The names of parameters that require no gradient."""
        return tuple(name for parameter, name in self.names.items() if not parameter.requires_grad)

    @property
    def variant(self) -> Hashable:
        """The key of calls that share a graph: `Loss.variant` and `frozen`."""
        return self._loss.variant, self.frozen

    def compute_always_the_same(self) -> bool:
        """See `Loss.compute_always_the_same`."""
        return self._loss.compute_always_the_same()

    def read(self, tensordict: TensorDictBase) -> Entries:
        """Return the entries of a batch that a call needs."""
        return self._loss.read(tensordict)

    def forward(self, batch: TensorDictBase, compute: Compute) -> TensorDict:
        """Call the module's ``forward`` with ``compute`` in place of reading and computing."""
        return self._loss.forward(batch, compute)


class _Computation(nn.Module):
    """The computation of a `Loss`."""

    def __init__(self, loss: Loss) -> None:
        super().__init__()
        self.loss = loss

    def forward(self, entries: Entries) -> Losses:
        return self.loss.compute(entries)


class _ModuleLoss(Loss):
    """A module that maps TensorDicts to losses, as a `Loss`."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    @property
    def in_keys(self) -> list[NestedKey]:
        return list(getattr(self.module, "in_keys", None) or ())

    def read(self, tensordict: TensorDictBase) -> Entries:
        self._batch_dims = tensordict.ndim
        leaves = _leaves(tensordict)
        return {key: leaves[key] for key in self.in_keys or leaves if key in leaves}

    def losses(self, entries: Entries) -> Losses:
        batch = TensorDict({}, next(iter(entries.values())).shape[: self._batch_dims])
        for key, value in entries.items():
            batch.set(key, value)
        out = self.module(batch)
        written: Losses = {
            ("written", key): value
            for key, value in _leaves(batch).items()
            if entries.get(key) is not value
        }
        return {**written, **_leaves(out)}

    def _write(self, out: Losses, tensordict: TensorDictBase) -> None:
        for key in [key for key in out if isinstance(key, tuple) and key[0] == "written"]:
            tensordict.set(key[1], out.pop(key))


def _leaves(tensordict: TensorDictBase) -> dict[NestedKey, torch.Tensor]:
    return dict(tensordict.items(include_nested=True, leaves_only=True))
