"""`hooktrainer tensorboard` and `sync`: show the logs of a run, or send them to a server."""

from __future__ import annotations

import logging
import threading
import time
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Annotated

from ..base.untrusted import refusing
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
    with suppress(KeyboardInterrupt):
        threading.Event().wait()
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


def sync(run: RunPath, /, *, to: Address = None) -> int:
    """Send what a run, or every run of a directory, has logged and not sent to its server.

    Everything arrives once and in order, however often this is interrupted and repeated.

    Args:
        run: directory of a run, or of several
        to: address of another MLflow server, which is sent everything; by default the run's server
    """
    from ..log.sender import read_note

    if not run.is_dir():
        raise FileNotFoundError(no_run(run))
    kinds = ("mlflow",) if to else ("mlflow", "wandb")
    notes = sorted((path.parent, kind) for kind in kinds for path in run.glob(f"**/{kind}.json"))
    found = [(place, kind) for place, kind in notes if read_note(place, kind)]
    if not found:
        raise FileNotFoundError(
            f"{run} has nothing to send: no logger that goes to a server was used."
        )
    return max([_send(place.absolute(), kind, to) for place, kind in found])


def _send(run: Path, kind: str, to: str | None) -> int:
    """Send one run and print the outcome."""
    from ..log.sender import read_note, reason
    from ..log.sink import sink_class

    new = {"tracking_uri": to, "run_id": None} if to else {}
    with refusing(run / f"{kind}.json", ConfigError):
        sender = sink_class(kind)(run, **read_note(run, kind)["options"] | new)
    if to:
        sender.keeps_note, sender.note["sent"] = False, {}
    output.note(f"{run}: sending to {sender.address}")
    pauses = list(_PAUSES)
    while True:
        try:
            number = sender.send()
            sender.finish(sender.note.get("status", "interrupted"))
            break
        except BlockingIOError:
            output.note(f"{run}: the run is training and sends its logs itself.")
            return 1
        except Exception as error:
            if not pauses:
                output.note(
                    f"error: {run}: {sender.address} cannot be written to ({reason(error)}). The "
                    "same command sends the rest."
                )
                return 1
            time.sleep(pauses.pop(0))
        finally:
            sender.disconnect()
    output.line(f"{run}: {plural(number, 'value')} sent to {sender.address}, which has all of it.")
    return 0
