"""TensorBoard event files that can be rewound to a checkpoint.

A run writes one file per process. A resume begins a new one, whose first event has a step: events
of earlier files from that step on do not count.
"""

from __future__ import annotations

import io
import os
import struct
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..base.plain import flatten_config, to_yaml
from ..base.untrusted import open_file
from ..base.words import shell_word
from . import media
from .sink import Sink, open_log

_PREFIX: Final = "events.out.tfevents."


class TensorBoardSink(Sink):
    """Writes TensorBoard event files.

    One event holds all values of a step, in single precision. Videos are animated GIFs in image
    summaries. The configuration is shown as text under `config` and in the HParams page.

    Args:
        directory: Directory of the event files.
        run_name: Name of the run in the HParams page.
        file: Name of the event file; by default one with the next number.
    """

    name = "tensorboard"
    imports = ("tensorboard.plugins.hparams.summary_v2", "tensorboard.summary.writer.record_writer")

    def __init__(self, directory: Path, run_name: str = "run", file: str | None = None) -> None:
        self.directory = directory
        self.run_name = run_name
        self._file = file
        self._path: Path | None = None
        self._pending = io.BytesIO()
        self._purge_from: int | None = None
        self._step = -1
        self._end: dict[str, Any] = {"file": "", "bytes": 0}  # of what was saved last

    def write_scalars(self, values: Mapping[str, float], step: int) -> None:
        from tensorboard.compat.proto.summary_pb2 import Summary

        make = Summary.Value
        self._add([make(tag=name, simple_value=value) for name, value in values.items()], step)

    def write_hparams(self, config: Mapping[str, Any]) -> None:
        from tensorboard.plugins.hparams.summary_v2 import hparams_pb

        known = {
            name: value if isinstance(value, (bool, int, float, str)) else str(value)
            for name, value in flatten_config(config).items()
        }
        step = max(self._step, 0)
        self.write_text("config", f"```yaml\n{to_yaml(config)}```", step)
        self._add(hparams_pb(known, trial_id=self.run_name).value, step)

    def write_text(self, name: str, text: str, step: int) -> None:
        from torch.utils.tensorboard import summary

        self._add(summary.text(name, text).value, step)  # type: ignore[no-untyped-call]

    def write_image(self, name: str, pixels: NDArray[np.uint8], step: int) -> None:
        self._add_picture(name, media.png(pixels), pixels.shape, step)

    def write_video(
        self, name: str, frames: NDArray[np.uint8], step: int, fps: float | None
    ) -> None:
        self._add_picture(name, media.gif(frames, fps), frames.shape[1:], step)

    def write_histogram(self, name: str, values: NDArray[np.float64], step: int, bins: int) -> None:
        from torch.utils.tensorboard import summary

        self._add(summary.histogram(name, values, bins).value, step)  # type: ignore[no-untyped-call]

    def flush(self) -> None:
        """Write the buffered events; a new file begins with its own header, see the module."""
        if not (data := self._pending.getvalue()):
            return
        self._pending = io.BytesIO()
        if self._path is None:
            from tensorboard.compat.proto.event_pb2 import Event, SessionLog

            number = len(list(self.directory.glob(f"{_PREFIX}*"))) + 1
            name = self._file or f"{_PREFIX}{number:010d}.hooktrainer"
            self._path = self.directory / name
            header = io.BytesIO()
            _record(header, Event(file_version="brain.Event:2"))
            if self._purge_from is not None:
                start = SessionLog(status=SessionLog.START)
                _record(header, Event(step=self._purge_from, session_log=start))
            data = header.getvalue() + data
        with open_log(self._path) as file:
            file.write(data)

    def state_dict(self) -> dict[str, Any]:
        self.flush()
        if self._path is not None:
            with open_log(self._path) as file:
                os.fsync(file.fileno())
                self._end = {"file": self._path.name, "bytes": file.tell()}
        return {"step": self._step, **self._end}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Cut off later events; the next file invalidates them for readers that have read them."""
        self._path, self._pending = None, io.BytesIO()
        if "late" in state_dict:  # no file comes after "~", so that none is cut
            state_dict = {"step": state_dict["late"], "file": "~", "bytes": 0}
        if state_dict:
            self._step = state_dict["step"]
            self._purge_from = self._step + 1
            self._end = {name: state_dict[name] for name in ("file", "bytes")}
            for path in self.directory.glob(f"{_PREFIX}*.hooktrainer"):
                if path.name >= self._end["file"]:
                    size = self._end["bytes"] if path.name == self._end["file"] else 0
                    with open_log(path) as file:
                        file.truncate(min(size, file.tell()))

    def how_to_view(self) -> str:
        return f"tensorboard --logdir {shell_word(self.directory)}"

    def _add(self, values: Any, step: int) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        _record(self._pending, Event(step=step, summary=Summary(value=values)))
        self._step = max(self._step, step)

    def _add_picture(self, name: str, encoded: bytes, shape: tuple[int, ...], step: int) -> None:
        from tensorboard.compat.proto.summary_pb2 import Summary

        height, width, channels = shape
        image = Summary.Image(
            height=height, width=width, colorspace=channels, encoded_image_string=encoded
        )
        self._add([Summary.Value(tag=name, image=image)], step)

    def __repr__(self) -> str:
        return f"tensorboard: {self.directory}"


def _record(file: io.BytesIO, event: Any) -> None:
    from tensorboard.summary.writer.record_writer import RecordWriter

    event.wall_time = time.time()
    RecordWriter(file).write(event.SerializeToString())


def read_scalars(directory: str | Path) -> dict[str, list[tuple[int, float]]]:
    """Read every scalar of a directory's event files, without what later files have taken back.

    A torn or damaged record ends its file.
    """
    series: dict[str, list[tuple[int, float]]] = {}
    for path in sorted(Path(directory).glob(f"{_PREFIX}*")):
        for event in read_events(path):
            if event.HasField("session_log"):
                kept = {t: [p for p in points if p[0] < event.step] for t, points in series.items()}
                series = {tag: points for tag, points in kept.items() if points}
            for value in event.summary.value:
                if value.HasField("simple_value"):
                    series.setdefault(value.tag, []).append((event.step, value.simple_value))
    return series


def read_events(path: Path) -> Iterator[Any]:
    """Yield the whole events of one file.

    A record is 8 bytes of length, 4 of CRC, the event, and 4 of CRC.
    """
    from google.protobuf.message import DecodeError
    from tensorboard.compat.proto.event_pb2 import Event

    with open_file(path, path.parent) as file:
        data = file.readall()
    start = 0
    while start + 12 <= len(data):
        end = start + 16 + int(struct.unpack_from("<Q", data, start)[0])
        if end > len(data):
            return
        try:
            yield Event.FromString(data[start + 12 : end - 4])
        except DecodeError:
            return
        start = end
