"""`FunctionalLoss`: a loss module as a function of its parameters and of the entries of a batch."""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from tensordict import NestedKey, TensorDict, TensorDictBase
from torch import nn

from ..base.tensordicts import total_loss
from ..objectives.common import Entries, Loss

Losses = dict[Any, torch.Tensor]


class FunctionalLoss:
    """A loss module as a function of its parameters and of the entries of a batch.

    What a `Loss` reads and writes stays outside the function. Of any other module the whole
    ``forward`` is inside, which must then be free of side effects but for entries it writes.

    Args:
        module: Maps a TensorDict to a TensorDict of losses.
        autocast: The arguments of ``torch.autocast`` for the computation; ``None`` for none.

    Attributes:
        body: The module that a call computes with.
        names: The name of every parameter.
    """

    def __init__(self, module: nn.Module, autocast: tuple[str, torch.dtype] | None = None) -> None:
        self.module = module
        self.body = _OfLoss(module) if isinstance(module, Loss) else _OfModule(module)
        self._autocast = autocast
        # A module that several others hold is met once, a parameter in every module that has it.
        self._places: dict[str, list[str]] = {}
        self.names: dict[nn.Parameter, str] = {}
        for prefix, owner in self.body.named_modules():
            for own, parameter in owner._parameters.items():
                if parameter is not None:
                    name = f"{prefix}.{own}"
                    first = self.names.setdefault(parameter, name)
                    self._places.setdefault(first, []).append(name)

    def __call__(self, parameters: Mapping[str, torch.Tensor], entries: Entries) -> Losses:
        """Return the losses and what else the module computes.

        Args:
            parameters: By their names; the others are the module's own.
            entries: The result of `read`.
        """
        placed = {place: p for name, p in parameters.items() for place in self._places[name]}
        call = partial(torch.func.functional_call, self.body, placed, (entries,), tie_weights=False)
        if self._autocast is None:
            return call()
        with torch.autocast(*self._autocast):
            out = call()
        half = self._autocast[1]
        return {key: value.float() if value.dtype is half else value for key, value in out.items()}

    @property
    def variant(self) -> Hashable:
        """See `Loss.variant`."""
        return self.module.variant if isinstance(self.module, Loss) else None

    def compute_always_the_same(self) -> bool:
        """See `Loss.compute_always_the_same`."""
        return not isinstance(self.module, Loss) or self.module.compute_always_the_same()

    def read(self, tensordict: TensorDictBase) -> Entries:
        """Return the entries of a batch that a call needs."""
        return self.body.read(tensordict)

    def around(
        self, compute: Callable[[TensorDictBase], Losses]
    ) -> Callable[[TensorDictBase], TensorDictBase]:
        """Return the module's ``forward`` with ``compute`` in place of reading and computing."""
        return partial(self.body.call, compute)


class _OfLoss(nn.Module):
    """The computation of a `Loss`."""

    def __init__(self, loss: Loss) -> None:
        super().__init__()
        self.loss = loss

    def forward(self, entries: Entries) -> Losses:
        return type(self.loss).compute(self.loss, entries)

    def read(self, tensordict: TensorDictBase) -> Entries:
        return self.loss.gather(tensordict)

    def call(
        self, compute: Callable[[TensorDictBase], Losses], tensordict: TensorDictBase
    ) -> TensorDictBase:
        return self.loss.call(compute, tensordict)


class _OfModule(nn.Module):
    """The ``forward`` of a module that maps TensorDicts."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        self._batch_dims = 1

    def forward(self, entries: Entries) -> Losses:
        batch = TensorDict({}, next(iter(entries.values())).shape[: self._batch_dims])
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
        leaves = _leaves(tensordict)
        wanted = getattr(self.module, "in_keys", None) or leaves
        return {key: leaves[key] for key in wanted if key in leaves}

    def call(
        self, compute: Callable[[TensorDictBase], Losses], tensordict: TensorDictBase
    ) -> TensorDictBase:
        out = compute(tensordict)
        for key in [key for key in out if isinstance(key, tuple) and key[0] == "written"]:
            tensordict.set(key[1], out.pop(key))
        return TensorDict(out)


def _leaves(tensordict: TensorDictBase) -> dict[NestedKey, torch.Tensor]:
    return dict(tensordict.items(include_nested=True, leaves_only=True))


# -- What an optimizer minimizes, and which of its parameters that depends on.


class Objective(NamedTuple):
    """The parameters of one optimizer, and the keys of its losses; ``None`` for all losses."""

    parameters: Sequence[nn.Parameter]
    components: Sequence[str] | None = None

    def total(self, losses: Mapping[Any, torch.Tensor]) -> torch.Tensor | None:
        """Return the sum that is minimized; ``None`` if a loss is missing."""
        return total_loss(losses, self.components)


class Reached(NamedTuple):
    """By objective, its parameters that it depends on; whether none depends on another's."""

    parameters: Sequence[Sequence[nn.Parameter]]
    apart: bool


def reached(loss: FunctionalLoss, entries: Entries, objectives: Sequence[Objective]) -> Reached:
    """Find what objectives depend on, by computing a copy of the loss; draws no random numbers."""
    twin = copy.deepcopy(loss)
    named = {name: parameter for parameter, name in twin.names.items()}
    wanted = [parameter for each in objectives for parameter in each.parameters]
    twins = [named[loss.names[parameter]] for parameter in wanted]
    devices = {value.get_device() for value in entries.values() if value.is_cuda}
    found: list[set[nn.Parameter]] = []
    with torch.enable_grad(), torch.random.fork_rng(list(devices)):
        out = twin(named, entries)
        for objective in objectives:
            total = objective.total(out)
            if total is None or not total.requires_grad:
                found.append(set())
                continue
            grads = torch.autograd.grad(total, twins, retain_graph=True, allow_unused=True)
            found.append({p for p, g in zip(wanted, grads, strict=True) if g is not None})
    pairs = list(zip(objectives, found, strict=True))
    return Reached(
        [[p for p in objective.parameters if p in depends] for objective, depends in pairs],
        all(
            depends.isdisjoint(other.parameters)
            for objective, depends in pairs
            for other in objectives
            if other is not objective
        ),
    )
