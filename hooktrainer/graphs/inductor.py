"""Settings of inductor: the random numbers of eager code, and a cache kept between runs."""

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
    """A dict by operator, which inductor's cache identifies by the operators' names.

    Functions cannot be part of the cache's keys: with a plain dict nothing would be cached. Their
    code is identified by `_conditions`.
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
        aten = torch.ops.aten
        own = {aten.tanh.default: _tanh, aten.mm.default: mm_of_few_columns}
    keys: Any = torch.compiler.config
    with keys.patch(cache_key_tag=f"{keys.cache_key_tag} {_conditions(own)}"):
        make: Any = compile_fx
        compiled: Compiled = make(
            module, inputs, config_patches=settings, decompositions=ByName(table | own)
        )
    return copied(compiled) if as_cuda_graph else compiled


def keep_between_runs() -> None:
    """Set inductor's cache to a directory that outlasts a restart of the machine."""
    path = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(path / "hooktrainer" / "inductor"))


def is_cuda_graph(inputs: Sequence[torch.Tensor]) -> bool:
    """Whether to make a CUDA graph: on CUDA, if ``HOOKTRAINER_CUDA_GRAPHS`` is set."""
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
    """Conditions of a graph's code that not every version of inductor has in its cache's keys."""
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


_THIN = 8


def mm_of_few_columns(a: torch.Tensor, b: torch.Tensor) -> Any:
    """The gradient of a layer of few inputs, which takes MKL six times as long as its transpose."""
    (m, k), n = a.shape, b.shape[1]
    if 1 < n <= _THIN < m < k:
        # Like the result of mm it is contiguous, since optimizers may ignore strides.
        return torch.ops.aten.mm(b.t(), a.t()).t().contiguous()
    return NotImplemented
