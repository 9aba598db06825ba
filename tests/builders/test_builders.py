"""Each builder against TorchRL's function of the same name, where that works."""

from __future__ import annotations

import dataclasses
import warnings
from types import SimpleNamespace

import gymnasium as gym
import pytest
import torch
from builder_configs import config, value_net
from marks import slow_except
from torch import nn
from torchrl.data import Categorical
from torchrl.envs import EnvBase, GymEnv, ParallelEnv
from torchrl.modules import DistributionalQValueActor

from hooktrainer import ConfigError, VectorCollector, builders
from hooktrainer.networks import CategoricalQNetwork, EpsilonGreedy, QNetwork, mlp
from hooktrainer.objectives import CategoricalDQNLoss, DQNLoss, HardUpdate, SoftUpdate
from hooktrainer.replay import PrioritizedSampler, SamplerWithoutReplacement

# -- environments ----------------------------------------------------------------------------------


def test_an_environment_is_transformed_and_limited():
    cfg = config(max_frames_per_traj=5, noops=2, vecnorm=True)
    env = builders.transformed_env_constructor(cfg)()
    rollout = env.rollout(50)
    assert rollout["observation_vector"].shape == (5, 4)
    assert rollout["next", "truncated"].flatten().tolist() == [False] * 4 + [True]
    env.close()


def test_parallel_environments():
    cfg = config(
        env_per_collector=2, max_frames_per_traj=None, collector_device=torch.device("cpu")
    )
    env = builders.parallel_env_constructor(cfg, stats={"loc": 0.0, "scale": 1.0})
    assert isinstance(env.base_env, ParallelEnv)
    rollout = env.rollout(3, break_when_any_done=False)
    assert rollout["observation_vector"].shape == (2, 3, 4)
    env.close()


# -- collectors ------------------------------------------------------------------------------------


def cartpole() -> EnvBase:
    return GymEnv("CartPole-v1", categorical_action_encoding=True)


@pytest.mark.parametrize("make_env", ["CartPole-v1", lambda: gym.make("CartPole-v1")])
def test_gymnasium_environments_are_collected_by_a_vector_collector(make_env):
    policy = EpsilonGreedy(QNetwork(mlp(4, 2)))
    cfg = config(num_workers=4, init_random_frames=20, seed=7)
    collector = builders.make_collector_offpolicy(make_env, policy, cfg)
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


def test_a_distributional_loss():
    atoms = nn.Sequential(nn.Linear(4, 6), nn.Unflatten(-1, (3, 2)))
    actor = DistributionalQValueActor(
        atoms, in_keys=["observation_vector"], support=torch.arange(3.0), spec=Categorical(2)
    )
    cfg = config(distributional=True, gamma=0.5)
    loss, updater = builders.make_dqn_loss(actor, cfg)
    assert loss(QBatch(5))["loss"].isfinite()
    updater.step()


def test_a_categorical_q_network_gets_our_distributional_loss():
    def model(kind, outputs, *number):
        return kind(mlp(4, outputs), *number, in_keys=["observation_vector"])

    cfg = config(distributional=True)
    loss, updater = builders.make_dqn_loss(model(CategoricalQNetwork, 6, 3), cfg)
    assert isinstance(loss, CategoricalDQNLoss)
    assert loss(QBatch(5))["loss"].isfinite()
    updater.step()
    with pytest.raises(ConfigError, match="needs a CategoricalQNetwork, not a QNetwork; or"):
        builders.make_dqn_loss(model(QNetwork, 2), cfg)


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


def test_what_is_missing_has_a_default_and_what_is_wrong_is_named():
    assert builders.make_replay_buffer("cpu", SimpleNamespace(buffer_size=9)).batch_size == 256
    for model in (QNetwork(mlp(4, 2)), value_net()):
        with pytest.raises(ConfigError, match=r"cfg\.loss='triple' is not one of 'single', 'dou"):
            builders.make_dqn_loss(model, config(loss="triple"))
    with pytest.raises(ConfigError, match="exploration_type='wild'"):
        builders.make_collector_onpolicy("CartPole-v1", None, config(exploration_type="wild"))
