"""The exceptions hooktrainer raises on purpose. Each message says what to do."""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path
from typing import Any

_HERE = f"{Path(__file__).parent}{os.sep}"


class ConfigError(ValueError):
    """An argument cannot work; raised as soon as that shows, nearly always before any training."""


class NotFoundError(FileNotFoundError, ConfigError):
    """What the user named, such as a run or a data set, is not there."""


class TakenError(FileExistsError, ConfigError):
    """The place for something new holds something already."""


class MissingPackageError(ModuleNotFoundError, ConfigError):
    """An optional package is not installed; says what to install."""


class HookError(RuntimeError):
    """A hook breaks its contract with the trainer."""


class UnknownHookPointError(HookError, ValueError):
    """An op was registered at a hook point that does not exist."""


class HookSignatureError(HookError, TypeError):
    """A callable cannot take what its hook point passes."""


class HookReturnError(HookError, TypeError):
    """A hook returned something its hook point has no use for."""


class DuplicateNameError(HookError, ValueError):
    """Two modules were registered under one name."""


class CollectorError(RuntimeError):
    """A collector breaks its contract."""


class NonFiniteError(FloatingPointError):
    """A loss or a gradient is NaN or infinite; raised before the optimizer step."""

    batch: Any = None
    """What the loss was computed of, where the loop knows it."""


class StateMismatchError(RuntimeError):
    """A state dict does not fit the trainer it is loaded into."""


class CheckpointError(RuntimeError):
    """A checkpoint cannot be written, read or trusted, or a value in it cannot be saved."""


class WriteFailedError(CheckpointError):
    """The disk refused a checkpoint; says with what."""


class DamagedCheckpointError(CheckpointError):
    """A checkpoint's files are not what was written; names the file."""


class SkipOptimStep(BaseException):
    """Control flow, not an error: abandons the optimizer step under way.

    Raised by `Trainer.skip_optim_step` and caught by the loop. It derives from `BaseException` so
    that a hook's own ``except Exception`` does not swallow it.
    """


USER_ERRORS = (ConfigError, CheckpointError, StateMismatchError)
"""Errors that whoever runs a program can mend: said in a line, with no traceback."""


def no_quiet_end(error: BaseException, frames: int = 0) -> BaseException:
    """What a run raises in place of an exception that its caller would take for a good end.

    Args:
        error: What ended the run.
        frames: How many had been collected.

    Returns:
        For ``sys.exit()`` and ``sys.exit(0)`` a `SystemExit` that says so and has exit code 1; for
        ``StopIteration`` and ``GeneratorExit``, which loops and generators take for an end, a
        ``RuntimeError``; anything else as it is.
    """
    if isinstance(error, SystemExit) and not error.code:
        exit_ = SystemExit(
            f"error: sys.exit({error.code!r}) was called {place_of(error)}: the run is interrupted "
            f"after {frames:,} frames, not finished. A run that was saved goes on with --resume "
            "latest; trainer.request_stop() ends one in order."
        )
        exit_.__cause__ = error
        return exit_
    if isinstance(error, (StopIteration, GeneratorExit)):
        why = "only a generator that is closed should. Raise another exception."
        if isinstance(error, StopIteration):
            why = "an iterator ran out in the middle of the run. Begin it again, or give next() "
            why += "a default."
        failed = RuntimeError(f"{type(error).__name__} was raised {place_of(error)}: {why}")
        failed.__cause__ = error
        return failed
    return error


def place_of(error: BaseException) -> str:
    """Where an exception was raised, outside hooktrainer if possible: ``in step, env.py:12``."""
    frames = list(traceback.walk_tb(error.__traceback__))
    if not frames:
        return "outside any function"
    # Packages, such as W&B's, put functions of their own in its place, one around another.
    leave = getattr(sys.exit, "__code__", None)
    codes = [frame.f_code for frame, _ in frames[1:]]
    last = codes.index(leave) + 1 if leave in codes else len(frames)
    theirs = [one for one in frames[:last] if not one[0].f_code.co_filename.startswith(_HERE)]
    frame, line = (theirs or frames[:last])[-1]
    return f"in {frame.f_code.co_name}, {Path(frame.f_code.co_filename).name}:{line}"


def add_note(error: BaseException, note: str) -> None:
    """Attach ``note`` to ``error``, as `BaseException.add_note` does from Python 3.11 on."""
    if hasattr(error, "add_note"):
        error.add_note(note)
    else:  # Python 3.10: same attribute, so that tools and tests can read it
        error.__notes__ = [*getattr(error, "__notes__", []), note]  # type: ignore[attr-defined]
