"""Processes and machines of a Ray cluster, and what began it, that fail or are killed."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import gymnasium as gym
import pytest
from outcomes import committed, wait_for
from ray_toy import alike, local, policy, processes_of, remote

from hooktrainer.run import Place

ray = pytest.importorskip("ray")

from hooktrainer.run import RayCollector  # noqa: E402

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]


def test_a_killed_process_is_begun_again(cluster):
    actor = policy()
    one, several = local(actor), remote(cluster, actor)
    before = several.collect()
    assert alike(one.collect(), before)
    os.kill(several.pids()[1], signal.SIGKILL)
    batch, whole = several.collect(), one.collect()
    assert several.restarts == 1
    assert several.metrics(batch)["data/restarts"] == 1
    assert alike(batch[:2], whole[:2])  # the other share is as it would have been
    assert batch["next", "step_count"][2:, 0].flatten().tolist() == [1, 1]
    starts = batch["observation"][2:, 0]
    assert not starts.equal(whole["observation"][2:, 0])
    assert not starts.equal(before["observation"][2:, 0])  # no start is played again
    frames = [share["collector"]["frames"] for share in several.state_dict()["workers"]]
    assert frames == [64, 64]
    one.shutdown()
    several.shutdown()


class Faulty(gym.Wrapper):
    """Raises at its fifth step."""

    def __init__(self) -> None:
        super().__init__(gym.make("CartPole-v1"))
        self.steps = 0

    def step(self, action):
        self.steps += 1
        if self.steps == 5:
            raise ValueError("a fault on purpose")
        return super().step(action)


def test_an_error_comes_with_the_traceback_of_its_process(cluster):
    collector = remote(cluster, policy(), env=Faulty, restore_episodes=False)
    with pytest.raises(ValueError, match="a fault on purpose") as error:
        collector.collect()
    assert "in step" in str(error.value)
    assert "in collector 0, a process of the Ray cluster" in error.value.__notes__
    assert len(collector.state_dict()["workers"]) == 2  # for exception.pt
    collector.shutdown()


@pytest.mark.slow
def test_a_killed_machine_does_not_end_the_run(machines, cluster):
    alive = len(cluster.nodes())
    collector = RayCollector(local(policy()), Place("node", (1, 2)), cluster, overlap=1)
    assert collector.collect().shape == (4, 16)
    machines.lose()
    batches = [collector.collect() for _ in range(3)]
    assert [batch.shape for batch in batches] == [(4, 16)] * 3
    assert collector.restarts >= 1
    assert len(cluster.nodes()) == alive - 1
    collector.shutdown()
    machines.add()


@pytest.mark.slow
def test_nothing_is_left_of_a_killed_driver_and_its_run_goes_on(machines, tmp_path):
    """It begins a cluster of its own, and goes on in one that is there."""
    run = tmp_path / "run"
    command = [sys.executable, str(ROOT / "recipes/ppo_cartpole.py"), "--run-dir", str(run)]
    command += ["--engine", "ray", "--collectors", "2", "--no-progress-bar", "--logger", "csv"]
    command += ["--save-interval", "1024", "--eval-episodes", "4", "--stop-at", "1000"]
    environment = {k: v for k, v in os.environ.items() if k != "RAY_ADDRESS"}
    with subprocess.Popen(
        [*command, "--total-frames", "1000000"],
        env=environment,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    ) as driver:
        try:
            # On two busy cores, a cluster takes over a minute to begin, and its actors another.
            wait_for(lambda: driver.poll() is not None or len(committed(run)) > 1, 400)
            assert driver.poll() is None
            session = session_of(driver.pid)
            assert len(processes_of(session)) > 4
        finally:
            driver.kill()
    wait_for(lambda: not processes_of(session))  # the last ones wait for Ray's for a minute
    frames = committed(run)[-1] + 2048
    command += ["--resume", "latest", "--total-frames", str(frames)]
    environment["RAY_ADDRESS"] = machines.address
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "resumed from" in done.stdout
    assert committed(run)[-1] >= frames
    assert "divided again" not in done.stdout


def session_of(driver: int) -> str:
    """The name of the session of the cluster that a process has begun."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
                name = re.search(rb"session_[-_0-9]+", (entry / "cmdline").read_bytes())
                if parent == driver and name is not None:
                    return name[0].decode()
    raise AssertionError("no process of the cluster was found")
