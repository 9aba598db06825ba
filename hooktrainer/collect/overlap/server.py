"""The thread or process that collects: it serves one request after another."""

from __future__ import annotations

import io
import os
import pickle
import threading
import warnings
from collections.abc import Callable
from queue import Empty, SimpleQueue
from time import perf_counter
from typing import Any

import cloudpickle
import numpy as np
import torch
from tensordict import TensorDictBase
from tensordict.nn import probabilistic
from torch import nn

from ...base.worker import Channel, Worker
from ...errors import add_note
from ...loop.timing import Span, Timing, Trace
from ...store.rng import rng_state, seed_all, set_rng_state
from ..buffers import shared_arrays, unnamed_file
from ..collector import Collector, Weights
from ..remote_collector import stamped

Collected = tuple[TensorDictBase, dict[str, float], list[Span]]
"""A batch, stamped with the version of its weights; seconds by phase; spans of a trace, if any."""
Request = tuple[Any, ...]
"""A method of `CollectorServer` and its arguments."""


class CollectorServer:
    """Serves requests with its own collector; all but ``"publish"`` are answered."""

    def __init__(self, collector: Collector) -> None:
        self._collector = collector
        self._requests: SimpleQueue[Request | None] = SimpleQueue()
        self._published: Request | None = None  # a version and its weights
        self._adopted: Request | None = None
        self._version = -1
        self._timing = Timing()
        collector.timing = self._timing
        collector.start()

    def put(self, request: Request | None) -> None:
        """Queue a request, ``None`` to end. Published weights overtake those that wait."""
        if request is not None and request[0] == "publish":
            self._published = request[1:]
        else:
            self._requests.put(request)

    def serve(self, answer: Callable[[Any], None], fail: Callable[[Exception], None]) -> None:
        """Serve requests until the queue ends, then close the collector."""
        try:
            while (request := self._requests.get()) is not None:
                method, *args = request
                try:
                    result = getattr(self, method)(*args)
                except Exception as error:
                    fail(error)
                else:
                    answer(result)
        finally:
            self._collector.shutdown()

    def collect(self, version: int, weights: Weights | None, trace: bool) -> Collected:
        """Collect a batch; ``weights`` is ``None`` if they are unchanged or published."""
        published = self._published
        if published is not None and published is not self._adopted:
            self._adopted = version, weights = published
        if weights is not None:
            self._collector.policy.load_state_dict(weights)
        self._version = max(self._version, version)
        self._timing.totals.clear()
        recorded = self._timing.trace = Trace() if trace else None
        start = perf_counter()
        batch = self._collector.collect()
        end = perf_counter()
        if recorded is not None:
            recorded.add("collect", start, end)
        totals = self._timing.totals.items()
        times = {name.removeprefix("collect/"): seconds for name, seconds in totals}
        spans = [] if recorded is None else recorded.take()
        return stamped(batch, self._version), times or {"collect": end - start}, spans

    def state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        return self._collector.state_dict(), rng_state()

    def load(self, state: dict[str, Any], rng: dict[str, Any] | None) -> None:
        self._version, self._adopted = -1, self._published
        self._collector.load_state_dict(state)
        if rng is not None:
            set_rng_state(rng)

    def set_seed(self, seed: int, entropy: tuple[int, ...] | None) -> None:
        self._collector.set_seed(seed)
        if entropy is not None:
            seed_all(entropy)

    def reset(self) -> None:
        self._collector.reset()


_GRACE = 5.0  # seconds that a batch in progress has to end


class ThreadWorker:
    """A thread with its own collector."""

    name = "the collecting thread"
    pid: int | None = None

    def __init__(self, given: tuple[Collector, Any, Any], timeout: float) -> None:
        if not isinstance(shared := probabilistic._interaction_type, _PerThread):
            probabilistic._interaction_type = _PerThread(shared.get_mode())
        self._timeout = timeout
        self._answers: SimpleQueue[tuple[Any, Exception | None]] = SimpleQueue()
        self._server = server = CollectorServer(given[0])
        # Daemonic, so that an environment that is stuck does not keep the process from ending.
        answers = self._answers
        self._thread = threading.Thread(
            target=server.serve,
            args=(lambda x: answers.put((x, None)), lambda error: answers.put((None, error))),
            name=self.name,
            daemon=True,
        )
        self._thread.start()

    def send(self, *request: Any) -> None:
        self._server.put(request)

    def receive(self) -> Any:
        try:
            result, error = self._answers.get(timeout=self._timeout)
        except Empty:
            raise TimeoutError(
                f"{self.name} has not answered for {self._timeout:g} seconds."
            ) from None
        if error is not None:
            add_note(error, f"raised in {self.name}")
            raise error
        return result

    def close(self) -> None:
        self._server.put(None)
        self._thread.join(_GRACE)
        if self._thread.is_alive():
            warnings.warn(
                f"{self.name} is still collecting after {_GRACE:g} seconds; it ends with the "
                "process, and closes its environments if it can.",
                RuntimeWarning,
                stacklevel=2,
            )


class _PerThread(threading.local):
    """The interaction type of each thread, in the place of tensordict's, which all threads share.

    A deterministic evaluation in the learner would stop exploration in a collecting thread.
    """

    def __init__(self, first: Any) -> None:
        self._mode = first

    def get_mode(self) -> Any:
        return self._mode

    def set_mode(self, mode: Any) -> None:
        self._mode = mode


class ProcessWorker:
    """A process that collects with a collector of its own, which ``given`` holds pickled."""

    name = "the collecting process"

    def __init__(self, given: bytes, timeout: float) -> None:
        settings = (torch.get_num_threads(), torch.get_default_dtype())
        self._worker = Worker(self.name, _work, given, *settings, timeout=timeout)
        self.pid = self._worker.pid
        self.close = self._worker.close

    def send(self, *request: Any) -> None:
        send(self._worker, request)

    def receive(self) -> Any:
        return receive(self._worker)


def _work(channel: Channel, payload: bytes, threads: int, dtype: torch.dtype) -> None:
    torch.set_num_threads(threads)
    torch.set_default_dtype(dtype)
    collector, entropy, rng = pickle.loads(payload)
    server = CollectorServer(collector)
    seed_all(entropy)
    if rng is not None:
        set_rng_state(rng)
    threading.Thread(target=_read, args=(channel, server), daemon=True).start()
    server.serve(lambda result: send(channel, result), channel.send_error)


def _read(channel: Channel, server: CollectorServer) -> None:
    """Queue requests at once, so that the learner can send at any time, until it closes."""
    try:
        while True:
            server.put(receive(channel))
    except (EOFError, OSError):
        server.put(None)


# -- Trees of tensors between processes, with one copy on each side: tensors are pickled as NumPy
# arrays, whose memory is shared if it is large: the sender need not wait for the reader.

_LARGE = 2**13  # bytes; a pipe holds ten times as much


class _Pickler(cloudpickle.Pickler):
    """Pickles lambdas and definitions of scripts, and tensors without the rest of their storage."""

    def reducer_override(self, thing: Any) -> Any:
        if type(thing) not in (torch.Tensor, nn.Parameter):
            return super().reducer_override(thing)
        try:
            array = thing.detach().cpu().numpy()
        except (TypeError, RuntimeError):  # such as bfloat16, or a sparse one
            return super().reducer_override(thing)
        device = None if thing.is_cpu else thing.device
        requires_grad = thing.requires_grad if type(thing) is nn.Parameter else None
        return _tensor, (array, device, requires_grad)


def _tensor(array: Any, device: Any, requires_grad: bool | None) -> torch.Tensor:
    tensor = torch.from_numpy(array)
    tensor = tensor if device is None else tensor.to(device)
    return tensor if requires_grad is None else nn.Parameter(tensor, requires_grad)


def send(connection: Worker | Channel, tree: Any) -> None:
    """Send a tree of plain data, tensors and TensorDicts."""
    pieces: list[memoryview] = []

    def stays(buffer: pickle.PickleBuffer) -> bool:
        piece = buffer.raw()
        if len(piece) >= _LARGE:
            pieces.append(piece)
        return len(piece) < _LARGE

    head = dump(tree, stays)
    kinds = [((len(piece),), np.uint8) for piece in pieces]
    connection.send(pickle.dumps((head, kinds)))
    if kinds:
        file = unnamed_file()
        for array, piece in zip(shared_arrays(file, kinds), pieces, strict=True):
            array[...] = piece
        connection.give_file(file)
        os.close(file)


def receive(connection: Worker | Channel) -> Any:
    """Wait for a tree sent by `send`. Its tensors are writable."""
    head, kinds = pickle.loads(connection.receive())
    if not kinds:
        return pickle.loads(head)
    file = connection.take_file()
    pieces = shared_arrays(file, kinds)
    os.close(file)
    return pickle.loads(head, buffers=pieces)


def dump(tree: Any, stays: Callable[[pickle.PickleBuffer], bool] | None = None) -> bytes:
    """Pickle a tree that may hold code, without the memory of arrays that does not stay in it."""
    file = io.BytesIO()
    _Pickler(file, protocol=5, buffer_callback=stays).dump(tree)
    return file.getvalue()
