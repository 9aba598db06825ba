"""`Rows`: where several steps of a tensor world are written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from tensordict import NestedKey


class Rows(NamedTuple):
    """Where several steps are written, time first: rows of the memory of a rollout.

    Attributes:
        observation: By leaf, what is observed after each, ``[steps, num_envs, ...]``.
        final: Likewise, where episodes end the last of these instead.
        reward: ``[steps, num_envs]``.
        terminated: bool, likewise.
        truncated: bool, likewise.
        done: Either, likewise.
        sample: What the policy returns, ``[steps, num_envs, ...]`` each.
    """

    observation: list[torch.Tensor]
    final: list[torch.Tensor]
    reward: torch.Tensor
    terminated: torch.Tensor
    truncated: torch.Tensor
    done: torch.Tensor
    sample: Mapping[NestedKey, torch.Tensor]
