"""A graph computes what its function does, and is made again only where something has changed."""

from __future__ import annotations

import random
from functools import partial
from typing import NamedTuple

import numpy as np
import pytest
import torch
from marks import slow_except
from torch import nn

from hooktrainer.algorithms import DQN, PPO
from hooktrainer.graphs import CannotCompileError, Graph, GraphOr, compiling


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


@pytest.fixture(autouse=True)
def backend(request, monkeypatch):
    """Graphs are computed as they are traced, unless a test asks for another back end."""
    monkeypatch.setattr(compiling, "BACKEND", getattr(request, "param", "eager"))


also_with_inductor = pytest.mark.parametrize(
    "backend", slow_except(["eager", "inductor"], "eager"), indirect=True
)


@pytest.fixture
def linear() -> nn.Sequential:
    return nn.Sequential(nn.Linear(2, 1, bias=False), nn.ReLU())


@also_with_inductor
def test_arguments_and_results_are_trees_and_arguments_may_be_written_to():
    module = Scales()
    graph = Graph(lambda *args: module(*args), "it")
    results = []
    for turn, call in enumerate((graph, graph.again, graph.again)):
        module.factor.data.fill_(turn + 2.0)
        one, x = torch.zeros(3), torch.arange(3.0) + turn
        out = call(Pair(one, None), {"x": [x]})
        assert torch.equal(out["pair"].one, x * (turn + 2.0) + 1.0)
        assert out["pair"].other is None
        assert torch.equal(out["list"][1], x)
        assert torch.equal(one, torch.ones(3))
        assert out[3] == "word"
        results.append(out)
    assert not torch.equal(results[1]["pair"].one, results[2]["pair"].one)  # nothing is overwritten


@pytest.fixture
def lines(monkeypatch) -> list[str]:
    """The printed lines: one before and one after compiling."""
    printed: list[str] = []
    monkeypatch.setattr(compiling, "print_line", printed.append)
    return printed


def test_what_has_changed_is_noticed_but_by_again_and_found_again(lines):
    module = Scales()
    graph = Graph(lambda x: module(Pair(x.clone(), None), {"x": [x]})["list"][0], "it")
    x = torch.ones(2)
    graph(x)
    module.offset = 5.0
    assert torch.equal(graph.again(x), torch.full((2,), 3.0))
    assert torch.equal(graph(x), torch.full((2,), 7.0))
    assert torch.equal(graph.again(x + 1), torch.full((2,), 9.0))
    module.offset = 1.0
    assert torch.equal(graph(x), torch.full((2,), 3.0))
    assert torch.equal(graph.again(x + 1), torch.full((2,), 5.0))
    assert len(lines) == 4
    for turn in range(6):
        module.offset = 10.0 + turn
        graph(x)
    module.offset = 0.0
    with pytest.raises(
        CannotCompileError, match=r"recompiled again and again, .* make it a buffer"
    ):
        graph(x)


@also_with_inductor
def test_other_arguments_are_noticed(linear, lines):
    def function(given):
        out = linear(given["x"].float())
        return out if given["more"] is None else out + given["more"]

    graph = Graph(function, "it")
    linear[0].weight.data.fill_(1.0)
    x = torch.ones(3, 2)
    cases = [
        {"x": x, "more": None},
        {"x": x[:2], "more": None},
        {"x": x.double(), "more": None},
        {"x": x.int().t().contiguous().t(), "more": None},
        {"x": x, "more": torch.ones(1)},
        {"x": x, "more": 2.0},
        {"more": torch.ones(1), "x": x},
    ]
    for number, case in enumerate(cases, start=1):
        for _ in range(2):
            more = 0.0 if case["more"] is None else float(case["more"])
            assert torch.equal(graph(case), torch.full((len(case["x"]), 1), 2.0 + more))
        assert len(lines) == 2 * number
    minus = Graph(lambda one, other: one - other, "it")
    assert torch.equal(minus(x, 0), -minus(0, x))  # a number is no place of a tensor


@also_with_inductor
def test_a_tensor_that_is_given_twice_may_be_two_at_the_next_call():
    graph = Graph(lambda one, other: one - other, "it")
    x = torch.ones(2)
    assert torch.equal(graph(x, x), torch.zeros(2))
    assert torch.equal(graph.again(x, 3 * x), -2 * x)
    assert torch.equal(graph(5 * x, x), 4 * x)


@also_with_inductor
def test_tensors_are_exchanged_without_compiling(linear, lines):
    graph = Graph(linear.forward, "it")
    x = torch.ones(1, 2)
    for value in (3.0, 4.0):
        linear[0].weight = nn.Parameter(torch.full((1, 2), value))
        assert graph(x).item() == graph.again(x).item() == 2 * value
        linear[0].weight.data.fill_(value + 1)
        assert graph(x).item() == graph.again(x).item() == 2 * value + 2
    assert len(lines) == 2


def test_what_is_no_graph_is_computed_with_one_warning(caplog):
    half = GraphOr(lambda x: x / 2 if x.sum().item() > 0 else x, "it")
    assert half(torch.full((1,), 2.0)) == 1
    assert half(torch.full((1,), -2.0)) == -2
    (said,) = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert said.startswith("it cannot be compiled, and is made eagerly: ")
    assert "test_graph.py" in said


def test_buffers_may_be_written_to(monkeypatch):
    monkeypatch.setattr(compiling, "BACKEND", "eager")
    eager, traced = nn.BatchNorm1d(2), nn.BatchNorm1d(2)
    graph = Graph(traced.forward, "it")
    for turn in range(3):
        x = torch.arange(6.0).view(3, 2) * (turn + 1)
        torch.testing.assert_close(graph(x), eager(x).detach())
        torch.testing.assert_close(traced.state_dict(), eager.state_dict())


READ = {
    "item": lambda x, scale: x * float(scale[0].item()),
    "a list": lambda x, scale: x * scale.tolist()[0],
    "a comparison": lambda x, scale: x * (2 if torch.equal(scale, torch.ones(1)) else 5),
    "Python's random numbers": lambda x, scale: x * random.random(),
    "NumPy's random numbers": lambda x, scale: x * np.random.rand(),
}


@also_with_inductor
@pytest.mark.parametrize("read", READ.values(), ids=READ)
def test_no_number_is_frozen(read):
    """Neither one that is read from a tensor, nor one that is drawn outside of torch."""
    scale, x = torch.ones(1), torch.ones(2)
    graph = GraphOr(partial(read, scale=scale), "it")
    for turn in range(3):
        scale.fill_(turn + 1.0)
        results = []
        for function in (graph, read):
            random.seed(turn)
            np.random.seed(turn)
            results.append(function(x) if function is graph else function(x, scale))
        assert torch.equal(*results)


def test_a_function_that_changes_its_module_is_refused(linear):
    def count(x):
        linear.calls = getattr(linear, "calls", 0) + 1
        return linear(x)

    with pytest.raises(CannotCompileError, match="changes an attribute"):
        Graph(count, "it")(torch.ones(1, 2))


def test_a_function_of_the_same_structure_inherits_the_graph(monkeypatch, lines):
    monkeypatch.setattr(compiling, "_kept", {})

    def compiled_lines(module: nn.Module, x: torch.Tensor) -> list[str]:
        lines.clear()
        graph = Graph(module.forward, "it")
        for _ in range(2):
            assert graph(x).allclose(module.forward(x).detach())
        return list(lines)

    first, same, other = nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 2)
    other.negative_slope = 5.0
    x = torch.ones(3, 2)
    with compiling.keep_for_forks():
        assert compiled_lines(first, x)
    assert compiled_lines(same, x) == []
    assert compiled_lines(same, torch.ones(4, 2))
    assert compiled_lines(other, x)


SMALL = {"num_cells": (8,), "progress_bar": False, "eval_episodes": 0, "tuned": False}
ON = {**SMALL, "num_envs": 4, "steps_per_batch": 20, "num_epochs": 2, "mini_batch_size": 30}
OFF = {**SMALL, "num_envs": 4, "init_random_frames": 32, "batch_size": 16}


@pytest.mark.parametrize(
    ("kind", "options"),
    slow_except(
        [
            (PPO, {**ON, "compile": "all"}),  # the last mini-batch is smaller
            (PPO, {**ON, "compile": "step", "normalize_observations": True, "scale_rewards": True}),
            (DQN, {**OFF, "compile": "step"}),
        ],
        2,
    ),
)
def test_nothing_is_compiled_again_while_training_goes_on(kind, options, monkeypatch, caplog):
    """Shapes are static: each graph is compiled at its first call, and only then."""
    monkeypatch.setattr(compiling, "BACKEND", "eager")
    monkeypatch.setattr(compiling, "_MOST", 1)
    kind(env="torch/CartPole-v1", **options, total_frames=480).train()
    assert "cannot be compiled" not in caplog.text
