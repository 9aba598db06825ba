"""How graphs are compiled: whole, with the random numbers of eager code, and kept between runs."""

from __future__ import annotations

import os
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch
from torch._dynamo.exc import FailOnRecompileLimitHit

BACKEND: str | None = "inductor"
"""The backend of ``torch.compile``; ``None`` computes what would be compiled, to look into it."""

T = TypeVar("T")


class CannotCompileError(RuntimeError):
    """Why something is no graph, in a line."""


class Graph(Generic[T]):
    """A function as one compiled graph, without gradient.

    It is compiled at its first call, which says so, and for the shapes of this call alone. A call
    looks whether what it was compiled for is still so, such as the attributes of modules; where
    nothing but the numbers can have changed since the last one, `again` leaves that out.

    Args:
        function: What is compiled. It draws the random numbers that it would draw eagerly.
        what: What it is, for messages.
        say: Called with a line before it is compiled, which takes its time, and one after.
    """

    def __init__(self, function: Callable[..., T], what: str, say: Callable[[str], None]) -> None:
        self._what, self._say = what, say
        self._is_compiled = BACKEND is None
        if BACKEND is None:
            self._call = function
            return
        _keep_between_runs()
        options: dict[str, Any] | None = (
            {"fallback_random": True} if BACKEND == "inductor" else None
        )
        self._call = torch.compile(
            _apart(function), fullgraph=True, dynamic=False, backend=BACKEND, options=options
        )

    @torch.no_grad()
    def __call__(self, *args: Any) -> T:
        """Call the function.

        Raises:
            CannotCompileError: If it is no graph, or has to be compiled anew again and again.
        """
        if self._is_compiled:
            try:
                return self._call(*args)
            except FailOnRecompileLimitHit as error:
                raise CannotCompileError(
                    f"{self._what} had to be compiled anew again and again, since something that "
                    "is no tensor changes: make it a buffer of the module"
                ) from error
        start = time.perf_counter()
        self._say(f"compiling {self._what} ...")
        try:
            out = self._call(*args)
        except Exception as error:
            raise CannotCompileError(_reason(error)) from error
        self._say(f"compiled {self._what} in {time.perf_counter() - start:.0f} s")
        self._is_compiled = True
        return out

    @torch.no_grad()
    def again(self, *args: Any) -> T:
        """Call the function, with tensors like those of the last call."""
        if not self._is_compiled:
            return self(*args)
        with torch.compiler.set_stance(skip_guard_eval_unsafe=True):
            return self._call(*args)


def quiet(line: str) -> None:
    """Say nothing."""


def _apart(function: Callable[..., T]) -> Callable[..., T]:
    """The same with code of its own: what is compiled is kept, and counted, by the code."""

    def call(*args: Any) -> T:
        return function(*args)

    own = call.__code__.replace(co_name=call.__name__)
    return types.FunctionType(own, globals(), closure=call.__closure__)


def _keep_between_runs() -> None:
    """Let inductor keep what it compiles where it is not deleted when the machine starts anew."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(cache / "hooktrainer" / "inductor"))


def _reason(error: Exception) -> str:
    """What a compiler's error says in its first lines, and where in the user's code."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    lines = [line for line in lines if not line.startswith("backend=")]
    said = lines[0] if lines else type(error).__name__
    for place, line in enumerate(lines):
        if line.startswith("from user code"):
            files = [each for each in lines[place + 1 :] if each.startswith("File ")]
            if files:
                return f"{said} ({files[-1]})"
    return said
