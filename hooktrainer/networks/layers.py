"""Layers and multi-layer perceptrons; how networks are initialized, called and copied."""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from ..base.cores import compute_threads


class AgentLinear(nn.Module):
    """A linear layer for each agent, computed as one batched matrix product.

    It maps ``[agents, batch, in_features]`` to ``[agents, batch, out_features]``; see `AgentMLP`.

    Attributes:
        weight: ``[agents, out_features, in_features]``.
        bias: ``[agents, 1, out_features]``.
    """

    def __init__(self, agents: int, in_features: int, out_features: int) -> None:
        super().__init__()
        layers = [nn.Linear(in_features, out_features) for _ in range(agents)]
        self.weight = nn.Parameter(torch.stack([layer.weight.detach() for layer in layers]))
        self.bias = nn.Parameter(
            torch.stack([layer.bias.detach() for layer in layers]).unsqueeze(1)
        )

    def reset_parameters(self) -> None:
        """Draw new weights and biases for each agent."""
        agents, out_features, in_features = self.weight.shape
        self.load_state_dict(AgentLinear(agents, in_features, out_features).state_dict())

    def forward(self, x: Tensor) -> Tensor:
        """``[agents, batch, out_features]``."""
        return torch.baddbmm(self.bias, x, self.weight.transpose(1, 2))


_LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, AgentLinear)

Network = TypeVar("Network", bound=nn.Module)


def mlp(
    in_features: int,
    out_features: int,
    num_cells: Sequence[int] = (64, 64),
    activation_class: Callable[[], nn.Module] = nn.Tanh,
    linear: Callable[[int, int], nn.Module] = nn.Linear,
    norm: Callable[[int], nn.Module] | None = None,
) -> nn.Sequential:
    """A multi-layer perceptron with torch's default initialization.

    Args:
        in_features: Size of the input's last dimension.
        out_features: Size of the output's last dimension.
        num_cells: Width of each hidden layer; empty for a linear map.
        activation_class: Makes the activation after each hidden layer.
        linear: Makes a layer from the sizes of its input and output.
        norm: Makes the layer between a hidden layer and its activation, from its width.
    """
    layers: list[nn.Module] = []
    for cells in num_cells:
        layers.append(linear(in_features, cells))
        layers += [activation_class()] if norm is None else [norm(cells), activation_class()]
        in_features = cells
    return nn.Sequential(*layers, linear(in_features, out_features))


def orthogonal_init(
    network: Network, gain: float = math.sqrt(2.0), output_gain: float = 1.0
) -> Network:
    """Initialize linear and convolutional layers with orthogonal weights and zero biases, in place.

    This is PPO's usual initialization (Huang et al., 2022, The 37 Implementation Details of
    Proximal Policy Optimization): a policy's output gain is 0.01, so that its first actions are
    near uniform; a value network's is 1.

    Args:
        network: Holds the layers, in order.
        gain: Gain of every layer but the last.
        output_gain: Gain of the last layer.
    """
    layers = [module for module in network.modules() if isinstance(module, _LAYERS)]
    with compute_threads(1):  # whose result does not depend on how many cores there are
        for layer in layers:
            each = layer.weight if isinstance(layer, AgentLinear) else [layer.weight]
            for weight in each:
                nn.init.orthogonal_(weight, output_gain if layer is layers[-1] else gain)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
    return network


def add_layer_norms(network: Network) -> Network:
    """Normalize the outputs of hidden layers (Ba et al., 2016, arXiv:1607.06450), in place.

    A norm follows each linear or convolutional layer that is not the last of its ``Sequential``:
    ``LayerNorm``, or ``GroupNorm`` of one group.

    Args:
        network: Holds the layers.
    """
    for module in list(network.modules()):
        if isinstance(module, nn.Sequential):
            layers = list(module)
            for place, layer in reversed(list(enumerate(layers[:-1], 1))):
                if isinstance(layer, nn.Linear):
                    module.insert(place, nn.LayerNorm(layer.out_features))
                elif isinstance(layer, nn.Conv2d):
                    module.insert(place, nn.GroupNorm(1, layer.out_channels))
    return network


# -- Observations normalized by their running mean and variance, inside the network.


class RunningNorm(nn.Module):
    """Subtracts the running mean and divides by the running standard deviation.

    It is a layer of the network, so that its statistics are saved and exported with the policy.
    They change only in `update`, which `hooktrainer.ObservationNormalizer` calls once a batch.

    Args:
        features: Size of the last dimension.
        clip: Bound of the result.
        eps: Added to the variance.

    Attributes:
        mean: ``[features]``, float64.
        var: Biased variance, ``[features]``, float64.
        count: Number of observations, a scalar, float64.
    """

    mean: Tensor
    var: Tensor
    count: Tensor
    _shift: Tensor
    _scale: Tensor

    def __init__(self, features: int, clip: float = 10.0, eps: float = 1e-8) -> None:
        super().__init__()
        self.clip = clip
        self.eps = eps
        self.register_buffer("mean", torch.zeros(features, dtype=torch.float64))
        self.register_buffer("var", torch.ones(features, dtype=torch.float64))
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))
        # What `forward` uses, in single precision; buffers too, so that they move with the module.
        self.register_buffer("_shift", torch.zeros(features))
        self.register_buffer("_scale", torch.ones(features))

    def forward(self, x: Tensor) -> Tensor:
        """Normalize ``x``, ``[*batch, features]``."""
        return ((x - self._shift) * self._scale).clamp(-self.clip, self.clip)

    def invert(self, x: Tensor) -> Tensor:
        """The inverse of `forward` without clipping, ``[*batch, features]``."""
        return x / self._scale + self._shift

    @torch.no_grad()
    def update(self, x: Tensor) -> None:
        """Add ``x`` to the statistics (Chan et al., 1979).

        It is ``[*batch, features]``, or ``[*batch, *shape]`` of as many numbers.
        """
        if not len(x):
            return
        x = x.reshape(-1, len(self.mean)).double()
        var, mean = torch.var_mean(x, 0, correction=0)
        number = len(x)
        total = self.count + number
        delta = mean - self.mean
        squares = self.var * self.count + var * number + delta**2 * (self.count * number / total)
        self.mean += delta * (number / total)
        self.var.copy_(squares / total)
        self.count.copy_(total)
        self.refresh()

    @torch.no_grad()
    def take_up(self, count: float) -> None:
        """Set the statistics to the values that `forward` uses, as of ``count`` observations."""
        self.mean.copy_(self._shift)
        self.var.copy_(self._scale.double().pow(-2) - self.eps)
        self.count.fill_(count)

    def refresh(self) -> None:
        """Update the single-precision values that `forward` uses."""
        self._shift.copy_(self.mean)
        self._scale.copy_((self.var + self.eps).rsqrt())


# -- How networks are called, and copied.


def takes_one(network: nn.Module) -> bool:
    """Whether the ``forward`` of a network takes one tensor, as an MLP's does, not several."""
    forward = getattr(network, "_orig_mod", network).forward  # as it was before torch.compile
    parameters = list(inspect.signature(forward).parameters.values())
    needed = [p for p in parameters if p.default is p.empty and p.kind <= p.POSITIONAL_OR_KEYWORD]
    return len(needed) == 1 and all(p.kind is not p.VAR_POSITIONAL for p in parameters)


def arguments(inputs: Sequence[Tensor], join: bool) -> Sequence[Tensor]:
    """The inputs ``[*batch, ...]`` of a network, concatenated if it takes one (see `takes_one`)."""
    return (torch.cat(list(inputs), -1),) if join and len(inputs) > 1 else inputs


def copy_network(network: Network) -> Network:
    """Copy a network, sharing its observation statistics (`RunningNorm`) with the copy."""
    norms = [module for module in network.modules() if isinstance(module, RunningNorm)]
    return copy.deepcopy(network, {id(norm): norm for norm in norms})


def fresh_copy(network: Network) -> Network:
    """Copy a network like `copy_network`, with newly initialized weights."""
    variant = copy_network(network)
    for module in variant.modules():
        reset: Any = getattr(module, "reset_parameters", None)
        if reset is not None:
            reset()
    return variant


@contextmanager
def evaluation_mode(modules: Iterable[nn.Module]) -> Iterator[None]:
    """In the block, these modules, without their children, are in evaluation mode."""
    training = [vars(module) for module in modules if module.training]
    try:
        for attributes in training:  # nn.Module's own way of setting one takes ten times as long
            attributes["training"] = False
        yield
    finally:
        for attributes in training:
            attributes["training"] = True
