"""Which library multiplies the matrices of a graph on a CPU, where torch's choice is a slow one."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import torch

_THIN = 8
_LARGE = 2**21  # multiplications from which on oneDNN's way to begin is worth while


def cpu_products() -> dict[Any, Callable[..., Any]]:
    """Decompositions of matrix products, for inductor; they change nothing but rounding."""
    aten = torch.ops.aten
    return {aten.mm.default: _mm, aten.addmm.default: _addmm}


def _mm(a: torch.Tensor, b: torch.Tensor) -> Any:
    (m, k), n = a.shape, b.shape[1]
    if 1 < n <= _THIN < m < k:
        # The gradient of a layer of few inputs: MKL takes six times as long for few columns as for
        # few rows. Like the result of mm it is contiguous, since optimizers may ignore strides.
        return torch.ops.aten.mm(b.t(), a.t()).t().contiguous()
    return _linear(a, b, None) if _is_of_onednn(a, n) else NotImplemented


def _addmm(bias: torch.Tensor, a: torch.Tensor, b: torch.Tensor, **factors: float) -> Any:
    n = b.shape[1]
    if factors or bias.ndim != 1 or bias.shape[0] != n or not _is_of_onednn(a, n):
        return NotImplemented
    return _linear(a, b, bias)


def _linear(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None) -> Any:
    onednn = _onednn()
    return NotImplemented if onednn is None else onednn.linear(a, b.t(), bias)


class _OneDNN(NamedTuple):
    """An operator, and what keeps it."""

    library: Any
    linear: Any


@cache
def _onednn() -> _OneDNN | None:
    """The product of oneDNN, which inductor uses for constants; ``None`` where it has none.

    Of inductor this needs what is not public, so another version of torch may do without.
    """
    try:
        from torch._inductor.ir import TensorBox
        from torch._inductor.lowering import register_lowering
        from torch._inductor.mkldnn_ir import LinearUnary
    except ImportError:
        return None

    make: Any = torch.library.Library
    library = make("hooktrainer", "FRAGMENT")
    library.define("linear(Tensor x, Tensor weight, Tensor? bias) -> Tensor")
    library.impl(
        "linear",
        lambda x, weight, bias: x.new_empty(x.shape[0], weight.shape[0]),
        "Meta",
    )
    library.impl(
        "linear",
        lambda *given: torch.ops.mkldnn._linear_pointwise(*given, "none", [], ""),
        "CPU",
    )
    operator = torch.ops.hooktrainer.linear.default

    @register_lowering(operator, type_promotion_kind=None)
    def lower(x: Any, weight: Any, bias: Any) -> Any:
        made: Any = LinearUnary
        return TensorBox.create(made.create(x, weight, bias, "none", [], ""))

    return _OneDNN(library, operator)


def _is_of_onednn(a: torch.Tensor, n: int) -> bool:
    """Whether oneDNN is quicker: MKL leaves half of the registers unused on AMD's processors."""
    m, k = a.shape
    return (
        a.dtype is torch.float32
        and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
        and torch.backends.cpu.get_cpu_capability() == "AVX512"
        and m * k * n >= _LARGE
        and m >= k >= 2 * _THIN
        and n >= 2 * _THIN
    )
