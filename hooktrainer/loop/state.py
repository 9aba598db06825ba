"""The state of a trainer as one tree: collected for a checkpoint, checked, applied."""

from __future__ import annotations

import contextlib
import copy
import itertools
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

from torch import nn

from ..base.untrusted import check_fields, one_line, refusing
from ..errors import USER_ERRORS, StateMismatchError, add_note
from ..hooks.optimizer import OptimizerHook
from ..store.provenance import library_versions
from ..store.rng import check_rng_state, rng_state, set_rng_state
from .cadence import Every
from .registry import has_state

if TYPE_CHECKING:
    from .trainer import Trainer


class SavedState(TypedDict, total=False):
    """The fields of the state of a trainer that are read here."""

    components: Mapping[str, Any]
    rng: Mapping[str, Any] | None
    versions: Mapping[str, str | None]
    ended: bool
    total_frames: int | None


def components(trainer: Trainer) -> dict[str, Any]:
    """Name to object for everything of a trainer that has state, each object once.

    Hooks are named ``hook/<name>``, cadences ``cadence/<name>``, loggers ``logger/<index>``.
    """
    own = (trainer, trainer.loss_module, trainer.collector, *trainer.loggers)
    found = {
        "progress": trainer.progress,
        "metrics": trainer.metrics,
        "loss_module": trainer.loss_module,
        "collector": trainer.registry.part(trainer.collector),
    }
    found |= {f"hook/{name}": hook for name, hook in trainer.registry.stateful(own).items()}
    cadences = trainer.cadences | trainer.registry.cadences()
    found |= {f"cadence/{name}": every for name, every in cadences.items()}
    found |= {f"logger/{index}": logger for index, logger in enumerate(trainer.loggers)}
    return {name: component for name, component in found.items() if has_state(component)}


def trainer_state(trainer: Trainer) -> dict[str, Any]:
    """The state of every component and of the random generators; the versions of the libraries."""
    state = {name: part.state_dict() for name, part in components(trainer).items()}
    return {
        "format": 1,
        "components": state,
        "rng": rng_state(),
        "versions": dict(library_versions()),
        "total_frames": trainer.total_frames,
        "ended": trainer.control.status in ("finished", "stopped"),
    }


def open_window_state(trainer: Trainer) -> dict[str, Any]:
    """A copy of the state that the end of a run changes: metrics, loggers, random generators."""
    parts = components(trainer)
    names = [name for name in parts if name == "metrics" or _is_logger(name)]
    state = {name: parts[name].state_dict() for name in names}
    return copy.deepcopy({"components": state, "rng": rng_state()})


def with_open_window(state: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    """``state``, of a run that has ended, with what `open_window_state` returned before its end."""
    return {
        **state,
        "components": state["components"] | before["components"],
        "rng": before["rng"],
        "ended": True,
    }


def branched(trainer: Trainer, state: dict[str, Any], *, reseed: bool) -> dict[str, Any]:
    """The state that a run begins with which branches off another.

    It has logs of its own.

    Args:
        trainer: The new run's.
        state: That of a trainer of the other run.
        reseed: Whether its random numbers are its own too, drawn from the trainer's seed.
    """
    own = {n: part.state_dict() for n, part in components(trainer).items() if _is_logger(n)}
    others = {n: part for n, part in state["components"].items() if not _is_logger(n)}
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


def load_trainer_state(trainer: Trainer, state: dict[str, Any], *, strict: bool) -> Resume:
    """Apply ``state`` to the trainer's components.

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
        saved, live = dict(state["components"]), components(trainer)
        missing = [
            *(
                f"{name} is in the state but not in this trainer"
                for name in saved
                if name not in live
            ),
            *(
                f"{name} is in this trainer but not in the state"
                for name in live
                if name not in saved
            ),
        ]
        both = [name for name in live if name in saved]
        for name in [name for name in both if isinstance(live[name], Every)]:
            if live[name].unit != (unit := saved[name]["unit"]):
                missing.append(f"{name} counts {live[name].unit} here and {unit} in the state")
                both.remove(name)
        for name in both:
            build_value_estimator(live[name], saved[name])
        reshaped = {n: lines for n in both if (lines := _differences(n, live[n], saved[n]))}
    advice = {
        "build the networks as they were": list(itertools.chain(*reshaped.values())),
        "register the same hooks under the same names and cadences": missing,
        "install the versions that saved it": other_versions(state.get("versions", {})),
    }
    if lines := [one_line(line) for line in itertools.chain(*advice.values())]:
        message = "\n  ".join(["the state and this trainer differ:", *lines])
        if strict:
            todo = ", ".join(what for what, lines in advice.items() if lines)
            raise StateMismatchError(
                f"{message}\n{todo[0].upper()}{todo[1:]}, or pass strict=False to leave these out."
            )
        warnings.warn(message, stacklevel=3)
    if reshaped:
        saved |= {name: _what_fits(live[name], saved[name]) for name in reshaped}
        both = [name for name in both if not isinstance(live[name], OptimizerHook)]
    now, later = [n for n in both if not _is_logger(n)], [n for n in both if _is_logger(n)]
    before = {name: copy.deepcopy(live[name].state_dict()) for name in now}
    stop_reason = trainer.stop_reason
    try:
        for name in now:
            _load(name, live[name], saved[name])
    except Exception:
        for name in now:
            with contextlib.suppress(Exception):  # the error under way says what is wrong
                live[name].load_state_dict(before[name])
        trainer.control.withdraw_stop(stop_reason)
        raise
    loggers = [(name, live[name], saved[name]) for name in later]
    return Resume(loggers, state["rng"], state.get("ended", True), state.get("total_frames"))


def other_versions(saved: Mapping[str, str | None]) -> list[str]:
    """Which libraries have another version than those saved, each in a line."""
    return [
        f"{library} is {now} here and {saved[library]} in the state"
        for library, now in library_versions().items()
        if library in saved and saved[library] != now
    ]


def _is_logger(name: str) -> bool:
    return name.startswith("logger/")


def _differences(name: str, part: Any, saved: Any) -> list[str]:
    """How the parameters of a module differ from those saved, by key."""
    if not isinstance(part, nn.Module):
        return []
    live = part.state_dict()
    lines = [f"{name}: {key} is not in the state" for key in live if key not in saved]
    lines += [f"{name}: {key} is only in the state" for key in saved if key not in live]
    for key, value in live.items():
        shape, other = getattr(value, "shape", None), getattr(saved.get(key), "shape", None)
        if shape is not None and other is not None and shape != other:
            lines.append(f"{name}: {key} is {list(shape)} here and {list(other)} in the state")
    return lines


def _what_fits(part: nn.Module, saved: Any) -> dict[str, Any]:
    """The state of a module, with what is of the same name and shape in another one."""
    own = part.state_dict()
    fitting = {
        key: value
        for key, value in saved.items()
        if key in own and getattr(value, "shape", None) == getattr(own[key], "shape", None)
    }
    return {**own, **fitting}


def _load(name: str, part: Any, saved: Any) -> None:
    try:
        part.load_state_dict(saved)
    except USER_ERRORS as error:
        add_note(error, f"while loading the state of {name}")
        raise
    except Exception as error:  # what a part does with a state that is not its own is not known
        raise StateMismatchError(
            f"{name} cannot take up what was saved of it: {type(error).__name__}: {one_line(error)}"
        ) from error


def build_value_estimator(part: Any, saved: Any) -> None:
    """Build what torchrl's losses build at their first forward only, if the state has it."""
    prefix = "_value_estimator."
    has_one = any(str(key).startswith(prefix) for key in saved)
    if has_one and isinstance(part, nn.Module) and not _keys_with(part, prefix):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it is built with default hyper-parameters
            part.value_estimator  # noqa: B018


def _keys_with(module: nn.Module, prefix: str) -> list[str]:
    return [key for key in module.state_dict() if key.startswith(prefix)]
