"""`SideBySide`: the tensors of several learners, each kind of them in the rows of one array."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import torch

from ..optim import FlatAdam
from ..optim.flat_adam import FlatGroup
from .functional_loss import FunctionalLoss
from .products import REGISTER

T = TypeVar("T")

REGISTERS = 2 * REGISTER
"""Floats in two vector registers."""


class SideBySide:
    """The parameters and buffers of several learners, in the rows of arrays.

    They are the learners' own: whoever changes them in place changes them here. Rows all begin
    alike within a vector register, since on that the bits of a product may depend.

    Args:
        losses: Of each learner, alike.
        optimizers: Of each learner; the parameters of a group of `FlatAdam` stay next to each
            other.
        rows: How many rows there are, more than learners. Those behind are the first one's again.
    """

    def __init__(
        self,
        losses: Sequence[FunctionalLoss],
        optimizers: Sequence[Sequence[torch.optim.Optimizer]],
        rows: int,
    ) -> None:
        self.rows = rows
        self._losses = losses
        self._flats = [_flat_groups(own) for own in optimizers]
        self._names: list[str] = []  # of what lies by itself
        self._views: dict[str, torch.Tensor] = {}
        names = losses[0].names
        flat_arrays = []
        for flat in self._flats[0]:
            flat_arrays.append(rows_like(flat.parameters, rows))
            start = 0
            for parameter in flat.views:
                end = start + parameter.numel()
                if parameter in names:
                    piece = flat_arrays[-1][:, start:end]
                    self._views[names[parameter]] = piece.view(rows, *parameter.shape)
                start = end
        own_arrays = []
        for name, tensor in _by_name(losses[0]).items():
            if name not in self._views and tensor.numel():
                self._names.append(name)
                own_arrays.append(rows_like(tensor, rows))
                piece = own_arrays[-1][:, : tensor.numel()]
                self._views[name] = piece.view(rows, *tensor.shape)
        self._arrays = flat_arrays + own_arrays
        self._addresses = [
            [array[k].data_ptr() for array in self._arrays] for k in range(len(losses))
        ]

    def gather(self) -> dict[str, torch.Tensor]:
        """Have the learners' tensors lie here, where they lie elsewhere by now.

        Returns:
            Every parameter and buffer by its name, ``[rows, ...]`` each.
        """
        others = {}
        for k, (loss, flats) in enumerate(zip(self._losses, self._flats, strict=True)):
            tensors = _by_name(loss)
            lying = [*(flat.parameters for flat in flats), *(tensors[n] for n in self._names)]
            if [tensor.data_ptr() for tensor in lying] != self._addresses[k]:
                self._move(k, flats, [tensors[name] for name in self._names])
            if k == 0:
                others = {name: [t] for name, t in tensors.items() if name not in self._views}
            else:
                for name, same in others.items():
                    same.append(tensors[name])
        self.repeat()
        stacked = {name: torch.stack(self.filled(same)) for name, same in others.items()}
        return {**self._views, **stacked}

    def repeat(self) -> None:
        """Have the rows behind the learners be the first one's again."""
        for array in self._arrays:
            array[len(self._losses) :] = array[0]

    def filled(self, learners: Sequence[T]) -> list[T]:
        """Something of each learner, for every row."""
        return [*learners, *[learners[0]] * (self.rows - len(learners))]

    def leave(self) -> None:
        """Have each learner whose tensors lie here lie in memory of its own."""
        for k, (loss, flats) in enumerate(zip(self._losses, self._flats, strict=True)):
            tensors = _by_name(loss)
            mine = set(self._addresses[k])
            for flat in flats:
                if flat.parameters.data_ptr() in mine:
                    flat.move(torch.empty_like(flat.parameters))
            for name in self._names:
                if tensors[name].data_ptr() in mine:
                    tensors[name].data = tensors[name].detach().clone()

    def _move(self, k: int, flats: Sequence[FlatGroup], own: Sequence[torch.Tensor]) -> None:
        for flat, array in zip(flats, self._arrays, strict=False):
            flat.move(array[k, : flat.parameters.numel()])
        for tensor, array in zip(own, self._arrays[len(flats) :], strict=True):
            memory = array[k, : tensor.numel()].view(tensor.shape)
            memory.copy_(tensor.detach())
            tensor.data = memory


def _by_name(loss: FunctionalLoss) -> dict[str, torch.Tensor]:
    """The parameters and buffers of a loss, as they are now."""
    return {**{name: parameter for parameter, name in loss.names.items()}, **loss.buffers}


def _flat_groups(optimizers: Sequence[torch.optim.Optimizer]) -> list[FlatGroup]:
    return [flat for own in optimizers if isinstance(own, FlatAdam) for flat in own.flat_groups]


def spare_rows(size: int) -> int:
    """How many learners have to lie behind others so that these are not the last of a tensor.

    Args:
        size: Numbers of each learner in the smallest tensor.
    """
    return -(-REGISTERS // size)


def rows_like(like: torch.Tensor, rows: int) -> torch.Tensor:
    """So many rows for what has this many elements, each of which begins with a register."""
    width = -(-like.numel() // REGISTERS) * REGISTERS
    return torch.zeros(rows, width, dtype=like.dtype)
