"""The latest metrics of a run in Prometheus' text format.

The textfile collector of Prometheus' node exporter reads such files. The syntax is that of
https://prometheus.io/docs/instrumenting/exposition_formats/, version 0.0.4.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from ..base.fs import write_atomically
from ..base.untrusted import MalformedError, parse_json, read_file
from ..base.words import shell_word
from .sink import Sink

_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_HELP: Final = {
    "metric": ("gauge", "Latest value of a metric."),
    "frames_total": ("counter", "Environment frames collected."),
    "restarts_total": ("counter", "Number of times that the run was resumed."),
    "running": ("gauge", "Whether the run is training: 1, or 0 after its end."),
    "last_save_timestamp_seconds": ("gauge", "Time of the last checkpoint."),
    "mirrored_frames": ("gauge", "Frames of the last checkpoint that is in the mirror."),
}
"""Type and help of each value; the help of a name must be the same in the files of all runs."""


class PrometheusSink(Sink):
    """Writes the latest value of each metric to ``metrics.prom``, which is replaced as a whole.

    The metrics are one gauge, ``hooktrainer_metric``, with their names as a label. Further values
    are the frames, the restarts, whether the run is training, the time of its last checkpoint, and
    the frames in its mirror. Texts, pictures and configurations are left out.

    Args:
        directory: The run's directory.
        labels: The labels of every value, which identify the run.
    """

    name = "prometheus"

    def __init__(self, directory: Path, labels: Mapping[str, str]) -> None:
        self.directory = directory
        self.path = directory / "metrics.prom"
        self._labels = dict(labels)
        self._values: dict[str, float] = {}
        self._step: int | None = None
        self._is_running = True

    def write(self, kind: str, *args: Any) -> None:
        """Keep the latest numbers."""
        if kind == "scalars":
            values, self._step = args
            self._values |= values
            self._is_running = True

    def flush(self) -> None:
        if self._step is None:
            return
        lines = []
        for name, samples in self._families():
            if not samples:
                continue
            kind, text = _HELP[name]
            name = f"hooktrainer_{name}"
            lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
            lines += [f"{name}{_labels(self._labels | own)} {_number(x)}" for own, x in samples]
        self.directory.mkdir(parents=True, exist_ok=True)
        write_atomically(self.path, "\n".join([*lines, ""]), durable=False)

    def close(self, status: str = "finished") -> None:
        self._is_running = False
        self.flush()

    def how_to_view(self) -> str:
        return shell_word(self.path)

    def __repr__(self) -> str:
        return f"prometheus: {self.path}"

    def _families(self) -> Iterator[tuple[str, list[tuple[dict[str, str], float]]]]:
        """Yield each name with its values, each of which has its labels."""
        state: Any = {}
        with suppress(OSError, MalformedError):
            state = parse_json(read_file(self.directory / "run.json", self.directory))
        yield "metric", [({"name": name}, value) for name, value in self._values.items()]
        yield "frames_total", [({}, float(self._step or 0))]
        yield "running", [({}, float(self._is_running))]
        if isinstance(state, dict):
            resumed, mirrored = state.get("resumed", []), state.get("mirrored_frames")
            yield "restarts_total", [({}, float(len(resumed)))] if type(resumed) is list else []
            yield "mirrored_frames", [({}, float(mirrored))] if type(mirrored) is int else []
        saved = []
        for path in self.directory.glob("checkpoints/step_*"):
            with suppress(OSError):  # it is deleted meanwhile
                saved.append(path.stat().st_mtime)
        yield "last_save_timestamp_seconds", [({}, max(saved))] if saved else []


def _labels(labels: Mapping[str, str]) -> str:
    return "{" + ",".join(f'{n}="{value.translate(_ESCAPES)}"' for n, value in labels.items()) + "}"


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return "NaN" if math.isnan(value) else repr(value)
