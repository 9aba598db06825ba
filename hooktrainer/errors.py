"""The exceptions of hooktrainer. Each message tells what to do."""

from __future__ import annotations

import os
import traceback
from pathlib import Path
from typing import Any

_HERE = f"{Path(__file__).parent}{os.sep}"


class ConfigError(ValueError):
    """An argument is invalid; raised as early as possible, usually before training."""


class NotFoundError(FileNotFoundError, ConfigError):
    """A run, data set or file that the user named does not exist."""


class TakenError(FileExistsError, ConfigError):
    """A file or directory that would be created exists already."""


class MissingPackageError(ModuleNotFoundError, ConfigError):
    """An optional package is not installed; the message gives the command that installs it."""


class HookError(RuntimeError):
    """A hook breaks its contract with the trainer."""


class UnknownHookPointError(HookError, ValueError):
    """An op was registered at a hook point that does not exist."""


class HookSignatureError(HookError, TypeError):
    """A callable cannot take what its hook point passes."""


class HookReturnError(HookError, TypeError):
    """A hook returned a value that its hook point does not accept."""


class DuplicateNameError(HookError, ValueError):
    """Two modules were registered under one name."""


class CollectorError(RuntimeError):
    """A collector breaks its contract."""


class NonFiniteError(FloatingPointError):
    """A loss or a gradient is NaN or infinite; raised before the optimizer step."""

    batch: Any = None
    """The input of the loss, if known."""


class StateMismatchError(RuntimeError):
    """A state dict does not fit the trainer it is loaded into."""


class CheckpointError(RuntimeError):
    """A checkpoint cannot be written, read or trusted, or a value in it cannot be saved."""


class WriteFailedError(CheckpointError):
    """A checkpoint could not be written to the disk."""


class DamagedCheckpointError(CheckpointError):
    """A checkpoint's files were changed or damaged; names the file."""


class SkipOptimStep(BaseException):
    """Control flow: abandons the current optimizer step.

    Raised by `Trainer.skip_optim_step` and caught by the loop. It derives from `BaseException` so
    that a hook's ``except Exception`` does not catch it.
    """


USER_ERRORS = (ConfigError, CheckpointError, StateMismatchError)
"""Errors that the user can correct; the command line prints them without a traceback."""


def as_failure(error: BaseException, frames: int = 0) -> BaseException:
    """Replace an exception that the caller of a run would take for a normal end.

    Args:
        error: The exception that ended the run.
        frames: Frames collected.

    Returns:
        For ``sys.exit(0)`` a `SystemExit` with a message and exit code 1; for ``StopIteration`` and
        ``GeneratorExit`` a ``RuntimeError``; any other exception unchanged.
    """
    if isinstance(error, SystemExit) and not error.code:
        exit_ = SystemExit(
            f"error: sys.exit({error.code!r}) was called {place_of(error)}: the run is interrupted "
            f"after {frames:,} frames, not finished. A saved run continues with --resume "
            "latest; trainer.request_stop() ends one in order."
        )
        exit_.__cause__ = error
        return exit_
    if isinstance(error, (StopIteration, GeneratorExit)):
        failed = RuntimeError(
            f"{type(error).__name__} was raised {place_of(error)}, in the middle of the run: begin "
            "an iterator that ran out again, or give next() a default."
        )
        failed.__cause__ = error
        return failed
    return error


def place_of(error: BaseException) -> str:
    """Return where an exception was raised, outside hooktrainer if possible."""
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return "outside any function"
    theirs = [frame for frame in frames if not frame.filename.startswith(_HERE)]
    last = (theirs or frames)[-1]
    return f"in {last.name}, {Path(last.filename).name}:{last.lineno}"


def add_note(error: BaseException, note: str) -> None:
    """Add a note to an exception, on Python 3.10 too."""
    if hasattr(error, "add_note"):
        error.add_note(note)
    else:  # Python 3.10: same attribute, so that tools and tests can read it
        error.__notes__ = [*getattr(error, "__notes__", []), note]  # type: ignore[attr-defined]
