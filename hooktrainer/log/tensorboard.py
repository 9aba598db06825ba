"""TensorBoard event files that can be rewound to a checkpoint.

A run writes one stream in segments, one file per process. A resume truncates the checkpoint's
segment to the saved length, empties later ones and begins a new one, so that the files hold every
step once. A TensorBoard that has read beyond the checkpoint drops those events when it finds the
new file. Appending to the truncated file instead would leave it stuck inside a record.
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
from .append_file import AppendFile
from .sink import Histogram, HParams, Image, LogPlace, Scalars, Sink, Text, Video, log, set_aside

_MARK: Final = ".hooktrainer."
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
        self._stream = f"{int(time.time()):010d}"
        self._segment = -1
        self._file: AppendFile | None = None
        self._position: dict[str, Any] = {"segment": -1, "bytes": 0, "crc32": 0}
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
        self._add_text("config", f"```yaml\n{config}```", event.step)
        self._add(hparams_pb(known, trial_id=self.run_name).value, event.step)

    def write_text(self, event: Text) -> None:
        """Write a text; TensorBoard renders Markdown."""
        self._add_text(event.name, event.text, event.step)

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
            self._file = self._next_segment()
        self._file.write(data)
        self._position = {
            "segment": self._segment,
            "bytes": self._file.size,
            "crc32": self._file.crc32,
        }

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
        """Return the stream, segment, length and CRC-32 of the current file, and the last step."""
        self.flush()
        return {
            "stream": self._stream,
            **self._position,
            "step": self._step,
            "config": self._config,
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Rewind the stream to the saved position.

        If the files have changed, as after a power loss, the events up to the saved step are kept,
        with a warning.
        """
        if self._file is not None:
            self._file.close()
        self._file, self._pending, self._started = None, io.BytesIO(), True
        self._stream = state_dict["stream"]
        self._step = state_dict["step"]
        self._config = state_dict["config"]
        self._position = {key: state_dict[key] for key in ("segment", "bytes", "crc32")}
        segment = self._position["segment"]
        self._purge_from = self._step + 1 if segment >= 0 else 0
        found = self._segments()
        self._segment = max([segment, *found])
        cut = AppendFile(self._path(segment))
        size = self._position["bytes"]
        exact = segment < 0 or (size is not None and cut.rewind(size, self._position["crc32"]))
        for number, path in found.items():
            if number > segment or path.stat().st_size == 0:
                _empty(path)
            elif not exact:
                AppendFile(path).replace(_events_up_to(path.read_bytes(), self._step))
        if not exact:
            log.warning(
                "%s does not hold what the checkpoint knew: continuing after the events up to "
                "step %d that are there.",
                self.directory,
                self._step,
            )

    def state_at(self, step: int) -> dict[str, Any]:
        """Return a position by stream, segment and step."""
        position = {**self._position, "bytes": None, "step": step, "config": self._config}
        return {"stream": self._stream, **position}

    def after_fork(self) -> None:
        """Drop the parent's events and file."""
        self._pending = io.BytesIO()
        self._file = None

    def how_to_view(self) -> str:
        """Return the command that starts TensorBoard."""
        return f"tensorboard --logdir {shell_word(self.directory)}"

    def _add(self, values: Any, step: int) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.record_writer import RecordWriter

        event = Event(wall_time=time.time(), step=step, summary=Summary(value=values))
        RecordWriter(self._pending).write(event.SerializeToString())
        self._step = step
        if self._pending.tell() >= _BUFFER_BYTES:
            self.flush()

    def _add_text(self, name: str, content: str, step: int) -> None:
        from torch.utils.tensorboard import summary

        make: Any = summary.text
        self._add(make(name, content).value, step)

    def _add_picture(self, name: str, encoded: bytes, shape: tuple[int, ...], step: int) -> None:
        from tensorboard.compat.proto.summary_pb2 import Summary

        height, width, channels = shape
        image = Summary.Image(
            height=height, width=width, colorspace=channels, encoded_image_string=encoded
        )
        self._add([Summary.Value(tag=name, image=image)], step)

    def _next_segment(self) -> AppendFile:
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog
        from tensorboard.summary.writer.record_writer import RecordWriter

        if not self._started:
            set_aside(sorted(self.directory.glob(f"events.out.tfevents.*{_MARK}*")))
            self._started = True
        header = io.BytesIO()
        version = Event(wall_time=time.time(), file_version="brain.Event:2")
        RecordWriter(header).write(version.SerializeToString())
        if self._purge_from is not None:
            mark = Event(
                wall_time=time.time(),
                step=self._purge_from,
                session_log=SessionLog(status=SessionLog.START),
            )
            RecordWriter(header).write(mark.SerializeToString())
        while True:
            self._segment += 1
            file = AppendFile(self._path(self._segment), exclusive=True)
            try:
                file.write(header.getvalue())
            except FileExistsError:  # a copy of this logger, in another process, was first
                continue
            self._purge_from = None
            return file

    def _path(self, segment: int) -> Path:
        return self.directory / f"events.out.tfevents.{self._stream}{_MARK}{segment:04d}"

    def _segments(self) -> dict[int, Path]:
        found = self.directory.glob(f"events.out.tfevents.{self._stream}{_MARK}*")
        return {int(path.name.rsplit(".", 1)[1]): path for path in sorted(found)}

    def __getstate__(self) -> dict[str, Any]:
        self.flush()
        return {**self.__dict__, "_pending": io.BytesIO(), "_file": None}

    def __repr__(self) -> str:
        return f"tensorboard: {self.directory}"


def read_scalars(directory: str | Path) -> dict[str, list[tuple[int, float]]]:
    """Read every scalar of a directory's event files, without sampling or purging.

    A torn or damaged record ends its file.
    """
    series: dict[str, list[tuple[int, float]]] = {}
    for path in sorted(Path(directory).glob("events.out.tfevents.*")):
        for event in read_events(path)[0]:
            for value in event.summary.value:
                if value.HasField("simple_value"):
                    series.setdefault(value.tag, []).append((event.step, value.simple_value))
    return series


def read_events(path: Path) -> tuple[list[Any], bool]:
    """Return the events of one file, and whether the file ends after the last one."""
    from google.protobuf.message import DecodeError
    from tensorboard.compat.proto.event_pb2 import Event

    with open_file(path, path.parent) as file:
        data = file.readall()
    events, read = [], 0
    for record in _records(data):
        try:
            events.append(Event.FromString(_payload(record)))
        except DecodeError:
            break
        read += len(record)
    return events, read == len(data)


def _records(data: bytes) -> Iterator[bytes]:
    """Yield the records (8 bytes of length, 4 of CRC, payload, 4 of CRC) of an event file."""
    start = 0
    while start + 12 <= len(data):
        end = start + 16 + int(struct.unpack_from("<Q", data, start)[0])
        if end > len(data):
            return
        yield data[start:end]
        start = end


def _payload(record: bytes) -> bytes:
    return record[12:-4]


def _events_up_to(data: bytes, step: int) -> bytes:
    from tensorboard.compat.proto.event_pb2 import Event

    return b"".join(r for r in _records(data) if Event.FromString(_payload(r)).step <= step)


def _empty(path: Path) -> None:
    # Emptied rather than removed, since TensorBoard's slow loader stops at a file that vanishes;
    # the next resume removes it.
    if path.stat().st_size:
        AppendFile(path).rewind(0, 0)
    else:
        path.unlink()
