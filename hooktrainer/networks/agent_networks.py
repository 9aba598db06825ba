"""Networks of several agents: with parameters of their own each, or of all agents together."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import nn


class AgentLinear(nn.Module):
    """A linear layer for each agent, all of them one batched matrix product.

    Takes and returns agents first, ``[agents, batch, features]``; see `AgentMLP`.

    Args:
        agents: How many agents.
        in_features: Size of the input's last dimension.
        out_features: Size of the output's last dimension.

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

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``[agents, batch, out_features]``."""
        return torch.baddbmm(self.bias, x, self.weight.transpose(1, 2))

    def extra_repr(self) -> str:
        """What is printed of it."""
        agents, outputs, inputs = self.weight.shape
        return f"agents={agents}, in_features={inputs}, out_features={outputs}"


class AgentMLP(nn.Module):
    """A multi-layer perceptron for each agent, with parameters of its own.

    Args:
        agents: How many agents.
        in_features: Size of the input's last dimension.
        out_features: Size of the output's last dimension.
        num_cells: Width of each hidden layer.
        activation_class: Makes the activation after each hidden layer.

    Examples:
        >>> AgentMLP(3, 4, 2)(torch.zeros(8, 3, 4)).shape
        torch.Size([8, 3, 2])
    """

    def __init__(
        self,
        agents: int,
        in_features: int,
        out_features: int,
        num_cells: Sequence[int] = (64, 64),
        activation_class: Callable[[], nn.Module] = nn.Tanh,
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for cells in num_cells:
            layers += [AgentLinear(agents, in_features, cells), activation_class()]
            in_features = cells
        self.layers = nn.Sequential(*layers, AgentLinear(agents, in_features, out_features))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``[*batch, agents, out_features]`` of ``[*batch, agents, in_features]``."""
        batch, last = x.shape[:-2], x.shape[-2:]
        out = self.layers(x.reshape(-1, *last).transpose(0, 1)).transpose(0, 1)
        return out.reshape(*batch, *out.shape[1:])


class JointEncoder(nn.Module):
    """Features of what all agents see, and of the state of the whole environment.

    Args:
        parts: In the order in which `forward` takes their arrays: what makes features of a part,
            how many arrays it takes, and whether they are those of a group of agents, ``[*batch,
            agents, ...]``, or of the whole environment, ``[*batch, ...]``.
    """

    def __init__(self, parts: Sequence[tuple[nn.Module, int, bool]]) -> None:
        super().__init__()
        self.encoders = nn.ModuleList(encoder for encoder, _, _ in parts)
        self._parts = [(number, of_group) for _, number, of_group in parts]

    def forward(self, *arrays: torch.Tensor) -> torch.Tensor:
        """The features of all parts, joined, ``[*batch, features]``."""
        found, start = [], 0
        for encoder, (number, of_group) in zip(self.encoders, self._parts, strict=True):
            features = encoder(*arrays[start : start + number])
            found.append(features.flatten(-2) if of_group else features)
            start += number
        return found[0] if len(found) == 1 else torch.cat(found, -1)


class CentralNetwork(nn.Module):
    """A network that sees what all agents see, for each agent of one group.

    Args:
        encoder: Takes what all of them see.
        network: From these features to ``[*batch, out_features]``, the same for each agent; or, if
            it is an `AgentMLP`, to ``[*batch, agents, out_features]``.
        agents: How many agents the group has.
    """

    def __init__(self, encoder: JointEncoder, network: nn.Module, agents: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.network = network
        self.agents = agents

    def forward(self, *arrays: torch.Tensor) -> torch.Tensor:
        """``[*batch, agents, out_features]``."""
        features = self.encoder(*arrays).unsqueeze(-2)
        if isinstance(self.network, AgentMLP):
            return self.network(features.expand(*features.shape[:-2], self.agents, -1))
        out = self.network(features)
        return out.expand(*out.shape[:-2], self.agents, -1)
