"""How far a run has come: the counters everything else is measured against."""

from __future__ import annotations

from dataclasses import asdict, dataclass


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
