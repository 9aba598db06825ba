"""Weights & Biases runs, online or offline."""

from __future__ import annotations

import io
import os
import re
import struct
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from ..base.words import shell_word
from ..errors import ConfigError
from . import media
from .csv import read_csv
from .sink import Histogram, HParams, Image, LogPlace, Scalars, Sink, Text, Video, log

_PROBE_SECONDS: Final = 3.0
_EXIT_CODE: Final = {"interrupted": 255, "failed": 1}


class WandbSink(Sink):
    """Writes to one Weights & Biases run, the same one after a resume.

    Every row has the metric `step`, the x-axis of all others. W&B cannot remove rows, and a killed
    process loses its last seconds. So a resumed run reads the last step of each metric from the
    files in `wandb/`, does not write those steps again, and sends the lost rows of `metrics.csv`
    (not texts and images).

    Args:
        directory: Directory of the run; W&B creates `wandb/` in it.
        project: The W&B project.
        run_name: The name of the run.
        id: Id of an existing run to continue; by default a new one.
        offline: Keep everything on disk for `wandb sync`; `None`: as `WANDB_MODE`. A run that
            begins when W&B is unreachable is kept on disk too.
        **init: Further arguments of `wandb.init`, such as `entity`, `group`, `tags`, `settings`.

    Raises:
        ConfigError: If there is no W&B key and no terminal to enter one.
    """

    name = "wandb"
    needs = "wandb"
    closing = 30.0

    @classmethod
    def at(cls, place: LogPlace, **kwargs: Any) -> Sink:
        """Create the sink for a run, with the run's id in the configuration."""
        names: dict[str, Any] = {"project": place.experiment, "run_name": place.run}
        if place.run_id is not None:
            config = kwargs.pop("config", None) or {}
            names["config"] = {"hooktrainer.run_id": place.run_id, **config}
        return cls(place.directory, **{**names, **kwargs})

    def __init__(
        self,
        directory: Path,
        project: str,
        run_name: str,
        *,
        id: str | None = None,
        offline: bool | None = None,
        **init: Any,
    ) -> None:
        super().__init__()
        self.directory = directory.absolute()
        self.id = id or uuid.uuid4().hex[:8]
        self._init = {
            "project": re.sub(r"[/\\#?%:]", "_", project)[:128],
            "name": run_name,
            "resume": "allow",
            "reinit": "create_new",
            **({} if offline is None else {"mode": "offline" if offline else "online"}),
            **init,
        }
        mode = self._init.get("mode") or os.environ.get("WANDB_MODE") or "online"
        if mode == "online":
            import wandb

            # Here, where it may ask for a key, and not from a writer thread in mid-training.
            try:
                wandb.login(verify=False)
            except wandb.errors.UsageError as error:
                raise ConfigError(f"logger 'wandb': {error}") from error
        self._is_online = mode == "online"
        self._run: Any = None
        self._resumed = id is not None
        self._already: dict[str, int] = {}
        self._restored = False

    def write_scalars(self, event: Scalars) -> None:
        """Log the values of one step as one row."""
        self._log(dict(event.values), event.step)

    def write_hparams(self, event: HParams) -> None:
        """Set the run's configuration."""
        self._open().config.update(event.config, allow_val_change=True)

    def write_text(self, event: Text) -> None:
        """Log a text."""
        self._log({event.name: event.text}, event.step)

    def write_image(self, event: Image) -> None:
        """Log an image."""
        import wandb

        pixels = event.pixels[..., 0] if event.pixels.shape[-1] == 1 else event.pixels
        self._log({event.name: wandb.Image(pixels)}, event.step)

    def write_video(self, event: Video) -> None:
        """Log a video as animated GIF."""
        import wandb

        gif = io.BytesIO(media.gif(event.frames, event.fps))
        self._log({event.name: wandb.Video(gif, format="gif")}, event.step)

    def write_histogram(self, event: Histogram) -> None:
        """Log a histogram."""
        import wandb

        counts = np.histogram(event.values, bins=event.bins)
        self._log({event.name: wandb.Histogram(np_histogram=counts)}, event.step)

    def flush(self) -> None:
        """Do nothing; W&B's process receives rows immediately."""

    def close(self, status: str = "finished") -> None:
        """Finish the run with exit code 0, 1 (failed) or 255 (interrupted)."""
        if self._run is not None:
            run, self._run = self._run, None
            run.finish(exit_code=_EXIT_CODE.get(status, 0))

    def state_dict(self) -> dict[str, Any]:
        """Return the run's id."""
        return {"id": self.id}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continue the saved run."""
        if self._run is not None:  # what it holds must be in its file before that is read
            file = Path(self._run.dir).parent / f"run-{self.id}.wandb"
            self.close("stopped")
            wait_for_end(file)
        self.id = state_dict["id"]
        self._resumed = self._restored = True

    def state_at(self, step: int) -> dict[str, Any]:
        """Return the run's id."""
        return self.state_dict()

    def after_fork(self) -> None:
        """Leave the parent's run to it."""
        self._run = None

    def how_to_view(self) -> str:
        """Return the run's address, or the command that uploads an offline run."""
        url = getattr(self._run, "url", None)
        return url or f"wandb sync {shell_word(self.directory / 'wandb')}/*run-*"

    def _open(self) -> Any:
        if self._run is None:
            import wandb

            self.directory.mkdir(parents=True, exist_ok=True)
            known = not self._resumed or self._read_steps()
            if self._is_online:
                self._go_offline_if_unreachable()
            self._run = wandb.init(id=self.id, dir=str(self.directory), **self._init)
            self._run.define_metric("step")
            self._run.define_metric("*", step_metric="step")
            if self._restored and known:
                self._replay()
        return self._run

    def _go_offline_if_unreachable(self) -> None:
        """Go offline if W&B is unreachable, since its `init` would fail."""
        import wandb

        url = wandb.setup().settings.base_url
        try:
            urllib.request.urlopen(url, timeout=_PROBE_SECONDS).close()
        except urllib.error.HTTPError:
            return  # an answer, at any rate
        except OSError as error:
            self._init["mode"], self._is_online = "offline", False
            log.warning(
                "W&B cannot be reached at %s (%s): this run is kept on the disk. To send it: wandb "
                "sync %s",
                url,
                getattr(error, "reason", error),
                self.directory / "wandb" / "offline-run-*",
            )

    def _replay(self) -> None:
        """Send the rows of `metrics.csv` that W&B does not have."""
        path = self.directory / "metrics.csv"
        rows: dict[int, dict[str, Any]] = {}
        for name, series in (read_csv(path) if path.exists() else {}).items():
            for step, value in series:
                rows.setdefault(step, {})[name] = value
        for step, row in sorted(rows.items()):
            self._log(row, step)
            self._already |= {name: max(step, self._already.get(name, step)) for name in row}

    def _log(self, row: dict[str, Any], step: int) -> None:
        run = self._open()
        row = {name: value for name, value in row.items() if step > self._already.get(name, -1)}
        if row:
            run.log({"step": step, **row})

    def _read_steps(self) -> bool:
        """Read the last step of each metric that W&B has; return whether that is known."""
        files = sorted(self.directory.glob(f"wandb/*run-*-{self.id}*/run-{self.id}.wandb"))
        try:
            self._already = last_steps(files)
        except Exception as error:  # the format is W&B's own affair
            self._already = {}
            log.warning(
                "W&B run %s is continued without knowing what it holds, so that steps after the "
                "checkpoint may appear twice. Reason: %s: %s",
                self.id,
                type(error).__name__,
                error,
            )
            return False
        return True

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_run": None}

    def __repr__(self) -> str:
        return f"wandb: {self.directory / 'wandb'}"


# -- Reading the `.wandb` files that W&B writes beside every run.

_BLOCK: Final = 1 << 15
_FILE_HEADER: Final = 7
_FRAGMENT: Final = struct.Struct("<IHB")
_FULL, _LAST = 1, 4


def read_records(path: Path) -> Iterator[Any]:
    """Yield the whole records of a file, as `wandb_internal_pb2.Record`."""
    from wandb.proto import wandb_internal_pb2

    make: Any = wandb_internal_pb2
    data = path.read_bytes()
    start, parts = _FILE_HEADER, []
    while start + _FRAGMENT.size <= len(data):
        if (left := _BLOCK - start % _BLOCK) < _FRAGMENT.size:
            start += left
            continue
        _, length, kind = _FRAGMENT.unpack_from(data, start)
        start += _FRAGMENT.size
        if not _FULL <= kind <= _LAST or start + length > len(data):
            return
        parts.append(data[start : start + length])
        start += length
        if kind in (_FULL, _LAST):
            yield make.Record.FromString(b"".join(parts))
            parts.clear()


def last_steps(paths: list[Path]) -> dict[str, int]:
    """Return the last `step` of each metric in the files."""
    found: dict[str, int] = {}
    for path in paths:
        for record in read_records(path):
            if record.WhichOneof("record_type") != "history":
                continue
            step, names = None, set()
            for item in record.history.item:
                name = item.key or item.nested_key[0]
                if name == "step":
                    step = int(item.value_json)
                else:
                    names.add(name)
            if step is not None:
                found.update({name: max(step, found.get(name, step)) for name in names})
    return found


def wait_for_end(path: Path, timeout: float = 5.0) -> None:
    """Wait until a finished run's file has its last record, which W&B's process writes later."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        if any(record.WhichOneof("record_type") == "exit" for record in read_records(path)):
            return
        time.sleep(0.01)
