"""Metrics in a CSV file of rows `step,name,value`.

With one row per value the file is append-only. Use `pandas.read_csv(path).pivot(index="step",
columns="name", values="value")` for the wide form. It has no times, so that equal runs write equal
bytes.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..base.fs import write_atomically
from ..base.plain import to_yaml
from ..base.untrusted import one_line, open_file, refusing
from ..base.words import shell_word
from ..errors import ConfigError, TakenError
from . import media
from .sink import Sink, log, open_log

HEADER: Final = "step,name,value\n"


class CSVSink(Sink):
    """Writes scalars to a CSV file, and other records to files in the same directory.

    Values are written by `repr`, so that reading returns the same float64. Texts are in `texts/`,
    images in `images/` (PNG), videos in `videos/` (GIF), with the step in their names, and the
    configuration in `hparams.yaml`.

    Args:
        path: The CSV file. One with rows is refused, unless a position is loaded before the first
            write.
    """

    name = "csv"

    def __init__(self, path: Path) -> None:
        self.path = path
        self._pending = io.StringIO()
        self._started = False

    def write_scalars(self, values: Mapping[str, float], step: int) -> None:
        rows = ((step, name, repr(value)) for name, value in values.items())
        csv.writer(self._pending, lineterminator="\n").writerows(rows)

    def write_hparams(self, config: Mapping[str, Any]) -> None:
        self._write_file("hparams.yaml", to_yaml(config).encode())

    def write_text(self, name: str, text: str, step: int) -> None:
        self._write_file(f"texts/{media.file_name(name, step, '.txt')}", text.encode())

    def write_image(self, name: str, pixels: NDArray[np.uint8], step: int) -> None:
        self._write_file(f"images/{media.file_name(name, step, '.png')}", media.png(pixels))

    def write_video(
        self, name: str, frames: NDArray[np.uint8], step: int, fps: float | None
    ) -> None:
        self._write_file(f"videos/{media.file_name(name, step, '.gif')}", media.gif(frames, fps))

    def _write_file(self, name: str, content: bytes) -> None:
        path = self.path.parent / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, content, durable=False)

    def flush(self) -> None:
        if not (rows := self._pending.getvalue()):
            return
        with open_log(self.path) as file:
            if not self._started and file.tell() > len(HEADER):
                raise TakenError(
                    f"{self.path} holds the log of an earlier run: name another place."
                )
            self._started = True
            self._pending = io.StringIO()
            file.write(f"{'' if file.tell() else HEADER}{rows}".encode())

    def state_dict(self) -> dict[str, Any]:
        self.flush()
        if not self._started or not self.path.exists():
            return {"bytes": 0}
        with open_log(self.path) as file:
            os.fsync(file.fileno())  # a checkpoint that outlives a power loss finds its rows
            return {"bytes": file.tell()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Truncate the file to the saved length; of another file keep the whole rows, and warn."""
        self._pending = io.StringIO()
        self._started = True
        data = b""
        if self.path.exists():
            with open_file(self.path, self.path.parent) as file:
                data = file.readall()
        size = state_dict.get("bytes")
        kept = data[:size]
        kept = kept[: kept.rfind(b"\n") + 1]
        if len(kept) < (size or 0):
            log.warning(
                "%s is not the file that the checkpoint knew: its rows are kept.", self.path
            )
        if "late" in state_dict:
            header, *rows = kept.splitlines(keepends=True) or [b""]
            last = state_dict["late"]
            kept = header + b"".join(row for row in rows if int(row.partition(b",")[0]) <= last)
        if kept != data:
            write_atomically(self.path, kept)

    def how_to_view(self) -> str:
        return shell_word(self.path)

    def __repr__(self) -> str:
        return f"csv: {self.path}"


def read_csv(
    path: str | Path, names: Collection[str] | None = None
) -> dict[str, list[tuple[int, float]]]:
    """Read a metrics file.

    An incomplete last line is ignored.

    Args:
        path: The CSV file, or the directory with `metrics.csv`.
        names: Read only these metrics; by default all.

    Returns:
        For each metric, in order of first appearance, its `(step, value)` pairs in file order.

    Raises:
        FileNotFoundError: If there is no such file.
        ConfigError: If the file is not a metrics file.
    """
    path = Path(path)
    if path.is_dir():
        path = path / "metrics.csv"
    series: dict[str, list[tuple[int, float]]] = {}
    for number, line in enumerate(_rows(path), start=2):
        try:
            step, name, value = parse_row(line)
        except ValueError:
            line = one_line(line, 80)
            raise ConfigError(f"{path}, line {number}: {line} is not 'step,name,value'") from None
        if names is None or name in names:
            series.setdefault(name, []).append((step, value))
    return series


def parse_row(line: str) -> tuple[int, str, float]:
    """Parse one row: step, name and value.

    Raises:
        ValueError: If it is malformed.
    """
    try:
        ((text, name, value),) = csv.reader([line]) if '"' in line else (line.split(","),)
    except csv.Error as error:
        raise ValueError(str(error)) from None
    step = int(text)
    if not -(2**63) <= step < 2**63:
        raise ValueError("the step has more than 64 bits")
    return step, name, float(value)


def _rows(path: Path) -> list[str]:
    """Return the whole lines of a metrics file, without the header."""
    with refusing(path, ConfigError), open_file(path, path.parent) as file:
        text = file.readall().decode()
    header, *rows = io.StringIO(text, newline="").readlines() or [HEADER]
    if header != HEADER:
        if HEADER.startswith(header):  # killed while writing its very first line
            return []
        expected = HEADER.strip()
        raise ConfigError(f"{path} is not a metrics file: it does not begin with {expected!r}")
    if rows and not rows[-1].endswith("\n"):
        rows.pop()
    return rows
