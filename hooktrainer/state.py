"""The state of a trainer as one tree: collected for a checkpoint, checked, applied."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch import nn

from .checkpoint.rng import rng_state, set_rng_state
from .errors import StateMismatchError, add_note
from .registry import has_state

if TYPE_CHECKING:
    from .trainer import Trainer


def components(trainer: Trainer) -> dict[str, Any]:
    """Name to object for everything of a trainer that has state, each object once.

    Hooks are named ``hook/<name>``, cadences ``cadence/<name>``, loggers ``logger/<index>``.
    """
    own = (trainer, trainer.loss_module, trainer.collector, *trainer.loggers)
    found = {
        "progress": trainer.progress,
        "metrics": trainer.metrics,
        "loss_module": trainer.loss_module,
        "collector": trainer.collector,
    }
    found |= {f"hook/{name}": hook for name, hook in trainer.registry.stateful(own).items()}
    cadences = trainer.cadences | trainer.registry.cadences()
    found |= {f"cadence/{name}": every for name, every in cadences.items()}
    found |= {f"logger/{index}": logger for index, logger in enumerate(trainer.loggers)}
    return {name: component for name, component in found.items() if has_state(component)}


def trainer_state(trainer: Trainer) -> dict[str, Any]:
    """The state of every component, and of the random generators."""
    state = {name: part.state_dict() for name, part in components(trainer).items()}
    return {"format": 1, "components": state, "rng": rng_state()}


def load_trainer_state(
    trainer: Trainer, state: dict[str, Any], *, strict: bool
) -> Callable[[], None]:
    """Apply ``state`` to the trainer's components.

    Args:
        trainer: The trainer.
        state: What `trainer_state` returned.
        strict: Whether components on one side only are refused; otherwise they are warned of.

    Returns:
        What is left to do when training starts: rewind the loggers (a finished run that is loaded
        again logs nothing and must lose nothing) and set the random generators.

    Raises:
        StateMismatchError: If the components differ; nothing is changed then.
    """
    if not isinstance(state, dict) or state.get("format") != 1:
        raise StateMismatchError(
            "this is not the state of a hooktrainer.Trainer: it has no 'format' 1. Pass what "
            "trainer.state_dict() returned or trainer.save_trainer() wrote."
        )
    saved, live = state["components"], components(trainer)
    problems = [
        *(f"{name} is in the state but not in this trainer" for name in saved if name not in live),
        *(f"{name} is in this trainer but not in the state" for name in live if name not in saved),
    ]
    if problems:
        message = "the state and this trainer differ:\n  " + "\n  ".join(problems)
        if strict:
            raise StateMismatchError(
                f"{message}\nRegister the same hooks under the same names, or pass strict=False "
                "to leave these out."
            )
        warnings.warn(message, stacklevel=4)
    loggers = {name for name in live if name.startswith("logger/")}
    for name in live:
        if name in saved and name not in loggers:
            _load(name, live[name], saved[name])
    return functools.partial(
        _resume, [(name, live[name], saved[name]) for name in loggers & saved.keys()], state["rng"]
    )


def _resume(loggers: list[tuple[str, Any, Any]], rng: dict[str, Any]) -> None:
    for name, logger, saved in loggers:
        _load(name, logger, saved)
    set_rng_state(rng)


def _load(name: str, part: Any, saved: Any) -> None:
    try:
        _build_value_estimator(part, saved)
        part.load_state_dict(saved)
    except Exception as error:
        add_note(error, f"while loading the state of {name}")
        raise


def _build_value_estimator(part: Any, saved: Any) -> None:
    """Build what torchrl's losses build at their first forward only, if the state has it."""
    prefix = "_value_estimator."
    has_one = any(str(key).startswith(prefix) for key in saved)
    if has_one and isinstance(part, nn.Module) and not _keys_with(part, prefix):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it is built with default hyper-parameters
            part.value_estimator  # noqa: B018


def _keys_with(module: nn.Module, prefix: str) -> list[str]:
    return [key for key in module.state_dict() if key.startswith(prefix)]
