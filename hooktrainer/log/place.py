"""Where the logs of a run go, and what they are called there."""

from __future__ import annotations

from pathlib import Path

from ..base.words import printable


class LogPlace:
    """Where a run's logs go, what they are called, and where runs have things in common.

    Args:
        directory: The run's directory.
        experiment: Name of the experiment.
        store: Directory of what the runs of a folder share.
        run_id: The run's id; ``None`` if it has not begun.
    """

    def __init__(self, directory: Path, experiment: str, store: Path, run_id: str | None) -> None:
        self.directory = directory
        self.experiment = printable(experiment)
        self.run = printable(directory.absolute().name)
        self.store = store
        self.run_id = run_id
