"""`hooktrainer sync`: send logs that a run could not send while it ran."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

from ..base.words import plural
from ..store.lookup import no_run
from . import output
from .arguments import RunPath, shown_as

Address = Annotated[str | None, shown_as("URI")]

_PAUSES = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Seconds between attempts at a failing server."""


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
