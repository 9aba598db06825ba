"""Mixers: from the values of all agents' actions to the value of all of them together."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.functional import elu


class SumMixer(nn.Module):
    """The sum of all agents' values (Sunehag et al., 2018, arXiv:1706.05296, VDN)."""

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """``[*batch, 1]`` of ``[*batch, agents, 1]``."""
        return values.sum(-2)


class MonotonicMixer(nn.Module):
    """Mixes values by a network whose weights, all positive, come from the state (QMIX).

    Rashid et al., 2018, arXiv:1803.11485. So the best actions of all together are the best of each.

    Args:
        state_features: Size of a state.
        agents: How many agents.
        cells: Units of the hidden layer.
    """

    def __init__(self, state_features: int, agents: int, cells: int = 32) -> None:
        super().__init__()
        self.agents = agents
        self.cells = cells
        self.hidden_weight = nn.Linear(state_features, agents * cells)
        self.hidden_bias = nn.Linear(state_features, cells)
        self.output_weight = nn.Linear(state_features, cells)
        self.output_bias = nn.Sequential(
            nn.Linear(state_features, cells), nn.ReLU(), nn.Linear(cells, 1)
        )

    def forward(self, values: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        """The value of all together.

        Args:
            values: Those of the agents' actions, ``[*batch, agents, 1]``.
            state: ``[*batch, state_features]``.

        Returns:
            ``[*batch, 1]``.
        """
        weight = self.hidden_weight(state).abs().unflatten(-1, (self.agents, self.cells))
        hidden = elu((values * weight).sum(-2) + self.hidden_bias(state))
        mixed = (hidden * self.output_weight(state).abs()).sum(-1, keepdim=True)
        return mixed + self.output_bias(state)


class EncodedMixer(nn.Module):
    """A mixer that reads a state of several arrays.

    Args:
        encoder: From the arrays to one vector; see `JointEncoder`.
        mixer: Takes values and that vector.
    """

    def __init__(self, encoder: nn.Module, mixer: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder
        self.mixer = mixer

    def forward(self, values: torch.Tensor, *arrays: torch.Tensor) -> torch.Tensor:
        """``[*batch, 1]`` of ``[*batch, agents, 1]`` and the state's arrays."""
        return self.mixer(values, self.encoder(*arrays))
