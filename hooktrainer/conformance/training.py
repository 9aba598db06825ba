"""`Lab`: trains in processes of their own, so that a crash, a hang or a kill is a result."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.modules.module import register_module_forward_hook

from ..base.worker import Channel, ChildError, Worker
from .adapter import Adapter, Task, Trained
from .scripted_env import Episode, Ledger, ScriptedEnv


class CrashedError(RuntimeError):
    """A training failed, and should not have."""


@dataclass(frozen=True)
class Outcome:
    """How a training ended.

    Attributes:
        ledger: What the environments did.
        trained: What was learned and reported, with the value of each observation's number;
            nothing after an error.
        error: The exception, with its type.
    """

    ledger: Ledger
    trained: Trained
    error: str | None = None


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
        ledger: Ledger | None = None,
        serial: bool = False,
        fails: bool = False,
        **given: Any,
    ) -> Outcome:
        """Train in a process, and wait for its end.

        Args:
            episodes: What the environments play.
            frames: Steps of all environments.
            name: Directory of the training.
            ledger: With a fault or a kill.
            serial: Whether every observation is another one.
            fails: Whether an exception is returned, not raised.
            given: Fields of the task.

        Raises:
            CrashedError: After an exception, a crash or a timeout.
            NotImplementedError: If the adapter cannot do it.
        """
        place = self.directory / name
        place.mkdir(exist_ok=True)
        (log := place.with_suffix(".log")).touch()
        ledger = ledger or Ledger()
        make = partial(ScriptedEnv, episodes, ledger, serial)
        envs = {"env": make, "eval_env": partial(make, evaluates=True)}
        fields = {"every": None, "gamma": 0.8, "seed": 1, **envs, **given}
        task = Task(frames=frames, directory=place, **fields)
        args = self.adapter, task, ledger, log
        worker = Worker("training", _train, *args, start="fork", timeout=self.seconds)
        try:
            outcome = worker.receive_object()
        except ChildError as error:
            *_, printed = log.read_text(errors="replace").strip().rpartition("\n")
            raise CrashedError(f"{error} {printed}".strip()) from error
        finally:
            worker.close(0.0)
        if isinstance(outcome, NotImplementedError):
            raise outcome
        if outcome.error is not None and not fails:
            raise CrashedError(outcome.error)
        return outcome


def _train(channel: Channel, adapter: Adapter, task: Task, ledger: Ledger, log: Path) -> None:
    """Train, in the process of its own."""
    os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
    (size,), inputs = task.env().observation_space.shape or (), []

    def record(module: Any, given: Any, output: Any) -> None:
        is_one = given and isinstance(given[0], torch.Tensor) and given[0].shape[-1:] == (size,)
        if is_one and getattr(output, "requires_grad", False):
            rows = given[0].detach().reshape(-1, size).numpy().copy()
            output.register_hook(lambda _: inputs.append(rows))

    register_module_forward_hook(record)
    try:
        trained = adapter.train(task)
        seen = (inputs or None) if trained.trained_on is None else trained.trained_on
        values: Any = trained.values
        if values is not None:
            values = np.asarray(values(np.eye(size, dtype=np.float32)), np.float64).reshape(-1)
        outcome: Any = Outcome(ledger, replace(trained, values=values, trained_on=seen))
    except NotImplementedError as error:
        outcome = NotImplementedError(str(error))
    # A script that parses its command line refuses an option by SystemExit.
    except (Exception, SystemExit) as error:
        words = f"{type(error).__name__}: {error}".strip(": ")
        outcome = Outcome(ledger, Trained(state={}), words)
    channel.send_object(outcome)
