"""Collecting in processes of a Ray cluster of three machines."""

from __future__ import annotations

import importlib.util
import sys
import threading
from pathlib import Path

import cloudpickle
import gymnasium as gym
import pytest
import torch
from outcomes import same
from ray_toy import alike, change, local, policy, remote
from tensordict.nn import InteractionType

from hooktrainer import VectorCollector
from hooktrainer.collect.worlds.classic_control import CartPoleWorld
from hooktrainer.data import DataCollector
from hooktrainer.errors import ConfigError, StateMismatchError
from hooktrainer.run import Place
from hooktrainer.store import flatten, unflatten
from hooktrainer.testing import check_collector

ray = pytest.importorskip("ray")

from hooktrainer.run import RayCollector  # noqa: E402

ROOT = Path(__file__).parents[3]


class Said(CartPoleWorld):
    """Logs where the carts are."""

    def step(self, actions):
        outcome = super().step(actions)
        return outcome._replace(log={"x": outcome.observation["observation"][:, 0]})


def strangers_module():
    """The collectors of another test, which Ray's processes cannot import."""
    path = ROOT / "tests" / "collect" / "strangers.py"
    spec = importlib.util.spec_from_file_location("strangers", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["strangers"] = module
    spec.loader.exec_module(module)
    cloudpickle.register_pickle_by_value(module)
    return module


def version(batch) -> list[int]:
    return batch["collector", "policy_version"].unique().tolist()


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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
    assert all(same(batch, again.collect()) for batch in following)
    again.shutdown()


@pytest.mark.slow
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
    episodes = zip(one.envs.episodes, back.envs.episodes, strict=True)
    assert all(before < after for before, after in episodes)
    other = remote(cluster, policy(), num_envs=2)
    with pytest.raises(StateMismatchError, match="4 environments, this one 2"):
        other.load_state_dict(one.state_dict())
    for collector in (one, several, back, other):
        collector.shutdown()


@pytest.mark.slow
@pytest.mark.parametrize("overlap", [0, 1])
def test_epochs_and_ends_are_those_of_one_process(cluster, overlap):
    def history(collector):
        return [(collector.epoch, collector.ended) for _ in collector]

    def data():
        return DataCollector({"x": torch.arange(8.0)}, 4, epochs=2)

    def several():
        return RayCollector(data(), Place(count=2), cluster, overlap=overlap)

    alone, one, again = history(data()), several(), several()
    assert alone[-1] == (2.0, "the data ran out after 2 epochs")
    assert (one.epoch, one.ended) == (0.0, None)
    one.collect()
    again.load_state_dict(unflatten(*flatten(one.state_dict())))
    assert (again.epoch, again.ended) == (0.5, None)
    assert history(one) == history(again) == alone[1:]
    one.shutdown()
    again.shutdown()


@pytest.mark.slow
def test_the_log_of_a_simulator_is_the_mean_of_the_shares(cluster):
    collectors = [
        VectorCollector(Said, num_envs=4, frames_per_batch=16, seed=3),
        RayCollector(
            VectorCollector(Said, num_envs=4, frames_per_batch=16, seed=3), Place(count=2), cluster
        ),
    ]
    logs = []
    for collector in collectors:
        collector.collect()
        collector.collect()
        logs.append({name: float(value) for name, value in collector.world_log.items()})
        collector.shutdown()
    assert logs[0] == pytest.approx(logs[1])
    assert logs[0]["x"] != 0


@pytest.mark.slow
def test_a_strangers_collector_is_shared_out_and_keeps_the_contract(cluster):
    """One that fulfils the protocol and knows nothing of this package's own."""
    strangers = strangers_module()

    def make(processes):
        return RayCollector(strangers.Walks(), Place(count=processes), cluster, overlap=1)

    check_collector(lambda: make(1), batches=2)  # which makes many
    collector = make(2)
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
    with pytest.raises(ConfigError, match="OnlySome has no shard"):
        RayCollector(strangers.OnlySome(), Place(count=2), cluster)


@pytest.mark.slow
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
