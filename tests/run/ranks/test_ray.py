"""Collecting and evaluating in processes of a Ray cluster of three machines."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import gymnasium as gym
import pytest
import torch
from tensordict.nn import InteractionType

from hooktrainer import Evaluate, Every, Trainer, ValueEstimatorHook, VectorCollector
from hooktrainer.errors import ConfigError, StateMismatchError
from hooktrainer.loop.hook_points import HOOK_POINTS
from hooktrainer.networks import CategoricalPolicy, ValueNetwork, mlp
from hooktrainer.objectives import GAE, ClipPPOLoss
from hooktrainer.run.placement import Place
from hooktrainer.run.ranks import Ranks, rank_state
from hooktrainer.store import list_checkpoints
from hooktrainer.store.tree import flatten, unflatten
from hooktrainer.testing import CallRecorder, check_collector

ray = pytest.importorskip("ray")

from hooktrainer.run.ray import Cluster, RayCollector, RayWorkerError, use_ray  # noqa: E402
from hooktrainer.run.ray.reaper import processes_of  # noqa: E402

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def machines():
    """A local Ray cluster: a machine without CPUs for the driver, and two with two each."""
    from ray.cluster_utils import Cluster as LocalCluster

    patch = pytest.MonkeyPatch()
    patch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)
    # Machines of a cluster take SIGTERM for themselves, and would keep it for the tests behind.
    handlers = {n: signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT)}
    local = LocalCluster(
        initialize_head=True,
        head_node_args={
            "num_cpus": 0,
            "object_store_memory": 80_000_000,
            "include_dashboard": False,
        },
    )
    nodes = [local.add_node(num_cpus=2, object_store_memory=80_000_000) for _ in range(2)]
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
    return Cluster(2)


def policy() -> CategoricalPolicy:
    torch.manual_seed(3)
    return CategoricalPolicy(mlp(4, 2))


def local(actor, env="CartPole-v1", num_envs=4, **options) -> VectorCollector:
    options = {"exploration_type": InteractionType.DETERMINISTIC, "seed": 5} | options
    return VectorCollector(env, actor, num_envs=num_envs, frames_per_batch=64, **options)


def remote(cluster, actor, workers=2, overlap=0, **options) -> RayCollector:
    return RayCollector(local(actor, **options), Place(count=workers), cluster, overlap=overlap)


def strangers_module():
    """The collectors of another test, which Ray's processes cannot import."""
    path = ROOT / "tests" / "collect" / "strangers.py"
    spec = importlib.util.spec_from_file_location("strangers", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["strangers"] = module
    spec.loader.exec_module(module)
    ray.cloudpickle.register_pickle_by_value(module)
    return module


def change(actor) -> None:
    with torch.no_grad():
        for parameter in actor.parameters():
            parameter.neg_()


def version(batch) -> list[int]:
    return batch["collector", "policy_version"].unique().tolist()


def equal(one, other) -> bool:
    assert set(one.keys(True, True)) == set(other.keys(True, True))
    return all(
        value.dtype == other.get(key).dtype and value.equal(other.get(key))
        for key, value in one.items(True, True)
    )


def alike(one, other) -> bool:
    """Equal but for rounding, which depends on how many observations are multiplied at once."""
    one, other = one.exclude("collector"), other.exclude("collector")
    assert set(one.keys(True, True)) == set(other.keys(True, True))
    return all(
        torch.allclose(value.double(), other.get(key).double(), rtol=1e-5, atol=1e-6)
        for key, value in one.items(True, True)
    )


def test_the_batches_are_those_of_one_process_with_the_newest_weights(cluster):
    actor = policy()
    one, several = local(actor), remote(cluster, actor)
    for _ in range(3):
        assert alike(one.collect(), several.collect())
        assert several.policy_age == 0
        change(actor)
    assert several.frames == 192
    one.shutdown()
    several.shutdown()
    several.shutdown()
    with pytest.raises(RuntimeError, match="shut down"):
        several.collect()


def test_overlapped_batches_are_one_update_older(cluster):
    actor = policy()
    before, ahead = local(policy()), remote(cluster, actor, overlap=1)
    first = ahead.collect()
    assert alike(before.collect(), first)
    assert (ahead.policy_age, version(first)) == (0, [0])
    change(actor)
    second = ahead.collect()
    assert alike(before.collect(), second)  # begun before the change
    assert (ahead.policy_age, version(second)) == (1, [0])
    assert ahead.metrics(None)["data/age"] == 1
    change(before.policy)
    third = ahead.collect()
    assert alike(before.collect(), third)
    assert (ahead.policy_age, version(third)) == (1, [1])
    before.shutdown()
    ahead.shutdown()


@pytest.mark.parametrize("overlap", [0, 1])
def test_a_state_goes_on_bit_for_bit(cluster, overlap):
    random = {"exploration_type": InteractionType.RANDOM}
    one = remote(cluster, policy(), overlap=overlap, **random)
    one.collect()
    state = unflatten(*flatten(one.state_dict()))
    following = [one.collect(), one.collect()]
    one.shutdown()
    again = remote(cluster, policy(), overlap=overlap, **random)
    again.load_state_dict(state)
    assert again.frames == 64
    assert all(equal(batch, again.collect()) for batch in following)
    again.shutdown()


def test_a_state_of_another_number_of_processes_begins_new_episodes(cluster):
    one = local(policy())
    one.collect()
    several = remote(cluster, policy())
    several.load_state_dict(one.state_dict())
    assert several.frames == 64
    batch = several.collect()
    assert batch["next", "step_count"][:, 0].flatten().tolist() == [1, 1, 1, 1]
    back = local(policy())
    back.load_state_dict(back.reshard([several.state_dict()]))
    assert back.frames == 128
    assert min(b - a for a, b in zip(one.episodes, back.episodes, strict=True)) > 0
    other = remote(cluster, policy(), num_envs=2)
    with pytest.raises(StateMismatchError, match="4 environments, this one 2"):
        other.load_state_dict(one.state_dict())
    for collector in (one, several, back, other):
        collector.shutdown()


def test_no_more_is_collected_than_asked_for(cluster):
    collector = remote(cluster, policy(), overlap=1, total_frames=128)
    assert [len(batch) for batch in collector] == [4, 4]
    assert collector.state_dict()["pending"] == []
    collector.shutdown()


def test_weights_given_to_it_are_the_policys(cluster):
    actor = policy()
    collector = remote(cluster, actor)
    change(other := policy())
    collector.update_policy_weights_(other)
    assert all(map(torch.equal, actor.parameters(), other.parameters()))
    collector.shutdown()


def test_a_run_that_goes_on_with_other_processes_says_so(cluster, logger):
    def trainer(number: int) -> Trainer:
        made = make_trainer(logger, policy(), ValueNetwork(mlp(4, 1)))
        if number:
            use_ray(made, Place(count=number), Place())
        return made

    alone, several = trainer(0), trainer(2)
    resumed = rank_state(several, Ranks(), alone.state_dict())
    assert "saved by one process that collects, resumed by 2 processes" in resumed.note
    several.load_state_dict(resumed.state)
    state = several.state_dict()
    assert rank_state(several, Ranks(), state).note is None
    assert "saved by 2 processes that collect, resumed by one" in str(
        rank_state(alone, Ranks(), state).note
    )
    alone.shutdown()
    several.shutdown()


def test_a_killed_process_is_begun_again(cluster):
    actor = policy()
    one, several = local(actor), remote(cluster, actor)
    assert alike(one.collect(), several.collect())
    os.kill(several.pids()[1], signal.SIGKILL)
    batch, whole = several.collect(), one.collect()
    assert several.restarts == 1
    assert several.metrics(batch)["data/restarts"] == 1
    assert alike(batch[:2], whole[:2])  # the other share is as it would have been
    assert batch["next", "step_count"][2:, 0].flatten().tolist() == [1, 1]
    assert not batch["observation"][2:, 0].equal(whole["observation"][2:, 0])
    one.shutdown()
    several.shutdown()


class Faulty(gym.Wrapper):
    """Raises, or ends its process, at its fifth step."""

    def __init__(self, fault: str) -> None:
        super().__init__(gym.make("CartPole-v1"))
        self.fault, self.steps, self.home = fault, 0, os.getpid()

    def step(self, action):
        self.steps += 1
        if self.steps == 5:
            if self.fault == "exit":
                os._exit(1)
            raise ValueError("a fault on purpose")
        return super().step(action)


def raises() -> gym.Env:
    return Faulty("raise")


def exits() -> gym.Env:
    return Faulty("exit")


def test_an_error_comes_with_the_traceback_of_its_process(cluster):
    collector = remote(cluster, policy(), env=raises, restore_episodes=False)
    with pytest.raises(ValueError, match="a fault on purpose") as error:
        collector.collect()
    assert "in step" in str(error.value)
    assert "in collector 0, a process of the Ray cluster" in error.value.__notes__
    assert len(collector.state_dict()["workers"]) == 2  # for exception.pt
    collector.shutdown()


@pytest.mark.slow
def test_a_strangers_collector_is_shared_out_and_keeps_the_contract(cluster):
    """One that fulfils the protocol and knows nothing of this package's own."""
    strangers = strangers_module()

    def make():
        return RayCollector(strangers.Walks(), Place(count=2), cluster, overlap=1)

    check_collector(make)
    collector = make()
    versions = []
    for number in range(3):
        batch = collector.collect()
        versions.append((version(batch), batch["weight"].unique().tolist()))
        with torch.no_grad():
            collector.policy.logit.fill_(number + 1.0)
    assert versions == [([0], [0.0]), ([0], [0.0]), ([1], [1.0])]
    state = unflatten(*flatten(collector.state_dict()))
    collector.shutdown()
    alone = strangers.Walks()
    other = RayCollector(alone, Place(count=1), cluster)
    other.load_state_dict(state)
    assert other.frames == 96  # with the batch that was under way, whose environments have stepped
    other.shutdown()
    few = RayCollector(strangers.OnlySome(), Place(count=2), cluster)
    assert few.collect().shape == (4, 6)
    few.shutdown()


def test_a_process_that_dies_again_and_again_ends_the_run(cluster):
    collector = remote(cluster, policy(), env=exits, workers=1, restore_episodes=False)
    with pytest.raises(RayWorkerError, match="collector 0 died 4 times in a row"):
        collector.collect()
    with pytest.raises(RayWorkerError, match="4 times"):
        collector.state_dict()
    collector.shutdown()


def test_what_cannot_work_is_refused(cluster):
    with pytest.raises(ConfigError, match="num_envs=4 cannot be shared equally by 3"):
        remote(cluster, policy(), workers=3)
    with pytest.raises(ConfigError, match="overlap=2"):
        remote(cluster, policy(), overlap=2)
    with pytest.raises(ConfigError, match="the Ray cluster has the nodes 0 to 2"):
        RayCollector(local(policy()), Place("node", (3,)), cluster)
    with pytest.raises(ConfigError, match="generator has no shard"):
        RayCollector((batch for batch in ()), Place(count=2), cluster)
    lock = threading.Lock()
    with pytest.raises(ConfigError, match="VectorCollector cannot be sent to other processes"):
        remote(cluster, policy(), env=lambda: gym.make("CartPole-v1") if lock else None)


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1", "127.0.0.1:99999"])
def test_an_address_where_nothing_answers_is_said_so(address, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", address)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    with pytest.raises(ConfigError, match=rf"RAY_ADDRESS={address}: no Ray cluster answers there"):
        Cluster(1)


def make_trainer(logger, actor, critic) -> Trainer:
    loss = ClipPPOLoss(actor, critic)
    trainer = Trainer(
        collector=local(actor, exploration_type=InteractionType.RANDOM),
        total_frames=320,
        optim_steps_per_batch=2,
        loss_module=loss,
        optimizer=torch.optim.Adam(loss.parameters(), lr=1e-3),
        logger=logger,
        log_interval=64,
        progress_bar=False,
        seed=1,
    )
    ValueEstimatorHook(GAE(gamma=0.99, lmbda=0.95, value_network=critic)).register(trainer)
    Evaluate("CartPole-v1", actor, every=Every(frames=128), episodes=2).register(trainer)
    return trainer


def test_a_trainer_trains_and_evaluates_with_all_hook_points(cluster, logger):
    trainer = make_trainer(logger, policy(), ValueNetwork(mlp(4, 1)))
    recorder = CallRecorder()
    recorder.register(trainer)
    collector = use_ray(trainer, Place(count=2), Place())
    trainer.train()
    assert set(recorder.calls) == set(map(str, HOOK_POINTS))
    assert trainer.collected_frames == 320
    at = sorted(set(logger.column("eval/frames").values()))
    assert at[0] in (128, 192)
    assert at[-1] == 320
    assert set(logger.column("data/age").values()) == {0.0}
    beside = {name for name in trainer.timing.totals if name.startswith("worker/")}
    assert beside == {"worker/env", "worker/inference", "worker/transfer"}
    assert trainer.timing.totals["sync_weights"] > 0
    with pytest.raises(RuntimeError, match="shut down"):
        collector.collect()
    time.sleep(0.5)
    assert ray.is_initialized()  # the cluster was there before


def test_the_state_of_an_evaluation_under_way_is_its_result(cluster, logger):
    trainer = make_trainer(logger, policy(), ValueNetwork(mlp(4, 1)))
    use_ray(trainer, Place(), Place())
    hook = trainer.registry.modules["evaluate"]
    hook(None)
    state = unflatten(*flatten(hook.state_dict()))
    assert state["arrived"]["eval/frames"] == 0
    hook.load_state_dict(state)
    metrics = hook.look(None)
    assert float(metrics["eval/return"]) == state["arrived"]["eval/return"] > 0
    assert hook.look(None) is None
    trainer.shutdown()


@pytest.mark.slow
def test_a_killed_machine_does_not_end_the_run(machines, cluster):
    """The last test: afterwards a machine is missing."""
    local_cluster, nodes = machines
    alive = len(cluster.nodes())
    collector = RayCollector(local(policy()), Place("node", (1, 2)), cluster, overlap=1)
    assert collector.collect().shape == (4, 16)
    local_cluster.remove_node(nodes[0], allow_graceful=False)
    batches = [collector.collect() for _ in range(3)]
    assert [batch.shape for batch in batches] == [(4, 16)] * 3
    assert collector.restarts >= 1
    assert len(cluster.nodes()) == alive - 1
    collector.shutdown()


@pytest.mark.slow
def test_nothing_is_left_of_a_killed_driver_and_its_run_goes_on(tmp_path):
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
            wait_for(lambda: len(committed(run)) > 1, 90)
            session = session_of(driver.pid)
            assert len(processes_of(session)) > 4
        finally:
            driver.kill()
    wait_for(lambda: not processes_of(session), 10)
    frames = committed(run)[-1] + 2048
    command += ["--resume", "latest", "--total-frames", str(frames)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "resumed from" in done.stdout
    assert committed(run)[-1] >= frames
    assert "shared out anew" not in done.stdout


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


def committed(run: Path) -> list[int]:
    return [c.manifest.frames for c in list_checkpoints(run / "checkpoints").checkpoints]


def wait_for(condition, seconds: float) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.1)
