"""What must not look like a good end of a run: iterators that ran out, and sys.exit(0)."""

from __future__ import annotations

import json
import re
import sys

import gymnasium as gym
import pytest
from marks import slow_except
from warm_python import run

from hooktrainer import HOOK_POINTS, HookError, OverlappedCollector, VectorCollector
from hooktrainer.testing import FakeCollector, tiny_trainer


class Schedule:
    """A hook with an iterator of its own, good for ``length`` calls."""

    def __init__(self, length):
        self.values = iter(range(length))

    def __call__(self, batch):
        next(self.values)
        return batch


# -- iterators that ran out ----------------------------------------------------------------------


@pytest.mark.parametrize("steps", [32, None])
def test_a_batch_without_a_step_is_an_error(steps):
    trainer = tiny_trainer(optim_steps_per_batch=steps)
    trainer.register_op("process_optim_batch", Schedule(5))
    message = "in hook 'schedule' at hook point process_optim_batch (frames 20, optimizer step 5)"
    with pytest.raises(HookError, match=re.escape(message)):
        trainer.train()
    assert trainer.optim_count == 5  # of the first batch
    assert trainer.control.status == "failed"


def test_an_endless_epoch_is_an_error(monkeypatch):
    monkeypatch.setattr("hooktrainer.loop.loop._MAX_UNCHANGED", 50)
    trainer = tiny_trainer(optim_steps_per_batch=None)
    trainer.register_op("process_optim_batch", lambda batch: None)
    with pytest.raises(HookError, match=r"<lambda>.* raising StopIteration"):
        trainer.train()


ELSEWHERE = [p for p in HOOK_POINTS if p != "process_optim_batch"]


@pytest.mark.parametrize("point", ELSEWHERE)
def test_stop_iteration_at_another_point_is_an_error(point):
    trainer = tiny_trainer()
    trainer.register_op(point, lambda *args: next(iter(())))
    with pytest.raises(RuntimeError, match=r"was raised in <lambda>, test_endings.py:"):
        trainer.train()
    assert trainer.control.status == "failed"


class Leaking(gym.Wrapper):
    """Runs out of levels."""

    def __init__(self):
        super().__init__(gym.make("CartPole-v1"))
        self.levels = iter(range(12))

    def step(self, action):
        next(self.levels)
        return super().step(action)


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("overlap", slow_except([None, "thread", "process"], None, "thread"))
def test_stop_iteration_in_an_environment_is_an_error(workers, overlap):
    collector = VectorCollector(Leaking, num_envs=2, frames_per_batch=10, workers=workers)
    if overlap:
        collector = OverlappedCollector(collector, mode=overlap)
    trainer = tiny_trainer(collector=collector, total_frames=1000)
    with pytest.raises(RuntimeError, match=r"StopIteration was raised in step, test_endings.py:"):
        trainer.train()
    assert trainer.control.status == "failed"


@pytest.mark.parametrize(("total_frames", "status"), [(1000, "stopped"), (20, "finished")])
def test_the_end_of_the_collector_ends_the_run_with_a_reason(total_frames, status):
    trainer = tiny_trainer(collector=FakeCollector(num_batches=2), total_frames=total_frames)
    trainer.train()
    assert trainer.control.status == status
    assert (trainer.stop_reason is None) == (status == "finished")


# -- sys.exit(0) ---------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [0, None])
@pytest.mark.parametrize("point", HOOK_POINTS)
def test_sys_exit_in_a_hook_interrupts_the_run(point, code):
    trainer = tiny_trainer()
    trainer.register_op(point, lambda *args: sys.exit(code))
    with pytest.raises(SystemExit) as caught:
        trainer.train()
    message = str(caught.value.code)  # which the interpreter prints, and exits with 1
    assert message.startswith(f"error: sys.exit({code}) was called in <lambda>, test_endings.py:")
    assert "the run is interrupted after 10 frames, not finished" in message
    assert "\n" not in message
    assert trainer.control.status == "interrupted"


PROGRAM = """
import sys
import gymnasium as gym
from hooktrainer import algorithms

class Leaving(gym.Wrapper):
    def __init__(self):
        super().__init__(gym.make("CartPole-v1"))
        self.steps = 0
    def step(self, action):
        self.steps += 1
        if self.steps > 40:
            sys.exit(0)
        return super().step(action)

if __name__ == "__main__":
    run = algorithms.PPO(env=Leaving, total_frames=5000, run_dir="run", progress_bar=False)
    trainer = run.trainer()
    if sys.argv[1] == "worker":
        trainer.collector.use_workers(2)
    trainer.train()
"""


@pytest.mark.parametrize("where", ["here", "worker"])
def test_sys_exit_in_an_environment_has_exit_code_1(tmp_path, where):
    (tmp_path / "program.py").write_text(PROGRAM)
    assert run(tmp_path / "program.py", where, where=tmp_path).returncode == 1
    state = json.loads((tmp_path / "run" / "run.json").read_text())
    # A class of the main program reaches a worker by value, which newer cloudpickle does without
    # the name of its file.
    place = {"here": "program.py:13", "worker": ":13"}[where]
    assert re.search(rf"in step, \S*{re.escape(place)}", state["reason"])
    assert state["status"] == {"here": "interrupted", "worker": "failed"}[where]
