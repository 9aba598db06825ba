"""Every `Stateful` of the loop and the loggers: it fits its own state, and restores it."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import Any

import pytest
import torch

import hooktrainer.log
import hooktrainer.loop
from hooktrainer import Every, Latest, get_logger
from hooktrainer.log import Logger, Sink
from hooktrainer.loop.assembly import Assembly
from hooktrainer.loop.cadence import Progress
from hooktrainer.loop.metrics import Metrics
from hooktrainer.loop.stateful import StatefulModule, as_stateful, has_state, mismatches
from hooktrainer.run.get_logger import RunLogger
from hooktrainer.store.tree import flatten

STATEFUL: dict[type, Callable[[Path], Any]] = {
    Every: lambda path: Every(frames=10),
    Logger: lambda path: Logger({}),
    Metrics: lambda path: Metrics(),
    StatefulModule: lambda path: as_stateful(torch.nn.Linear(2, 3)),
    Progress: lambda path: Progress(frames=4, seconds=0.5),
    RunLogger: lambda path: get_logger("csv", path, "run"),
}
USES: dict[type, Callable[[Any], object]] = {  # so that there is something to be saved
    Every: lambda every: every.due(Progress(frames=25)),
    Logger: lambda logger: logger.log_scalar("a", 1.0),
    Metrics: lambda metrics: metrics.log({"a": 1.0, "b": Latest(2), "log_pbar": ["a"]}),
    RunLogger: lambda logger: logger.log_scalar("a", 1.0),
}
NOT_STATEFUL = (Assembly, Sink, hooktrainer.TrainerHookBase)  # a whole, parts of a part, an outline


def found() -> set[type]:
    rooms = (hooktrainer.loop, hooktrainer.log)
    names = [m.name for r in rooms for m in walk_packages(r.__path__, f"{r.__name__}.")]
    names.append(RunLogger.__module__)
    return {
        kind
        for module in map(import_module, names)
        for kind in vars(module).values()
        if inspect.isclass(kind)
        and kind.__module__ == module.__name__
        and has_state(kind)
        and not getattr(kind, "_is_protocol", False)
        and not issubclass(kind, NOT_STATEFUL)
    }


def test_every_stateful_class_of_the_loop_and_the_loggers_is_tested():
    assert found() == set(STATEFUL)


@pytest.mark.parametrize("kind", STATEFUL, ids=lambda kind: kind.__name__)
def test_a_stateful_object_restores_its_own_state(kind, tmp_path):
    part = STATEFUL[kind](tmp_path)
    assert type(part) is kind
    USES.get(kind, id)(part)
    saved = copy.deepcopy(part.state_dict())
    assert mismatches(part, saved) == []
    skeleton, tensors = flatten(dict(part.state_dict()))
    again = STATEFUL[kind](tmp_path)
    again.load_state_dict(copy.deepcopy(saved))
    other, others = flatten(dict(again.state_dict()))
    assert skeleton == other
    torch.testing.assert_close(tensors, others, rtol=0, atol=0)
