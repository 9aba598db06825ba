"""Actions as tensors: conversion from the policy's format to the environment's, and sampling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from tensordict import NestedKey

from ...base.space_parts import MASK
from ..action_format import ActionFormat, Sampler
from ..buffers import Inputs
from .functional_world import stream_keys, uniforms

_ACTIONS = 1  # purpose of the random streams


class WorldActions:
    """Converts a policy's actions to the environment's format, on the device."""

    def __init__(
        self, space: spaces.Space[Any], categorical: bool, clips: bool, device: torch.device
    ) -> None:
        self.format = ActionFormat(space, categorical)
        self._device = device
        start = self.format.start
        self._start = None if start is None else torch.as_tensor(start).to(device)
        self._box: tuple[torch.Tensor, ...] | None = None
        if isinstance(space, spaces.Box):
            bounds = (torch.from_numpy(np.asarray(x, np.float32)) for x in (space.low, space.high))
            self._box = tuple(bound.to(device) for bound in bounds)
        self._clips = clips and self._box is not None

    def sampler(self, inputs: Inputs, seed: int, first: int, num: int) -> Sampler:
        keys = stream_keys(seed, _ACTIONS, first, num, self.numbers, self._device)
        return WorldSampler(self, keys, inputs.get(MASK))

    def to_world(self, actions: Any) -> torch.Tensor:
        """Convert the policy's actions ``[num_envs, *format.shape]``."""
        actions = torch.as_tensor(actions)
        if actions.device != self._device:
            actions = actions.to(self._device, non_blocking=True)
        if self.format.is_one_hot:
            parts = torch.split(actions, self.format.sizes, -1)
            chosen = torch.stack([part.argmax(-1) for part in parts], -1)
            actions = chosen.squeeze(-1) if self.format.is_index else chosen
        if self._start is not None:
            actions = actions + self._start
        return torch.clamp(actions, *self._box) if self._clips and self._box else actions

    @property
    def numbers(self) -> int:
        """Random numbers needed per action."""
        return sum(self.format.sizes) or math.prod(self.format.shape)

    def draw(self, uniform: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        """Sample allowed actions uniformly, in the policy's format.

        As in Gymnasium, a number without bounds is normal, one with a single bound exponential.
        """
        if self._box is None:
            return self.format.draw(uniform, mask)
        low, high = self._box
        uniform = uniform.view(-1, *self.format.shape)
        normal = torch.special.ndtri(uniform.clamp(2.0**-25))  # keeps the lowest value finite
        far = -torch.log1p(-uniform)
        from_high = torch.where(high.isfinite(), high - far, normal)
        unbounded = torch.where(low.isfinite(), low + far, from_high)
        is_bounded = low.isfinite() & high.isfinite()
        return torch.where(is_bounded, low + (high - low) * uniform, unbounded)


class WorldSampler(Sampler):
    """A `Sampler` whose actions are a function of seed, environment and step."""

    def __init__(
        self, actions: WorldActions, keys: torch.Tensor, masks: Sequence[torch.Tensor] | None
    ) -> None:
        self._actions, self._keys, self._masks = actions, keys, masks

    def __call__(self, t: int, step: int) -> dict[NestedKey, torch.Tensor]:
        mask = None if self._masks is None else self._masks[t]
        return {"action": self._actions.draw(uniforms(self._keys, step), mask)}
