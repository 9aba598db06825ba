"""`Adapter`: how the probes train with any trainer, and read what it learned and reported."""

from __future__ import annotations

import importlib.util
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Final

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from ..base.words import did_you_mean
from ..errors import ConfigError, MissingPackageError, NotFoundError

ADAPTERS: Final = {
    "hooktrainer": "HooktrainerAdapter",
    "stable_baselines3": "StableBaselines3Adapter",
    "torchrl": "TorchRLAdapter",
    "skrl": "SkrlAdapter",
    "rsl_rl": "RslRlAdapter",
}
"""The class of each adapter of this package, by its file in ``adapters/``."""


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
        options: Further keyword arguments of the trainer.
    """

    env: Callable[[], gym.Env[Any, Any]]
    eval_env: Callable[[], gym.Env[Any, Any]]
    frames: int
    every: int | None
    gamma: float
    seed: int
    directory: Path
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
        saved: The frames of each checkpoint.
        trained_on: The observations ``[n, size]`` in the training batches.
    """

    state: Mapping[str, NDArray[Any]]
    values: Callable[[NDArray[np.float32]], Any] | None = None
    frames: int | None = None
    returns: Sequence[tuple[int, float, float | None]] | None = None
    saved: Sequence[int] | None = None
    trained_on: Iterable[NDArray[Any]] | None = None


class Adapter(ABC):
    """Trains with a trainer, in the way that its documentation recommends.

    ``NotImplementedError("why")`` in a method makes a probe not applicable.

    Attributes:
        packages: The distributions whose versions are shown.
        window: A reported return is the mean over so many episodes, the last ones; ``None``: over
            those since the previous report.
        documented: By probe, where the trainer's documentation says that it does otherwise. A probe
            that fails is then "documented".
        references: By probe, where the trainer's source shows a result.
    """

    packages: ClassVar[Sequence[str]] = ()
    window: ClassVar[int | None] = None
    documented: ClassVar[Mapping[str, str]] = {}
    references: ClassVar[Mapping[str, str]] = {}

    @abstractmethod
    def train(self, task: Task) -> Trained:
        """Train from the beginning."""

    def resume(self, task: Task) -> Trained:
        """Continue a training that was killed from its latest checkpoint, to the same end."""
        raise NotImplementedError("the adapter has no resume().")


def parameters_of(module: Any, prefix: str = "") -> dict[str, NDArray[Any]]:
    """The parameters and buffers of a ``torch.nn.Module`` as copied arrays, by name."""
    named = [*module.named_parameters(), *module.named_buffers()]
    return {prefix + name: value.detach().cpu().numpy().copy() for name, value in named}


def load_adapter(name: str) -> Adapter:
    """Import an adapter.

    Args:
        name: One of `ADAPTERS`, ``path/to/file.py:Class`` or ``module:Class``, which run the code
            of that file or module.

    Raises:
        ConfigError: If there is none of that name, it cannot be imported, or is no adapter.
    """
    place, colon, kind = name.rpartition(":")
    if not colon:
        if name not in ADAPTERS:
            raise ConfigError(
                f"there is no adapter {name!r}.{did_you_mean(name, ADAPTERS)} There are "
                f"{', '.join(ADAPTERS)}; name your own as path/to/file.py:Class or module:Class."
            )
        place, kind = f"{__package__}.adapters.{name}", ADAPTERS[name]
    try:
        module = _import_file(Path(place)) if place.endswith(".py") else import_module(place)
        made = getattr(module, kind)()
    except ModuleNotFoundError as error:
        raise MissingPackageError(f"{name}: {error}: install what it needs.") from error
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(f"{name} cannot be loaded: {type(error).__name__}: {error}") from error
    if not isinstance(made, Adapter):
        raise ConfigError(f"{name} is no adapter: derive it from hooktrainer.conformance.Adapter.")
    return made


def _import_file(file: Path) -> Any:
    if not file.is_file():
        raise NotFoundError(f"there is no adapter file {file}.")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[file.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
