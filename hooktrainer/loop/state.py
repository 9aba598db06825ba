"""The state of a trainer as one tree: collected for a checkpoint, checked, applied."""

from __future__ import annotations

import contextlib
import copy
import itertools
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from ..base.endings import ENDED
from ..base.untrusted import one_line, refusing
from ..base.untrusted.text import check_fields
from ..errors import USER_ERRORS, StateMismatchError, add_note
from ..store.provenance import library_versions
from ..store.rng import check_rng_state, rng_state, set_rng_state
from .assembly import Assembly
from .stateful import REGISTER, Stateful, StatefulModule, fitting, has_state, mismatches

_LOGGER = "logger/"  # what the names of loggers begin with


class SavedState(TypedDict, total=False):
    """The fields of the state of a trainer that are read here."""

    components: Mapping[str, Any]
    rng: Mapping[str, Any] | None
    versions: Mapping[str, str | None]
    ended: bool
    total_frames: int | None


def components(trainer: Assembly) -> dict[str, Stateful]:
    """Name to part, for everything of a trainer that has state, each once.

    Hooks are named ``hook/<name>``, cadences ``cadence/<name>``, loggers ``logger/<index>``.
    """
    registry = trainer.registry
    own = (trainer, trainer.loss_module, trainer.collector, trainer.source, *trainer.loggers)
    found = {
        "progress": trainer.progress,
        "metrics": trainer.metrics,
        "loss_module": registry.part(trainer.loss_module),
        "collector": registry.part(trainer.source),
    }
    found |= {f"hook/{name}": part for name, part in registry.stateful(own).items()}
    found |= {f"cadence/{n}": e for n, e in (trainer.cadences | registry.cadences()).items()}
    found |= loggers(trainer)
    return {name: part for name, part in found.items() if has_state(part)}


def loggers(trainer: Assembly) -> dict[str, Stateful]:
    """Name to logger: the parts that are taken back only when training begins."""
    return {f"{_LOGGER}{index}": logger for index, logger in enumerate(trainer.loggers)}


def trainer_state(trainer: Assembly) -> dict[str, Any]:
    """The state of every component and of the random generators; the versions of the libraries."""
    state = {name: part.state_dict() for name, part in components(trainer).items()}
    return {
        "format": 1,
        "components": state,
        "rng": rng_state(),
        "versions": dict(library_versions()),
        "total_frames": trainer.total_frames,
        "ended": trainer.control.status in ENDED,
    }


def open_window_state(trainer: Assembly) -> dict[str, Any]:
    """A copy of the state that the end of a run changes: metrics, loggers, random generators."""
    changing = {"metrics": trainer.metrics, **loggers(trainer)}
    state = {name: part.state_dict() for name, part in changing.items()}
    return copy.deepcopy({"components": state, "rng": rng_state()})


def with_open_window(state: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    """``state``, of a run that has ended, with what `open_window_state` returned before its end."""
    return {
        **state,
        "components": state["components"] | before["components"],
        "rng": before["rng"],
        "ended": True,
    }


def branched(trainer: Assembly, state: dict[str, Any], *, reseed: bool) -> dict[str, Any]:
    """The state that a run begins with which branches off another.

    It has logs of its own.

    Args:
        trainer: The new run's.
        state: That of a trainer of the other run.
        reseed: Whether its random numbers are its own too, drawn from the trainer's seed.
    """
    own = {name: logger.state_dict() for name, logger in loggers(trainer).items()}
    others = {n: part for n, part in state["components"].items() if not n.startswith(_LOGGER)}
    state = {**state, "components": others | own}
    if reseed:
        state["rng"] = None
        if "ranks" in state:
            state["ranks"] = [{**share, "rng": None} for share in state["ranks"]]
    return state


class Resume:
    """What is left to do of a resume when training starts.

    A finished run that is loaded again logs nothing and must lose nothing, so its loggers are
    rewound only when training goes on.

    Args:
        loggers: For each logger its component's name, itself and its saved state.
        rng: The state of the random generators, or ``None``.
        ended: Whether the run had ended, with all that belongs to its end, when it was saved.
        total_frames: The trainer's ``total_frames`` when it was saved, if that is known.
    """

    def __init__(
        self,
        loggers: Sequence[tuple[str, Any, Any]] = (),
        rng: dict[str, Any] | None = None,
        ended: bool = True,
        total_frames: int | None = None,
    ) -> None:
        self._loggers = loggers
        self._rng = rng
        self.ended = ended
        self.total_frames = total_frames

    def rewind_loggers(self) -> None:
        """Take the loggers back to where they were when the state was saved."""
        for name, logger, saved in self._loggers:
            _load(name, logger, saved)

    def set_rng_state(self) -> None:
        """Set the random generators."""
        if self._rng is not None:
            set_rng_state(self._rng)


def load_trainer_state(trainer: Assembly, state: dict[str, Any], *, strict: bool) -> Resume:
    """Collect in what ``state`` and the trainer's parts differ, decide, and apply what is left.

    Args:
        trainer: The trainer.
        state: What `trainer_state` returned.
        strict: Whether a state that does not fit in every respect is refused. Otherwise what fits
            is applied, and the rest warned of. Where the parameters differ, no optimizer is loaded.

    Returns:
        What is left to do when training starts.

    Raises:
        StateMismatchError: If components, the shapes of their parameters or the versions of
            libraries differ, all differences listed. Nothing is changed then.
    """
    if not isinstance(state, dict) or state.get("format") != 1:
        raise StateMismatchError(
            "this is not the state of a hooktrainer.Trainer: it has no 'format' 1. Pass what "
            "trainer.state_dict() returned or trainer.save_trainer() wrote."
        )
    with refusing("the state is malformed", StateMismatchError):
        check_fields(state, SavedState)
        if state["rng"] is not None:  # else the trainer draws its own, as a branch does
            check_rng_state(state["rng"])
        saved, live = state["components"], components(trainer)
        differing = _compare(live, saved)
        lines = _by_remedy(live, saved, differing)
    lines["install the versions that saved it"] = other_versions(state.get("versions", {}))
    _object(lines, strict=strict)
    chosen = _choose(live, saved, differing)
    logs = [name for name in loggers(trainer) if name in chosen]
    stop_reason = trainer.stop_reason
    try:
        _apply(live, {name: chosen[name] for name in chosen if name not in logs})
    except Exception:
        trainer.control.withdraw_stop(stop_reason)
        raise
    later = [(name, live[name], chosen[name]) for name in logs]
    return Resume(later, state["rng"], state.get("ended", True), state.get("total_frames"))


def other_versions(saved: Mapping[str, str | None]) -> list[str]:
    """Which libraries have another version than those saved, each in a line."""
    return [
        f"{library} is {now} here and {saved[library]} in the state"
        for library, now in library_versions().items()
        if library in saved and saved[library] != now
    ]


def _compare(live: Mapping[str, Stateful], saved: Mapping[str, Any]) -> dict[str, list[str]]:
    """Name to differences, of every part that the state has and that differs from it."""
    found: dict[str, list[str]] = {}
    for name in [name for name in live if name in saved]:
        if lines := mismatches(live[name], saved[name]):
            found[name] = lines
    if _parameters_differ(live, found):  # that says all there is to say of an optimizer
        found = {n: lines for n, lines in found.items() if not _needs_parameters(live[n])}
    return found


def _by_remedy(
    live: Mapping[str, Stateful], saved: Mapping[str, Any], differing: Mapping[str, list[str]]
) -> dict[str, list[str]]:
    """What to do to what differs, in lines."""
    found: dict[str, list[str]] = {StatefulModule.remedy: [], REGISTER: []}
    found[REGISTER] += [
        *(f"{name} is in the state but not in this trainer" for name in saved if name not in live),
        *(f"{name} is in this trainer but not in the state" for name in live if name not in saved),
    ]
    for name, lines in differing.items():
        remedy = getattr(live[name], "remedy", REGISTER)
        found.setdefault(remedy, []).extend(f"{name}: {line}" for line in lines)
    return found


def _object(advice: Mapping[str, Sequence[str]], *, strict: bool) -> None:
    """Refuse a state, or warn of it, if anything differs."""
    lines = [one_line(line) for line in itertools.chain(*advice.values())]
    if not lines:
        return
    message = "\n  ".join(["the state and this trainer differ:", *lines])
    if strict:
        todo = ", ".join(what for what, lines in advice.items() if lines)
        raise StateMismatchError(
            f"{message}\n{todo[0].upper()}{todo[1:]}, or pass strict=False to leave these out."
        )
    warnings.warn(message, stacklevel=4)


def _choose(
    live: Mapping[str, Stateful], saved: Mapping[str, Any], differing: Mapping[str, list[str]]
) -> dict[str, Any]:
    """Name to what is loaded: of a part that differs what fits of its state, of others all."""
    anew = _parameters_differ(live, differing)
    chosen: dict[str, Any] = {}
    for name in [name for name in live if name in saved]:
        if anew and _needs_parameters(live[name]):
            continue
        state = fitting(live[name], saved[name]) if name in differing else saved[name]
        if state is not None:
            chosen[name] = state
    return chosen


def _apply(live: Mapping[str, Stateful], chosen: Mapping[str, Any]) -> None:
    """Load each part's state; if one fails, all are as they were."""
    before = {name: copy.deepcopy(live[name].state_dict()) for name in chosen}
    try:
        for name, state in chosen.items():
            _load(name, live[name], state)
    except Exception:
        for name in chosen:
            with contextlib.suppress(Exception):  # the error under way says what is wrong
                live[name].load_state_dict(before[name])
        raise


def _parameters_differ(live: Mapping[str, Stateful], differing: Mapping[str, Any]) -> bool:
    return any(getattr(live[name], "has_parameters", False) for name in differing)


def _needs_parameters(part: Stateful) -> bool:
    return bool(getattr(part, "needs_parameters", False))


def _load(name: str, part: Stateful, saved: Any) -> None:
    try:
        part.load_state_dict(saved)
    except USER_ERRORS as error:
        add_note(error, f"while loading the state of {name}")
        raise
    except Exception as error:  # what a part does with a state that is not its own is not known
        raise StateMismatchError(
            f"{name} cannot take up what was saved of it: {type(error).__name__}: {one_line(error)}"
        ) from error
