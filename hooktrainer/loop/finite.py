"""Checks that losses and gradients are finite, without waiting for the accelerator."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence

import torch
from tensordict import NestedKey, TensorDictBase, unravel_key

from ..errors import NonFiniteError
from .cadence import Progress

_DERIVED = ("state_value", "value_target", "advantage", "done", "terminated", "truncated")


def blame_data(
    error: NonFiniteError, collected: TensorDictBase, batch: TensorDictBase | None
) -> NonFiniteError:
    """Return an error that names the key, and where it is from, if data is not finite.

    Args:
        error: The error of a loss or gradient; its ``batch`` is searched last.
        collected: The batch as it was collected.
        batch: The batch that the hooks at ``batch_process`` returned.
    """
    given = ("the environment gave it", "Let its reset() and step() return finite numbers.")
    wrote = (
        "a hook at batch_process wrote it",
        "Look at the hooks that write it, and at what they were given.",
    )
    # In this order, so that only what a hook wrote is found in the second.
    searched = ((collected, True, given), (batch, True, wrote), (error.batch, False, given))
    for data, is_whole, (source, advice) in searched:
        if data is None:
            continue
        for key in _given(data):
            bad = data.get(key).isfinite().logical_not().nonzero()
            if len(bad):
                place = bad[0].tolist()
                at = ""
                if is_whole and data.ndim > 1:
                    at = f" of environment {place[0]}, at step {place[1] + 1} of the batch,"
                return NonFiniteError(
                    f"{key!r}{at} is {data.get(key)[tuple(place)].item()}: {source}, and so "
                    f"{str(error).split(';')[0]}. {advice}"
                )
    return error


def _given(batch: TensorDictBase) -> list[NestedKey]:
    """Return the keys from environments: rewards, and observations with their successors."""
    keys = {unravel_key(key): None for key in batch.keys(include_nested=True, leaves_only=True)}
    following = {key: unravel_key(("next", key)) for key in keys}
    found = [name for pair in following.items() if pair[1] in keys for name in pair]
    found += [key for key in keys if isinstance(key, tuple) and key[-1] == "reward"]
    return [
        key
        for key in found
        if (key if isinstance(key, str) else key[-1]) not in _DERIVED
        and batch.get(key).is_floating_point()
    ]


NonFinite = Callable[[Sequence[float], str], Exception]
"""Builds the error from the numbers and from text that names the step."""


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
        # Of the last step before which all were finite: its index and frames, int64 on that device;
        self._place = (torch.zeros(()), torch.zeros(()))
        # its numbers, and the builder of the error.
        self._looks: dict[Hashable, tuple[torch.Tensor, NonFinite]] = {}

    def on(self, device: torch.device) -> torch.Tensor:
        """Return the flag, a bool scalar on the accelerator: whether all numbers were finite."""
        if self._is_finite is None or self._is_finite.device != device:
            self.settle()
            self._is_finite = torch.ones((), dtype=torch.bool, device=device)
            zero = torch.zeros((), dtype=torch.int64, device=device)
            self._place = zero, zero
        return self._is_finite

    @property
    def found_inf(self) -> torch.Tensor | None:
        """1.0 after a number that was not finite, for fused optimizers; ``None`` before any."""
        return None if self._is_finite is None else self._is_finite.logical_not().float()

    def see(self, name: Hashable, values: Sequence[torch.Tensor], error: NonFinite) -> None:
        """Check numbers of this optimizer step."""
        seen = torch.stack([value.detach() for value in values])
        before = self.on(seen.device)
        last, known = self._looks.get(name, (seen, error))
        if last.shape == seen.shape:
            self._looks[name] = torch.where(before, seen, last), known
        else:
            self._looks[name] = seen.clone(), error
        now = self._progress.optim_steps, self._progress.frames
        step, frames = (torch.where(before, n, p) for n, p in zip(now, self._place, strict=True))
        self._place = step, frames
        self._is_finite = before & seen.isfinite().all()

    def settle(self) -> None:
        """Wait for the device and raise the error of the first number that was not finite."""
        if self._is_finite is None or bool(self._is_finite):
            return
        where = "at optimizer step {}, after {} frames".format(*map(int, self._place))
        found = [(values.tolist(), error) for values, error in self._looks.values()]
        self._is_finite = None
        self._looks.clear()
        for values, error in found:
            if not all(map(math.isfinite, values)):
                raise error(values, where)

    def __getstate__(self) -> dict[str, object]:
        # Tensors on a device stay in this process.
        return self.__dict__ | {"_is_finite": None, "_looks": {}}
