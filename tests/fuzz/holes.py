"""Defects planted on purpose: what does not find them finds nothing.

Each takes away one check, in the process of the cases alone, and says what must be found then.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from runner import run_cases
from target import Target

from hooktrainer.store.backends import native

_CASES = 1000


def _no_sizes_in_native() -> None:
    """As if what ``index.json`` says were not compared with the chunks and the free memory."""
    native.NativeBackend.check = lambda *_: None


def _memory_in_the_result() -> None:
    """As if a reader left memory unwritten that it returns."""
    import hooktrainer.base.untrusted.read_torch as module

    module._fill = lambda *_: None


def _objects_from_yaml() -> None:
    """As if options were read by a loader that makes objects."""
    import yaml

    import hooktrainer.store.run_dir as module

    module.parse_yaml = yaml.unsafe_load


def _waiting() -> None:
    """As if a pipe were opened like a file."""
    import hooktrainer.store.stored as module

    def read_file(path: Any, root: Any = None) -> bytes:
        if path.is_fifo():
            time.sleep(1000)
        return path.read_bytes()

    module.read_file = read_file


def _links() -> None:
    """As if links were followed wherever they lead."""
    import hooktrainer.base.untrusted.files as module

    def open_file(path: Any, root: Any = None) -> Any:
        return original(path) if path.is_file() else original(path, root)

    original = module.open_file
    for name in ("read_file",):
        getattr(module, name).__globals__["open_file"] = open_file


def _own_errors() -> None:
    """As if an option were believed to be a number, and what Python raises came to the user."""
    import hooktrainer.show.report.summary as module

    module._whole = lambda value: None if value is None else int(value)


def _any_memory() -> None:
    """As if a policy's program might take what memory it likes."""
    import hooktrainer.policies.program as module

    module.limit = lambda weights: 1 << 62


HOLES: tuple[tuple[str, Callable[[], None], tuple[str, ...], int], ...] = (
    ("checkpoint, native", _no_sizes_in_native, ("exception", "crash", "leak", "memory"), 40),
    ("checkpoint, torch", _memory_in_the_result, ("leak",), 0),
    ("config.yaml", _objects_from_yaml, ("executed",), 355),
    ("checkpoint, native", _waiting, ("hang",), 0),
    ("run.json", _links, ("executed",), 25),
    ("config.yaml", _own_errors, ("exception",), 50),
    ("policy", _any_memory, ("memory",), 285),
)
"""The target, what is planted, the faults of which one must be found, and the first case to try."""


def main(targets: dict[str, Target], seed: int) -> int:
    """Plant each defect; 1 if one was not found."""
    missed = 0
    for name, hole, faults, first in HOLES:
        cases = range(first, first + _CASES)
        patience = 1.0 if "hang" in faults else 60.0  # a busy machine is no fault
        report = run_cases(targets[name], cases, seed, patience=patience, hole=hole, until=faults)
        found = [fault for fault in faults if report.counts[fault]]
        missed += not found
        said = f"{found[0]} at case {first + report.counts.total() - 1}" if found else "NOT FOUND"
        print(f"{name:22} {hole.__name__.strip('_').replace('_', ' '):24} {said}", flush=True)
    return 1 if missed else 0
