"""What the loop asks of a logger."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol


class LoopLogger(Protocol):
    """Where log windows are written: a part of the loop, as `hooktrainer.log.Logger` is.

    Its state is its position. It is loaded only when training begins, which takes back what was
    logged after the state was saved.
    """

    def log_scalars(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        """Write the metrics of a window that ends at a number of frames."""

    def log_hparams(self, cfg: Any) -> None:
        """Write the options of the run."""

    def how_to_view(self) -> dict[str, str]:
        """For each place that is written to, the command or path that shows it."""

    def flush(self) -> None:
        """Wait until everything is written."""

    def hurry(self, deadline: float) -> None:
        """From now on wait no longer than until then, by `time.monotonic`."""

    def close(
        self, status: str = "finished", *, step: int | None = None, reason: str | None = None
    ) -> None:
        """Write everything and let go of it.

        Args:
            status: How the run ended: one of `hooktrainer.base.endings.ENDINGS`.
            step: Frames at which it did.
            reason: Why, if it did not just reach its last frame.
        """

    def state_dict(self) -> dict[str, Any]:
        """Return the position, once everything is written."""

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go back to a position."""
