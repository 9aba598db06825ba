"""Gradients are sent while backward goes on, and come back as their means."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from hooktrainer.optim import FlatAdam
from hooktrainer.run.ranks import gradients
from hooktrainer.run.ranks.gradients import AverageGradients


class Pretend:
    """Two ranks, of which the other has three times the gradients of this one."""

    def __init__(self, calls: list[Any]) -> None:
        self.calls = calls

    def send_mean(self, tensor: torch.Tensor) -> Callable[[], None]:
        self.calls.append(("sent", tensor.numel()))
        mean = 2.0 * tensor
        tensor.fill_(float("nan"))  # must not be read meanwhile

        def arrive() -> None:
            tensor.copy_(mean)

        return arrive


def network(calls: list[Any]) -> nn.Sequential:
    """Four layers, which say when backward has computed their gradients."""
    torch.manual_seed(0)
    made = nn.Sequential(*[nn.Linear(6, 6, bias=False) for _ in range(4)])
    for index, layer in enumerate(made):
        layer.weight.register_post_accumulate_grad_hook(
            lambda parameter, index=index: calls.append(("computed", index))
        )
    return made


OPTIMIZERS = {
    "flat": lambda parameters: FlatAdam(parameters, lr=0.1),
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=0.1),
}


def made(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> tuple[list[Any], nn.Sequential, torch.optim.Optimizer, AverageGradients]:
    monkeypatch.setattr(gradients, "_FIRST", 4 * 36)  # a layer
    monkeypatch.setattr(gradients, "_BUCKET", 4 * 72)  # two
    calls: list[Any] = []
    layers = network(calls)
    optimizer = OPTIMIZERS[kind](layers.parameters())
    return calls, layers, optimizer, AverageGradients(Pretend(calls), optimizer)


def expected(layers: nn.Sequential, x: torch.Tensor) -> list[torch.Tensor]:
    loss = layers(x).square().sum()
    return [2.0 * grad for grad in torch.autograd.grad(loss, list(layers.parameters()))]


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_the_last_layers_go_while_the_first_are_still_computed(kind, monkeypatch):
    calls, layers, optimizer, average = made(monkeypatch, kind)
    for _ in range(2):
        calls.clear()
        x = torch.randn(3, 6)
        means = expected(layers, x)
        layers(x).square().sum().backward()
        average(optimizer)
        order = [("computed", 3), ("sent", 36), ("computed", 2), ("computed", 1), ("sent", 72)]
        assert calls == [*order, ("computed", 0), ("sent", 36)]
        for parameter, mean in zip(layers.parameters(), means, strict=True):
            assert torch.equal(parameter.grad, mean)
        optimizer.step()
        optimizer.zero_grad()


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_gradients_that_nobody_told_of_are_sent_at_the_end(kind, monkeypatch):
    """As those of a compiled graph."""
    calls, layers, optimizer, average = made(monkeypatch, kind)
    means = expected(layers, torch.ones(3, 6))
    for parameter, mean in zip(layers.parameters(), means, strict=True):
        parameter.grad = mean / 2
    average(optimizer)
    assert calls == [("sent", 36), ("sent", 72), ("sent", 36)]
    for parameter, mean in zip(layers.parameters(), means, strict=True):
        torch.testing.assert_close(parameter.grad, mean)


def test_a_step_that_was_not_taken_leaves_nothing_behind(monkeypatch):
    _, layers, optimizer, average = made(monkeypatch, "adam")
    x = torch.randn(3, 6)
    for part in (layers, layers[2:]):
        part(x).square().sum().backward()  # without a request for the means
        optimizer.zero_grad()
    means = expected(layers, x)
    layers(x).square().sum().backward()
    average(optimizer)
    for parameter, mean in zip(layers.parameters(), means, strict=True):
        assert torch.equal(parameter.grad, mean)
