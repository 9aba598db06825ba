"""Programs that train for this process, which waits for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import sleep
from typing import Final

from ..base.child_program import ChildProgram
from ..base.endings import GRACE
from ..loop.control import Control
from ..loop.signals import GracefulSignals, SignalExit

_LOOK: Final = 0.1  # seconds between two looks at the programs
_SLACK: Final = 5.0  # seconds that this process has beyond the programs


def run_programs(
    starts: Sequence[Callable[[], ChildProgram]],
    *,
    at_once: int | None = None,
    grace: float = GRACE,
) -> list[int]:
    """Run programs, ``at_once`` at a time, until all have ended; return their exit codes.

    A signal that is to end this process is passed on as SIGTERM, on which a run saves and ends
    within ``grace`` seconds; no program is started from then on.

    Raises:
        SystemExit: As `Loop.train` does, if a signal ended them.
    """
    control = Control()
    children: list[ChildProgram] = []
    try:
        with GracefulSignals(control, grace + _SLACK):
            while control.signal is None:
                running = [child for child in children if child.code is None]
                if len(children) < len(starts) and len(running) < (at_once or len(starts)):
                    children.append(starts[len(children)]())
                elif running:
                    sleep(_LOOK)
                else:
                    break
            if control.signal is not None:
                running = [child for child in children if child.code is None]
                for child in running:
                    child.terminate()
                for child in running:
                    child.wait()
            control.is_leaving = True
    finally:
        for child in children:
            child.close(1.0)
    if control.signal is not None:
        raise SignalExit(control.signal, deadline=control.deadline)
    return [child.code or 0 for child in children]
