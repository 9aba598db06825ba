"""Starts the ranks of a run as ``torchrun`` would, quickly: forked from a process that is warm."""

from __future__ import annotations

import multiprocessing as mp
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

CONTEXT = mp.get_context("spawn")


class RankProcesses:
    """Processes that call a function, each with the environment variables of its rank.

    Args:
        number: How many.
        function: What they call; importable.
        args: Its arguments.
        log: Directory for what each prints, ``<rank>.txt``.
    """

    def __init__(
        self, number: int, function: Callable[..., None], args: Sequence[Any], log: Path
    ) -> None:
        self.log = log
        log.mkdir(parents=True, exist_ok=True)
        port = free_port()
        self.processes = [
            CONTEXT.Process(target=_call, args=(rank, number, port, log, function, args))
            for rank in range(number)
        ]
        for process in self.processes:
            process.start()

    def wait(self, seconds: float = 60.0) -> list[int | None]:
        """Wait until all have ended; their exit codes, ``None`` for one that has not."""
        end = time.monotonic() + seconds
        for process in self.processes:
            process.join(max(0.0, end - time.monotonic()))
        codes = [process.exitcode for process in self.processes]
        self.kill()
        return codes

    def kill(self, rank: int | None = None, number: int = signal.SIGKILL) -> None:
        """Send a signal to one or to all."""
        for index, process in enumerate(self.processes):
            if process.is_alive() and rank in (None, index):
                os.kill(process.pid or 0, number)

    def output(self, rank: int = 0) -> str:
        """What a rank has printed."""
        return (self.log / f"{rank}.txt").read_text()

    def check(self) -> None:
        """Wait, and fail with what they printed if one of them failed."""
        codes = self.wait()
        printed = "\n".join(self.output(rank) for rank in range(len(codes)))
        assert codes == [0] * len(codes), printed


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def _call(
    rank: int, number: int, port: int, log: Path, function: Callable[..., None], args: Any
) -> None:
    with (log / f"{rank}.txt").open("w", buffering=1) as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
        sys.stdout = sys.stderr = file
        if number > 1:
            names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
            os.environ.update(
                zip(names, map(str, (rank, rank, number, "127.0.0.1", port)), strict=True)
            )
        try:
            function(*args)
        except Exception:
            traceback.print_exc()
            file.flush()
            os._exit(1)
        except SystemExit as end:
            file.flush()
            os._exit(end.code if isinstance(end.code, int) else 1)
        file.flush()
        os._exit(0)
