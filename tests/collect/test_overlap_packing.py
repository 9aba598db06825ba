"""Trees of tensors on their way to another process."""

from __future__ import annotations

import multiprocessing
from collections import deque

import pytest
import torch
from torch import nn

from hooktrainer.collect.overlap import server


class Loop:
    """A connection whose two ends are one."""

    def __init__(self) -> None:
        self.messages: deque[bytes] = deque()
        self.ends = multiprocessing.Pipe()

    def send(self, message: bytes) -> None:
        self.messages.append(message)

    def receive(self) -> bytes:
        return self.messages.popleft()

    def give_file(self, descriptor: int) -> None:
        multiprocessing.reduction.send_handle(self.ends[0], descriptor, None)

    def take_file(self) -> int:
        return multiprocessing.reduction.recv_handle(self.ends[1])


def through(tree):
    loop = Loop()
    server.send(loop, tree)
    return server.receive(loop)


@pytest.mark.parametrize("size", [10, 2**20])
def test_received_tensors_are_separate_and_writable(size):
    sent = {"a": torch.zeros(size), "b": torch.zeros(size)}
    back = through(sent)
    version = back["b"]._version
    back["a"].fill_(1.0)
    assert back["b"]._version == version  # or autograd would think that it had changed
    assert float(sent["a"].sum() + sent["b"].sum() + back["b"].sum()) == 0.0
    assert float(back["a"].sum()) == size


def test_a_module_whose_parameters_are_views_of_a_large_tensor():
    flat = torch.rand(100_000)
    module = nn.Linear(2, 3)
    module.weight.data, module.bias.data = flat[:6].view(3, 2), flat[6:9]
    module.bias.requires_grad_(False)
    message = server.dump((module, lambda x: module(x) + 1))
    assert len(message) < 10_000
    copy, function = server.load(message)
    assert isinstance(copy.weight, nn.Parameter)
    assert (copy.weight.requires_grad, copy.bias.requires_grad) == (True, False)
    x = torch.rand(4, 2)
    assert torch.equal(copy(x), module(x))
    copy.weight.data.zero_()
    assert torch.equal(function(x), copy(x) + 1)  # one module, not two
    assert float(flat[:6].abs().sum()) > 0
