"""Environments in worker processes: the same data, errors that reach the caller, nothing left."""

from __future__ import annotations

import gc
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
import torch
from agents.toy_parallel import Leaving
from marks import slow_except
from outcomes import is_gone, same, wait_for
from tensordict import TensorDict
from tensordict.nn import TensorDictModule, TensorDictSequential
from torch import nn
from torchrl.data import Bounded
from torchrl.modules import OrnsteinUhlenbeckProcessModule
from toy_envs import Counter, Masked, Nested, Opaque, VectorCounter, recurrent

from hooktrainer import ConfigError, VectorCollector
from hooktrainer.base.worker import ChildError
from hooktrainer.collect.worker_envs import WorkerEnvs
from hooktrainer.networks import CategoricalPolicy, TanhGaussianPolicy, mlp

Arguments = dict[str, Any]


@contextmanager
def collector(**arguments: Any) -> Iterator[VectorCollector]:
    built = VectorCollector(**arguments)
    try:
        yield built
    finally:
        built.shutdown()


def batches(number: int, policy: Callable[[], Any], **arguments: Any) -> list[TensorDict]:
    torch.manual_seed(7)
    with collector(policy=policy(), seed=3, traj_ids=True, **arguments) as built:
        return [built.collect() for _ in range(number)]


def noisy() -> TensorDictSequential:
    noise = OrnsteinUhlenbeckProcessModule(spec=Bounded(-2, 2, (1,)), eps_end=1.0)
    return TensorDictSequential(
        TensorDictModule(nn.Linear(3, 1), ["observation"], ["action"]), noise
    )


def by_mask(observation: torch.Tensor, action_mask: torch.Tensor) -> torch.Tensor:
    assert action_mask.any(-1).all(), "rows that have not landed hold no valid mask"
    return action_mask.int().argmax(-1)


CASES: dict[str, tuple[Callable[[], Any], Arguments]] = {
    "slots, small network": (
        lambda: CategoricalPolicy(mlp(4, 2)),
        {"env": "CartPole-v1", "num_envs": 16},
    ),
    "uneven shares": (lambda: CategoricalPolicy(mlp(4, 2)), {"env": "CartPole-v1", "num_envs": 7}),
    "continuous": (
        lambda: TanhGaussianPolicy(mlp(3, 2), 1, -2.0, 2.0),
        {"env": "Pendulum-v1", "num_envs": 6},
    ),
    "function with random numbers": (
        lambda: lambda observation: torch.randint(2, (len(observation),)),
        {"env": [lambda: Counter(length=3)] * 5},
    ),
    "function of just four rows": (
        lambda: lambda observation: (observation[:, 1] + torch.arange(4)).long() % 2,
        {"env": [Counter] * 4},
    ),
    "masked function": (lambda: by_mask, {"env": [Masked] * 5}),
    "own noise": (noisy, {"env": "Pendulum-v1", "num_envs": 4}),
    "recurrent": (recurrent, {"env": [lambda: Counter(length=4)] * 4}),
    "nested, random": (lambda: None, {"env": [Nested] * 4}),
    "agents": (lambda: None, {"env": Leaving, "num_envs": 4}),
    "warm-up": (
        lambda: CategoricalPolicy(mlp(4, 2)),
        {"env": "CartPole-v1", "num_envs": 4, "init_random_frames": 50},
    ),
    "frame skip": (
        lambda: CategoricalPolicy(mlp(4, 2)),
        {"env": "CartPole-v1", "num_envs": 4, "frame_skip": 3},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_stages_and_workers_do_not_change_the_data(name: str) -> None:
    policy, arguments = CASES[name]
    num_envs = arguments.get("num_envs") or len(arguments["env"])
    arguments = {**arguments, "frames_per_batch": num_envs * 11}
    alone = batches(4, policy, **arguments)
    layouts = ((3, 1), (1, 3)) if name == "uneven shares" else ((2, 2),)
    for workers, stages in layouts:
        assert same(alone, batches(4, policy, workers=workers, stages=stages, **arguments))


def test_a_policy_whose_rounding_does_not_depend_on_the_rows_is_called_for_its_part() -> None:
    sizes = []

    class Policy(nn.Module):
        def forward(self, observation: torch.Tensor) -> torch.Tensor:
            sizes.append(len(observation))
            return (observation[:, 1] > 0).long()

    with collector(
        env="CartPole-v1", policy=Policy(), num_envs=4, frames_per_batch=40, workers=1, stages=2
    ) as built:
        for _ in range(4):
            built.collect()
    # The first steps of three rollouts both ways, then each part alone.
    assert sizes == ([4, 2, 2] + [4] * 20) * 2 + [4, 2, 2] + [2] * 40


def test_processes_start_with_the_first_batch() -> None:
    policy = CategoricalPolicy(mlp(4, 2))

    def build(*workers: int) -> VectorCollector:
        built = VectorCollector("CartPole-v1", policy, num_envs=8, frames_per_batch=80)
        built.use_workers(*workers)
        return built

    def data(built: VectorCollector) -> TensorDict:
        torch.manual_seed(7)
        built.set_seed(4)
        assert not isinstance(built.envs, WorkerEnvs)
        try:
            return built.collect()
        finally:
            assert isinstance(built.envs, WorkerEnvs) is (built._workers.number > 0)
            built.shutdown()

    alone, original = data(build(0)), build(2, 2)
    copied = pickle.loads(pickle.dumps(original))
    assert "workers=2, stages=2" in repr(copied)
    assert all((data(built) == alone).all() for built in (original, copied))
    shares = [build(2, 2) for _ in range(2)]
    for rank, share in enumerate(shares):
        share.shard(rank, 2)
    both = torch.cat([data(share) for share in shares])
    assert (both["observation"][:, 0] == alone["observation"][:, 0]).all()
    small = VectorCollector("CartPole-v1", num_envs=4, frames_per_batch=40)
    with pytest.raises(ConfigError, match="num_envs=4 with workers=3 and stages=2"):
        small.use_workers(3, 2)
    small.use_workers(2, 2)
    with pytest.raises(ConfigError, match="num_envs=2 with workers=2 and stages=2"):
        small.shard(0, 2)
    assert small.collect().shape == (4, 10)
    small.shutdown()


@pytest.mark.parametrize(
    ("env", "policy"),
    [([Opaque] * 4, lambda x: (x[:, 1] % 2).long()), ([Leaving] * 4, None)],
    ids=["one agent", "several"],
)
def test_a_state_goes_on_with_any_number_of_workers_and_stages(env: Any, policy: Any) -> None:
    layouts: list[Arguments] = [{}, {"workers": 2, "stages": 2}, {"workers": 1}]

    def build(layout: Arguments, seed: int = 0) -> VectorCollector:
        return VectorCollector(env, policy, frames_per_batch=28, seed=seed, **layout)

    reference = build({}, seed=5)
    reference.collect()
    state = reference.state_dict()
    expected = [reference.collect() for _ in range(3)]
    for layout in layouts:
        resumed = build(layout)
        resumed.load_state_dict(state)
        assert (resumed.collect() == expected[0]).all()
        state_there = resumed.state_dict()
        assert (resumed.collect() == expected[1]).all()
        resumed.shutdown()
        back = build({})
        back.load_state_dict(state_there)
        assert (back.collect() == expected[1]).all()


class Fragile(Counter):
    """Fails in its third step if it is told to."""

    breaks = True

    def step(self, action: Any) -> Any:
        if self.breaks and self.count == 2:
            self.breaks = False
            raise ZeroDivisionError("the simulator divided by zero")
        return super().step(action)


def test_an_error_in_a_worker_is_raised_with_its_traceback_and_the_next_batch_begins_anew() -> None:
    envs = [Counter, Counter, Counter, Fragile]
    with collector(env=envs, frames_per_batch=8, workers=2, stages=2) as built:
        built.collect()
        with pytest.raises(ZeroDivisionError, match="divided by zero") as caught:
            built.collect()
        assert "Fragile" in str(caught.value.__cause__)
        assert "in step" in str(caught.value.__cause__)
        notes = "\n".join(caught.value.__notes__)
        assert "environment 3" in notes
        assert "worker 1" in notes
        batch = built.collect()
        assert batch["next", "step_count"][:, 0].flatten().tolist() == [1, 1, 1, 1]


class Stuck(Counter):
    """Never comes back from a step."""

    def step(self, action: Any) -> Any:
        time.sleep(1000)


@pytest.mark.slow
def test_workers_that_are_stuck_are_ended_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hooktrainer.base.worker._GRACE", 0.5)
    arguments: Arguments = {"num_envs": 6, "frames_per_batch": 6, "workers": 6}
    with collector(env=Stuck, restore_episodes=False, **arguments) as built:
        left = pids(built)
        rollout: Any = built._ready()
        built.envs.reset()
        rollout.is_running = True
        for child in built.envs._pool:  # type: ignore[attr-defined]
            child.timeout = 0.1
        with pytest.raises(ChildError, match=r"worker 0 .* has not answered"):
            rollout.collect(built.timing, 0, False)
        built.envs._pool[0].timeout = 600.0  # type: ignore[attr-defined]
        with pytest.raises(ChildError, match="worker 0"):  # it is not waited for a second time
            built.set_attribute("length", 3)
        start = time.monotonic()
    assert time.monotonic() - start < 2  # not half a second for each
    assert all(map(is_gone, left))


def pids(built: VectorCollector) -> list[int]:
    return [child.pid for child in built.envs._pool]  # type: ignore[attr-defined]


def test_a_worker_that_is_killed_is_an_error_that_says_so() -> None:
    with collector(env=[Counter] * 4, frames_per_batch=40, workers=2) as built:
        built.collect()
        os.kill(pids(built)[1], signal.SIGKILL)
        with pytest.raises(ChildError, match=r"worker 1 \(environments 2-3\).*killed by SIGKILL"):
            built.collect()
    with collector(env=[Counter] * 3, frames_per_batch=30, workers=2) as built:
        os.kill(pids(built)[1], signal.SIGSEGV)
        with pytest.raises(ChildError, match=r"\(environments 2\).*SIGSEGV; PYTHONFAULTHANDLER=1"):
            built.collect()


def test_workers_end_with_the_collector() -> None:
    with collector(env=[Counter] * 2, frames_per_batch=4, workers=2) as built:
        shut_down = pids(built)
    assert all(map(is_gone, shut_down))
    built.shutdown()  # again
    forgotten = VectorCollector([Counter] * 2, frames_per_batch=4, workers=2)
    left = pids(forgotten)
    del forgotten
    gc.collect()
    wait_for(lambda: all(map(is_gone, left)))


def test_signals_for_the_whole_group_leave_the_workers_alone() -> None:
    with collector(env=[Counter] * 2, frames_per_batch=4, workers=1) as built:
        for number in (signal.SIGINT, signal.SIGTERM):
            os.kill(pids(built)[0], number)
        assert built.collect().numel() == 4


SCRIPT = """
import os, sys, time
from hooktrainer import VectorCollector
if __name__ == "__main__":
    collector = VectorCollector("CartPole-v1", num_envs=2, frames_per_batch=4, workers=2)
    collector.collect()
    print(*[child.pid for child in collector.envs._pool], flush=True)
    if sys.argv[1] == "return":
        sys.exit()
    if sys.argv[1] == "raise":
        raise RuntimeError("the end")
    time.sleep(60)
"""


@pytest.mark.usefixtures("warm_python")
def test_a_script_without_a_main_guard_is_told_so(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from hooktrainer import VectorCollector\n"
        "VectorCollector('CartPole-v1', num_envs=1, frames_per_batch=4, workers=1)\n"
    )
    ended = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)
    assert ended.returncode == 1
    assert "ended before it began its work" in ended.stderr.splitlines()[-1]
    assert 'if __name__ == "__main__":' in ended.stderr.splitlines()[-1]


LEFT_OPEN = """
import multiprocessing
from hooktrainer.base.worker import Worker

def train():
    global worker
    worker = Worker("one", lambda channel: channel.receive(), start="fork")

if __name__ == "__main__":
    child = multiprocessing.get_context("fork").Process(target=train)
    child.start()
    child.join(20)
    print(child.exitcode)
    child.kill()
"""


@pytest.mark.usefixtures("warm_python")
def test_a_process_of_multiprocessing_ends_whose_workers_are_left_open(tmp_path: Path) -> None:
    # As does a program that has used weakref.finalize, such as for a temporary directory, before
    # it imported multiprocessing: at its end that waits for the workers before they are told.
    script = tmp_path / "script.py"
    script.write_text(LEFT_OPEN)
    ended = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)
    assert (ended.stdout, ended.stderr) == ("0\n", "")


def test_a_signal_from_the_terminal_while_a_process_imports_the_script(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import multiprocessing, os, signal, time\n"
        "if __name__ == '__mp_main__':\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "from hooktrainer.base.worker import Worker\n"
        "def answer(channel):\n"
        "    channel.send(channel.receive())\n"
        "if __name__ == '__main__':\n"
        "    child = Worker('the process', answer)\n"
        "    child.send(b'here')\n"
        "    print(child.receive())\n"
        "    child.close()\n"
        "    print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)\n"
        "    context = multiprocessing.get_context('forkserver')\n"
        "    another = context.Process(target=time.sleep, args=(5,))\n"  # from the same server
        "    another.start()\n"
        "    another.terminate()\n"
        "    another.join()\n"
        "    print(another.exitcode)\n"
    )
    ended = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)
    assert ended.stdout.splitlines() == ["b'here'", "True", "-15"], ended.stderr


STOPPED = """
import os, signal, subprocess, time
from hooktrainer.base.worker import Worker

def answer(channel):
    while True:
        channel.receive()
        time.sleep(1)
        channel.send(b"here")

if __name__ == "__main__":
    child = Worker("the process", answer, timeout=60.0)
    both = f"{os.getpid()} {child.pid}"
    child.send(b"")
    child.receive()  # the process has been started
    child.timeout = 2.0
    child.send(b"")
    subprocess.Popen(["sh", "-c", f"sleep 0.5; kill -STOP {both}; sleep 2; kill -CONT {both}"])
    print(child.receive())
"""


@pytest.mark.usefixtures("warm_python")
@pytest.mark.slow
def test_the_time_for_which_a_run_is_stopped_does_not_count(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(STOPPED)
    ended = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)
    assert ended.stdout.splitlines() == ["b'here'"], ended.stderr


class Quits(Counter):
    """A simulator that ends its program when it is done."""

    def step(self, action: Any) -> Any:
        sys.exit(5)


def test_an_environment_that_ends_its_process_does_not_end_the_run_without_a_word() -> None:
    arguments: Arguments = {"num_envs": 2, "frames_per_batch": 4, "workers": 1}
    with (
        collector(env=Quits, restore_episodes=False, **arguments) as built,
        pytest.raises(ChildError, match="SystemExit: 5") as caught,
    ):
        built.collect()
    assert "in step" in str(caught.value.__cause__)


def test_what_cannot_be_sent_to_a_process_is_said_so() -> None:
    lock = threading.Lock()
    with pytest.raises(ConfigError, match=r"worker 0 \(environments 0-1\).*cannot pickle.*lock"):
        VectorCollector(
            lambda: Counter() if lock else None, num_envs=2, frames_per_batch=4, workers=1
        )


@pytest.mark.usefixtures("warm_python")
@pytest.mark.parametrize("how", slow_except(["return", "raise", "SIGKILL"], "SIGKILL"))
def test_workers_end_with_the_process_that_uses_them(how: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    with subprocess.Popen(
        [sys.executable, str(script), how],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        left = [int(pid) for pid in process.stdout.readline().split()]
        assert len(left) == 2, process.communicate()[1]
        if how == "SIGKILL":
            process.kill()
        wait_for(lambda: all(map(is_gone, left)))
        assert process.wait(10) == {"return": 0, "raise": 1, "SIGKILL": -9}[how]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"workers": -1}, "workers=-1"),
        ({"stages": 0}, "stages=0"),
        ({"workers": 2, "stages": 3}, "num_envs=4.*at least 6"),
        ({"workers": 2, "env": "CartPol-v1"}, "no environment 'CartPol-v1'"),
        ({"workers": 1, "num_envs": None}, "num_envs=None"),
        ({"workers": 1, "env": gym.make_vec("CartPole-v1", 4)}, "made already.*leave out workers"),
        ({"workers": 2, "env": [Counter, Counter, Nested, Nested]}, "All have to be the same"),
    ],
)
def test_what_cannot_work_is_refused(arguments: Arguments, message: str) -> None:
    options: Arguments = {"env": "CartPole-v1", "num_envs": 4, "frames_per_batch": 40, **arguments}
    if isinstance(options["env"], list):
        del options["num_envs"]
    with pytest.raises(ConfigError, match=message):
        VectorCollector(**options)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_step_that_only_resets_is_no_transition(workers):
    """The environments reset themselves in the step after an episode's end."""
    gym.register("Later-v0", entry_point=Counter, vector_entry_point=VectorCounter)
    try:
        options = {"workers": workers, "stages": 2 if workers else 1}
        mode = "vector_entry_point"
        with collector(
            env="Later-v0", num_envs=4, frames_per_batch=48, vectorization_mode=mode, **options
        ) as built:
            for _ in range(2):
                following = built.collect()["next"]
                assert following["reward"].min() == 1.0
                assert set(following["step_count"][following["done"]].tolist()) == {5}
    finally:
        del gym.registry["Later-v0"]
