"""`Rows`: what several steps of a tensor world gave."""

from __future__ import annotations

from typing import NamedTuple

import torch
from tensordict import NestedKey


class Rows(NamedTuple):
    """What some steps gave, time first.

    Attributes:
        observation: By leaf, what was observed after each, ``[steps, num_envs, ...]``.
        final: Likewise, where episodes ended the last of these instead.
        reward: ``[steps, num_envs]``.
        terminated: bool, likewise.
        truncated: bool, likewise.
        sample: What the policy returned, ``[steps, num_envs, ...]`` each.
    """

    observation: list[torch.Tensor]
    final: list[torch.Tensor]
    reward: torch.Tensor
    terminated: torch.Tensor
    truncated: torch.Tensor
    sample: dict[NestedKey, torch.Tensor]
