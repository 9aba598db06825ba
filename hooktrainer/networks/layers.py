"""Multi-layer perceptrons and their initialization."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeVar

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

    def forward(self, x: Tensor) -> Tensor:
        """``[agents, batch, out_features]``."""
        return torch.baddbmm(self.bias, x, self.weight.transpose(1, 2))

    def extra_repr(self) -> str:
        """Its part of ``repr``."""
        agents, outputs, inputs = self.weight.shape
        return f"agents={agents}, in_features={inputs}, out_features={outputs}"


_LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, AgentLinear)

Network = TypeVar("Network", bound=nn.Module)


def mlp(
    in_features: int,
    out_features: int,
    num_cells: Sequence[int] = (64, 64),
    activation_class: Callable[[], nn.Module] = nn.Tanh,
    linear: Callable[[int, int], nn.Module] = nn.Linear,
) -> nn.Sequential:
    """A multi-layer perceptron with torch's default initialization.

    Args:
        in_features: Size of the input's last dimension.
        out_features: Size of the output's last dimension.
        num_cells: Width of each hidden layer; empty for a linear map.
        activation_class: Makes the activation after each hidden layer.
        linear: Makes a layer from the sizes of its input and output.
    """
    layers: list[nn.Module] = []
    for cells in num_cells:
        layers += [linear(in_features, cells), activation_class()]
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
