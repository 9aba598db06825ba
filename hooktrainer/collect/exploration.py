"""How the exploration of a collector's policy falls with the frames."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import nn


class NoiseSchedule:
    """An exploration module whose epsilon or deviation falls as its ``step`` counts frames.

    Args:
        module: Such as `EpsilonGreedy`, `AdditiveGaussian`, or one of TorchRL's.
        attribute: ``"eps"`` or ``"sigma"``.

    Attributes:
        metric: What its value is logged as.
        is_driven: Whether something else changes it.
    """

    def __init__(self, module: Any, attribute: str) -> None:
        self.module = module
        self.attribute = attribute
        self.metric = f"train/{'epsilon' if attribute == 'eps' else attribute}"
        self.is_driven = False
        self._left = self.position

    @property
    def position(self) -> tuple[int, float]:
        """The frames counted so far, if the module tells, and the value."""
        frames = getattr(self.module, "frames", 0)
        return int(frames), float(getattr(self.module, self.attribute))

    @position.setter
    def position(self, position: tuple[int, float]) -> None:
        frames, value = position
        now = getattr(self.module, self.attribute)
        if torch.is_tensor(now):
            now.fill_(value)
        else:
            setattr(self.module, self.attribute, value)
        if hasattr(self.module, "frames"):
            self.module.frames = int(frames)
        self._left = self.position

    def follow(self, frames: int) -> None:
        """Count frames, unless something else has moved the value since the last call."""
        self.is_driven |= self.position != self._left
        if not self.is_driven:
            self.module.step(frames)
        self._left = self.position


def schedules_of(policy: Any) -> list[NoiseSchedule]:
    """The schedules of a policy: of a module, or of the modules that a function has at hand."""
    found = {}
    for module in _modules(policy):
        for name in ("eps", "sigma"):
            ends = [getattr(module, f"{name}_{end}", None) for end in ("init", "end")]
            steps = callable(getattr(module, "step", None)) and hasattr(module, name)
            if steps and not any(end is None for end in ends) and ends[0] != ends[1]:
                found[id(module)] = NoiseSchedule(module, name)
    return list(found.values())


def _modules(policy: Any, depth: int = 3) -> Iterator[nn.Module]:
    """The modules of a policy, of what it calls, and of its attributes to this depth."""
    if isinstance(policy, nn.Module):
        yield from policy.modules()
    elif depth:
        for each in _near(policy):
            yield from _modules(each, depth - 1)


def _near(policy: Any) -> list[Any]:
    if isinstance(policy, partial):
        return [policy.func, *policy.args, *policy.keywords.values()]
    if isinstance(policy, (list, tuple)):
        return list(policy)
    if isinstance(policy, dict):
        return list(policy.values())
    if inspect.isfunction(policy):
        used = inspect.getclosurevars(policy)
        return [*used.nonlocals.values(), *used.globals.values()]
    if inspect.ismodule(policy) or inspect.isclass(policy):
        return []
    return [getattr(policy, "__self__", None), *getattr(policy, "__dict__", {}).values()]
