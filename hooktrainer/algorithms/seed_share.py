"""Seeds of a run shared out among processes."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from os import kill
from pathlib import Path

from ..base.child_program import ChildProgram
from ..errors import ConfigError
from ..loop.control import Control
from ..loop.signals import GracefulSignals, SignalExit
from ..run.config_file import as_words
from .config import AlgorithmConfig, words_of_seeds

_PROGRAM = "hooktrainer.algorithms.seed_program"
_LOOK = 0.2  # seconds between two looks at the processes


def train_in_processes(algorithm: AlgorithmConfig, place: Path) -> None:
    """Train the seeds of a run in as many processes as it has ``workers``.

    Args:
        algorithm: The run, given by what a command line can say.
        place: Where the directories of the seeds are.

    Raises:
        ConfigError: If it has fields that a command line cannot say.
        RuntimeError: If a process has failed; it has said why.
        SystemExit: As `Loop.train` does, if a signal ended them.
    """
    given = [name for name in ("loggers", "hooks", "collector") if getattr(algorithm, name)]
    if not isinstance(algorithm.env, str):
        given.append("env")
    if algorithm.network is not None and not isinstance(algorithm.network, str):
        given.append("network")
    if given:
        raise ConfigError(
            f"{algorithm.name()}: workers={algorithm.workers} train the seeds in other processes, "
            f"to which {given[0]}={getattr(algorithm, given[0])!r} cannot be sent: pass workers=0, "
            "or what a command line can say."
        )
    shares = [algorithm.seeds[i :: algorithm.workers] for i in range(algorithm.workers)]
    said = {name: value for name, value in algorithm.as_dict().items() if value is not None}
    said |= {"run_dir": str(place), "workers": 0, "progress_bar": False}
    kind = type(algorithm)
    if kind.__module__ == "__main__":
        raise ConfigError(
            f"{algorithm.name()}: workers={algorithm.workers} train the seeds in other processes, "
            "which cannot import a class of a script: pass workers=0, or put it into a module."
        )
    control = Control()
    children: list[ChildProgram] = []
    try:
        for share in filter(None, shares):
            words = as_words(said | {"seeds": words_of_seeds(share)})
            children.append(ChildProgram(_PROGRAM, kind.__module__, kind.__qualname__, *words))
        with GracefulSignals(control, algorithm.grace):
            _wait(children, control)
    finally:
        for child in children:
            child.close(1.0)
    if control.signal is not None:
        raise SignalExit(control.signal, deadline=control.deadline)
    failed = [child.code for child in children if child.code]
    if failed:
        raise RuntimeError(
            f"{len(failed)} of the {len(children)} processes that train the seeds in {place} have "
            "failed, as they have said above; resume='latest' goes on with what there is."
        )


def _wait(children: Sequence[ChildProgram], control: Control) -> None:
    told = False
    while any(child.code is None for child in children):
        if control.signal is not None and not told:
            told = True
            for child in children:
                if child.code is None:
                    kill(child.pid, signal.SIGTERM)
        for child in children:
            child.wait(_LOOK / len(children))
    control.is_leaving = True
