"""The Ray cluster that the tests share."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from warm_python import executable

os.environ["RAY_TQDM_PATCH_PRINT"] = "0"  # else Ray replaces ``print`` for the tests behind, too

HERE = Path(__file__).parent
WORKER = {"worker_path": str(HERE / "warm_ray_worker.py"), "object_store_memory": 80_000_000}


class Machines:
    """A local Ray cluster: a machine without CPUs for the driver, and two with two each."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        with self.environment():
            self._cluster: Any = Cluster(
                initialize_head=True,
                head_node_args={"num_cpus": 0, "include_dashboard": False, **WORKER},
            )
        self._nodes: list[Any] = []
        self.address: str = self._cluster.address
        self.session: str = self._cluster.head_node.session_name
        for _ in range(2):
            self.add()

    @contextmanager
    def environment(self) -> Iterator[None]:
        """What a machine begins with; the signals' handlers stay as they are."""
        # Machines of a cluster take SIGTERM for themselves, and would keep it for the tests behind.
        handlers = {n: signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT)}
        with pytest.MonkeyPatch.context() as patch:
            for folder in (HERE.parents[1], HERE):  # where what tests import lies
                patch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)
            patch.setenv("WARM_PYTHON", executable("warm_ray"))
            yield
        for number, handler in handlers.items():
            signal.signal(number, handler)

    def add(self) -> None:
        """Add a machine."""
        with self.environment():
            self._nodes.append(self._cluster.add_node(num_cpus=2, **WORKER))

    def lose(self) -> None:
        """Kill a machine."""
        self._cluster.remove_node(self._nodes.pop(0), allow_graceful=False)

    def end(self) -> None:
        """End all of them, and what is left of one that was killed."""
        from ray_toy import processes_of

        self._cluster.shutdown()
        for process in {*processes_of(self.session)} - {os.getpid()}:
            os.kill(process, signal.SIGKILL)


shared = cache(Machines)
"""The machines of all files that have tests of them, since they take long to begin."""


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> None:
    """End the machines after the last of the files."""
    is_last = nextitem is None or not nextitem.path.name.startswith("test_ray")
    if is_last and shared.cache_info().currsize:
        shared().end()
        shared.cache_clear()


@pytest.fixture(scope="module")
def machines() -> Iterator[Machines]:
    """The machines, and this process connected to them."""
    ray = pytest.importorskip("ray")
    machines = shared()
    with machines.environment():
        ray.init(address=machines.address, log_to_driver=False, logging_level=logging.ERROR)
    yield machines
    ray.shutdown()


@pytest.fixture
def cluster(machines: Machines) -> Any:
    from hooktrainer.run import Cluster

    return Cluster(2)
