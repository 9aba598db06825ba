"""TensorBoard event files that can be rewound to a checkpoint.

A run writes one file per process. A resume truncates the checkpoint's file to the saved length,
empties later ones and begins a new one, whose first event says from which step on earlier ones do
not count: so TensorBoard drops what it has read beyond the checkpoint. Appending to the truncated
file instead would leave it stuck inside a record.
"""

from __future__ import annotations

import io
import struct
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from ..base.plain import flatten_config, to_yaml
from ..base.untrusted import open_file
from ..base.words import shell_word
from . import media
from .append_file import AppendFile, cut
from .sink import Histogram, HParams, Image, LogPlace, Scalars, Sink, Text, Video, log, set_aside

_PREFIX: Final = "events.out.tfevents."
_MARK: Final = ".hooktrainer"
_BUFFER_BYTES: Final = 1 << 18


class TensorBoardSink(Sink):
    """Writes TensorBoard event files.

    One event holds all values of a step, in single precision. Videos are animated GIFs in image
    summaries. The configuration is shown as text under `config` and in the HParams page.

    Args:
        directory: Directory of the event files. If it has files of an earlier run and no position
            is loaded before the first write, they are moved to `previous_<n>/`.
        run_name: Name of the run in the HParams page.
    """

    name = "tensorboard"
    imports = (
        "tensorboard.plugins.hparams.summary_v2",
        "tensorboard.summary.writer.record_writer",
    )

    @classmethod
    def at(cls, place: LogPlace, **kwargs: Any) -> Sink:
        """Create the sink for ``tensorboard/`` of a run."""
        return cls(place.directory / "tensorboard", place.run, **kwargs)

    def __init__(self, directory: Path, run_name: str = "run") -> None:
        super().__init__()
        self.directory = directory
        self.run_name = run_name
        self._file: AppendFile | None = None
        self._name = ""  # of the file, or of the one that a state has named
        self._bytes: int | None = 0  # of the latter
        self._pending = io.BytesIO()
        self._started = False
        self._purge_from: int | None = None
        self._step = 0
        self._config: str | None = None

    def write_scalars(self, event: Scalars) -> None:
        """Write the values of one step as one event."""
        from tensorboard.compat.proto.summary_pb2 import Summary

        make = Summary.Value
        self._add(
            [make(tag=name, simple_value=value) for name, value in event.values.items()], event.step
        )

    def write_hparams(self, event: HParams) -> None:
        """Write the configuration as text and for the HParams page, if it changed."""
        from tensorboard.plugins.hparams.summary_v2 import hparams_pb

        config = to_yaml(event.config)
        if config == self._config:
            return
        self._config = config
        known = {
            name: value if isinstance(value, (bool, int, float, str)) else str(value)
            for name, value in flatten_config(event.config).items()
        }
        self.write_text(Text("config", f"```yaml\n{config}```", event.step))
        self._add(hparams_pb(known, trial_id=self.run_name).value, event.step)

    def write_text(self, event: Text) -> None:
        """Write a text; TensorBoard renders Markdown."""
        from torch.utils.tensorboard import summary

        make: Any = summary.text
        self._add(make(event.name, event.text).value, event.step)

    def write_image(self, event: Image) -> None:
        """Write an image as PNG."""
        self._add_picture(event.name, media.png(event.pixels), event.pixels.shape, event.step)

    def write_video(self, event: Video) -> None:
        """Write a video as animated GIF."""
        gif = media.gif(event.frames, event.fps)
        self._add_picture(event.name, gif, event.frames.shape[1:], event.step)

    def write_histogram(self, event: Histogram) -> None:
        """Write a histogram."""
        from torch.utils.tensorboard import summary

        make: Any = summary.histogram
        self._add(make(event.name, event.values, event.bins).value, event.step)

    def flush(self) -> None:
        """Write the buffered events."""
        data = self._pending.getvalue()
        if not data:
            return
        self._pending = io.BytesIO()
        if self._file is None:
            self._file = self._begin_file()
            self._name = self._file.path.name
        self._file.write(data)

    def sync(self) -> None:
        """Flush to the disk."""
        self.flush()
        if self._file is not None:
            self._file.sync()

    def close(self, status: str = "finished") -> None:
        """Write the buffered events and close the file."""
        try:
            self.flush()
        finally:
            if self._file is not None:
                self._file.close()

    def state_dict(self) -> dict[str, Any]:
        """Return the name and the length of the current file, the last step and configuration."""
        self.flush()
        size = self._bytes if self._file is None else self._file.size
        return {**self.state_at(self._step), "bytes": size}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Rewind the files to the saved position.

        If the file is not that long, as after a power loss, its whole events are kept, with a
        warning.
        """
        if self._file is not None:
            self._file.close()
        self._file, self._pending, self._started = None, io.BytesIO(), True
        self._step, self._config = state_dict["step"], state_dict["config"]
        name, size = self._name, self._bytes = state_dict["file"], state_dict["bytes"]
        self._purge_from = self._step + 1 if name else 0
        is_there = not name
        for path in self._files():
            if path.name > name:
                # Not removed, since TensorBoard's slow loader stops at a file that vanishes.
                cut(path, 0)
            elif path.name == name:
                is_there = size is not None and size <= path.stat().st_size
                self._bytes = size if is_there else read_events(path)[1]
                cut(path, self._bytes)
        if not is_there:
            log.warning(
                "%s does not hold what the checkpoint knew: continuing after the events up to "
                "step %d that are there.",
                self.directory,
                self._step,
            )

    def state_at(self, step: int) -> dict[str, Any]:
        """Return a position by file and step."""
        return {"file": self._name, "bytes": None, "step": step, "config": self._config}

    def after_fork(self) -> None:
        """Drop the parent's events and file."""
        self._pending = io.BytesIO()
        if self._file is not None:
            self._file, self._bytes = None, None

    def how_to_view(self) -> str:
        """Return the command that starts TensorBoard."""
        return f"tensorboard --logdir {shell_word(self.directory)}"

    def _add(self, values: Any, step: int) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        _record(self._pending, Event(step=step, summary=Summary(value=values)))
        self._step = max(self._step, step)
        if self._pending.tell() >= _BUFFER_BYTES:
            self.flush()

    def _add_picture(self, name: str, encoded: bytes, shape: tuple[int, ...], step: int) -> None:
        from tensorboard.compat.proto.summary_pb2 import Summary

        height, width, channels = shape
        image = Summary.Image(
            height=height, width=width, colorspace=channels, encoded_image_string=encoded
        )
        self._add([Summary.Value(tag=name, image=image)], step)

    def _begin_file(self) -> AppendFile:
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog

        if not self._started:
            set_aside(self._files())
            self._started = True
        header = io.BytesIO()
        _record(header, Event(file_version="brain.Event:2"))
        if self._purge_from is not None:
            start = SessionLog(status=SessionLog.START)
            _record(header, Event(step=self._purge_from, session_log=start))
        number = max([0, *(int(path.name.split(".")[3]) for path in self._files())])
        while True:
            number += 1
            path = self.directory / f"{_PREFIX}{number:010d}{_MARK}"
            file = AppendFile(path, exclusive=True)
            try:
                file.write(header.getvalue())
            except FileExistsError:  # a copy of this logger, in another process, was first
                continue
            self._purge_from = None
            return file

    def _files(self) -> list[Path]:
        return sorted(self.directory.glob(f"{_PREFIX}*{_MARK}"))

    def __getstate__(self) -> dict[str, Any]:
        position = self.state_dict()["bytes"]
        return {**self.__dict__, "_pending": io.BytesIO(), "_file": None, "_bytes": position}

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
        for event in read_events(path)[0]:
            if event.HasField("session_log"):
                kept = {t: [p for p in points if p[0] < event.step] for t, points in series.items()}
                series = {tag: points for tag, points in kept.items() if points}
            for value in event.summary.value:
                if value.HasField("simple_value"):
                    series.setdefault(value.tag, []).append((event.step, value.simple_value))
    return series


def read_events(path: Path) -> tuple[list[Any], int]:
    """Return the whole events of one file, and their length in bytes."""
    from google.protobuf.message import DecodeError
    from tensorboard.compat.proto.event_pb2 import Event

    with open_file(path, path.parent) as file:
        data = file.readall()
    events, read = [], 0
    for record in _records(data):
        try:
            events.append(Event.FromString(record[12:-4]))
        except DecodeError:
            break
        read += len(record)
    return events, read


def _records(data: bytes) -> Iterator[bytes]:
    """Yield the records (8 bytes of length, 4 of CRC, payload, 4 of CRC) of an event file."""
    start = 0
    while start + 12 <= len(data):
        end = start + 16 + int(struct.unpack_from("<Q", data, start)[0])
        if end > len(data):
            return
        yield data[start:end]
        start = end
