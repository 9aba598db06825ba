"""`LoggerSink`: loggers of TorchRL, and objects with the same methods, as sinks."""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping
from typing import Any

from ..base.words import shell_word
from .sink import Event, Histogram, HParams, Image, Scalars, Sink, Text, Video


class LoggerSink(Sink):
    """Passes records to an object with the methods of TorchRL's `Logger`.

    Only `log_scalar(name, value, step=...)` is required; `log_scalars` (or `log_metrics`),
    `log_hparams`, `log_video` (uint8 `[1, T, C, H, W]`), `log_image` (uint8 `[C, H, W]`),
    `log_histogram`, `log_text` (or `log_str`), `flush`, `close`, `state_dict` and
    `load_state_dict` are used if present.
    """

    def __init__(self, logger: Any) -> None:
        super().__init__()
        self.logger = logger
        self.name = type(logger).__name__
        self._thread = threading.get_ident()

    def write(self, event: Event) -> None:
        """Call the method for this kind of record."""
        if isinstance(event, Scalars):
            self.write_scalars(event)
            return
        names, args, kwargs = _call_for(event)
        if method := self._method(*names):
            method(*args, **kwargs)
        else:
            self._refuse(event)

    def write_scalars(self, event: Scalars) -> None:
        """Call `log_scalars` or `log_metrics`, else `log_scalar` for each value."""
        if method := self._method("log_scalars", "log_metrics"):
            method(dict(event.values), step=event.step)
            return
        for name, value in event.values.items():
            self.logger.log_scalar(name, value, step=event.step)

    def flush(self) -> None:
        """Call `flush`."""
        if method := self._method("flush"):
            method()

    def close(self, status: str = "finished") -> None:
        """Call `close`, else `flush`."""
        if method := self._method("close", "flush"):
            method()

    def state_dict(self) -> dict[str, Any]:
        """Call `state_dict`."""
        method = self._method("state_dict")
        return dict(method()) if method else {}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Call `load_state_dict`."""
        if state_dict and (method := self._method("load_state_dict")):
            method(state_dict)

    def how_to_view(self) -> str:
        """Return the logger's `log_dir`."""
        place = getattr(self.logger, "log_dir", "") or ""
        return shell_word(place) if place else ""

    def _method(self, *names: str) -> Any:
        """The first of these methods that the logger has."""
        if threading.get_ident() != self._thread:
            self._thread = threading.get_ident()
            _take_over_run(self.logger)
        found = (getattr(self.logger, name, None) for name in names)
        return next((method for method in found if callable(method)), None)

    def __repr__(self) -> str:
        return repr(self.logger)


def _call_for(event: Event) -> tuple[list[str], list[Any], dict[str, Any]]:
    """The methods that take a record, and with which arguments."""
    import torch  # not at the top: reading a run's metrics needs none

    match event:
        case HParams(config):
            return ["log_hparams"], [config], {}
        case Text(name, text, step):
            return ["log_text", "log_str"], [name, text], {"step": step}
        case Image(name, pixels, step):
            image = torch.from_numpy(pixels).permute(2, 0, 1)
            return ["log_image"], [name, image], {"step": step}
        case Video(name, frames, step, fps):
            video = torch.from_numpy(frames).permute(0, 3, 1, 2)[None]
            extra = {} if fps is None else {"fps": fps}
            return ["log_video"], [], {"name": name, "video": video, "step": step, **extra}
        case Histogram(name, values, step, bins):
            return ["log_histogram"], [name, values], {"step": step, "bins": bins}
    raise TypeError(f"a {type(event).__name__} is no record")


def _take_over_run(logger: Any) -> None:
    """Activate the logger's MLflow run in this thread.

    MLflow stores the active run per thread, and would begin another one.
    """
    mlflow, run = sys.modules.get("mlflow"), getattr(logger, "__dict__", {}).get("experiment")
    if mlflow is not None and isinstance(run, mlflow.ActiveRun):
        mlflow.start_run(run_id=run.info.run_id)
