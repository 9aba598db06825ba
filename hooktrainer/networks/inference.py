"""Fast evaluation of small networks during collection, without gradient."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from .inputs import arguments, takes_one

Step = Callable[[np.ndarray], np.ndarray]

# Multiplications in one matrix product beyond which OpenBLAS, NumPy's usual library, starts threads
# of its own. They keep a core busy waiting long after the product is done.
_ONE_THREAD = 2**18


class Inference:
    """Calls a network without gradient, with NumPy where the result is the same.

    On a few observations torch spends most of its time on dispatch, and NumPy is two to three times
    as fast. It replaces networks of linear layers, tanh and ReLU on the CPU, on batches small
    enough for one thread. Its arrays share memory with the parameters, so that optimizer steps take
    effect at once. Results agree with torch's to float rounding.

    Args:
        network: Maps tensors to one tensor. Its layers and hooks are inspected once, here.

    Attributes:
        joins: Whether the network takes one tensor, so that several inputs are concatenated.
    """

    # What is for acting alone; what is compiled calls the network.
    not_in_graphs: ClassVar = frozenset({"_layers", "_addresses", "_steps", "_dtype"})

    def __init__(self, network: nn.Module) -> None:
        self._network = network
        self.joins = takes_one(network)
        self._layers = _supported_layers(network)
        self._addresses: list[int] = []
        self._steps: list[Step] = []
        self._dtype = torch.float32
        largest = max((p.numel() for layer in self._layers for p in layer.parameters()), default=1)
        self._max_rows = _ONE_THREAD // largest

    @property
    def uses_numpy(self) -> bool:
        """Whether NumPy can evaluate the network."""
        return bool(self._layers)

    def use_torch(self) -> None:
        """Always call the network from now on, so that its operators can be recorded."""
        self._layers = []

    def __call__(self, *inputs: Tensor) -> Tensor:
        """The output ``[*batch, out_features]``, without gradient, for ``[*batch, ...]`` each."""
        inputs = tuple(arguments(inputs, self.joins))
        x = inputs[0]
        if torch.compiler.is_compiling():  # which sees no NumPy
            return self._network(*inputs)
        can_numpy = len(inputs) == 1 and x.is_cpu
        steps = self.steps(x.shape[:-1].numel(), x.dtype) if can_numpy else []
        if not steps:
            with torch.no_grad():
                return self._network(*inputs)
        array = x.numpy()
        for step in steps:
            array = step(array)
        return torch.from_numpy(array)

    def steps(self, rows: int, dtype: torch.dtype) -> list[Step]:
        """Functions of arrays that one after another are the network; none where torch is called.

        They follow the parameters as long as these stay where they are in memory.
        """
        if not self._layers or rows > self._max_rows:
            return []
        addresses = [
            parameter.data_ptr()
            for layer in self._layers
            for parameter in layer._parameters.values()
            if parameter is not None
        ]
        if addresses != self._addresses:  # the first call, or parameters in new memory
            self._bind(addresses)
        return self._steps if dtype is self._dtype else []

    def _bind(self, addresses: list[int]) -> None:
        self._addresses = addresses
        self._dtype = next(self._layers[0].parameters()).dtype
        if self._dtype not in (torch.float32, torch.float64):  # slow in NumPy, or unknown
            self._layers = []
        self._steps = [_step(layer) for layer in self._layers]

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_addresses": [], "_steps": []}  # a copy has memory of its own


def _supported_layers(network: nn.Module) -> list[nn.Module]:
    """The network's layers if NumPy can evaluate all of them; else none."""
    layers = list(_flatten(network))
    hooked = any(m._forward_hooks or m._forward_pre_hooks for m in network.modules())
    kinds = [type(layer) for layer in layers]
    # Activations work in place, so the first layer must not be one.
    supported = kinds[:1] == [nn.Linear] and {nn.Linear, nn.Tanh, nn.ReLU}.issuperset(kinds)
    return layers if supported and not hooked else []


def _flatten(network: nn.Module) -> Iterator[nn.Module]:
    if type(network) is nn.Sequential:
        for child in network:
            yield from _flatten(child)
    else:
        yield network


def _step(layer: nn.Module) -> Step:
    if isinstance(layer, nn.Tanh):
        return lambda x: np.tanh(x, out=x)
    if isinstance(layer, nn.ReLU):
        return lambda x: np.maximum(x, 0, out=x)
    assert isinstance(layer, nn.Linear)
    weight, bias = layer.weight.detach().numpy().T, None
    if layer.bias is not None:
        bias = layer.bias.detach().numpy()

    def product(x: np.ndarray) -> np.ndarray:
        y = np.dot(x, weight) if x.ndim < 3 else x @ weight  # dot has the least overhead
        if bias is not None:
            y += bias
        return y

    return product
