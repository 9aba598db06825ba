"""`SelfPlayPolicy`: the policies of a game whose opponents are past policies."""

from __future__ import annotations

from typing import Any

import torch
from tensordict import NestedKey
from torch import Tensor, nn

from ..base.checks import check_count, check_fraction
from .agents import AgentsPolicy
from .head import Actor
from .layers import copy_network
from .memory import IS_INIT, primer

PLAYERS: NestedKey = ("self_play", "players")
"""The player of each seat, ``[envs, agents]``: a member of the pool, or -1 for the learner."""


class SelfPlayPolicy(Actor):
    """Acts for all seats of a game: the learner and, in some episodes, past policies.

    Where an episode begins, it draws whether past policies play, which one, and the learner's seat.
    In other episodes the learner plays all seats.

    Args:
        policy: The learner, of one group of agents.
        group: Name of the group.
        seats: Number of its agents.
        size: Most past policies.
        probability: Of an episode against a past policy.
    """

    count: Tensor

    def __init__(
        self, policy: AgentsPolicy, group: str, seats: int, size: int, probability: float = 0.5
    ) -> None:
        super().__init__()
        check_count("size", size)
        self.policy, self.group = policy, group
        self.probability = check_fraction("probability", probability)
        self.pool = nn.ModuleList(copy_network(policy) for _ in range(size)).requires_grad_(False)
        self.register_buffer("count", torch.tensor(0))  # past policies so far
        self._seats = seats
        self.in_keys = [*policy.in_keys, IS_INIT, PLAYERS]
        self.out_keys = [*policy.out_keys, (group, "learner"), ("next", *PLAYERS)]

    def make_tensordict_primer(self) -> Any:
        """TorchRL's primer of the players, who are drawn where an episode begins."""
        return primer({PLAYERS: (torch.full((self._seats,), -1), -1.0)})

    def act(self, *inputs: Tensor) -> dict[NestedKey, Tensor]:
        """Return the entries ``out_keys`` for the entries ``in_keys``, without gradient."""
        *seen, begins, players = inputs
        players = torch.where(begins, self._draw(len(begins), players), players)
        out = self.policy.act(*seen)
        # With a memory, a seat's hidden states are those of its player.
        keys = [(self.group, "action"), *(key for key in out if key[0] == "next")]
        for member in sorted(set(players.flatten().tolist())):
            if member < 0:
                continue
            plays = players == member
            rows = plays.any(-1).nonzero().squeeze(-1)
            theirs = self.pool[member].act(*(entry[rows] for entry in seen))
            for key in keys:
                taken, own = theirs[key], out[key].clone()
                there = plays[rows].view(*plays[rows].shape, *[1] * (taken.ndim - 2))
                own[rows] = torch.where(there, taken, own[rows])
                out[key] = own
        return {**out, (self.group, "learner"): players < 0, ("next", *PLAYERS): players}

    def add(self) -> int:
        """Add the learner to the pool, in place of the oldest if it is full; return its place."""
        place = int(self.count) % len(self.pool)
        self.pool[place].load_state_dict(self.policy.state_dict())
        self.count += 1
        return place

    def _draw(self, envs: int, like: Tensor) -> Tensor:
        members = self.count.clamp_max(len(self.pool))
        against = torch.rand(envs, 1, device=like.device) < self.probability
        member = (torch.rand(envs, 1, device=like.device) * members).long()
        seat = torch.randint(self._seats, (envs, 1), device=like.device)
        others = torch.arange(self._seats, device=like.device) != seat
        return torch.where(against & others & (members > 0), member, -1)
