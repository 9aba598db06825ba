"""`Adapter`: how the probes train with any trainer, and read what it learned and reported."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Final

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from ..base.checks import named
from ..base.imports import import_named
from ..errors import ConfigError

_FILES = ("hooktrainer", "stable_baselines3", "torchrl", "skrl", "rsl_rl", "tianshou", "cleanrl")
ADAPTERS: Final = {file: f"{__package__}.adapters.{file}:PPOAdapter" for file in _FILES}
"""The adapters of this package: the files in ``adapters/``, each with a `PPOAdapter`."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """What an adapter trains, with an actor-critic that learns values of observations.

    Attributes:
        env: Makes a training environment: ``Box`` observations of one dimension, two discrete
            actions. It has to run in the process that trains.
        eval_env: Makes an environment for evaluations.
        frames: Steps of all training environments together: a multiple of 256. Use batches of a
            size that divides 256.
        every: Frames between two evaluations, and between two checkpoints; ``None`` for neither.
        gamma: Discount factor.
        seed: Seed of the run.
        directory: Directory of the run; a resumed run has that of the killed one.
        checkpoint: The checkpoint of a killed run from which to train to the same end; ``None``:
            train from the beginning.
        collected: The frames of that checkpoint.
        options: Further keyword arguments of the trainer.
    """

    env: Callable[[], gym.Env[Any, Any]]
    eval_env: Callable[[], gym.Env[Any, Any]]
    frames: int
    every: int | None
    gamma: float
    seed: int
    directory: Path
    checkpoint: Path | None = None
    collected: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Trained:
    """What a training left behind. Probes of what is ``None`` are not applicable.

    Attributes:
        state: The parameters by name, and anything else that a resumed run has to restore.
        values: Returns the learned values ``[n]`` of observations ``[n, size]``, float32.
        frames: How many frames the trainer reports at the end.
        returns: What the trainer reported of training episodes, in order: frames so far, mean
            return, and mean length or ``None``.
        trained_on: The observations ``[n, size]`` in the training batches; by default the inputs of
            torch modules to which a gradient is propagated back.
    """

    state: Mapping[str, NDArray[Any]]
    values: Callable[[NDArray[np.float32]], Any] | None = None
    frames: int | None = None
    returns: Sequence[tuple[int, float, float | None]] | None = None
    trained_on: Iterable[NDArray[Any]] | None = None


class Adapter(ABC):
    """Trains with a trainer, in the way that its documentation recommends.

    ``NotImplementedError("why")`` in a method makes a probe not applicable.

    Attributes:
        packages: The distributions whose versions are shown.
        checkpoints: Pattern of the paths of checkpoints in a run's directory; by default there are
            none.
        window: A reported return is the mean over so many episodes, the last ones; ``None``: over
            those since the previous report.
        documented: By probe, where the trainer's documentation says that it does otherwise. A probe
            that fails is then "documented".
        references: By probe, where the trainer's source shows a result.
    """

    packages: ClassVar[Sequence[str]] = ()
    checkpoints: ClassVar[str] = ""
    window: ClassVar[int | None] = None
    documented: ClassVar[Mapping[str, str]] = {}
    references: ClassVar[Mapping[str, str]] = {}

    @abstractmethod
    def train(self, task: Task) -> Trained:
        """Train from the beginning, or from ``task.checkpoint``."""

    def frames_in(self, checkpoint: Path) -> int:
        """The frames of a checkpoint: by default the last number in its name."""
        return int(re.findall(r"\d+", checkpoint.stem)[-1])

    def saved(self, directory: Path) -> dict[int, Path]:
        """The checkpoints of a run by their frames."""
        if not self.checkpoints:
            raise NotImplementedError("the adapter has no checkpoints.")
        return {self.frames_in(path): path for path in directory.glob(self.checkpoints)}


def parameters_of(module: Any) -> dict[str, NDArray[Any]]:
    """The parameters and buffers of a ``torch.nn.Module`` as copied arrays, by name."""
    named = [*module.named_parameters(), *module.named_buffers()]
    return {name: value.detach().cpu().numpy().copy() for name, value in named}


def scalars_in(directory: Path, *tags: str) -> list[Any]:
    """Rows of the step and of the tags' mean values then, from TensorBoard files."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events, rows = EventAccumulator(str(directory)).Reload(), defaultdict(list)
    for tag in set(tags) & {*events.Tags()["scalars"]}:
        for one in events.Scalars(tag):
            rows[one.step, tag].append(one.value)
    steps = sorted({step for step, _ in rows})
    return [(step, *(float(np.mean(rows[step, tag])) for tag in tags)) for step in steps]


def load_adapter(name: str) -> Adapter:
    """Import an adapter.

    Args:
        name: One of `ADAPTERS`, ``path/to/file.py:Class`` or ``module:Class``, which run the code
            of that file or module.

    Raises:
        ConfigError: If there is none of that name, it cannot be imported, or is no adapter.
    """
    if ":" not in name:
        own = "; name your own as path/to/file.py:Class or module:Class"
        name = named("trainer", name, ADAPTERS, own)
    kind = import_named(name)
    if not (isinstance(kind, type) and issubclass(kind, Adapter)):
        raise ConfigError(f"{name} is no adapter: derive it from hooktrainer.conformance.Adapter.")
    return kind()
