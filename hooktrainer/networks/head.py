"""Base classes of policies and value networks, and their fast evaluation without gradient."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from tensordict import NestedKey, TensorDictBase
from tensordict.nn import InteractionType, TensorDictModuleBase
from tensordict.nn.probabilistic import interaction_type
from torch import Tensor, nn

from .layers import arguments, takes_one
from .memory import MemoryTrunk, States


def is_deterministic() -> bool:
    """Whether TorchRL's ``set_exploration_type`` requests other than random actions."""
    mode = interaction_type()
    return mode is not None and mode is not InteractionType.RANDOM


class Actor(TensorDictModuleBase):
    """A module whose ``act`` returns entries without gradient; `forward` writes them."""

    act: Any

    def inputs(self, tensordict: TensorDictBase) -> list[Tensor]:
        """The entries ``in_keys`` of ``tensordict``."""
        return [tensordict.get(key) for key in self.in_keys]

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Write ``out_keys``, without gradient, and return ``tensordict``."""
        for key, value in self.act(*self.inputs(tensordict)).items():
            tensordict.set(key, value)
        return tensordict


class Head(Actor):
    """A network after an optional trunk, evaluated with gradient or, faster, without.

    The network takes the trunk's features, or the inputs themselves, one tensor each; if its
    ``forward`` takes one tensor, they are concatenated along their last dimension. An action mask
    is the last input. ``parts`` are further submodules, after the network.

    Attributes:
        joins: Whether the network takes one tensor, so that several inputs are concatenated.
    """

    _rest = 0  # inputs at the end that the trunk does not read

    def __init__(
        self,
        network: nn.Module,
        in_keys: Sequence[NestedKey],
        out_keys: Sequence[NestedKey],
        trunk: nn.Module | None = None,
        action_mask_key: NestedKey | None = None,
        **parts: nn.Module,
    ) -> None:
        super().__init__()
        self.network = network
        for name, part in parts.items():
            setattr(self, name, part)
        self.trunk = trunk
        self.action_mask_key = action_mask_key
        self.in_keys = [*in_keys, *([] if action_mask_key is None else [action_mask_key])]
        self.next_keys: list[NestedKey] = getattr(trunk, "next_keys", [])
        self.out_keys = [*out_keys, *self.next_keys]
        self.joins = takes_one(network)
        self._infer = Inference(network)
        self._infers_all = trunk is None  # no other part has a gradient

    def evaluate(self, *inputs: Tensor, features: Tensor | None = None) -> Tensor:
        """The result of the network for the entries ``in_keys``, with gradient.

        Args:
            *inputs: The entries, ``[*batch, ...]`` each; with ``features`` the trunk's may be left
                out.
            features: The trunk's output for them, if it is known.
        """
        return self._run(self.network, inputs, features)[0]

    def remember(self, *inputs: Tensor) -> tuple[Tensor, States]:
        """The result of `evaluate` and the next hidden states, without gradient, but faster."""
        if self._infers_all:
            return self._run(self._infer, inputs)
        with torch.no_grad():
            return self._run(self._infer, inputs)

    def read(self, tensordict: TensorDictBase) -> Tensor:
        """The result of `evaluate` for ``tensordict``, into which hidden states are written."""
        out, states = self._run(self.network, self.inputs(tensordict))
        for key, state in states.items():
            tensordict.set(key, state)
        return out

    def _run(
        self,
        network: Callable[..., Tensor],
        inputs: Sequence[Tensor],
        features: Tensor | None = None,
    ) -> tuple[Tensor, States]:
        out, mask, states = self._called(network, inputs, features)
        return self._result(out, mask), states

    def _called(
        self,
        network: Callable[..., Tensor],
        inputs: Sequence[Tensor],
        features: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None, States]:
        """Return the network's output, the action mask and the next hidden states."""
        mask, states = None, States()
        if self.action_mask_key is not None:
            *inputs, mask = inputs
        if self.trunk is not None:
            split = len(inputs) - self._rest
            if features is None and isinstance(self.trunk, MemoryTrunk):
                features, after = self.trunk.remember(*inputs[:split])
                states = dict(zip(self.next_keys, after.values(), strict=True))
            elif features is None:
                features = self.trunk(*inputs[:split])
            inputs = [features, *inputs[split:]]
        return network(*arguments(inputs, self.joins)), mask, states

    def _result(self, out: Tensor, mask: Tensor | None) -> Tensor:
        """The value of the network's output, with or without gradient."""
        return out


# -- Evaluation of small networks during collection.

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
    """

    # State of the NumPy path; compiled code calls the network.
    not_in_graphs: ClassVar = frozenset({"_layers", "_addresses", "_steps", "_dtype"})

    def __init__(self, network: nn.Module) -> None:
        self._network = network
        modules = [module for _, module in network.named_modules(remove_duplicate=False)]
        layers = [module for module in modules if type(module) is not nn.Sequential]
        kinds = [type(layer) for layer in layers]
        # Activations work in place, so the first layer must not be one.
        supported = kinds[:1] == [nn.Linear] and {nn.Linear, nn.Tanh, nn.ReLU}.issuperset(kinds)
        hooked = any(module._forward_hooks or module._forward_pre_hooks for module in modules)
        self._layers = layers if supported and not hooked else []
        self._addresses: list[int] = []
        self._steps: list[Step] = []
        self._dtype = torch.float32
        largest = max((p.numel() for layer in self._layers for p in layer.parameters()), default=1)
        self._max_rows = _ONE_THREAD // largest

    def use_torch(self) -> None:
        """Always call the network from now on, so that its operators can be recorded."""
        self._layers = []

    def __call__(self, *inputs: Tensor) -> Tensor:
        """The output ``[*batch, out_features]``, without gradient, for ``[*batch, ...]`` each."""
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
            self._addresses = addresses
            self._dtype = next(self._layers[0].parameters()).dtype
            known = self._dtype in (torch.float32, torch.float64)  # others are slow in NumPy
            self._steps = [_step(layer) for layer in self._layers] if known else []
        return self._steps if dtype is self._dtype else []

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_addresses": [], "_steps": []}  # a copy has memory of its own


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
