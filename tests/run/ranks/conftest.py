"""The Ray cluster that the tests of a file share."""

from __future__ import annotations

import builtins
import logging
import os
import signal
from pathlib import Path

import pytest
from warm_python import executable

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def machines():
    """A local Ray cluster: a machine without CPUs for the driver, and two with two each."""
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster as LocalCluster

    from hooktrainer.run.ray.reaper import processes_of

    patch = pytest.MonkeyPatch()
    patch.setattr(builtins, "print", print)  # of which Ray puts one of its own into place
    patch.setenv("PYTHONPATH", str(HERE), prepend=os.pathsep)
    patch.setenv("WARM_PYTHON", executable("warm_ray"))
    worker = {"worker_path": str(HERE / "warm_ray_worker.py")}
    # Machines of a cluster take SIGTERM for themselves, and would keep it for the tests behind.
    handlers = {n: signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT)}
    local = LocalCluster(
        initialize_head=True,
        head_node_args={
            "num_cpus": 0,
            "object_store_memory": 80_000_000,
            "include_dashboard": False,
            **worker,
        },
    )
    nodes = [local.add_node(num_cpus=2, object_store_memory=80_000_000, **worker) for _ in range(2)]
    ray.init(address=local.address, log_to_driver=False, logging_level=logging.ERROR)
    for number, handler in handlers.items():
        signal.signal(number, handler)
    yield local, nodes
    session = ray.get_runtime_context().get_session_name()
    ray.shutdown()
    local.shutdown()
    patch.undo()
    for process in {*processes_of(session)} - {os.getpid()}:  # of the machine that was killed
        os.kill(process, signal.SIGKILL)


@pytest.fixture
def cluster(machines):
    from hooktrainer.run.ray import Cluster

    return Cluster(2)
