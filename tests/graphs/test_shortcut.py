"""What is compiled gives the same by the short way as by the long one."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch
from torch import nn

from hooktrainer.graphs import compiling
from hooktrainer.graphs.compiling import Graph, GraphOr, quiet


class Pair(NamedTuple):
    one: torch.Tensor
    other: torch.Tensor | None


class Scales(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(2.0))
        self.offset = 1.0

    def forward(self, pair: Pair, named: dict[str, list[torch.Tensor]]) -> dict[str, object]:
        (x,) = named["x"]
        scaled = x * self.factor + self.offset
        pair.one.add_(1.0)
        return {"pair": Pair(scaled, None), "list": [scaled, x, pair.one], 3: "word"}


@pytest.fixture(params=["eager", pytest.param("inductor", marks=pytest.mark.slow)], autouse=True)
def backend(request, monkeypatch):
    monkeypatch.setattr(compiling, "BACKEND", request.param)


def test_the_short_way_gives_what_the_long_one_gives():
    module = Scales()
    graph = Graph(lambda *args: module(*args), "it", quiet)
    results = []
    for turn, call in enumerate((graph, graph.again, graph.again)):
        module.factor.data.fill_(turn + 2.0)
        one, x = torch.zeros(3), torch.arange(3.0) + turn
        out = call(Pair(one, None), {"x": [x]})
        assert torch.equal(out["pair"].one, x * (turn + 2.0) + 1.0)
        assert out["pair"].other is None
        assert out["list"][0] is out["pair"].one
        assert out["list"][1] is x
        assert out["list"][2] is one
        assert torch.equal(one, torch.ones(3))
        assert out[3] == "word"
        results.append(out)
    assert not torch.equal(results[1]["pair"].one, results[2]["pair"].one)  # nothing is overwritten


def test_the_short_way_passes_by_the_compiler_and_the_long_one_looks_anew():
    module = Scales()
    graph = Graph(lambda x: module(Pair(x.clone(), None), {"x": [x]})["list"][0], "it", quiet)
    x = torch.ones(2)
    graph(x)
    module.offset = 5.0
    assert torch.equal(graph.again(x), torch.full((2,), 3.0))
    assert torch.equal(graph(x), torch.full((2,), 7.0))
    assert torch.equal(graph.again(x + 1), torch.full((2,), 9.0))
    module.offset = 1.0
    assert torch.equal(graph(x), torch.full((2,), 3.0))
    assert torch.equal(graph.again(x + 1), torch.full((2,), 5.0))


def test_what_is_no_graph_is_said_once_and_computed(caplog):
    half = GraphOr(lambda x: x / 2 if x.sum().item() > 0 else x, "it", quiet)
    assert half(torch.full((1,), 2.0)) == 1
    assert half(torch.full((1,), -2.0)) == -2
    (said,) = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert said.startswith("it cannot be compiled, and is made eagerly: ")


def test_a_function_of_the_same_structure_inherits_the_graph(monkeypatch):
    monkeypatch.setattr(compiling, "_kept", {})

    def compiled_lines(module: nn.Module, x: torch.Tensor) -> list[str]:
        lines: list[str] = []
        graph = Graph(module.forward, "it", lines.append)
        for _ in range(2):
            assert graph(x).allclose(module.forward(x).detach())
        return lines

    first, same, other = nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 2)
    other.negative_slope = 5.0
    x = torch.ones(3, 2)
    with compiling.keep_for_forks():
        assert compiled_lines(first, x)
    assert compiled_lines(same, x) == []
    assert compiled_lines(same, torch.ones(4, 2))
    assert compiled_lines(other, x)
