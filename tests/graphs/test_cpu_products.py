"""Matrix products of graphs: the same numbers, by whichever library is quicker."""

from __future__ import annotations

import sys

import pytest
import torch

import hooktrainer.graphs.inductor as cpu_products_module
from hooktrainer.graphs.compiling import Graph, quiet
from hooktrainer.graphs.inductor import cpu_products

aten = torch.ops.aten


@pytest.fixture
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a processor whose registers hold 16 numbers."""
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")


def given(m: int, k: int, n: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(m, k), torch.randn(k, n)


@pytest.mark.parametrize("n", [2, 4, 8])
def test_the_gradient_of_a_layer_of_few_inputs_is_a_product_of_few_rows(n: int) -> None:
    grad, seen = torch.randn(300, 64), torch.randn(300, n)
    found = cpu_products()[aten.mm.default](grad.t(), seen)
    assert found.is_contiguous()  # as torch.mm's result is: optimizers rely on it
    torch.testing.assert_close(found, grad.t() @ seen, rtol=1e-4, atol=1e-4)


@pytest.mark.usefixtures("wide")
def test_large_products_are_onednns() -> None:
    mm, addmm = (cpu_products()[one] for one in (aten.mm.default, aten.addmm.default))
    a, b = given(2048, 64, 64)
    bias = torch.randn(64)
    torch.testing.assert_close(mm(a, b), a @ b, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(addmm(bias, a, b), a @ b + bias, rtol=1e-4, atol=1e-4)
    assert mm(*given(128, 64, 64)) is NotImplemented  # too small
    assert mm(a.double(), b.double()) is NotImplemented
    assert mm(*given(64, 4096, 64)) is NotImplemented  # to be laid out anew
    assert addmm(bias, a, b, beta=2) is NotImplemented
    assert addmm(torch.randn(2048, 64), a, b) is NotImplemented


@pytest.mark.usefixtures("wide")
def test_a_graph_of_them_computes_the_same() -> None:
    def of(
        x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor, grad: torch.Tensor
    ) -> list[torch.Tensor]:
        return [torch.nn.functional.linear(x, w, bias), grad @ w, grad.t() @ x[:, :4]]

    said = [torch.randn(*shape) for shape in ((2048, 64), (64, 64), (64,), (2048, 64))]
    torch.testing.assert_close(Graph(of, "products", quiet)(*said), of(*said), rtol=1e-4, atol=1e-4)


@pytest.mark.usefixtures("wide")
def test_without_what_it_needs_of_inductor_torch_chooses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch._inductor.mkldnn_ir", None)
    uncached = cpu_products_module._onednn_linear.__wrapped__
    monkeypatch.setattr(cpu_products_module, "_onednn_linear", uncached)
    assert cpu_products()[aten.mm.default](*given(2048, 64, 64)) is NotImplemented
