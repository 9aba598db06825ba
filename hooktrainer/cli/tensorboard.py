"""`hooktrainer tensorboard`: start TensorBoard on the logs of a run."""

from __future__ import annotations

import logging
import signal
import threading
import warnings
from pathlib import Path
from typing import Annotated

from ..errors import ConfigError
from ..store.run_dir import RunDir
from . import output
from .arguments import RunPath, shown_as

Port = Annotated[int | None, shown_as("PORT")]
Host = Annotated[str, shown_as("HOST")]


def tensorboard(run: RunPath, /, *, port: Port = None, host: Host = "localhost") -> int:
    """Start TensorBoard on a run, or on all runs of a directory, and print its address.

    It serves until Ctrl-C, and shows new values while runs train.

    Args:
        run: directory of a run, or of several
        port: port to serve on; by default 6006, or the next one that is free
        host: address to listen on: localhost, or 0.0.0.0 for other machines too
    """
    logs = logs_of(run)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # from its imports
        from tensorboard import program
        from tensorboard.util import tb_logging

    tb_logging.get_logger().setLevel(logging.ERROR)
    board = program.TensorBoard()
    where = [f"--logdir={logs}", f"--host={host}"]
    board.configure(argv=["tensorboard", *where, *([] if port is None else [f"--port={port}"])])
    try:
        url = board.launch()
    except program.TensorBoardServerException as error:
        raise ConfigError(str(getattr(error, "msg", error))) from None
    print(url, flush=True)
    output.note(f"TensorBoard shows {logs}. Ctrl-C ends it.")
    _wait()
    return 0


def logs_of(place: Path) -> Path:
    """Return the directory for TensorBoard to read, or raise FileNotFoundError."""
    if not place.is_dir():
        raise FileNotFoundError(f"there is no run {place}.")
    logs = RunDir(place).logs
    chosen = logs if logs.is_dir() else place
    if next(chosen.rglob("*tfevents*"), None) is None:
        raise FileNotFoundError(
            f"nothing in {place} was logged for TensorBoard; its logger is named tensorboard."
        )
    return chosen


def _wait() -> None:
    """Wait for SIGINT or SIGTERM."""
    ended = threading.Event()
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, lambda *_: ended.set()) for number in numbers}
    try:
        ended.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
