"""`make_trainer`, alone and with everything else the builders build."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch
from builder_configs import config, value_net
from outcomes import same
from torchrl.modules import EGreedyModule
from torchrl.record import CSVLogger, VideoRecorder

from hooktrainer import ConfigError, LRSchedulerHook, builders
from hooktrainer.networks import EpsilonGreedy, QNetwork, mlp
from hooktrainer.testing import FakeCollector, ScriptedLoss


def dqn(cfg, **options):
    """A whole program."""
    torch.manual_seed(0)
    q_network = QNetwork(mlp(4, 2))
    policy = EpsilonGreedy(q_network)
    loss, updater = builders.make_dqn_loss(q_network, cfg)
    return builders.make_trainer(
        builders.make_collector_offpolicy("CartPole-v1", policy, cfg),
        loss,
        target_net_updater=updater,
        policy_exploration=policy,
        replay_buffer=builders.make_replay_buffer("cpu", cfg),
        cfg=cfg,
        progress_bar=False,
        **options,
    )


def test_a_program_trains_saves_and_goes_on_exactly(tmp_path):
    cfg = config(prb=True, num_workers=2, normalize_rewards_online=True, clip_grad_norm=True)
    straight = dqn(cfg, seed=3)
    straight.train()
    assert straight.collected_frames == 200
    assert straight.optim_count == 20

    first = dqn(cfg, seed=3)
    first.register_op("post_steps", lambda: first.collected_frames == 100 and first.request_stop())
    first.train()
    state = first.state_dict()
    second = dqn(cfg, seed=4)
    second.load_state_dict(state)
    second.train()
    assert same(*(dict(trainer.loss_module.state_dict()) for trainer in (straight, second)))


def test_with_torchrls_parts():
    cfg = config(total_frames=60)
    stats = {"loc": torch.zeros(4), "scale": torch.ones(4)}
    make_env = builders.parallel_env_constructor(cfg, stats=stats)
    actor = value_net()
    explore = EGreedyModule(make_env().action_spec)
    from tensordict.nn import TensorDictSequential

    policy = TensorDictSequential(actor, explore)
    loss, updater = builders.make_dqn_loss(actor, cfg)
    recorder = builders.transformed_env_constructor(cfg, stats=stats)()
    trainer = builders.make_trainer(
        builders.make_collector_offpolicy(make_env, policy, cfg),
        loss,
        recorder=recorder,
        target_net_updater=updater,
        policy_exploration=policy,
        replay_buffer=builders.make_replay_buffer("cpu", cfg),
        cfg=cfg,
        progress_bar=False,
    )
    trainer.train()
    logged = trainer.metrics.reported
    assert {"r_evaluation", "r_evaluation_exploration", "loss/loss", "train/lr"} <= logged.keys()


def test_the_learning_rate_follows_a_cosine_of_the_run(logger):
    cfg = config(frame_skip=2, total_frames=40, log_interval=20, lr=0.5)
    trainer = builders.make_trainer(
        FakeCollector(), ScriptedLoss(), logger=logger, cfg=cfg, progress_bar=False
    )
    trainer.train()
    rates = [0.25 * (1 + math.cos(math.pi * batch / 4)) for batch in range(4)]
    assert logger.column("train/lr") == pytest.approx(
        dict(zip((20, 40, 60, 80), rates, strict=True))
    )
    assert trainer.optimizer.param_groups[0]["lr"] == 0.0


def test_another_hook_may_schedule_the_learning_rate():
    cfg = config(total_frames=40, lr=0.5, lr_scheduler="")
    trainer = builders.make_trainer(FakeCollector(), ScriptedLoss(), cfg=cfg, progress_bar=False)
    halved = torch.optim.lr_scheduler.ExponentialLR(trainer.optimizer, 0.5)
    LRSchedulerHook(halved).register(trainer)
    trainer.train()
    assert trainer.optimizer.param_groups[0]["lr"] == 0.5 / 2**4


def test_trajectories_padded_to_one_length_are_stored_without_the_padding():
    cfg = config(multi_step=True, n_steps_return=3, total_frames=100, frames_per_batch=100)
    actor = value_net()
    for parameter in actor.parameters():  # always to the left: episodes of 8 to 11 steps
        torch.nn.init.zeros_(parameter)
    loss, _ = builders.make_dqn_loss(actor, cfg)
    stats = {"loc": torch.zeros(4), "scale": torch.ones(4)}
    make_env = builders.parallel_env_constructor(cfg, stats=stats)
    trainer = builders.make_trainer(
        builders.make_collector_offpolicy(make_env, actor, cfg),
        loss,
        replay_buffer=(buffer := builders.make_replay_buffer("cpu", cfg)),
        cfg=cfg,
        progress_bar=False,
    )
    trainer.train()
    assert buffer.write_count == trainer.collected_frames == 100


# -- where metrics go ------------------------------------------------------------------------------


def with_logger(**fields) -> SimpleNamespace:
    """A configuration that says where metrics go as well."""
    return SimpleNamespace(**vars(config()) | vars(builders.LoggerConfig()) | fields)


def test_the_logger_is_built_from_the_configuration(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cfg = with_logger(exp_name="first", log_interval=20, total_frames=40)
    builders.make_trainer(FakeCollector(), ScriptedLoss(), cfg=cfg, progress_bar=False).train()
    (directory,) = (tmp_path / "runs").iterdir()
    assert directory.name.startswith("first_ScriptedLoss_")
    assert "loss/loss" in (directory / "metrics.csv").read_text()


def test_a_film_needs_a_recorder_that_films(logger):
    cfg = with_logger(record_video=True, logger="")

    def build(recorder):
        return builders.make_trainer(FakeCollector(), ScriptedLoss(), recorder=recorder, cfg=cfg)

    plain = builders.transformed_env_constructor(cfg, stats={"loc": 0.0, "scale": 1.0})()
    for recorder in (None, plain):
        with pytest.raises(ConfigError, match=r"cfg\.record_video=True needs a recorder that"):
            build(recorder)
    plain.close()
    filming = SimpleNamespace(transform=VideoRecorder(logger, "film"))
    assert "log_validation_reward_exploration" in build(filming).registry.modules


def test_a_logger_of_torchrl_gets_the_configuration(tmp_path):
    cfg = config(total_frames=20)
    theirs = CSVLogger("own", log_dir=str(tmp_path))
    builders.make_trainer(
        FakeCollector(), ScriptedLoss(), logger=theirs, cfg=cfg, progress_bar=False
    ).train()
    assert "total_frames: 20" in (tmp_path / "own" / "texts" / "hparams0.txt").read_text()
