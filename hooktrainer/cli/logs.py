"""`hooktrainer tensorboard` and `sync`: show the logs of a run, or send them to a server."""

from __future__ import annotations

import logging
import signal
import threading
import time
import warnings
from pathlib import Path
from typing import Annotated

from ..base.words import plural
from ..errors import ConfigError
from ..store.lookup import no_run
from ..store.run_dir import RunDir
from . import output
from .arguments import RunPath, shown_as

Port = Annotated[int | None, shown_as("PORT")]
Host = Annotated[str, shown_as("HOST")]
Address = Annotated[str | None, shown_as("URI")]

_PAUSES = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Seconds between attempts at a failing server."""


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


def sync(run: RunPath, /, *, to: Address = None) -> int:
    """Send what a run, or every run of a directory, has logged and not sent to its server.

    Everything arrives once and in order, however often this is interrupted and repeated.

    Args:
        run: directory of a run, or of several
        to: address of another server, which is sent everything; by default MLFLOW_TRACKING_URI, if
            the run used it, or else the run's server
    """
    from ..log.mlflow import NOTE
    from ..log.mlflow_sender import bound_requests

    if not run.is_dir():
        raise FileNotFoundError(no_run(run))
    found = sorted(run.glob(f"**/{NOTE}"))
    if not found:
        raise FileNotFoundError(
            f"{run} has nothing to send: no logger that goes to a server was used."
        )
    seconds = bound_requests()
    codes = [_send(path.parent.absolute(), to, seconds) for path in found]
    return max(codes)


def _send(run: Path, to: str | None, seconds: str) -> int:
    """Send one run and print the outcome."""
    from ..log.mlflow_sender import Sender, reason, sending_lock

    with sending_lock(run) as free:
        if not free:
            output.note(f"{run}: the run is training and sends its logs itself.")
            return 1
        sender, sent, pauses = Sender(run, to), 0, [*_PAUSES]
        patience = f", which has {seconds} s for each answer" if "http" in sender.uri else ""
        output.note(f"{run}: sending to {sender.uri}{patience}")
        while True:
            try:
                number = sender.send_some()
                if not number:
                    sender.end()
                    break
            except Exception as error:
                if not pauses:
                    output.note(
                        f"error: {run}: {sender.uri} cannot be written to ({reason(error)}); "
                        f"{plural(sent, 'value')} were sent. The same command sends the rest."
                    )
                    return 1
                pause = pauses.pop(0)
                output.note(
                    f"{sender.uri} cannot be written to ({reason(error)}); "
                    f"{plural(len(pauses) + 1, 'more attempt')}, the next in {pause:g} s"
                )
                time.sleep(pause)
            else:
                sent, pauses = sent + number, [*_PAUSES]
    output.line(f"{run}: {plural(sent, 'value')} sent to {sender.uri}, which has all of it now.")
    return 0
