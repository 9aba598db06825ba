"""The progress bar: frames, frames per second, time left, and the metrics marked for it."""

from __future__ import annotations

from ..base.frames_bar import frames_bar, show_frames
from .metrics import Metrics
from .progress import Progress


class ProgressBar:
    """A bar over the frames of a run; it begins where a resumed run stands.

    Args:
        total_frames: Frames at which the bar is full.
        progress: The run's counters.
        metrics: The run's metrics; those marked ``log_pbar`` are shown with their latest values,
            or, where these are on an accelerator that would have to be waited for, with what the
            last log window reported.
    """

    def __init__(self, total_frames: int, progress: Progress, metrics: Metrics) -> None:
        self._progress = progress
        self._metrics = metrics
        self._bar = frames_bar(total=total_frames, initial=progress.frames)

    def update(self) -> None:
        """Show the current counters and metrics, as often as the terminal is worth it."""
        if show_frames(self._bar, self._progress.frames):
            self._show_metrics()

    def close(self) -> None:
        """Show the final values and leave the bar on the screen."""
        show_frames(self._bar, self._progress.frames)
        self._show_metrics()
        self._bar.close()

    def _show_metrics(self) -> None:
        latest = ((name, self._metrics.shown(name)) for name in self._metrics.pbar_names)
        shown = {name: f"{value:.4g}" for name, value in latest if value is not None}
        self._bar.set_postfix(shown, refresh=False)
