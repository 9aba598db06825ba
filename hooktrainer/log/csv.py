"""Metrics in a CSV file of rows `step,name,value`.

With one row per value the file is append-only. Use `pandas.read_csv(path).pivot(index="step",
columns="name", values="value")` for the wide form. It has no times, so that equal runs write equal
bytes.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final

from ..base.plain import to_yaml
from ..base.text_file import write_atomically
from ..base.untrusted import one_line, open_file, refusing
from ..base.words import shell_word
from ..errors import ConfigError
from . import media
from .append_file import AppendFile, cut
from .sink import HParams, Image, LogPlace, Scalars, Sink, Text, Video, log, set_aside

HEADER: Final = "step,name,value\n"
_BUFFER_ROWS = 4096
_LONGEST_ROW = 1 << 16


class CSVSink(Sink):
    """Writes scalars to a CSV file, and other records to files in the same directory.

    Values are written by `repr`, so that reading returns the same float64. Texts are in `texts/`,
    images in `images/` (PNG), videos in `videos/` (GIF), with the step in their names, and the
    configuration in `hparams.yaml`.

    Args:
        path: The CSV file. If it has rows and no position is loaded before the first write, it is
            moved to `previous_<n>/`.
    """

    name = "csv"

    @classmethod
    def at(cls, place: LogPlace, **kwargs: Any) -> Sink:
        """Create the sink for ``metrics.csv`` of a run."""
        return cls(place.directory / "metrics.csv", **kwargs)

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self._file = AppendFile(path)
        self._rows: list[str] = []
        self._quoted: dict[str, str] = {}
        self._step = 0
        self._started = False

    def write_scalars(self, event: Scalars) -> None:
        """Append one row per value."""
        quoted = self._quoted
        for name, value in event.values.items():
            if name not in quoted:
                quoted[name] = _quote(name)
            self._rows.append(f"{event.step},{quoted[name]},{value!r}\n")
        self._step = event.step
        if len(self._rows) >= _BUFFER_ROWS:
            self.flush()

    def write_hparams(self, event: HParams) -> None:
        """Write `hparams.yaml`."""
        self._write_beside("hparams.yaml", to_yaml(event.config).encode())

    def write_text(self, event: Text) -> None:
        """Write `texts/<name>_<step>.txt`."""
        name = media.file_name(event.name, event.step, ".txt")
        self._write_beside(f"texts/{name}", event.text.encode())

    def write_image(self, event: Image) -> None:
        """Write `images/<name>_<step>.png`."""
        name = media.file_name(event.name, event.step, ".png")
        self._write_beside(f"images/{name}", media.png(event.pixels))

    def write_video(self, event: Video) -> None:
        """Write `videos/<name>_<step>.gif`."""
        name = media.file_name(event.name, event.step, ".gif")
        self._write_beside(f"videos/{name}", media.gif(event.frames, event.fps))

    def _write_beside(self, name: str, content: bytes) -> None:
        path = self.path.parent / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, content, durable=False)

    def flush(self) -> None:
        """Write the buffered rows."""
        if not self._rows:
            return
        rows, self._rows = self._rows, []
        if not self._started:
            if self._file.size > len(HEADER):
                set_aside([self.path])
            else:
                self.path.unlink(missing_ok=True)
            self._started = True
        if self._file.size == 0:
            rows.insert(0, HEADER)
        self._file.write("".join(rows).encode())

    def sync(self) -> None:
        """Flush to the disk."""
        self.flush()
        self._file.sync()

    def close(self, status: str = "finished") -> None:
        """Write the buffered rows and close the file."""
        try:
            self.flush()
        finally:
            self._file.close()

    def state_dict(self) -> dict[str, Any]:
        """Return the length and the last step of the file."""
        self.flush()
        return {"bytes": self._file.size if self._started else 0, "step": self._step}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Truncate the file to the saved length.

        If no row of the saved step ends there, as after a power loss or an edit, the whole rows up
        to that step are kept, with a warning.
        """
        self._rows.clear()
        self._file.close()
        self._step, self._started = state_dict["step"], True
        size = state_dict["bytes"]
        if size == 0 and not self.path.exists():
            return
        if size is not None and _ends_a_row(self.path, size, self._step):
            cut(self.path, size)
            return
        rows = _rows(self.path) if self.path.exists() else []
        kept = [row for row in rows if _step_of(row) <= self._step]
        self._write_beside(self.path.name, "".join([HEADER, *kept]).encode())
        log.warning(
            "%s is not the file that the checkpoint knew: continuing after its %d rows up to "
            "step %d.",
            self.path,
            len(kept),
            self._step,
        )

    def state_at(self, step: int) -> dict[str, Any]:
        """Return a position by step only."""
        return {"bytes": None, "step": step}

    def after_fork(self) -> None:
        """Drop the parent's rows."""
        self._rows.clear()

    def how_to_view(self) -> str:
        """Return the path of the file."""
        return shell_word(self.path)

    def __getstate__(self) -> dict[str, Any]:
        self.flush()
        return self.__dict__

    def __repr__(self) -> str:
        return f"csv: {self.path}"


def _ends_a_row(path: Path, size: int, step: int) -> bool:
    """Whether the first ``size`` bytes of a file are there and end with a row of this step."""
    if not path.exists() or path.is_symlink() or path.stat().st_size < size:
        return False
    with path.open("rb") as file:
        file.seek(max(size - _LONGEST_ROW, 0))
        tail = file.read(min(size, _LONGEST_ROW)).decode(errors="replace")
    row = tail[tail[:-1].rfind("\n") + 1 :]
    return size == 0 or row == HEADER or (row.endswith("\n") and _step_of(row) == step)


def _step_of(row: str) -> float:
    try:
        return parse_row(row)[0]
    except ValueError:
        return math.inf


def read_csv(
    path: str | Path, names: Collection[str] | None = None
) -> dict[str, list[tuple[int, float]]]:
    """Read a metrics file.

    An incomplete last line is ignored.

    Args:
        path: The CSV file, or the directory with `metrics.csv`.
        names: Read only these metrics, which is faster; by default all.

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
    lines = list(enumerate(_rows(path), start=2))
    if names is not None:
        cells = [f",{_quote(name)}," for name in names]
        lines = [line for line in lines if any(cell in line[1] for cell in cells)]
    for number, line in lines:
        try:
            step, name, value = parse_row(line)
        except ValueError:
            line = one_line(line, 80)
            raise ConfigError(f"{path}, line {number}: {line} is not 'step,name,value'") from None
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


def _quote(name: str) -> str:
    cell = io.StringIO()
    csv.writer(cell, lineterminator="").writerow([name])
    return cell.getvalue()
