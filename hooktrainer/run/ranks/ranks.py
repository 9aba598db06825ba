"""`Ranks`: the processes of one run, and the messages between them."""

from __future__ import annotations

import atexit
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import timedelta
from functools import partial
from typing import Any, Final, TypeVar

import torch
import torch.distributed as dist

from ...base.child_program import ChildProgram
from ...base.endings import GRACE, TIMEOUT, end_with_parent
from ...base.notebook import in_kernel
from ...errors import ConfigError
from ...loop.control import Control, Request
from ...store.provenance import program

T = TypeVar("T")
_GRACE: Final = 6.0  # seconds that a rank has after the end of ``torchrun``


class Ranks:
    """The processes that train together, each with a share of the environments.

    Each exchange begins with `all_gather`, which compares the places of the ranks in the program:
    ranks that are out of step raise an error instead of waiting forever. A dead rank is noticed at
    once, since its connections close; a stuck one after ``timeout``.

    Control messages use gloo. Gradients use NCCL where they are on a CUDA device, but gloo for
    shards: NCCL cannot have two processes on a device, and its sums depend on where they run.

    Args:
        rank: Index of this process, from 0.
        world_size: Number of processes; with 1, nothing is set up, and only `first` and `scatter`
            can be used.
        local_rank: Index of this process on its machine.
        timeout: Seconds to wait for a silent rank. An evaluation on rank 0 must not take longer.
        nccl: Whether gradients on CUDA devices use NCCL.

    Raises:
        RanksError: If the other ranks do not connect.
    """

    def __init__(
        self,
        rank: int = 0,
        world_size: int = 1,
        local_rank: int = 0,
        *,
        timeout: float = TIMEOUT,
        nccl: bool = True,
    ) -> None:
        self.rank = rank
        self.world_size = world_size
        self.local_rank = local_rank
        self.timeout = timeout
        self._group: Any = None
        if world_size > 1:
            with self._together("the start of the run"):
                dist.init_process_group(
                    "cpu:gloo,cuda:nccl" if nccl and torch.cuda.is_available() else "gloo",
                    rank=rank,
                    world_size=world_size,
                    timeout=timedelta(seconds=timeout),
                )
                # A group of their own, so that a message is never taken for a gradient.
                self._group = dist.new_group(backend="gloo", timeout=timedelta(seconds=timeout))

    @classmethod
    def join(cls, timeout: float = TIMEOUT, shards: int | None = None) -> Ranks:
        """Return the ranks that ``torchrun`` started, or one rank without ``torchrun``.

        A process that ``torchrun`` started ends when ``torchrun`` does, even if that is killed.

        Args:
            timeout: Seconds to wait for a silent rank.
            shards: How many ranks there are, however many processes were started, even one: a
                process starts its program again for each further rank of its share. What is
                computed then does not depend on the number of processes.

        Raises:
            ConfigError: If more processes were started than there are shards, or this process has
                no program that could be started again.
        """
        is_rank = {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"} <= os.environ.keys()
        if is_rank:
            end_with_parent(partial(_is_child_of, os.getppid()), _GRACE)
        if shards is not None and _SHARDS not in os.environ:
            _start_shards(shards)
        elif not is_rank:
            return cls()
        number = {key: int(os.environ.get(key, 0)) for key in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
        ranks = cls(*number.values(), timeout=timeout, nccl=shards is None)
        if shards is not None:  # before the others are waited for, which may wait for this one
            atexit.register(ranks.close)
        return ranks

    # -- messages --------------------------------------------------------------------------------

    def all_gather(self, place: str, value: T) -> list[T]:
        """Send a value to all ranks; return the values of all, by rank.

        Args:
            place: Where this rank is in the program; it must be the same for all.
            value: Any object that pickles.

        Raises:
            RanksError: If another rank is elsewhere, gone or silent.
        """
        rows: list[Any] = [None] * self.world_size
        with self._together(place):
            dist.all_gather_object(rows, (place, value), group=self._group)
        if any(other != place for other, _ in rows):
            where = "; ".join(f"rank {rank} is at {other}" for rank, (other, _) in enumerate(rows))
            raise RanksError(
                f"the ranks are out of step: {where}. Every rank must collect equally many "
                "batches; end or save a run by a request to the trainer."
            )
        return [value for _, value in rows]

    def gather(self, place: str, value: T) -> list[T]:
        """Return on rank 0 the value of each rank, by rank; elsewhere an empty list."""
        self.all_gather(place, None)
        values: list[Any] | None = [None] * self.world_size if self.rank == 0 else None
        with self._together(place):
            dist.gather_object(value, values, group=self._group)
        return values or []

    def scatter(self, place: str, values: Sequence[T] | None) -> T:
        """Give each rank its element of a list that rank 0 has."""
        if self.world_size == 1 and values is not None:
            return values[0]
        self.all_gather(place, None)
        box: list[Any] = [None]
        with self._together(place):
            dist.scatter_object_list(
                box, list(values) if values is not None else None, group=self._group
            )
        return box[0]

    def first(self, make: Callable[[], T]) -> T:
        """Call ``make`` on rank 0 alone and return its result on all ranks.

        Raises:
            Exception: What ``make`` raises, on rank 0.
            SystemExit: With code 2 on the other ranks if ``make`` raises; rank 0 has the message.
        """
        if self.world_size == 1:
            return make()
        error: Exception | None = None
        result: Any = None
        if self.rank == 0:
            try:
                result = make()
            except Exception as raised:
                error = raised
        failed, result = self.all_gather("the start of the run", (error is not None, result))[0]
        if error is not None:
            raise error
        if failed:
            raise SystemExit(2)
        return result

    # -- tensors ---------------------------------------------------------------------------------

    def broadcast_tensors(self, tensors: Sequence[torch.Tensor]) -> None:
        """Overwrite the tensors with those of rank 0."""
        with self._together("the start of the run"):
            for tensor in tensors:
                whole = tensor.contiguous()
                dist.broadcast(whole, 0)
                if whole is not tensor:
                    tensor.copy_(whole)

    def average(self, tensors: Sequence[torch.Tensor]) -> None:
        """Replace each tensor by its mean over the ranks; all are sent at once."""
        for arrive in [self.send_mean(tensor) for tensor in tensors]:
            arrive()

    def send_mean(self, tensor: torch.Tensor) -> Callable[[], None]:
        """Begin to replace a tensor by its mean over the ranks, asynchronously.

        Returns:
            A function that waits for the mean; call it before the tensor is used.
        """
        with self._together("the exchange of gradients"):
            pending = dist.all_reduce(tensor, async_op=True)

        def arrive() -> None:
            with self._together("the exchange of gradients"):
                pending.wait()
            tensor.div_(self.world_size)

        return arrive

    # -- the rest --------------------------------------------------------------------------------

    def close(self) -> None:
        """Leave the process group; safe to call again."""
        if self._group is not None:
            self._group = None
            dist.destroy_process_group()

    @contextmanager
    def _together(self, place: str) -> Iterator[None]:
        try:
            yield
        except RanksError:
            raise
        except RuntimeError as error:
            raise RanksError(
                f"rank {self.rank}, at {place}: another rank has ended, or has not answered for "
                f"{self.timeout:g} s. See its own message. ({error})"
            ) from error

    def __repr__(self) -> str:
        return f"Ranks(rank={self.rank}, world_size={self.world_size})"


def _is_child_of(parent: int) -> bool:
    time.sleep(0.5)
    return os.getppid() == parent


# -- Shards: ranks whose number is that of the run's shares, not that of the processes started.

_SHARDS: Final = "HOOKTRAINER_SHARDS"
"""Environment variable of processes that are one shard of a number."""


def _start_shards(shards: int) -> None:
    """Become the first rank of this process's share of the shards, and start the others."""
    process, processes = (int(os.environ.get(k, d)) for k, d in (("RANK", 0), ("WORLD_SIZE", 1)))
    if processes > shards:
        raise ConfigError(
            f"--shards {shards}: {processes} processes were started, and each needs a shard. Start "
            f"at most {shards}; the number of shards cannot change without changing the results."
        )
    script, module, _ = program()
    if shards > 1 and (script is None or in_kernel()):
        raise ConfigError(
            f"--shards {shards}: each shard is a process that runs the program again, and a "
            "notebook or an interactive session is none. Put it into a file, or leave shards out."
        )
    if "MASTER_PORT" not in os.environ:
        with closing(socket.socket()) as sock:
            sock.bind(("127.0.0.1", 0))
            os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(sock.getsockname()[1])}
    first, end = (number * shards // processes for number in (process, process + 1))
    os.environ |= {"RANK": str(first), "WORLD_SIZE": str(shards), _SHARDS: str(shards)}
    again = ["-m", module.removesuffix(".__main__")] if module else [str(script)]
    others = [
        ChildProgram(
            [*again, *sys.argv[1:]], stdout=subprocess.DEVNULL, environ={"RANK": str(rank)}
        )
        for rank in range(first + 1, end)
    ]
    end_with_parent(partial(_none_failed, others), _GRACE)
    atexit.register(_close, others)


def _none_failed(others: Sequence[ChildProgram]) -> bool:
    time.sleep(0.5)
    if not any(other.code for other in others):
        return True
    time.sleep(_GRACE)  # in which the exchange fails in this process too, with a message
    return False


def _close(others: Sequence[ChildProgram]) -> None:
    for other in others:
        other.wait(GRACE)
        other.close(0.0)


class RanksError(RuntimeError):
    """The ranks of a run are out of step: one has ended, is silent, or is at another place."""


# -- Requests to stop, save or log that take effect on all ranks at the same batch.


class RankControl(Control):
    """A `Control` whose requests take effect when the ranks have agreed on them.

    A request on one rank, from a hook or a signal, waits until the ranks meet at the end of a
    batch; it then holds for all. A later request waits for the next batch, so that no rank stops
    while another continues.
    """

    def __init__(self, control: Control, ranks: Ranks) -> None:
        super().__init__()
        self.status, self.deadline = control.status, control.deadline
        self.asked = control
        self._ranks = ranks

    def agree(self, place: str) -> None:
        """Meet the other ranks; the requests of any rank now hold for all."""
        asked = self.asked
        stop = asked.stop_reason, asked._stop_status
        own = asked.stop_reason is not None, asked.take("save"), asked.take("log")
        rows = self._ranks.all_gather(place, (stop, *own, asked.signal or 0))
        requests, stops, saves, logs, signals = zip(*rows, strict=True)
        wanted: dict[Request, bool] = {"save": any(saves), "log": any(logs)}
        self.requests |= {what for what in wanted if wanted[what]}
        self.signal = max(signals) or None
        if any(stops) and self.stop_reason is None:
            self.stop_reason, self._stop_status = requests[stops.index(True)]

    def end(self, error: BaseException | None = None) -> None:
        """Set the status; all ranks have made the requests since the last meeting."""
        asked = self.asked
        if self.stop_reason is None and asked.signal is None:
            self.stop_reason, self._stop_status = asked.stop_reason, asked._stop_status
        super().end(error)
