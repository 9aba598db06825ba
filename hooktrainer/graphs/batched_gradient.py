"""`BatchedGradient`: the losses of several learners and their gradients, as one computation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ..objectives.common import Entries
from .chained_products import separate_products
from .compiling import Graph, quiet
from .functional_loss import Losses
from .gradient_graph import Gradient
from .objective import Reached
from .products import AlignedProducts
from .random_calls import GivenDraws


class BatchedGradient:
    """Computes losses and gradients of a batch of learners.

    Args:
        pattern: What is computed of each.
        reached: What the objectives of one depend on.
        compiled: Whether it is a compiled graph; else autograd goes through ``torch.vmap``.
        say: Told when it is compiled.
    """

    def __init__(
        self,
        pattern: Gradient,
        reached: Reached,
        compiled: bool = False,
        say: Callable[[str], None] = quiet,
    ) -> None:
        self._pattern = pattern
        self._apart = reached.apart
        self._sizes = [len(own) for own in reached.parameters]
        self._is_aligned = False  # whether all products are known to lie alike by themselves
        self._graph: Graph[Any] | None = None
        if compiled:
            what = "the optimizer step of several learners"
            self._graph = Graph(self._mapped, what, say, separate_products, pattern.loss.body)

    def __call__(
        self,
        tensors: Mapping[str, torch.Tensor],
        entries: Entries,
        numbers: Sequence[torch.Tensor],
        again: bool = False,
    ) -> tuple[Losses, list[list[torch.Tensor]]]:
        """Losses, and by objective the gradients of what it depends on, ``[learners, ...]`` each.

        Args:
            tensors: Parameters and buffers of the loss, likewise.
            entries: Of a batch, likewise.
            numbers: What the losses would draw, likewise.
            again: Whether nothing but numbers can have changed since the last call.

        Raises:
            CannotCompileError: If they are to be a graph, and are none.
        """
        others = dict(tensors)
        parameters = [others.pop(name) for name in self._pattern.names]
        call: Callable[..., Any] = self._eager
        if self._graph is not None:
            call = self._graph.again if again else self._graph
        return call(parameters, others, entries, list(numbers))

    def _mapped(self, *args: Any) -> Any:
        def one(parameters: Any, others: Any, entries: Any, numbers: Any) -> Any:
            with GivenDraws(numbers):
                return self._pattern.gradients(parameters, entries, others)

        return torch.func.vmap(one)(*args)

    def _eager(self, *args: Any) -> tuple[Losses, list[list[torch.Tensor]]]:
        if self._is_aligned:
            return self._differentiated(*args)
        with AlignedProducts() as products:
            out = self._differentiated(*args)
        self._is_aligned = not products.changed
        return out

    def _differentiated(
        self, parameters: Sequence[torch.Tensor], *args: Any
    ) -> tuple[Losses, list[list[torch.Tensor]]]:
        def one(parameters: Any, others: Any, entries: Any, numbers: Any) -> Any:
            with GivenDraws(numbers):
                return self._pattern.totals(parameters, entries, others)

        leaves = [parameter.detach().requires_grad_() for parameter in parameters]
        with torch.enable_grad():
            totals, out = torch.func.vmap(one)(leaves, *args)
        return out, self._gradients(totals, leaves)

    def _gradients(
        self, totals: Sequence[torch.Tensor], leaves: Sequence[torch.Tensor]
    ) -> list[list[torch.Tensor]]:
        ones = torch.ones_like
        if self._apart:  # so that one way back is enough
            every = iter(torch.autograd.grad(totals, leaves, [ones(total) for total in totals]))
            return [[next(every) for _ in range(size)] for size in self._sizes]
        grads, start, remaining = [], 0, iter(totals)
        for size in self._sizes:
            own = leaves[start : start + size]
            start += size
            if own:
                total = next(remaining)
                is_last = start == len(leaves)
                found = torch.autograd.grad(total, own, ones(total), retain_graph=not is_last)
                grads.append(list(found))
            else:
                grads.append([])
        return grads
