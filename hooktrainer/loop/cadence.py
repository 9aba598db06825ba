"""`Every`, a cadence over frames, batches, optimizer steps or seconds, and the run's counters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, cast

from ..base.checks import check_positive
from ..errors import ConfigError

Unit = Literal["frames", "samples", "tokens", "batches", "epochs", "optim_steps", "seconds"]


class Every:
    """A cadence: due each time a counter of the run crosses a multiple of an interval.

    Frames advance by whole batches, so a counter may jump over multiples; the cadence is due once
    after such a jump. It does not depend on the number of environments.

    Args:
        frames: Interval in environment frames, or whatever else the collector counts.
        samples: The same, for a collector that counts samples.
        tokens: The same, for one that counts tokens.
        batches: Interval in collected batches.
        epochs: Interval in passes over the data, also a fraction such as 0.5.
        optim_steps: Interval in optimizer steps.
        seconds: Interval in seconds of training time.
        at_start: Whether the first check is due too.

    Raises:
        ConfigError: If not exactly one interval is given, or it is not positive.

    Examples:
        >>> every, progress = Every(frames=100), Progress()
        >>> progress.frames = 250
        >>> every.due(progress), every.due(progress)
        (True, False)
    """

    def __init__(
        self,
        *,
        frames: int | None = None,
        samples: int | None = None,
        tokens: int | None = None,
        batches: int | None = None,
        epochs: float | None = None,
        optim_steps: int | None = None,
        seconds: float | None = None,
        at_start: bool = False,
    ) -> None:
        intervals: dict[str, float | None] = {"frames": frames, "samples": samples}
        intervals |= {"tokens": tokens, "batches": batches, "epochs": epochs}
        intervals |= {"optim_steps": optim_steps, "seconds": seconds}
        given = {unit: interval for unit, interval in intervals.items() if interval is not None}
        if len(given) != 1:
            raise ConfigError(
                f"Every takes exactly one of {', '.join(intervals)}; got {given or 'none'}. For a "
                "union, register the hook once for each."
            )
        ((unit, interval),) = given.items()
        check_positive(f"Every: {unit}", interval)
        self.unit = cast(Unit, unit)
        self.interval = interval
        self.at_start = at_start
        self._next: float = 0 if at_start else interval

    def due(self, progress: Progress) -> bool:
        """Return whether the interval was crossed since the last call that returned ``True``."""
        now = getattr(progress, self.unit)
        if self.unit == "epochs":  # a fraction, such as 0.3, whose multiples are rounded
            now += 1e-9
        if now < self._next:
            return False
        self._next = (now // self.interval + 1) * self.interval
        return True

    def copy(self) -> Every:
        """Return a cadence with the same interval and the initial phase."""
        return Every(**{self.unit: self.interval}, at_start=self.at_start)  # type: ignore[arg-type]

    def state_dict(self) -> dict[str, Any]:
        """Return the unit, the interval and the count at which the cadence is next due."""
        return {"unit": self.unit, "interval": self.interval, "next": self._next}

    def mismatches(self, saved: Mapping[str, Any]) -> list[str]:
        """Report another unit; another interval is accepted."""
        if saved["unit"] == self.unit:
            return []
        return [f"counts {self.unit} here and {saved['unit']} in the state"]

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the phase; if the interval differs, count on from the last multiple crossed."""
        following = state_dict["next"]
        if state_dict["interval"] != self.interval and following > 0:
            crossed = following - state_dict["interval"]
            following = (crossed // self.interval + 1) * self.interval
        self._next = following

    def __repr__(self) -> str:
        start = ", at_start=True" if self.at_start else ""
        return f"Every({self.unit}={self.interval}{start})"


# -- How far a run has come: the counters everything else is measured against.


@dataclass
class Progress:
    """The counters of a run.

    Attributes:
        frames: Environment frames collected, skipped ones included; or samples or tokens.
        epochs: Passes over the data of the collector, as a fraction; 0 without such data.
        batches: Batches collected.
        optim_steps: Optimizer steps made.
        seconds: Time in `Trainer.train`, including that before a resume.
    """

    frames: int = 0
    batches: int = 0
    optim_steps: int = 0
    seconds: float = 0.0
    epochs: float = 0.0

    @property
    def samples(self) -> int:
        """The frames, under the name that they have for data."""
        return self.frames

    tokens = samples

    def state_dict(self) -> dict[str, float]:
        """Return the counters."""
        return asdict(self)

    def load_state_dict(self, state_dict: dict[str, float]) -> None:
        """Restore the counters."""
        for name, value in vars(self).items():
            setattr(self, name, type(value)(state_dict[name]))
