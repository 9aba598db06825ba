"""When something is due: a cadence over frames, batches, optimizer steps or seconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, cast

from ..errors import ConfigError, StateMismatchError

Unit = Literal["frames", "batches", "optim_steps", "seconds"]


class Every:
    """Due each time a counter of the run crosses a multiple of an interval.

    Frames advance by whole batches, so the counter may jump over a multiple; the cadence is due at
    the first look after that, once however many multiples were jumped. It depends on the counters
    of the run only, never on the number of environments.

    Exactly one of the keywords is given.

    Args:
        frames: Interval in environment frames.
        batches: Interval in collected batches.
        optim_steps: Interval in optimizer steps.
        seconds: Interval in seconds of training time.
        at_start: Whether the first look is due as well, wherever the counter stands.

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
        batches: int | None = None,
        optim_steps: int | None = None,
        seconds: float | None = None,
        at_start: bool = False,
    ) -> None:
        given = {
            unit: interval
            for unit, interval in (
                ("frames", frames),
                ("batches", batches),
                ("optim_steps", optim_steps),
                ("seconds", seconds),
            )
            if interval is not None
        }
        if len(given) != 1:
            raise ConfigError(
                f"Every takes exactly one of frames, batches, optim_steps, seconds; got "
                f"{given or 'none'}. For a union, register the hook once for each."
            )
        ((unit, interval),) = given.items()
        number = isinstance(interval, (int, float)) and not isinstance(interval, bool)
        if not number or not interval > 0:
            raise ConfigError(
                f"Every({unit}={interval!r}): the interval must be a positive number."
            )
        self.unit = cast(Unit, unit)
        self.interval = interval
        self.at_start = at_start
        self._next: float = 0 if at_start else interval

    def due(self, progress: Progress) -> bool:
        """Whether the interval was crossed since the last time this returned ``True``."""
        now = getattr(progress, self.unit)
        if now < self._next:
            return False
        self._next = (now // self.interval + 1) * self.interval
        return True

    def copy(self) -> Every:
        """A cadence of the same interval, at its beginning."""
        return Every(**{self.unit: self.interval}, at_start=self.at_start)  # type: ignore[arg-type]

    def state_dict(self) -> dict[str, Any]:
        """Return the phase: the count at which the cadence is due next, and what is counted."""
        return {"unit": self.unit, "interval": self.interval, "next": self._next}

    def mismatches(self, saved: Mapping[str, Any]) -> list[str]:
        """Say if something else is counted; another interval is no difference."""
        if saved["unit"] == self.unit:
            return []
        return [f"counts {self.unit} here and {saved['unit']} in the state"]

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the phase; of another interval, only when the last multiple was crossed.

        Raises:
            StateMismatchError: If the state counts another unit.
        """
        if state_dict["unit"] != self.unit:
            raise StateMismatchError(
                f"{self!r} cannot take up the phase of a cadence over {state_dict['unit']}."
            )
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
        frames: Environment frames collected, skipped ones included.
        batches: Batches collected.
        optim_steps: Optimizer steps made.
        seconds: Time spent in `Trainer.train`, earlier parts of a resumed run included.
    """

    frames: int = 0
    batches: int = 0
    optim_steps: int = 0
    seconds: float = 0.0

    def state_dict(self) -> dict[str, float]:
        """Return the counters."""
        return asdict(self)

    def load_state_dict(self, state_dict: dict[str, float]) -> None:
        """Set the counters to those of ``state_dict``."""
        self.frames = int(state_dict["frames"])
        self.batches = int(state_dict["batches"])
        self.optim_steps = int(state_dict["optim_steps"])
        self.seconds = float(state_dict["seconds"])
