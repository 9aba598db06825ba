"""`hooktrainer tensorboard` and `sync`: show the logs of a run, or send them to a server."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Annotated

from ..base.untrusted import refusing
from ..base.words import plural
from ..errors import ConfigError
from ..store.run_dir import RunDir
from . import output
from .arguments import RunPath, shown_as

Port = Annotated[int | None, shown_as("PORT")]
Host = Annotated[str, shown_as("HOST")]
Address = Annotated[str | None, shown_as("URI")]


def tensorboard(run: RunPath, /, *, port: Port = None, host: Host = "localhost") -> int:
    """Start TensorBoard on a run, or on all runs of a directory, and print its address.

    It serves until Ctrl-C, and shows new values while runs train.

    Args:
        run: directory of a run, or of several
        port: port to serve on; by default 6006, or the next one that is free
        host: address to listen on: localhost, or 0.0.0.0 for other machines too
    """
    logs = logs_of(run)
    where = [f"--logdir={logs}", f"--host={host}", *([] if port is None else [f"--port={port}"])]
    warnings.simplefilter("ignore")  # from its imports
    from tensorboard.main import run_main

    sys.argv = ["tensorboard", *where]
    run_main()
    return 0


def logs_of(place: Path) -> Path:
    """Return the directory for TensorBoard to read, or raise FileNotFoundError."""
    output.require_directory(place)
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

    output.require_directory(run)
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
    try:
        number = sender.send()
        sender.finish(sender.note.get("status", "interrupted"))
    except BlockingIOError:
        output.note(f"{run}: the run is training and sends its logs itself.")
        return 1
    except Exception as error:
        output.note(
            f"error: {run}: {sender.address} cannot be written to ({reason(error)}). The same "
            "command sends the rest."
        )
        return 1
    finally:
        sender.disconnect()
    output.line(f"{run}: {plural(number, 'value')} sent to {sender.address}, which has all of it.")
    return 0
