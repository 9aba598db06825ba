"""How inductor compiles: with the random numbers of eager code, and kept between runs."""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch

Compiled = Callable[..., Sequence[Any]]


class ByName(dict[Any, Any]):
    """Something for each of some operators, which inductor's cache tells apart by their names.

    Functions and operators have no bytes that could be a part of its keys, and it would keep
    nothing. What code they are is in `_conditions`.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        return frozenset, (sorted(map(str, self)),)


def with_inductor(module: torch.fx.GraphModule, inputs: Sequence[torch.Tensor]) -> Compiled:
    """Compile a graph, or find in inductor's cache what was compiled before.

    Args:
        module: Takes and returns tensors.
        inputs: Tensors like those that it takes.
    """
    from torch._inductor import config, decomposition
    from torch._inductor.compile_fx import compile_fx

    settings: dict[str, Any] = {"fallback_random": True}
    with config.patch(settings):
        table = dict(decomposition.select_decomp_table())
    own: dict[Any, Any] = {}
    if as_cuda_graph := is_cuda_graph(inputs):
        settings["triton.cudagraphs"] = True
    if all(x.is_cpu for x in inputs):
        settings["cpp_wrapper"] = True  # which calls kernels from C++
        own = {torch.ops.aten.tanh.default: _tanh, **cpu_products()}
    keys: Any = torch.compiler.config
    with keys.patch(cache_key_tag=f"{keys.cache_key_tag} {_conditions(own)}"):
        make: Any = compile_fx
        compiled: Compiled = make(
            module, inputs, config_patches=settings, decompositions=ByName(table | own)
        )
    return copied(compiled) if as_cuda_graph else compiled


def keep_between_runs() -> None:
    """Let inductor keep what it compiles where it is not deleted when the machine starts anew."""
    path = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(path / "hooktrainer" / "inductor"))


def is_cuda_graph(inputs: Sequence[torch.Tensor]) -> bool:
    """Whether a graph is to be a CUDA graph: on such a device, if the environment asks for it."""
    return bool(os.environ.get("HOOKTRAINER_CUDA_GRAPHS")) and any(x.is_cuda for x in inputs)


def copied(compiled: Compiled) -> Compiled:
    """A CUDA graph whose results are copies: the next call writes over what it returns."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of torch, by torch
        from torch._inductor import cudagraph_trees

    def call(*args: Any) -> Sequence[Any]:
        cudagraph_trees.mark_step_begin()
        return [x.clone() if isinstance(x, torch.Tensor) else x for x in compiled(*args)]

    return call


def _conditions(own: Mapping[Any, Any]) -> str:
    """On what a graph's code depends that not every inductor has in the keys of its cache."""
    processor, threads = torch.backends.cpu.get_cpu_capability(), torch.get_num_threads()
    return f"{_this_code()} {sorted(map(str, own))} {processor} {threads}"


@cache
def _this_code() -> str:
    """A name for what is computed in place of operators."""
    files = sorted(path for path in Path(__file__).parent.iterdir() if path.is_file())
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()


def _tanh(x: torch.Tensor) -> torch.Tensor:
    """The hyperbolic tangent to 1e-7, in a third of the time that inductor's takes on a CPU."""
    small = torch.exp(-2 * x.abs())
    return torch.copysign((1 - small) / (1 + small), x)


# -- Which library multiplies the matrices of a graph on a CPU, where torch's choice is a slow one.

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
    operator = _onednn_linear()
    return NotImplemented if operator is None else operator(a, b.t(), bias)


@cache
def _onednn_linear() -> Any:
    """The product of oneDNN, which inductor uses for constants; ``None`` where it has none.

    Of inductor this needs what is not public, so another version of torch may do without.
    """
    try:
        from torch._inductor.ir import TensorBox
        from torch._inductor.lowering import register_lowering
        from torch._inductor.mkldnn_ir import LinearUnary
    except ImportError:
        return None

    @torch.library.custom_op("hooktrainer::linear", mutates_args=())
    def linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        out: torch.Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
        return out

    linear.register_fake(lambda x, weight, bias: x.new_empty(x.shape[0], weight.shape[0]))
    operator = torch.ops.hooktrainer.linear.default

    @register_lowering(operator, type_promotion_kind=None)
    def lower(x: Any, weight: Any, bias: Any) -> Any:
        made: Any = LinearUnary
        return TensorBox.create(made.create(x, weight, bias, "none", [], ""))

    return operator


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
