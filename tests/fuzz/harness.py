"""Targets of fuzzing, and how their cases are run in processes that may die."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import multiprocessing
import os
import random
import resource
import shutil
import sys
import sysconfig
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any

import torch

from hooktrainer.errors import USER_ERRORS
from hooktrainer.store import flatten

# -- What a target is: good files, ways to spoil them, and how they are opened.

Files = dict[str, "bytes | Callable[[Path], object]"]
"""The content of each file by its path, or what makes something else there: `os.mkfifo`."""


@dataclass(frozen=True)
class Target:
    """Something that is opened.

    Attributes:
        name: For the table.
        make: Returns the good files.
        spoil: Changes them, hashes and all.
        open: Opens a directory of them, and returns what it took from them.
        errors: The errors that are documented for it.
        memory: Bytes that opening a case may take; its files have some kilobytes.
        lines: Whether they may list differences, each in a line.
    """

    name: str
    make: Callable[[], Files]
    spoil: Callable[[Files, random.Random], None]
    open: Callable[[Path], Any]
    errors: tuple[type[Exception], ...] = USER_ERRORS
    lines: bool = False
    memory: int = 256 << 20


def write(files: Files, place: Path) -> None:
    """Put files into a directory, as far as the names allow."""
    for name, content in files.items():
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if callable(content):
            content(path)
        else:
            path.write_bytes(content)


def read(place: Path) -> Files:
    """The regular files in a directory."""
    return {
        path.relative_to(place).as_posix(): path.read_bytes()
        for path in sorted(place.rglob("*"))
        if path.is_file()
    }


def spoil_place(files: Files, rng: random.Random) -> None:
    """Replace, move or remove a file, or lead out of the directory in its place."""
    name = rng.choice(sorted(files))
    kind, content = rng.randrange(9), files[name]
    target = rng.choice(("/dev/zero", "/etc/passwd", "/", name, "nowhere"))
    if kind == 0:
        del files[name]
    elif kind == 1:
        files[name] = Path.mkdir
    elif kind == 2:
        files[name] = os.mkfifo
    elif kind == 3:
        files[name] = lambda path: path.symlink_to(target)
    elif kind == 4:  # to its own content, outside of the directory
        outside = f"{'../' * (1 + name.count('/'))}outside/{Path(name).name}"
        files[name] = lambda path: path.symlink_to(outside)
    elif kind == 5:
        files[name] = b""
    elif kind == 6:
        files[name] = files[rng.choice(sorted(files))]
    elif kind == 7:
        files[f"{name}{rng.choice(('2', '.npy', ' ', '.bak'))}"] = content
    else:
        head = name.split("/")[0]
        files[f"{head}.d/x"] = content


def fingerprint(found: Any) -> tuple[str, bytes]:
    """A hash of what was opened, and the bytes of the tensors in it."""
    digest, tensors = hashlib.sha256(), []
    skeleton, named = flatten(found)
    digest.update(repr(skeleton).encode("utf-8", "backslashreplace"))
    for name, tensor in named.items():
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        data = flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""
        digest.update(f"{name}{tensor.dtype}{list(tensor.shape)}".encode("utf-8", "replace"))
        digest.update(data)
        tensors.append(data)
    return digest.hexdigest(), b"\0\0".join(tensors)


# -- What a case must not do: execute, look elsewhere, take much memory, show the process's memory.

ADDRESS_BOUND = 2 << 30
"""Bytes of addresses that a process may ask for beside those that it begins with."""

_PATTERN = 165  # of MALLOC_PERTURB_
_LEAK = (bytes([_PATTERN]) * 24, bytes([_PATTERN ^ 0xFF]) * 24)
_RUN = (
    *("exec", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "os.forkpty"),
    *("os.startfile", "pty.spawn", "subprocess.Popen", "ctypes.dlopen", "code.__new__"),
    *("function.__new__", "pickle.find_class", "webbrowser.open"),
)
_CHANGE = (
    *("os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.chmod"),
    *("os.chown", "os.truncate", "os.utime", "shutil.rmtree", "shutil.move", "shutil.copyfile"),
)
_LIBRARIES = tuple(
    {
        os.path.realpath(path)
        for path in (*sysconfig.get_paths().values(), sys.prefix, sys.base_prefix, *sys.path)
        if path and path != "/"
    }
    | {"/etc/localtime", "/usr/share/zoneinfo"}
)
_SYSTEM = ("/proc/meminfo", "/proc/self/statm", "/dev/null")


class Guard:
    """Watches over one process, from which it cannot be taken away again.

    Args:
        memory: Bytes that it may take.

    Attributes:
        place: The directory of the case; nothing else may be opened.
        seen: What was done that must not be.
    """

    def __init__(self, memory: int) -> None:
        self._memory = memory
        self.place: str | None = None
        self.seen: list[str] = []
        self._base = _peak()
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + ADDRESS_BOUND,) * 2)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        sys.addaudithook(self._audit)

    def took_too_much(self) -> bool:
        """Whether more memory was taken than may be, ever."""
        return _peak() - self._base > self._memory

    def _audit(self, event: str, args: tuple[Any, ...]) -> None:
        if self.place is None:
            return
        if event in _RUN or event.startswith(("socket.", "ftplib.", "urllib.", "http.")):
            self._note(f"{event} {args!r:.120}")
        elif event == "compile" and args[1] != "<unknown>":  # which is ast.literal_eval
            self._note(f"{event} {args[1]!r:.120}")
        elif event == "import" and args[0] not in sys.modules:
            self._note(f"import {args[0]}")
        elif event == "open":
            self._check_path(event, args[0])
        elif event in _CHANGE:
            for path in args[:2]:
                self._check_path(event, path)

    def _check_path(self, event: str, path: Any) -> None:
        if isinstance(path, bytes | os.PathLike):
            path = os.fsdecode(path)
        if not isinstance(path, str) or self.place is None or (event == "open" and path in _SYSTEM):
            return
        place, self.place = self.place, None  # what is asked here is no part of the case
        try:
            real = os.path.realpath(path)
            inside = real == place or real.startswith(f"{place}/")
            if not inside and (event != "open" or not real.startswith(_LIBRARIES)):
                self._note(f"{event} {path!r:.120}")
        except ValueError:  # no path at all
            pass
        finally:
            self.place = place

    def _note(self, what: str) -> None:
        with contextlib.suppress(UnicodeError):
            self.seen.append(what)


def _peak() -> int:
    """The most memory that the process has had, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


# -- Running cases in child processes.

BATCH = 500
OUTCOMES = ("equal", "differs", "refused")
FAULTS = ("exception", "crash", "hang", "memory", "executed", "leak")
_LONGEST_LINE = 2000
_FORK = multiprocessing.get_context("fork")
_IMPORTED_LATE = (
    *("encodings.unicode_escape", "torch._subclasses.schema_check_mode", "zipp.compat.overlay"),
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


def run_cases(target: Target, numbers: Sequence[int], seed: int, patience: float) -> Report:
    """Open the cases of a target in child processes, one of them after the other.

    Args:
        target: The target.
        numbers: Which cases; each follows from the seed and its number.
        seed: The seed.
        patience: Seconds that a case may take; many, since the machine may be busy.
    """
    report, left = Report(), list(numbers)
    good = target.make()
    while left:
        done = 0
        for number, outcome, what in _in_child(target, good, left[:BATCH], seed, patience):
            done += 1
            report.counts[outcome] += 1
            if outcome not in OUTCOMES:
                report.faults.append((number, outcome, what))
        left = left[done:]
    return report


def _in_child(
    target: Target, good: Files, numbers: Sequence[int], seed: int, patience: float
) -> Iterator[tuple[int, str, str]]:
    """The outcomes of cases in a child, up to the first that it does not live through."""
    ours, theirs = _FORK.Pipe(duplex=False)
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(
        prefix="fuzz-", dir=memory, ignore_cleanup_errors=True
    ) as root:
        child = _FORK.Process(target=_child, args=(target, good, numbers, seed, theirs, Path(root)))
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
    target: Target, good: Files, numbers: Sequence[int], seed: int, pipe: Any, root: Path
) -> None:
    warnings.simplefilter("ignore")
    expected = _warm_up(target, good, root)
    guard = Guard(target.memory)
    pipe.send(True)
    for number in numbers:
        answer = _case(target, _spoilt(target, good, seed, number), root, guard, expected)
        pipe.send(answer)
        if answer[0] == "memory":
            break


def _warm_up(target: Target, good: Files, root: Path) -> str:
    """Import what opening needs, so that a later import is seen; return the good fingerprint."""
    for name in _IMPORTED_LATE:
        with suppress(ImportError):
            importlib.import_module(name)
    place = root / "good"
    write(good, place)
    expected = fingerprint(_open(target, place))[0]
    for number in range(40):  # errors are told by code that is imported then
        shutil.rmtree(root / "case", ignore_errors=True)
        write(_spoilt(target, good, -1, number), root / "case")
        try:
            fingerprint(_open(target, root / "case"))
        except Exception:
            continue
    return expected


def _spoilt(target: Target, good: Files, seed: int, number: int) -> Files:
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
    if any(pattern in data for pattern in _LEAK):
        return "leak", "memory that was never written is in the result"
    return ("equal" if digest == expected else "differs"), ""


def _open(target: Target, place: Path) -> object:
    with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        return target.open(place)


def _refused(target: Target, error: Exception) -> tuple[str, str]:
    """What becomes of an error: a documented one in one line, or a fault."""
    text = str(error)
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, MemoryError) or "can't allocate memory" in str(cause):
            return "memory", f"{type(error).__name__}: {text[:300]}"
        cause = cause.__cause__ or cause.__context__
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
