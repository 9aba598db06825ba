"""`Lab`: trains in processes of their own, so that a crash, a hang or a kill is a result."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..base.worker import Channel, ChildError, Worker
from .adapter import Adapter, Task, Trained
from .scripted_env import Episode, Ledger, ScriptedEnv

Verb = Literal["train", "resume"]


class CrashedError(RuntimeError):
    """A training failed, and should not have."""


class NotApplicableError(RuntimeError):
    """The adapter or the trainer lacks what a probe needs; the message is the reason."""


@dataclass(frozen=True)
class Outcome:
    """How a training ended.

    Attributes:
        ledger: What the environments did.
        trained: What was learned and reported, without the function of values; nothing after an
            error.
        values: The learned value of each observation's number.
        error: The exception, with its type.
        lacks: Why the adapter cannot do it.
    """

    ledger: Ledger
    trained: Trained
    values: NDArray[np.float64] | None = None
    error: str | None = None
    lacks: str | None = None


@dataclass(frozen=True)
class Lab:
    """Trains with an adapter.

    Args:
        adapter: Trains.
        directory: Holds a directory for each training.
        seconds: The time limit of a training.
    """

    adapter: Adapter
    directory: Path
    seconds: float

    def train(
        self,
        episodes: Sequence[Episode],
        frames: int = 1024,
        name: str = "run",
        verb: Verb = "train",
        fails: bool = False,
        **given: Any,
    ) -> Outcome:
        """Train in a process, and wait for its end.

        Args:
            episodes: What the environments play.
            frames: Steps of all environments.
            name: Directory of the training.
            verb: What the adapter does.
            fails: Whether an exception is returned, not raised.
            given: Fields of the ledger, ``serial``, and fields of the task.

        Raises:
            CrashedError: After an exception, a crash or a timeout.
            NotApplicableError: If the adapter cannot do it.
        """
        place = self.directory / name
        place.mkdir(parents=True, exist_ok=True)
        log = place.with_suffix(".log")
        args = (self.adapter, verb, episodes, frames, place, log, given)
        worker = Worker("training", _train, *args, start="fork", timeout=self.seconds)
        try:
            outcome: Outcome = worker.receive_object()
        except ChildError as error:
            printed = log.read_text(errors="replace").split("\n") if log.exists() else []
            last = next((line for line in reversed(printed) if line.strip()), "")
            raise CrashedError(f"{error} {last}".strip()) from error
        finally:
            worker.close(0.0)
        if outcome.lacks is not None:
            raise NotApplicableError(outcome.lacks)
        if outcome.error is not None and not fails:
            raise CrashedError(outcome.error)
        return outcome


def _train(
    channel: Channel,
    adapter: Adapter,
    verb: Verb,
    episodes: Sequence[Episode],
    frames: int,
    place: Path,
    log: Path,
    given: dict[str, Any],
) -> None:
    """Train, in the process of its own."""
    os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
    defaults: dict[str, Any] = {"every": None, "gamma": 0.8, "seed": 1, "options": {}}
    task_fields = {name: given.pop(name, value) for name, value in defaults.items()}
    serial = given.pop("serial", False)
    ledger = Ledger(**given)
    make = partial(ScriptedEnv, episodes, ledger, serial)
    task = Task(
        env=make,
        eval_env=partial(make, evaluates=True),
        frames=frames,
        directory=place,
        **task_fields,
    )
    nothing = Trained(state={})
    try:
        trained: Trained = getattr(adapter, verb)(task)
        values = None
        if trained.values is not None and not serial:
            codes = np.eye(make().codes, dtype=np.float32)
            values = np.asarray(trained.values(codes), np.float64).reshape(-1)
        outcome = Outcome(ledger, replace(trained, values=None), values)
    except NotImplementedError as error:
        outcome = Outcome(ledger, nothing, lacks=str(error))
    except Exception as error:
        outcome = Outcome(ledger, nothing, error=f"{type(error).__name__}: {error}".strip(": "))
    channel.send_object(outcome)
