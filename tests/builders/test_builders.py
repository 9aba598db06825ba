"""Each builder against TorchRL's function of the same name, where that works."""

from __future__ import annotations

import copy
import dataclasses
import warnings
from types import SimpleNamespace

import gymnasium as gym
import pytest
import torch
from builder_configs import config, value_net
from marks import slow_except
from torchrl.envs import EnvBase, GymEnv, ParallelEnv
from torchrl.envs import transforms as t
from torchrl.trainers import helpers

from hooktrainer import ConfigError, VectorCollector, builders
from hooktrainer.networks import EpsilonGreedy, QNetwork, mlp
from hooktrainer.objectives import DQNLoss, HardUpdate, SoftUpdate
from hooktrainer.replay import PrioritizedSampler, SamplerWithoutReplacement

# -- frame skip ------------------------------------------------------------------------------------


def test_frame_counts_are_divided_as_torchrl_does_but_in_a_copy():
    cfg = config(frame_skip=4, total_frames=1_000, init_env_steps=10, max_frames_per_traj=-1)
    before = copy.deepcopy(cfg)
    ours = builders.correct_for_frame_skip(cfg)
    theirs = helpers.correct_for_frame_skip(copy.deepcopy(cfg))
    assert cfg == before
    for name in ("total_frames", "frames_per_batch", "init_env_steps", "max_frames_per_traj"):
        assert getattr(ours, name) == getattr(theirs, name)
    assert ours.record_frames == 250
    assert ours.batch_size == 8  # counts transitions, not frames
    small = builders.correct_for_frame_skip(SimpleNamespace(frame_skip=8, noops=3, total_frames=0))
    assert (small.noops, small.total_frames) == (1, 0)


# -- environments ----------------------------------------------------------------------------------


def test_an_environment_has_torchrls_transforms():
    cfg = config(catframes=2, reward_scaling=0.5)
    stats = {"loc": torch.zeros(4), "scale": torch.ones(4)}
    ours = builders.transformed_env_constructor(cfg, stats=stats)()
    theirs = helpers.transformed_env_constructor(cfg, stats=stats)()
    assert [type(x) for x in ours.transform] == [type(x) for x in theirs.transform]
    ours.set_seed(0), theirs.set_seed(0)
    for env in (ours, theirs):
        env.rand_action = lambda td: td.set("action", torch.zeros((), dtype=torch.long))
    a, b = ours.rollout(5), theirs.rollout(5)
    assert a["next", "observation_vector"].shape[-1] == 8
    for key in ("observation_vector", ("next", "reward"), ("next", "done")):
        torch.testing.assert_close(a[key], b[key])
    ours.close(), theirs.close()


def test_running_statistics_normalize_observations_and_rewards():
    env = builders.transformed_env_constructor(config(vecnorm=True, norm_rewards=True))()
    (norm,) = (x for x in env.transform if isinstance(x, t.VecNormV2))
    assert norm.in_keys == ["observation_vector", "reward"]
    rollout = env.rollout(50, break_when_any_done=False)
    assert rollout["observation_vector"].abs().mean() > 0.2  # raw ones are about 0.05
    env.close()


def test_custom_environments():
    made = []

    def maker(**kwargs):
        made.append(kwargs)
        return GymEnv("CartPole-v1", categorical_action_encoding=True)

    stats = {"loc": 0.0, "scale": 1.0}
    env = builders.transformed_env_constructor(config(), custom_env_maker=maker, stats=stats)(a=1)
    assert made == [{"a": 1}]
    env.close()
    raw = GymEnv("CartPole-v1")
    bare = builders.transformed_env_constructor(
        config(), custom_env=raw, return_transformed_envs=False
    )()
    assert bare is raw
    raw.close()
    with pytest.raises(ConfigError, match="not both"):
        builders.transformed_env_constructor(config(), custom_env=raw, custom_env_maker=maker)


def test_random_steps_after_a_reset():
    cfg = config(noops=5)
    env = builders.transformed_env_constructor(cfg, stats={"loc": 0.0, "scale": 1.0})()
    assert any(isinstance(x, t.NoopResetEnv) for x in env.base_env.transform.modules())
    env.close()


@pytest.mark.parametrize("together", [True, False])
def test_parallel_environments(together):
    cfg = config(env_per_collector=2, num_workers=2, batch_transform=together)
    env = builders.parallel_env_constructor(cfg, stats={"loc": 0.0, "scale": 1.0})
    assert isinstance(env if not together else env.base_env, ParallelEnv)
    rollout = env.rollout(3, break_when_any_done=False)
    assert rollout["observation_vector"].shape == (2, 3, 4)
    env.close()


def test_statistics_of_random_rollouts():
    cfg = config(init_env_steps=300)
    env = GymEnv("CartPole-v1")
    env.set_seed(0)
    torch.manual_seed(0)
    ours = builders.get_stats_random_rollout(cfg, env, "observation")
    env.set_seed(0)
    torch.manual_seed(0)
    theirs = helpers.get_stats_random_rollout(cfg, env, "observation")
    env.close()
    # TorchRL's last roll-out goes on past what was asked for.
    for name in ("loc", "scale"):
        torch.testing.assert_close(ours[name], theirs[name], rtol=0.3, atol=0.05)


# -- collectors ------------------------------------------------------------------------------------


def cartpole() -> EnvBase:
    return GymEnv("CartPole-v1", categorical_action_encoding=True)


@pytest.mark.parametrize(
    ("make_env", "kwargs"),
    [("CartPole-v1", None), (lambda: gym.make("CartPole-v1"), None)],
    ids=["id", "function"],
)
def test_gymnasium_environments_are_collected_by_a_vector_collector(make_env, kwargs):
    policy = EpsilonGreedy(QNetwork(mlp(4, 2)))
    cfg = config(num_workers=4, init_random_frames=20, seed=7)
    collector = builders.make_collector_offpolicy(make_env, policy, cfg, kwargs)
    assert isinstance(collector, VectorCollector)
    assert collector.seed == 7
    assert [batch.shape for batch in collector] == [(4, 5)] * 10
    collector.shutdown()


def test_torchrl_environments_are_collected_as_torchrl_does():
    cfg = config(collector_device=["cpu"], total_frames=60)
    ours = builders.make_collector_onpolicy(cartpole, value_net("observation"), cfg)
    batches = list(ours)
    ours.shutdown()
    assert type(ours).__name__ == "Collector"
    assert cfg.collector_device == ["cpu"]  # TorchRL's function overwrites it
    assert [batch.shape for batch in batches] == [(20,)] * 3


def test_multi_step_rewards():
    cfg = config(multi_step=True, n_steps_return=3, gamma=0.5, total_frames=20)
    collector = builders.make_collector_offpolicy(cartpole, value_net("observation"), cfg)
    (batch,) = collector
    collector.shutdown()
    rewards = batch["next", "reward"][batch["collector", "mask"]].flatten()
    assert rewards[0] == 1 + 0.5 + 0.25


def test_environments_are_grouped_by_collector():
    grouped = builders.collectors._grouped
    fns = [lambda: 1, lambda: 2, lambda: 3]
    assert len(grouped(fns, None, num_collectors=2, num_env_per_collector=None)) == 2
    assert len(grouped(fns, None, num_env_per_collector=1, num_collectors=None)) == 3
    (one,) = grouped(lambda x: x, {"x": 5}, 1, 1)
    assert one() == 5
    with pytest.raises(ConfigError, match="make 2 collectors, but num_collectors=3"):
        grouped(fns, None, 2, 3)
    with pytest.raises(ConfigError, match="pass num_env_per_collector and num_collectors"):
        grouped(lambda: 1, None, None, 2)
    with pytest.raises(ConfigError, match="2 entries for 3"):
        grouped(fns, [{}, {}], 1, 3)


@pytest.mark.parametrize(
    "build", slow_except(["sync_sync_collector", "sync_async_collector"], "sync_sync_collector")
)
def test_several_collectors(build):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of TorchRL's processes
        collector = getattr(builders, build)(
            [cartpole, cartpole],
            None,
            num_collectors=2,
            policy=value_net("observation"),
            frames_per_batch=20,
            total_frames=40,
        )
        frames = sum(batch.numel() for batch in collector)
        collector.shutdown()
    assert frames == 40


# -- losses and buffers ----------------------------------------------------------------------------


@pytest.mark.parametrize("hard", [True, False])
def test_the_loss_and_its_targets_are_torchrls(hard):
    cfg = config(hard_update=hard, value_network_update_interval=50, loss_function="l2")
    torch.manual_seed(0)
    ours, our_updater = builders.make_dqn_loss(value_net(), cfg)
    torch.manual_seed(0)
    theirs, their_updater = helpers.make_dqn_loss(value_net(), cfg)
    assert type(our_updater) is type(their_updater)
    batch = QBatch(16)
    torch.testing.assert_close(ours(batch.clone())["loss"], theirs(batch.clone())["loss"])


def QBatch(number: int):  # noqa: N802
    from tensordict import TensorDict

    following = {
        "observation_vector": torch.randn(number, 4),
        "reward": torch.randn(number, 1),
        "done": torch.rand(number, 1) < 0.2,
        "terminated": torch.rand(number, 1) < 0.2,
    }
    data = {"observation_vector": torch.randn(number, 4), "action": torch.randint(2, (number,))}
    return TensorDict(data | {"next": following}, batch_size=[number])


def test_a_q_network_gets_our_loss():
    loss, updater = builders.make_dqn_loss(QNetwork(mlp(4, 2)), config(hard_update=True))
    assert isinstance(loss, DQNLoss)
    assert isinstance(updater, HardUpdate)
    assert updater.value_network_update_interval == 1_000
    _, soft = builders.make_dqn_loss(QNetwork(mlp(4, 2)), config())
    assert isinstance(soft, SoftUpdate)
    assert soft.tau == pytest.approx(1 / 1_000)


def test_without_target_networks():
    loss, updater = builders.make_dqn_loss(QNetwork(mlp(4, 2)), config(loss="single"))
    assert loss.target_value_network is None
    assert updater is None
    with pytest.raises(ConfigError, match="needs target networks"):
        builders.make_target_updater(config(loss="single", hard_update=True), loss)


def test_replay_buffers_of_every_kind(tmp_path):
    def build(**fields):
        return builders.make_replay_buffer("cpu", config(**fields))

    assert build().max_size == 100
    prioritized = build(prb=True).sampler
    assert isinstance(prioritized, PrioritizedSampler)
    assert (prioritized.alpha, prioritized.beta) == (0.7, 0.5)
    assert isinstance(build(without_replacement=True).sampler, SamplerWithoutReplacement)
    mapped = build(buffer_scratch_dir=str(tmp_path))
    mapped.extend(QBatch(10))
    assert any(tmp_path.rglob("*.memmap"))
    assert mapped.sample().shape == (8,)
    with pytest.raises(ConfigError, match="exclude each other"):
        build(prb=True, without_replacement=True)


# -- configurations --------------------------------------------------------------------------------


def test_any_object_with_the_attributes_works():
    omegaconf = pytest.importorskip("omegaconf")
    cfg = omegaconf.OmegaConf.create(dataclasses.asdict(config(prb=True)))
    assert isinstance(builders.make_replay_buffer("cpu", cfg).sampler, PrioritizedSampler)


def test_what_is_missing_or_wrong_is_named():
    with pytest.raises(ConfigError, match=r"make_replay_buffer reads cfg\.buffer_size, which Simp"):
        builders.make_replay_buffer("cpu", SimpleNamespace())
    with pytest.raises(ConfigError, match=r"cfg\.loss='triple' is not one of 'single', 'double'"):
        builders.make_dqn_loss(QNetwork(mlp(4, 2)), config(loss="triple"))
    with pytest.raises(ConfigError, match=r"Did you mean CartPole-v"):
        builders.transformed_env_constructor(config(env_name="CartPol-v1"))()
    with pytest.raises(ConfigError, match="exploration_type='wild'"):
        builders.make_collector_onpolicy("CartPole-v1", None, config(exploration_type="wild"))
