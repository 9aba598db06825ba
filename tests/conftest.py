"""What every test shares: one thread, a fixed seed, and a logger that remembers."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

with warnings.catch_warnings():  # torchrl deprecates its own classes while it is imported
    warnings.simplefilter("ignore")
    import torchrl.collectors
    import torchrl.objectives
    import torchrl.trainers  # noqa: F401

from hooktrainer.base import child_program
from hooktrainer.graphs import compiling
from hooktrainer.store import provenance

ROOT = Path(__file__).parent.parent

# A shell starts what is in the background with SIGINT ignored, which every process that a test
# starts would inherit.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Tests start hundreds of processes. Without bytecode each compiles torch's 2,000 modules first.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# What programs keep of a user, such as the key that signs his runs, is not that of who tests.
os.environ["XDG_STATE_HOME"] = str(Path(tempfile.gettempdir()) / f"hooktrainer-tests-{os.getuid()}")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One worker more than there are cores, since a good part of the tests waits for processes."""
    return len(os.sched_getaffinity(0)) + 1 if hasattr(os, "sched_getaffinity") else 2


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give a worker one file after another, but all that start Ray's processes to one worker.

    They wait for these most of the time, and several at once wait for each other's.
    """
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file: str = super()._split_scope(nodeid)
            return "ray" if Path(file).name.startswith("test_ray") else file

    return Scheduling(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_configure(config: pytest.Config) -> None:
    """Of several processes that test, all have one warm Python."""
    if config.getoption("numprocesses", None):
        from warm_python import share

        share()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files of long tests come first, so that no worker is left with one when the others end."""
    long = {
        item.path
        for item in items
        for name in ("slow", "learning")
        if item.get_closest_marker(name)
    }
    items.sort(key=lambda item: item.path not in long)


def pytest_collection_finish() -> None:
    """What has been imported is garbage never: looking through it took a sixth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
    gc.unfreeze = lambda: None  # which training several seeds calls, for the rest of the process


class MemoryLogger:
    """A logger with torchrl's methods that keeps rows of metrics and counts its closings."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, dict[str, float]]] = []
        self.closed = 0

    def log_scalar(self, name: str, value: float, step: int | None = None) -> None:
        if not self.rows or self.rows[-1][0] != step or name in self.rows[-1][1]:
            self.rows.append((step or 0, {}))
        self.rows[-1][1][name] = float(value)

    def log_hparams(self, cfg: Any) -> None: ...

    def log_video(self, name: str, video: torch.Tensor, step: int | None = None) -> None: ...

    def flush(self) -> None: ...

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None: ...

    def close(self) -> None:
        self.closed += 1

    @property
    def steps(self) -> list[int]:
        return [step for step, _ in self.rows]

    def column(self, name: str) -> dict[int, float]:
        """Step to value of one metric."""
        return {step: row[name] for step, row in self.rows if name in row}

    def reproducible(self) -> list[tuple[int, dict[str, float]]]:
        """The rows without what is measured by the clock."""
        return [
            (step, {name: v for name, v in row.items() if not name.startswith("time/")})
            for step, row in self.rows
        ]


@pytest.fixture
def inductor(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Inductor compiles what is compiled, and nothing is computed eagerly in its place."""
    refused: list[tuple[str, ...]] = []

    class Noted(compiling.CannotCompileError):
        def __init__(self, *args: str) -> None:
            super().__init__(*args)
            refused.append(args)

    monkeypatch.setattr(compiling, "BACKEND", "inductor")
    monkeypatch.setattr(compiling, "CannotCompileError", Noted)
    yield
    assert not refused


@pytest.fixture(autouse=True)
def _one_thread_one_seed() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def _this_process_keeps_its_priority(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that steps aside for training would slow down all tests that come after it."""
    if hasattr(os, "setpriority"):
        others, here = os.setpriority, os.getpid()

        def set_priority(which: int, who: int, priority: int) -> None:
            if who not in (0, here) or os.getpid() != here:
                others(which, who, priority)

        monkeypatch.setattr(os, "setpriority", set_priority)


@pytest.fixture(autouse=True, scope="session")
def _git_looks_at_this_checkout_once() -> Iterator[None]:
    """Every run records its commit, and whether files differ from it, which takes 20 ms."""
    look, known = provenance.git, {}

    def git(*command: str, where: Path, **environ: str) -> str | None:
        if not where.is_relative_to(ROOT):
            return look(*command, where=where, **environ)
        key = command, where, os.environ.get("PATH")
        if key not in known:
            known[key] = look(*command, where=where, **environ)
        return known[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(provenance, "git", git)
        yield


@pytest.fixture(autouse=True)
def _nothing_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """What would be compiled is computed; a test of compiling says with which backend."""
    monkeypatch.setattr(compiling, "BACKEND", None)


@pytest.fixture(autouse=True, scope="session")
def _spawned_processes_are_warm() -> Iterator[None]:
    """Processes that `multiprocessing` and this package spawn are `warm_python`'s."""
    if os.name != "posix":
        yield
        return
    from multiprocessing import popen_spawn_posix, spawn

    from warm_python import executable

    def begin(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
        # Kernels are chosen before torch is imported.
        python = sys.executable if "--deterministic" in command else executable()
        return subprocess.Popen([python, *command[1:]], **options)

    patch = pytest.MonkeyPatch()
    # There alone: a fork server and the tracker of resources stay as they are.
    warm = SimpleNamespace(**{**vars(spawn), "get_executable": lambda: os.fsencode(executable())})
    patch.setattr(popen_spawn_posix, "spawn", warm)
    programs = SimpleNamespace(**{**vars(subprocess), "Popen": begin})
    patch.setattr(child_program, "subprocess", programs)
    yield
    patch.undo()


@pytest.fixture
def make_logger() -> Callable[[], MemoryLogger]:
    return MemoryLogger


@pytest.fixture
def logger() -> MemoryLogger:
    return MemoryLogger()


@pytest.fixture
def free_sigterm() -> Iterator[None]:
    """SIGTERM as a new process has it; a test before may have left a handler of somebody's."""
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGTERM, before or signal.SIG_DFL)


@pytest.fixture
def warm_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs that are begun with `sys.executable` have imported what they will."""
    from warm_python import executable

    monkeypatch.setattr(sys, "executable", executable())
