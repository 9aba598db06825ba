"""Runs the cases of targets in processes that may die."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import random
import shutil
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any

from guard import Guard, leaks
from target import Files, Target, fingerprint, write

BATCH = 500
OUTCOMES = ("equal", "differs", "refused")
FAULTS = ("exception", "crash", "hang", "memory", "executed", "leak")
_LONGEST_LINE = 2000
_FORK = multiprocessing.get_context("fork")
_IMPORTED_LATE = (
    *("encodings.unicode_escape", "torch._subclasses.schema_check_mode", "zipp.compat.overlay"),
    "hooktrainer.show.report.terminal",
    *("encodings.utf_16_be", "encodings.utf_16_le", "encodings.utf_32_be", "encodings.utf_32_le"),
)
"""What libraries import when they say what is wrong; any other import is one that a file named."""


@dataclass
class Report:
    """What came of the cases of one target.

    Attributes:
        counts: Cases by outcome or fault.
        faults: The number of the case, the fault, and what happened, of each fault.
    """

    counts: Counter[str] = field(default_factory=Counter)
    faults: list[tuple[int, str, str]] = field(default_factory=list)


def run_cases(
    target: Target,
    numbers: Sequence[int],
    seed: int,
    *,
    patience: float = 60.0,
    hole: Callable[[], None] | None = None,
    until: Sequence[str] = (),
) -> Report:
    """Open the cases of a target in child processes, one of them after the other.

    Args:
        target: The target.
        numbers: Which cases; each follows from the seed and its number.
        seed: The seed.
        patience: Seconds that a case may take; many, since the machine may be busy.
        hole: Called in each child: plants a defect.
        until: Faults at the first of which to end.
    """
    report, left = Report(), list(numbers)
    good = target.make()
    while left:
        done = 0
        for number, outcome, what in _in_child(target, good, left[:BATCH], seed, patience, hole):
            done += 1
            report.counts[outcome] += 1
            if outcome not in OUTCOMES:
                report.faults.append((number, outcome, what))
            if outcome in until:
                return report
        left = left[done:]
    return report


def _in_child(
    target: Target,
    good: Files,
    numbers: Sequence[int],
    seed: int,
    patience: float,
    hole: Callable[[], None] | None,
) -> Iterator[tuple[int, str, str]]:
    """The outcomes of cases in a child, up to the first that it does not live through."""
    ours, theirs = _FORK.Pipe(duplex=False)
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(
        prefix="fuzz-", dir=memory, ignore_cleanup_errors=True
    ) as root:
        given = (target, good, numbers, seed, theirs, hole, Path(root))
        child = _FORK.Process(target=_child, args=given)
        child.start()
        theirs.close()
        try:
            number = None
            ours.recv()  # it is ready
            for number in numbers:
                if not ours.poll(patience):
                    yield number, "hang", f"no answer in {patience:.0f} s"
                    break
                yield number, *ours.recv()
        except EOFError:
            child.join()
            if number is None:
                message = f"the target {target.name!r} cannot be run; see above"
                raise RuntimeError(message) from None
            if child.exitcode:
                yield number, "crash", f"exit code {child.exitcode}"
        finally:
            child.kill()
            child.join()


def _child(
    target: Target,
    good: Files,
    numbers: Sequence[int],
    seed: int,
    pipe: Any,
    hole: Callable[[], None] | None,
    root: Path,
) -> None:
    warnings.simplefilter("ignore")
    expected = warm_up(target, good, root)
    if hole is not None:
        hole()
    guard = Guard(target.memory)
    pipe.send(True)
    for number in numbers:
        answer = _case(target, spoilt(target, good, seed, number), root, guard, expected)
        pipe.send(answer)
        if answer[0] == "memory":
            break


def warm_up(target: Target, good: Files, root: Path) -> str:
    """Import what opening needs, so that a later import is seen; return the good fingerprint."""
    for name in _IMPORTED_LATE:
        with suppress(ImportError):
            importlib.import_module(name)
    place = root / "good"
    write(good, place)
    expected = fingerprint(_open(target, place))[0]
    for number in range(40):  # errors are told by code that is imported then
        shutil.rmtree(root / "case", ignore_errors=True)
        write(spoilt(target, good, -1, number), root / "case")
        try:
            fingerprint(_open(target, root / "case"))
        except Exception:
            continue
    return expected


def spoilt(target: Target, good: Files, seed: int, number: int) -> Files:
    """The files of a case."""
    rng = random.Random(f"{target.name} {seed} {number}")
    files = dict(good)
    with suppress(RecursionError):  # what is nested deep is not spoilt further
        target.spoil(files, rng)
    return files


def _case(target: Target, files: Files, root: Path, guard: Guard, expected: str) -> tuple[str, str]:
    place = root / "case"
    shutil.rmtree(place, ignore_errors=True)
    try:
        write(files, place)
    except (OSError, ValueError):  # names that no file can have
        return "refused", ""
    guard.seen.clear()
    guard.place = os.path.realpath(place)
    try:
        found = _open(target, place)
    except Exception as error:
        outcome, what = _refused(target, error)
    else:
        guard.place = None
        outcome, what = _accepted(found, expected)
    finally:
        guard.place = None
    if guard.seen:
        outcome, what = "executed", "; ".join(guard.seen[:3])
    if guard.took_too_much():
        outcome, what = "memory", "more than the bound"
    return outcome, what


def _accepted(found: object, expected: str) -> tuple[str, str]:
    deep = sys.getrecursionlimit()
    sys.setrecursionlimit(10 * deep)  # writing takes more than reading
    try:
        digest, data = fingerprint(found)
    except Exception as error:
        return "exception", f"what was accepted cannot be read: {_place_of(error)}"
    finally:
        sys.setrecursionlimit(deep)
    if leaks(data):
        return "leak", "memory that was never written is in the result"
    return ("equal" if digest == expected else "differs"), ""


def _open(target: Target, place: Path) -> object:
    with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        return target.open(place)


def _refused(target: Target, error: Exception) -> tuple[str, str]:
    """What becomes of an error: a documented one in one line, or a fault."""
    text = str(error)
    if _out_of_memory(error):
        return "memory", f"{type(error).__name__}: {text[:300]}"
    if not isinstance(error, target.errors):
        return "exception", _place_of(error)
    lines = text.split("\n") if target.lines else [text]
    if not text or not all(x.isprintable() and len(x) < _LONGEST_LINE for x in lines):
        return "exception", f"{type(error).__name__} is not said in one line: {text[:300]!r}"
    return "refused", text


def _place_of(error: Exception) -> str:
    """An error, and the line that raised it."""
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    code = last.tb_frame.f_code if last else None
    where = f" in {Path(code.co_filename).name}:{last.tb_lineno}" if code and last else ""
    return f"{type(error).__name__}{where}: {str(error)[:300]}"


def _out_of_memory(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, MemoryError) or "can't allocate memory" in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False
