"""`Worker`: a process of a Ray cluster that is begun again when it dies."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from tensordict import NestedKey

from ...base.cores import pin
from ...collect.collector import Collector, Weights, weights_of
from ...errors import add_note
from ...loop.timing import Timing
from ...store.rng import rng_state, set_rng_state
from ..ranks.rank_state import seed_rank
from .cluster import import_ray

_PATIENCE = 3
"""Maximum number of deaths in a row before a process has finished a call."""


class RayWorkerError(RuntimeError):
    """A process of a Ray cluster fails again and again, or does not answer."""


class Worker:
    """A process of a Ray cluster, with at most one call under way.

    If the process or its machine dies, another one is begun and given the call again. What a call
    raises is raised here, with the process's traceback.

    Args:
        name: For messages, such as ``"collector 1"``.
        begin: Begins the process; called with the number of times that was done before.
        timeout: Seconds after which a call is given up.

    Attributes:
        restarts: How often the process was begun again.
    """

    def __init__(self, name: str, begin: Callable[[int], Any], *, timeout: float) -> None:
        self._ray = import_ray()
        self.name = name
        self._begin = begin
        self._timeout = timeout
        self.restarts = 0
        self._actor: Any = None
        self._call: tuple[str, tuple[Any, ...]] | None = None
        self._ref: Any = None

    @property
    def busy(self) -> bool:
        """Whether a call is under way."""
        return self._call is not None

    def submit(self, method: str, *args: Any) -> None:
        """Begin a call; `result` waits for it."""
        assert self._call is None, f"{self.name} is busy"
        self._call = (method, args)
        if self._actor is None:
            self._actor = self._begin(self.restarts)
        self._ref = getattr(self._actor, method).remote(*args)

    def ready(self) -> bool:
        """Whether the call under way has ended."""
        return bool(self._ray.wait([self._ref], timeout=0)[0])

    def result(self) -> Any:
        """Wait for the call under way and return what it returns.

        Raises:
            Exception: What the call raises.
            RayWorkerError: If the process dies again and again, or does not answer.
        """
        failures = 0
        while True:
            if not self._ray.wait([self._ref], timeout=self._timeout)[0]:
                self.kill()
                raise RayWorkerError(
                    f"{self.name} has not answered for {self._timeout:g} s. Either it is stuck, or "
                    "the cluster has no free CPU for it: see 'ray status'. If it merely takes "
                    "long, wait longer with --timeout."
                )
            call, self._call = self._call, None
            assert call is not None
            try:
                return self._ray.get(self._ref)
            except self._ray.exceptions.RayTaskError as error:
                add_note(error, f"in {self.name}, a process of the Ray cluster")
                raise
            except self._ray.exceptions.RayError as error:
                # The process is gone, or its machine with what it had made.
                failures += 1
                self.kill()
                if getattr(error, "actor_init_failed", False) or failures > _PATIENCE:
                    why = f"{self.name} could not begin, or died {failures} times in a row"
                    raise RayWorkerError(f"{why}: {error}") from error
                self.restarts += 1
                self.submit(call[0], *call[1])

    def kill(self) -> None:
        """End the process, whatever it is doing."""
        self._call = None
        if self._actor is not None and self._ray.is_initialized():
            self._ray.kill(self._actor, no_restart=True)
        self._actor = None


# -- What runs in the processes of a Ray cluster.

Arrays = dict[NestedKey, np.ndarray[Any, Any]]


class Share(NamedTuple):
    """A process's share of a batch, as what Ray hands over without a copy."""

    arrays: Arrays
    batch_size: tuple[int, ...]
    times: dict[str, float]


def arrays_of(policy: Any) -> Weights | None:
    """A policy's state as arrays, which processes of a machine share; ``None`` for no policy."""
    if not callable(getattr(policy, "state_dict", None)):
        return None
    weights = weights_of(policy) or {}
    return {k: v.numpy() if isinstance(v, torch.Tensor) else v for k, v in weights.items()}


def load_weights(policy: Any, weights: Weights | None) -> None:
    """Bring a policy up to date with what `arrays_of` returned."""
    if weights is not None:
        # Copies, since what comes from the object store cannot be written to.
        own = {
            k: torch.from_numpy(v.copy()) if isinstance(v, np.ndarray) else v
            for k, v in weights.items()
        }
        policy.load_state_dict(own)


def _settle(policy: Any, core: int | None, device: str) -> None:
    """Run this process on a core, if one is given, and move the policy to a device."""
    torch.set_num_threads(1)
    pin([] if core is None else [core])
    if device != "cpu" and isinstance(policy, torch.nn.Module):
        policy.to(device)


class Collecting:
    """Collects with a share of the environments."""

    def __init__(
        self,
        core: int | None,
        device: str,
        collector: Collector,
        share: tuple[int, int],
        incarnation: int,
        frames: int,
    ) -> None:
        _settle(collector.policy, core, device)
        index, number = share
        collector.shard(index, number)
        if incarnation and "episodes" in (state := collector.state_dict()):
            # Those that died have begun no more episodes than they have made steps.
            begun = [frames] * len(state["episodes"])
            collector.load_state_dict({**state, "frames": frames, "episodes": begun})
        collector.start()
        self._collector = collector
        seed_rank(collector.seed, 1 + index + incarnation * number)

    def collect(self, weights: Weights | None) -> Share:
        """Collect a batch with the given weights."""
        load_weights(self._collector.policy, weights)
        self._collector.timing = timing = Timing()
        batch = self._collector.collect()
        times = {name.removeprefix("collect/"): s for name, s in timing.totals.items()}
        items = batch.items(include_nested=True, leaves_only=True)
        arrays = {key: value.cpu().numpy() for key, value in items}
        return Share(arrays, tuple(batch.batch_size), times)

    def state(self) -> dict[str, Any]:
        """The collector's state and that of the random generators."""
        return {"collector": self._collector.state_dict(), "rng": rng_state()}

    def load(self, state: Mapping[str, Any], others: Any = None) -> int:
        """Load what `state` returned, or begin new episodes after those of ``others``.

        Returns the collector's frames.
        """
        self._collector.load_state_dict(
            self._collector.reshard(others) if others else state["collector"]
        )
        if not others:
            set_rng_state(state["rng"])
        return self._collector.frames

    def pid(self) -> int:
        """Number of this process."""
        return os.getpid()


class Evaluating:
    """Plays evaluation episodes with a copy of an `Evaluate` hook."""

    def __init__(self, core: int | None, device: str, evaluate: Any) -> None:
        _settle(evaluate.policy, core, device)
        self._evaluate = evaluate

    def evaluate(self, weights: Weights | None) -> dict[str, Any]:
        """Play with the given weights, and return the metrics as numbers."""
        load_weights(self._evaluate.policy, weights)
        metrics = self._evaluate.evaluate()
        return {k: v if k == "log_pbar" else float(v) for k, v in metrics.items()}
