"""`Logger`: checks records and passes them to sinks."""

from __future__ import annotations

import operator
import sys
import threading
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from ..base.endings import ENDINGS
from ..base.plain import to_plain
from ..base.words import as_name, encodable, shell_word
from . import media
from .sink import BackgroundSink, Sink, log

_DEFAULT_BINS: Final = 64


class Logger:
    """Checks records and passes them to every sink.

    It has the methods of TorchRL's `Logger`, and can replace it, for instance in `VideoRecorder`.
    An invalid call raises immediately. Each sink is written by a thread of its own. A failing one,
    as on a full disk, is reported once and disabled; the run continues.

    `step` counts environment frames; by default the values of a metric are numbered 0, 1, 2, … A
    closed logger continues at the next call. Loggers pickle; use one from one process only.
    Characters that names cannot have (line breaks, NUL, lone surrogates) are escaped, with a
    warning.

    Args:
        sinks: Destinations by name, each wrapped in a `BackgroundSink`.
        exp_name: Name of the experiment or run.
        log_dir: Directory of the logs.
    """

    def __init__(self, sinks: Mapping[str, Sink], *, exp_name: str = "", log_dir: str = "") -> None:
        self.exp_name = exp_name
        self.log_dir = log_dir
        self.sinks = {
            name: sink if isinstance(sink, BackgroundSink) else BackgroundSink(sink)
            for name, sink in sinks.items()
        }
        self._counts: dict[str, int] = {}

    def log_scalar(self, name: str, value: Any, step: int | None = None) -> None:
        """Log one number.

        Args:
            name: Name of the metric, such as `train/reward`.
            value: A number, or a tensor or array of one element.
            step: Environment frames so far.

        Raises:
            TypeError: If `value` is not one number.
            ValueError: If `name` is not text.
        """
        self.log_scalars({name: value}, step)

    def log_scalars(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        """Log several numbers; with a step as one record."""
        values = {as_name(name): _as_float(name, value) for name, value in metrics.items()}
        if step is not None and values:
            self._write("scalars", values, self._resolve("", step))
        elif step is None:
            for name, value in values.items():
                self._write("scalars", {name: value}, self._resolve(name, None))

    def log_metrics(
        self, metrics: Any, step: int | None = None, *, keys_sep: str = "/"
    ) -> dict[str, float]:
        """Log a dict or TensorDict of numbers, joining the keys of nested entries.

        Args:
            metrics: A mapping or a TensorDict, nested or not.
            step: Environment frames so far.
            keys_sep: Separator of joined keys.

        Returns:
            The logged numbers by name.
        """
        values = _flat_metrics(metrics, keys_sep, "")
        self.log_scalars(values, step)
        return values

    def log_hparams(self, cfg: Any) -> None:
        """Log the configuration: a mapping, dataclass or object with attributes, nested or not."""
        self._write("hparams", _encodable(to_plain(cfg)))

    def log_text(self, name: str, text: str, step: int | None = None) -> None:
        """Log a text, rendered as Markdown if the sink can."""
        self._write("text", as_name(name), encodable(str(text)), self._resolve(name, step))

    def log_image(self, name: str, image: Any, step: int | None = None) -> None:
        """Log an image: uint8 `[H, W]`, `[C, H, W]` or `[H, W, C]` with 1 or 3 channels."""
        pixels = media.as_image(name, image)
        self._write("image", as_name(name), pixels, self._resolve(name, step))

    def log_video(
        self, name: str, video: Any, step: int | None = None, *, fps: float | None = None
    ) -> None:
        """Log a video, encoded later as animated GIF in the sink's thread.

        Args:
            name: Name of the video.
            video: uint8 `[N, T, C, H, W]` or `[T, C, H, W]` with 1 or 3 channels; N videos are
                tiled.
            step: Environment frames so far.
            fps: Frames per second; 30 by default.

        Raises:
            ValueError: For another shape or dtype, or if `fps` is not positive.
        """
        if fps is not None and not fps > 0:
            raise ValueError(f"fps of video {name!r} must be positive, not {fps!r}")
        frames = media.as_video(name, video)
        self._write("video", as_name(name), frames, self._resolve(name, step), fps)

    def log_histogram(
        self, name: str, data: Any, step: int | None = None, *, bins: int | None = None
    ) -> None:
        """Log a histogram of values.

        Args:
            name: Name of the histogram.
            data: A tensor, array or sequence of numbers of any shape. Only finite values are used;
                if there are none, nothing is logged.
            step: Environment frames so far.
            bins: Number of bins; 64 by default.
        """
        if hasattr(data, "detach"):
            data = data.detach().double()
        values = np.array(media.to_numpy(data), dtype=np.float64).ravel()
        values = values[np.isfinite(values)]
        step = self._resolve(name, step)
        if values.size:
            self._write("histogram", as_name(name), values, step, bins or _DEFAULT_BINS)

    def flush(self) -> None:
        """Wait until everything logged is written; sinks also write twice a second."""
        for sink in self.sinks.values():
            sink.flush()

    def close(
        self, status: str = "finished", *, step: int | None = None, reason: str | None = None
    ) -> None:
        """Write everything and close every sink; a second call does nothing."""
        if status not in ENDINGS:
            raise ValueError(f"status is one of {', '.join(ENDINGS)}, not {status!r}")
        if sys.is_finalizing():
            return  # no thread can start any more; the sinks were closed when the program ended
        # Servers last, as they are sent the files; else at once, so that none takes another's time.
        for is_server in (False, True):
            threads = [
                threading.Thread(target=sink.close, args=(status,), daemon=True)
                for sink in self.sinks.values()
                if bool(sink.sink.closing) == is_server
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

    def set_deadline(self, deadline: float) -> None:
        """Do not wait for sinks beyond ``deadline``, a time of `time.monotonic`."""
        for sink in self.sinks.values():
            sink.deadline = deadline

    def state_dict(self) -> dict[str, Any]:
        """Return the position of every sink after writing everything."""
        return {
            "counts": dict(self._counts),
            "sinks": {name: sink.state_dict() for name, sink in self.sinks.items()},
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continue from a checkpoint; records logged after it are removed.

        A sink that is not in the checkpoint starts here; one only in the checkpoint causes a
        warning.
        """
        self._counts = dict(state_dict["counts"])
        saved = state_dict["sinks"]
        for name, sink in self.sinks.items():
            if name in saved:
                sink.load_state_dict(saved[name])
        if missing := [name for name in saved if name not in self.sinks]:
            log.warning(
                "The checkpoint logged to %s too, which this run does not continue.",
                ", ".join(missing),
            )

    @property
    def failures(self) -> dict[str, BaseException]:
        """The exceptions of disabled sinks."""
        return {name: sink.failure for name, sink in self.sinks.items() if sink.failure is not None}

    def how_to_view(self) -> dict[str, str]:
        """Return the command or path that shows each sink's records."""
        return {name: sink.how_to_view() for name, sink in self.sinks.items()}

    def _write(self, kind: str, *args: Any) -> None:
        for sink in self.sinks.values():
            sink.write(kind, *args)

    def _resolve(self, name: str, step: int | None) -> int:
        if step is not None:
            try:
                return operator.index(step)
            except TypeError:
                raise TypeError(f"step counts frames and is an int, not {step!r}") from None
        count = self._counts.get(name, 0)
        self._counts[name] = count + 1
        return count

    def __enter__(self) -> Logger:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if error is None:
            self.close()
        else:
            status = "failed" if isinstance(error, Exception) else "interrupted"
            self.close(status, reason=f"{type(error).__name__}: {error}".rstrip(": "))

    def __repr__(self) -> str:
        return f"Logger({', '.join(map(repr, self.sinks.values()))})"


def as_logger(logger: Any) -> Logger:
    """Convert an object to a `Logger`, which writes to it in a thread.

    Args:
        logger: A `Logger`, a `Sink`, or an object with TorchRL's `log_scalar(name, value, step)`;
            its other methods of TorchRL's loggers are used too.

    Raises:
        TypeError: If it is none of these.
    """
    if isinstance(logger, Logger):
        return logger
    if isinstance(logger, Sink):
        return Logger({logger.name: logger})
    if not callable(getattr(logger, "log_scalar", None)):
        raise TypeError(
            "a logger has a method log_scalar(name, value, step), as those of get_logger and of "
            f"torchrl.record.loggers have; {logger!r} has none"
        )
    sink = LoggerSink(logger)
    return Logger(
        {sink.name: sink},
        exp_name=str(getattr(logger, "exp_name", "")),
        log_dir=str(getattr(logger, "log_dir", "")),
    )


def as_loggers(loggers: Any) -> list[Logger]:
    """Convert `None`, one logger, or a list or tuple of them to a list of `Logger`s."""
    if loggers is None:
        return []
    many = loggers if isinstance(loggers, (list, tuple)) else [loggers]
    return [as_logger(logger) for logger in many]


def _encodable(value: Any) -> Any:
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, dict):
        return {encodable(key): _encodable(item) for key, item in value.items()}
    return [_encodable(item) for item in value] if isinstance(value, list) else value


def _as_float(name: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError):
        shape = f" of shape {list(value.shape)}" if hasattr(value, "shape") else ""
        raise TypeError(
            f"metric {name!r} is a {type(value).__name__}{shape}; one number is needed "
            "(for several, log their mean)"
        ) from None


def _flat_metrics(metrics: Any, separator: str, prefix: str) -> dict[str, float]:
    values: dict[str, float] = {}
    for key, value in metrics.items():
        name = f"{prefix}{key}"
        if hasattr(value, "items"):
            values.update(_flat_metrics(value, separator, f"{name}{separator}"))
        else:
            values[name] = _as_float(name, value)
    return values


# -- `LoggerSink`: loggers of TorchRL, and objects with the same methods, as sinks.


class LoggerSink(Sink):
    """Passes records to an object with the methods of TorchRL's `Logger`.

    Only `log_scalar(name, value, step=...)` is required; `log_scalars` (or `log_metrics`),
    `log_hparams`, `log_video` (uint8 `[1, T, C, H, W]`), `log_image` (uint8 `[C, H, W]`),
    `log_histogram`, `log_text` (or `log_str`), `flush`, `close`, `state_dict` and
    `load_state_dict` are used if present.
    """

    def __init__(self, logger: Any) -> None:
        self.logger = logger
        self.name = type(logger).__name__
        self._thread = threading.get_ident()

    def write(self, kind: str, *args: Any) -> None:
        names = ("log_text", "log_str") if kind == "text" else (f"log_{kind}",)
        method = self._method(*names)
        if kind == "scalars" or method is None:
            super().write(kind, *args)
        elif kind == "hparams":
            method(*args)
        else:
            name, value, step, *options = args
            if kind in ("image", "video"):
                import torch  # not at the top: reading a run's metrics needs none

                value = torch.from_numpy(value).movedim(-1, -3)
            extra = {"step": step}
            if options and options[0] is not None:
                extra["fps" if kind == "video" else "bins"] = options[0]
            method(name, value[None] if kind == "video" else value, **extra)

    def write_scalars(self, values: Mapping[str, float], step: int) -> None:
        """Call `log_scalars` or `log_metrics`, else `log_scalar` for each value."""
        if method := self._method("log_scalars", "log_metrics"):
            method(dict(values), step=step)
            return
        for name, value in values.items():
            self.logger.log_scalar(name, value, step=step)

    def flush(self) -> None:
        if method := self._method("flush"):
            method()

    def close(self, status: str = "finished") -> None:
        if method := self._method("close", "flush"):
            method()

    def state_dict(self) -> dict[str, Any]:
        method = self._method("state_dict")
        return dict(method()) if method else {}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        if state_dict.keys() - {"late"} and (method := self._method("load_state_dict")):
            method(state_dict)

    def how_to_view(self) -> str:
        place = getattr(self.logger, "log_dir", "") or ""
        return shell_word(place) if place else ""

    def _method(self, *names: str) -> Any:
        """Return the first of these methods that the logger has, or `None`."""
        if threading.get_ident() != self._thread:
            self._thread = threading.get_ident()
            _take_over_run(self.logger)
        found = (getattr(self.logger, name, None) for name in names)
        return next((method for method in found if callable(method)), None)

    def __repr__(self) -> str:
        return repr(self.logger)


def _take_over_run(logger: Any) -> None:
    """Activate the logger's MLflow run in this thread.

    MLflow stores the active run per thread, and would begin another one.
    """
    mlflow, run = sys.modules.get("mlflow"), getattr(logger, "__dict__", {}).get("experiment")
    if mlflow is not None and isinstance(run, mlflow.ActiveRun):
        mlflow.start_run(run_id=run.info.run_id)
