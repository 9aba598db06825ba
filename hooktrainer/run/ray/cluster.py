"""`Cluster`: the Ray cluster of a run, started and stopped with it."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from ...base.cores import memory_size, unpinned
from ...base.lazy import import_optional
from ...errors import ConfigError
from ..placement import Place

_LEAST_STORE, _MOST_STORE = 80 * 2**20, 2 * 2**30  # bytes of the object store


def import_ray() -> Any:
    """Import Ray, or raise MissingPackageError."""
    return import_optional("ray", "--engine ray", "hooktrainer[ray]")


class Cluster:
    """The Ray cluster that a run uses.

    It is the one that this process is connected to, or else the one at ``RAY_ADDRESS``, or else a
    new one on this machine. A new one ends with this process: within a minute if that is killed.

    Args:
        processes: How many processes the run starts, each of which needs a CPU.

    Raises:
        MissingPackageError: If Ray is not installed.
    """

    def __init__(self, processes: int) -> None:
        self._ray = import_ray()
        self._owned = not self._ray.is_initialized()
        if not self._owned:
            return
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        if "RAY_ADDRESS" not in os.environ:
            options |= {
                "address": "local",
                "num_cpus": max(processes + 1, os.cpu_count() or 1),
                "include_dashboard": False,
                "object_store_memory": max(_LEAST_STORE, min(_MOST_STORE, memory_size() // 10)),
            }
        main = threading.current_thread() is threading.main_thread()
        handlers = {n: signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT) if main}
        try:
            with unpinned():
                self._ray.init(**options)
        finally:
            for number, handler in handlers.items():  # Ray's would end the run without a checkpoint
                signal.signal(number, handler)

    def nodes(self) -> list[str]:
        """Return the ids of the live machines, that of this process first."""
        here = self._ray.get_runtime_context().get_node_id()
        ids = sorted(node["NodeID"] for node in self._ray.nodes() if node["Alive"])
        return sorted(ids, key=lambda node: node != here)

    def starter(self, kind: type, place: Place, index: int) -> Callable[..., Any]:
        """Return a function that starts an actor, with its core and device as first arguments.

        Raises:
            ConfigError: If the cluster has no machine of that number.
        """
        number = place.number(index)
        options: dict[str, Any] = {"num_cpus": 1}
        if place.kind == "node" and number is not None:
            nodes = self.nodes()
            if number >= len(nodes):
                raise ConfigError(
                    f"--placement: node:{number}, but the Ray cluster has the nodes 0 to "
                    f"{len(nodes) - 1}."
                )
            from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

            # Soft, so that the process of a lost machine restarts on another one.
            strategy = NodeAffinitySchedulingStrategy(nodes[number], soft=True)
            options["scheduling_strategy"] = strategy
        elif place.kind == "gpu":
            options["num_gpus"] = 0.01  # several may share one; each sees only its own
        actor = self._ray.remote(kind).options(**options)
        core = number if place.kind == "cpu" else None
        return partial(actor.remote, core, "cuda" if place.kind == "gpu" else "cpu")

    def close(self) -> None:
        """Stop the cluster if this run has started it; a second call does nothing."""
        if self._owned:
            self._owned = False
            self._ray.shutdown()
