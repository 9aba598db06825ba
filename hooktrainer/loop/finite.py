"""Checks that losses and gradients are finite, without waiting for the accelerator."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Hashable, Sequence

import torch
from tensordict import NestedKey, TensorDictBase, unravel_key

from ..errors import NonFiniteError
from .cadence import Progress

_DERIVED = ("state_value", "value_target", "advantage", "done", "terminated", "truncated")


def blame_environment(error: NonFiniteError, batch: TensorDictBase) -> NonFiniteError:
    """Return an error that names the environment and key if collected data is not finite."""
    for data in (batch, error.batch):
        for key in () if data is None else _given(data):
            bad = data.get(key).isfinite().logical_not().nonzero()
            if len(bad):
                place = bad[0].tolist()
                at = f" of environment {place[0]}, at step {place[1] + 1} of the batch,"
                return NonFiniteError(
                    f"{key!r}{at if data is batch and data.ndim > 1 else ''} is "
                    f"{data.get(key)[tuple(place)].item()}: the environment gave it, and so "
                    f"{str(error).split(';')[0]}. Let its reset() and step() return finite numbers."
                )
    return error


def _given(batch: TensorDictBase) -> list[NestedKey]:
    """Return the keys from environments: rewards, and observations with their successors."""
    keys = {unravel_key(key): None for key in batch.keys(include_nested=True, leaves_only=True)}
    before = [key for key in keys if _after(key) in keys]
    found = [name for key in before for name in (key, _after(key))]
    found += [key for key in keys if isinstance(key, tuple) and key[-1] == "reward"]
    return [
        key
        for key in found
        if (key if isinstance(key, str) else key[-1]) not in _DERIVED
        and batch.get(key).is_floating_point()
    ]


def _after(key: NestedKey) -> NestedKey:
    return ("next", key) if isinstance(key, str) else ("next", *key)


NonFinite = Callable[[Sequence[float], str], Exception]
"""Builds the error from the numbers and from text that tells the step."""


class FiniteChecks:
    """Checks for finite numbers on an accelerator without synchronizing at every step.

    The device keeps a flag and the numbers of the first failing step. From that step on,
    ``found_inf`` stops optimizers from changing parameters. `settle` reads the flag; the trainer
    calls it before it writes a log window or saves a state. So the error is raised later than on a
    CPU, but no parameter, log or checkpoint receives a number that is not finite.
    """

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._is_finite: torch.Tensor | None = None  # of all numbers so far, bool, a scalar
        self._step: torch.Tensor | None = None  # the last one before which all were, int64
        # The numbers of the last step before which all were finite, and the builder of the error.
        self._looks: dict[Hashable, tuple[torch.Tensor, NonFinite]] = {}
        self._batches: deque[tuple[int, int]] = deque()  # optimizer steps and frames at a step

    def on(self, device: torch.device) -> torch.Tensor:
        """Return the flag, a bool scalar on the accelerator: whether all numbers were finite."""
        if self._is_finite is None or self._is_finite.device != device:
            self.settle()
            self._is_finite = torch.ones((), dtype=torch.bool, device=device)
            self._step = torch.zeros((), dtype=torch.int64, device=device)
        return self._is_finite

    @property
    def found_inf(self) -> torch.Tensor | None:
        """1.0 after a number that was not finite, for fused optimizers; ``None`` before any."""
        return None if self._is_finite is None else self._is_finite.logical_not().float()

    def see(self, name: Hashable, values: Sequence[torch.Tensor], error: NonFinite) -> None:
        """Check numbers of this optimizer step."""
        seen = torch.stack([value.detach() for value in values])
        before = self.on(seen.device)
        assert self._step is not None
        last, known = self._looks.get(name, (seen, error))
        if last.shape == seen.shape:
            self._looks[name] = torch.where(before, seen, last), known
        else:
            self._looks[name] = seen.clone(), error
        steps, frames = self._progress.optim_steps, self._progress.frames
        self._step = torch.where(before, steps, self._step)
        if not self._batches or self._batches[-1][1] != frames:
            self._batches.append((steps, frames))
        self._is_finite = before & seen.isfinite().all()

    def settle(self) -> None:
        """Wait for the device and raise the error of the first number that was not finite."""
        if self._is_finite is None:
            return
        if bool(self._is_finite):
            while len(self._batches) > 1:
                self._batches.popleft()
            return
        assert self._step is not None
        step = int(self._step)
        frames = max((f for s, f in self._batches if s <= step), default=self._progress.frames)
        where = f"at optimizer step {step}, after {frames} frames"
        found = [(values.tolist(), error) for values, error in self._looks.values()]
        self.forget()
        for values, error in found:
            if not all(map(math.isfinite, values)):
                raise error(values, where)

    def forget(self) -> None:
        """Forget all numbers seen."""
        self._is_finite = self._step = None
        self._looks.clear()
        self._batches.clear()

    def __getstate__(self) -> dict[str, object]:
        # What is on a device stays in this process.
        return {"_progress": self._progress, "_looks": {}, "_batches": deque()} | {
            "_is_finite": None,
            "_step": None,
        }
