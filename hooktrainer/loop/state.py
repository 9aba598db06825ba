"""The state of a trainer as one tree: collecting, checking and loading it."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

from ..base.endings import ENDED
from ..base.untrusted import one_line, refusing
from ..base.untrusted.text import check_fields
from ..errors import USER_ERRORS, StateMismatchError, add_note
from ..store.provenance import library_versions
from ..store.rng import check_rng_state, rng_state
from .assembly import Assembly
from .stateful import Stateful, fitting, has_state, mismatches

_LOGGER = "logger/"  # what the names of loggers begin with


class SavedState(TypedDict, total=False):
    """The fields of a trainer's state that are read here."""

    components: Mapping[str, Any]
    rng: Mapping[str, Any] | None
    versions: Mapping[str, str | None]
    ended: bool
    total_frames: int | None


def components(trainer: Assembly) -> dict[str, Stateful]:
    """Return every stateful object of a trainer by name, each once.

    Names are ``hook/<name>``, ``cadence/<name>``, ``logger/<index>``, and those of the loop's
    parts.
    """
    registry = trainer.registry
    own = (trainer, trainer.loss_module, trainer.collector, trainer.source, *trainer.loggers)
    found = {
        "progress": trainer.progress,
        "metrics": trainer.metrics,
        "loss_module": registry.part(trainer.loss_module),
        "collector": registry.part(trainer.source),
    }
    found |= {f"hook/{name}": registry.part(hook) for name, hook in registry.named(own).items()}
    found |= {f"cadence/{n}": e for n, e in (trainer.cadences | registry.cadences()).items()}
    found |= loggers(trainer)
    return {name: part for name, part in found.items() if has_state(part)}


def loggers(trainer: Assembly) -> dict[str, Stateful]:
    """Return the loggers by name; they are restored only when training starts."""
    return {f"{_LOGGER}{index}": logger for index, logger in enumerate(trainer.loggers)}


def trainer_state(trainer: Assembly, before: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the state of all components, of the random generators, and the library versions.

    Args:
        trainer: The trainer.
        before: An `open_window_state` from before the end of the run, which it replaces.
    """
    before = before or {}
    state = {name: part.state_dict() for name, part in components(trainer).items()}
    return {
        "format": 1,
        "components": state | before.get("components", {}),
        "rng": before.get("rng") or rng_state(),
        "versions": dict(library_versions()),
        "total_frames": trainer.total_frames,
        "ended": trainer.control.status in ENDED,
    }


def open_window_state(trainer: Assembly) -> dict[str, Any]:
    """Copy the state that the end of a run changes: metrics, loggers, random generators."""
    changing = {"metrics": trainer.metrics, **loggers(trainer)}
    state = {name: part.state_dict() for name, part in changing.items()}
    return copy.deepcopy({"components": state, "rng": rng_state()})


def branched(trainer: Assembly, state: dict[str, Any], *, reseed: bool) -> dict[str, Any]:
    """Return the initial state of a run that branches off another, with its own logs."""
    own = {name: logger.state_dict() for name, logger in loggers(trainer).items()}
    others = {n: part for n, part in state["components"].items() if not n.startswith(_LOGGER)}
    state = {**state, "components": others | own}
    if reseed:
        state["rng"] = None
        if "ranks" in state:
            state["ranks"] = [{**share, "rng": None} for share in state["ranks"]]
    return state


@dataclass
class Resume:
    """The part of a resume that is done when training starts.

    Loggers are rewound only then, so that loading a finished run changes no log.
    """

    loggers: Sequence[tuple[str, Any, Any]] = ()
    rng: dict[str, Any] | None = None
    ended: bool = True
    total_frames: int | None = None


def load_trainer_state(trainer: Assembly, state: dict[str, Any], *, strict: bool) -> Resume:
    """Compare ``state`` with the trainer's components, then load what fits.

    Raises:
        StateMismatchError: If components, parameter shapes or library versions differ; lists all
            mismatches and changes nothing.
    """
    if not isinstance(state, dict) or state.get("format") != 1:
        raise StateMismatchError(
            "this is not the state of a hooktrainer.Trainer, such as trainer.state_dict() returns."
        )
    with refusing("the state is malformed", StateMismatchError):
        check_fields(state, SavedState)
        if state["rng"] is not None:  # else the trainer draws its own, as a branch does
            check_rng_state(state["rng"])
        saved, live = state["components"], components(trainer)
        both = [name for name in live if name in saved]
        found = {name: mismatches(live[name], saved[name]) for name in both}
    other_parameters = any(
        lines and getattr(live[name], "has_parameters", False) for name, lines in found.items()
    )
    # The mismatch of the parameters says all there is to say of an optimizer.
    reset = {n for n in both if other_parameters and getattr(live[n], "needs_parameters", False)}
    differing = {n: lines for n, lines in found.items() if lines and n not in reset}
    lines = [
        *(f"{name}: {line}" for name, found in differing.items() for line in found),
        *(f"{name} is in the state but not in this trainer" for name in saved if name not in live),
        *(f"{name} is in this trainer but not in the state" for name in live if name not in saved),
        *other_versions(state.get("versions", {})),
    ]
    if lines:
        message = "\n  ".join(["the state and this trainer differ:", *map(one_line, lines)])
        if strict:
            raise StateMismatchError(
                f"{message}\nBuild the trainer as it was, or pass strict=False to leave these out."
            )
        warnings.warn(message, stacklevel=3)
    chosen = {
        name: fitting(live[name], saved[name]) if name in differing else saved[name]
        for name in both
        if name not in reset
    }
    chosen = {name: part for name, part in chosen.items() if part is not None}
    logs = [name for name in loggers(trainer) if name in chosen]
    for name in [name for name in chosen if name not in logs]:
        load_part(name, live[name], chosen[name])
    later = [(name, live[name], chosen[name]) for name in logs]
    return Resume(later, state["rng"], state.get("ended", True), state.get("total_frames"))


def other_versions(saved: Mapping[str, str | None]) -> list[str]:
    """List the libraries whose version differs from the saved one."""
    return [
        f"{library} is {now} here and {saved[library]} in the state"
        for library, now in library_versions().items()
        if library in saved and saved[library] != now
    ]


def load_part(name: str, part: Stateful, saved: Any) -> None:
    """Load the state of a component; an error names it."""
    try:
        part.load_state_dict(saved)
    except USER_ERRORS as error:
        add_note(error, f"while loading the state of {name}")
        raise
    except Exception as error:  # what a part does with a state that is not its own is not known
        raise StateMismatchError(
            f"{name} cannot take up what was saved of it: {type(error).__name__}: {one_line(error)}"
        ) from error
