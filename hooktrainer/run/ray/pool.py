"""`Worker`: a process of a Ray cluster that is restarted when it dies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...base.cores import pin
from ...base.worker import ChildError
from ...collect.collector import Collector, Weights
from ...collect.messages import Message, load, pack, unpack
from ...collect.overlap.server import CollectorServer
from ...errors import add_note
from ...hooks.evaluate import Evaluate
from .cluster import import_ray

_PATIENCE = 3
"""Maximum number of deaths in a row before a process has finished a call."""


class Worker:
    """A process of a Ray cluster, with at most one call under way.

    It has the calls and answers of a `ProcessWorker`. If the process or its machine dies, another
    process is started and repeats the call. An exception of a call is raised here, with the
    process's traceback.

    Args:
        name: For messages, such as ``"collector 1"``.
        begin: Starts the process; called with the number of earlier starts.
        timeout: Seconds after which a call is given up.

    Attributes:
        restarts: How often the process was restarted.
    """

    pid = None  # it may be on another machine

    def __init__(self, name: str, begin: Callable[[int], Any], *, timeout: float) -> None:
        self._ray = import_ray()
        self.name = name
        self._begin = begin
        self._timeout = timeout
        self.restarts = 0
        self._actor: Any = None
        self._message: Any = None  # of the call under way, in Ray's store
        self._ref: Any = None

    @property
    def busy(self) -> bool:
        """Whether a call is under way."""
        return self._message is not None

    def call(self, method: str, *args: Any) -> None:
        """Begin a call; `answer` waits for it."""
        self.send(self._ray.put(pack((method, *args))))

    def send(self, message: Any) -> None:
        """Begin a call that was packed and put into Ray's store."""
        assert not self.busy, f"{self.name} is busy"
        self._message = message
        if self._actor is None:
            self._actor = self._begin(self.restarts)
        self._ref = self._actor.call.remote(message)

    def ready(self) -> bool:
        """Whether the call under way has ended."""
        return bool(self._ray.wait([self._ref], timeout=0)[0])

    def answer(self) -> Any:
        """Wait for the call under way and return what it returns.

        Raises:
            Exception: What the call raises.
            ChildError: If the process dies again and again, or does not answer.
        """
        failures = 0
        while True:
            if not self._ray.wait([self._ref], timeout=self._timeout)[0]:
                self.close()
                raise ChildError(
                    f"{self.name} has not answered for {self._timeout:g} s. Either it is stuck, or "
                    "the cluster has no free CPU for it: see 'ray status'. If it merely takes "
                    "long, wait longer with --timeout."
                )
            message, self._message = self._message, None
            try:
                return unpack(self._ray.get(self._ref))
            except self._ray.exceptions.RayTaskError as error:
                add_note(error, f"in {self.name}, a process of the Ray cluster")
                raise
            except self._ray.exceptions.RayError as error:
                # The process has died, or its machine with the answer.
                failures += 1
                self.close()
                if getattr(error, "actor_init_failed", False) or failures > _PATIENCE:
                    why = f"{self.name} could not begin, or died {failures} times in a row"
                    raise ChildError(f"{why}: {error}") from error
                self.restarts += 1
                self.send(message)

    def close(self) -> None:
        """End the process, whatever it is doing."""
        self._message = None
        if self._actor is not None and self._ray.is_initialized():
            self._ray.kill(self._actor, no_restart=True)
        self._actor = None


# -- What runs in the processes of a Ray cluster.


class Actor:
    """Serves calls in its own process.

    Args:
        core: The core it runs on, if one is given.
        device: Where the policy acts.
        serve: Makes the object whose methods are called, from an object and ``args``.
        given: That object, which has a policy, as bytes of `dump`.
        args: Further arguments of ``serve``.
    """

    def __init__(
        self, core: int | None, device: str, serve: Callable[..., Any], given: bytes, *args: Any
    ) -> None:
        torch.set_num_threads(1)
        pin([] if core is None else [core])
        thing = load(given)
        if device != "cpu" and isinstance(thing.policy, torch.nn.Module):
            thing.policy.to(device)
        self._served = serve(thing, *args)

    def call(self, message: Message) -> Message:
        """Call a method, and return its packed result."""
        method, *args = unpack(message)
        return pack(getattr(self._served, method)(*args))


def serve_share(
    collector: Collector, index: int, number: int, incarnation: int, frames: int
) -> CollectorServer:
    """Serve one of several shares of the environments."""
    collector.shard(index, number)
    if incarnation and "episodes" in (state := collector.state_dict()):
        # The dead process has begun no more episodes than it has made steps.
        begun = [frames] * len(state["episodes"])
        collector.load_state_dict({**state, "frames": frames, "episodes": begun})
    return CollectorServer(collector, (collector.seed or 0, 1 + index + incarnation * number))


class Evaluator:
    """Plays evaluation episodes with a copy of an `Evaluate` hook."""

    def __init__(self, evaluate: Evaluate) -> None:
        self._evaluate = evaluate

    def evaluate(self, weights: Weights | None) -> dict[str, Any]:
        """Play with the given weights, and return the metrics as numbers."""
        if weights is not None:
            self._evaluate.policy.load_state_dict(weights)
        metrics = self._evaluate.evaluate()
        return {k: v if k == "log_pbar" else float(v) for k, v in metrics.items()}
