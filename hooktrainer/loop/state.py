"""The state of a trainer as one tree: comparing and loading it."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypedDict

from ..base.untrusted import one_line, refusing
from ..base.untrusted.text import check_fields
from ..errors import USER_ERRORS, StateMismatchError, add_note
from ..store.provenance import library_versions
from ..store.rng import check_rng_state
from .stateful import Stateful, differing, fitting, mismatches

LOGGER = "logger/"  # prefix of the names of loggers, which are restored when training starts


class SavedState(TypedDict, total=False):
    """The fields of a trainer's state that are read here."""

    components: Mapping[str, Any]
    rng: Mapping[str, Any] | None
    versions: Mapping[str, str | None]
    ended: bool
    total_frames: int | None
    reported: Mapping[str, float]


@dataclass
class Resume:
    """The part of a resume that is done when training starts.

    Loggers are rewound only then, so that loading a finished run changes no log.
    """

    loggers: Sequence[tuple[str, Any, Any]] = ()
    rng: dict[str, Any] | None = None
    ended: bool = True
    total_frames: int | None = None
    reported: Mapping[str, float] = field(default_factory=dict)


def branched(
    state: dict[str, Any], live: Mapping[str, Stateful], *, reseed: bool
) -> dict[str, Any]:
    """Return the initial state of a run that branches off another, with its own logs.

    Args:
        state: The state of the other run.
        live: The components of the trainer by name.
        reseed: Whether to leave out the random state.
    """
    own = {name: part.state_dict() for name, part in live.items() if name.startswith(LOGGER)}
    others = {n: part for n, part in state["components"].items() if not n.startswith(LOGGER)}
    state = {**state, "components": others | own}
    if reseed:
        state["rng"] = None
        if "ranks" in state:
            state["ranks"] = [{**share, "rng": None} for share in state["ranks"]]
    return state


def load_components(live: Mapping[str, Stateful], state: dict[str, Any], *, strict: bool) -> Resume:
    """Compare a trainer's ``state`` with its components, then load what fits.

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
        saved = state["components"]
        both = [name for name in live if name in saved]
        found = {name: mismatches(live[name], saved[name]) for name in both}
    other_parameters = any(
        lines and getattr(live[name], "has_parameters", False) for name, lines in found.items()
    )
    # If the parameters do not match, the optimizer's mismatch is the same one: leave it out.
    reset = {n for n in both if other_parameters and getattr(live[n], "needs_parameters", False)}
    others = {n: lines for n, lines in found.items() if lines and n not in reset}
    versions = state.get("versions", {})
    lines = [
        *(f"{name}: {line}" for name, found in others.items() for line in found),
        *(f"{name} is in the state but not in this trainer" for name in saved if name not in live),
        *(f"{name} is in this trainer but not in the state" for name in live if name not in saved),
        *differing({n: now for n, now in library_versions().items() if n in versions}, versions),
    ]
    if lines:
        message = "\n  ".join(["the state and this trainer differ:", *map(one_line, lines)])
        if strict:
            late = any(name.startswith("hook/") and name not in live for name in saved)
            hint = " (an algorithm takes hooks to restore as hooks=[...])" if late else ""
            raise StateMismatchError(
                f"{message}\nBuild the trainer as it was{hint}, or pass strict=False to leave "
                "these out."
            )
        warnings.warn(message, stacklevel=3)
    loggers = []
    for name in both:
        part = fitting(live[name], saved[name]) if name in others else saved[name]
        if name in reset or part is None:
            continue
        if name.startswith(LOGGER):
            loggers.append((name, live[name], part))
        else:
            load_part(name, live[name], part)
    ended, reported = state.get("ended", True), state.get("reported", {})
    return Resume(loggers, state["rng"], ended, state.get("total_frames"), reported)


def load_part(name: str, part: Stateful, saved: Any) -> None:
    """Load the state of a component; an error names it."""
    try:
        part.load_state_dict(saved)
    except USER_ERRORS as error:
        add_note(error, f"while loading the state of {name}")
        raise
    except Exception as error:  # another object's state may raise anything
        raise StateMismatchError(
            f"{name} cannot load its saved state: {type(error).__name__}: {one_line(error)}"
        ) from error
