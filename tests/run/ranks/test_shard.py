"""What a process keeps when several share a run, and how their metrics come together."""

from __future__ import annotations

import pickle

import gymnasium as gym
import pytest
import torch
from tensordict import TensorDict
from tensordict.nn import InteractionType

from hooktrainer import BatchSubSampler, Latest, MiniBatches, ReplayBufferTrainer, VectorCollector
from hooktrainer.loop import Metrics, Total, WindowValue
from hooktrainer.networks import CategoricalPolicy, mlp
from hooktrainer.replay import ReplayBuffer


def make(env="CartPole-v1", **options) -> VectorCollector:
    torch.manual_seed(3)
    options = {"num_envs": 4, "policy": CategoricalPolicy(mlp(4, 2))} | options
    return VectorCollector(
        env,
        frames_per_batch=64,
        exploration_type=InteractionType.DETERMINISTIC,
        seed=5,
        **options,
    )


def factory() -> gym.Env:
    return gym.make("CartPole-v1")


@pytest.mark.parametrize("number", [None, 4])
def test_shares_of_factories_play_the_episodes_of_the_whole(number):
    options = {"env": [factory] * 4, "num_envs": number}
    whole, shares = make(**options), [make(**options) for _ in range(2)]
    for rank, share in enumerate(shares):
        share.shard(rank, 2)
        assert (share.num_envs, share.frames_per_batch) == (2, 32)
    for _ in range(3):
        batch = whole.collect()
        joined = torch.cat([share.collect() for share in shares])
        assert joined["observation"].allclose(batch["observation"])
        assert joined["next", "step_count"].equal(batch["next", "step_count"])
    assert [e for share in shares for e in share.envs.episodes] == whole.envs.episodes


def test_a_share_keeps_its_seed_and_its_place_when_it_is_seeded_and_pickled():
    whole, share = make(), make(init_random_frames=128)
    for collector in (whole, share):
        collector.set_seed(9)
    share.shard(1, 2)
    copy = pickle.loads(pickle.dumps(share))
    assert copy.init_random_frames == share.init_random_frames == 128  # of all together
    first = whole.collect()["observation"][2:, 0]
    assert share.collect()["observation"][:, 0].equal(first)
    assert copy.collect()["observation"][:, 0].equal(first)
    random = [copy.collect()["action"] for _ in range(3)]  # 64 frames of its own were random
    assert not random[0].equal(random[1])


@pytest.mark.parametrize(("random", "total"), [(1, 64), (65, 65), (100, 130)])
def test_a_share_collects_as_many_batches_at_random_and_in_all_as_the_whole(random, total):
    def draws():
        policy = CategoricalPolicy(mlp(4, 2), out_keys=("action", "logits"))
        return make(policy=policy, init_random_frames=random, total_frames=total)

    whole, share = draws(), draws()
    share.shard(1, 2)
    were_random = [[not batch["logits"].any() for batch in one] for one in (whole, share)]
    assert were_random[0] == were_random[1]


def test_other_shares_begin_episodes_that_were_not_played():
    shares = [make() for _ in range(2)]
    for rank, share in enumerate(shares):
        share.shard(rank, 2)
        share.collect()
    states = [share.state_dict() for share in shares]
    whole = make()
    whole.load_state_dict(whole.reshard(states))
    assert whole.frames == 64
    played = [e for share in shares for e in share.envs.episodes]
    assert whole.collect()["next", "step_count"][:, 0].flatten().tolist() == [1] * 4
    assert all(now > before for now, before in zip(whole.envs.episodes, played, strict=True))


def test_samples_are_divided():
    buffer = ReplayBuffer(8, batch_size=6)
    hooks = [MiniBatches(6), BatchSubSampler(6), ReplayBufferTrainer(buffer)]
    for hook in hooks:
        hook.shard(1, 2)
        assert hook.batch_size == 3
    buffer.extend(TensorDict({"observation": torch.zeros(8, 2)}, [8]))
    assert hooks[2].sample(None).shape == (3,)


def test_a_window_is_the_mean_over_all_values_and_totals_add_up():
    metrics = [Metrics(), Metrics()]
    for value in (1.0, 2.0, 3.0):
        metrics[0].log({"x": value})
    metrics[1].log({"x": 10.0, "only": 5.0, "count": Total(7), "latest": Latest(4)})
    metrics[0].log({"count": Total(2), "latest": Latest(2)})
    sent: list[dict[str, WindowValue]] = []
    metrics[1].combine = lambda window: sent.append(window) or window
    metrics[1].close_window()

    def combine(window: dict[str, WindowValue]) -> dict[str, WindowValue]:
        names = window.keys() | sent[0].keys()
        parts = {n: [w[n] for w in (window, sent[0]) if n in w] for n in names}
        return {n: p[0] if len(p) == 1 else p[0] + p[1] for n, p in parts.items()}

    metrics[0].combine = combine
    assert metrics[0].close_window() == {"x": 4.0, "only": 5.0, "count": 9.0, "latest": 3.0}
