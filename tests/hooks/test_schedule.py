"""`Schedule`: what is set when, and what becomes of it when a run goes on with other frames."""

from __future__ import annotations

import math
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torchrl.data import Categorical
from torchrl.modules import EGreedyModule

from hooktrainer import ConfigError, Schedule, Trainer, VectorCollector
from hooktrainer.algorithms import PPO
from hooktrainer.log import read_csv
from hooktrainer.networks import AdditiveGaussian, DeterministicPolicy, EpsilonGreedy, QNetwork, mlp
from hooktrainer.objectives import ClipPPOLoss
from hooktrainer.replay import PrioritizedSampler
from hooktrainer.testing import ScriptedLoss, tiny_trainer


def annealed(total_frames: int, **arguments) -> Trainer:
    """A trainer of 10 frames and 2 steps a batch, whose learning rate falls from 1 to 0."""
    trainer = tiny_trainer(total_frames=total_frames, log_interval=10, **arguments)
    Schedule.linear(trainer.optimizer, "lr", 1.0, 0.0).register(trainer)
    return trainer


def watch(trainer: Trainer) -> dict[int, float]:
    """The learning rate at every batch, by the frames at its end; filled as it trains."""
    seen: dict[int, float] = {}

    def look() -> None:
        seen[trainer.collected_frames] = rate(trainer)

    trainer.register_op("pre_optim_steps", look)
    return seen


def weight(trainer: Trainer) -> float:
    return trainer.loss_module.parameter.item()


def rate(trainer: Trainer) -> float:
    return trainer.optimizer.param_groups[0]["lr"]


def test_it_is_set_before_every_batch_and_logged(logger):
    trainer = annealed(40, logger=logger)
    trainer.train()
    assert logger.column("train/lr") == {10: 1.0, 20: 0.75, 30: 0.5, 40: 0.25}
    # The parameter moves by the rate at each of the two steps of a batch.
    assert weight(trainer) == -2 * (1.0 + 0.75 + 0.5 + 0.25)
    assert rate(trainer) == 0.0


def test_parameter_groups_keep_their_ratio(logger):
    loss, own = ScriptedLoss(), nn.Parameter(torch.zeros(1))
    groups = [{"params": loss.parameters()}, {"params": [own], "lr": 0.25}]
    optimizer = torch.optim.SGD(groups, lr=0.5)
    options = {"total_frames": 40, "log_interval": 10, "logger": logger}
    trainer = tiny_trainer(loss_module=loss, optimizer=optimizer, **options)
    Schedule.linear("optimizer", "lr", 0.5, 0.0).register(trainer)
    seen = []
    trainer.register_op(
        "pre_optim_steps", lambda: seen.append([g["lr"] for g in trainer.optimizer.param_groups])
    )
    trainer.train()
    assert seen == [[0.5, 0.25], [0.375, 0.1875], [0.25, 0.125], [0.125, 0.0625]]
    assert logger.column("train/lr") == {10: 0.5, 20: 0.375, 30: 0.25, 40: 0.125}


def test_an_algorithms_schedule_names_its_owner_and_is_resumed(tmp_path):
    def trained(total_frames, **arguments):
        run = PPO(
            env="CartPole-v1",
            total_frames=total_frames,
            num_envs=2,
            steps_per_batch=8,
            mini_batch_size=16,
            num_epochs=1,
            eval_episodes=0,
            tuned=False,
            progress_bar=False,
            run_dir=tmp_path,
            logger="csv",
            log_interval=1,
            hooks=[Schedule.linear("loss_module", "clip_epsilon", 0.2, 0.0)],
            **arguments,
        )
        return run.train()

    trained(16)
    assert float(trained(64, resume="latest").loss_module.clip_epsilon) == 0.0
    logged = dict(read_csv(tmp_path)["train/clip_epsilon"])
    assert logged == pytest.approx({16: 0.2, 32: 0.15, 48: 0.1, 64: 0.05})
    with pytest.raises(ConfigError, match=r"Schedule\('no_such', 'lr'\): no such number"):
        Schedule.linear("no_such", "lr", 1.0, 0.0).register(tiny_trainer())


@pytest.mark.parametrize(
    ("make", "values"),
    [
        (Schedule.linear, [0.5, 0.375, 0.25, 0.0]),
        (Schedule.cosine, [0.5, 0.25 * (1 + math.sqrt(0.5)), 0.25, 0.0]),
    ],
)
def test_shapes(make, values):
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=0.5)
    schedule = make(optimizer, "lr", 0.5, 0.0)
    assert [schedule.value(f) for f in (0.0, 0.25, 0.5, 1.0)] == pytest.approx(values)
    early = make(optimizer, "lr", 0.5, 0.1, until=0.5)
    assert [early.value(f) for f in (0.0, 0.5, 0.75, 1.0)] == [0.5, 0.1, 0.1, 0.1]
    for until in (0.0, 2.0):
        with pytest.raises(ConfigError, match="until"):
            make(optimizer, "lr", 0.5, 0.1, until)


# -- with other total_frames -----------------------------------------------------------------------


@pytest.mark.parametrize("rank", ["0", "1"])
def test_a_longer_run_continues_as_a_run_of_that_length(capsys, monkeypatch, rank):
    monkeypatch.setenv("RANK", rank)
    first = annealed(20)
    first.train()
    assert rate(first) == 0.0
    whole = annealed(80)
    of_whole = watch(whole)
    whole.train()
    longer = annealed(80)
    rates = watch(longer)
    longer.load_state_dict(first.state_dict())
    longer.train()
    assert rates == {frames: rate for frames, rate in of_whole.items() if frames > 20}
    assert rates == {frames: 1 - (frames - 10) / 80 for frames in range(30, 90, 10)}
    assert weight(longer) == weight(first) - 2 * sum(1 - f / 80 for f in range(20, 80, 10))
    line = "total_frames 20 → 80: train/lr 0 → 0.75\n"
    assert capsys.readouterr().out == (line if rank == "0" else "")  # one of torchrun's alone


# -- what can be set -------------------------------------------------------------------------------


def ppo():
    from hooktrainer.networks import CategoricalPolicy, ValueNetwork

    return ClipPPOLoss(CategoricalPolicy(mlp(4, 2)), ValueNetwork(mlp(4, 1)), clip_epsilon=0.2)


@pytest.mark.parametrize(
    ("make", "attribute"),
    [
        (ppo, "clip_epsilon"),
        (ppo, "entropy_coeff"),
        (lambda: EpsilonGreedy(QNetwork(mlp(4, 2))), "eps"),
        (lambda: AdditiveGaussian(DeterministicPolicy(mlp(3, 1), 1), 0.3), "sigma"),
        (lambda: PrioritizedSampler(4, alpha=0.6, beta=0.4), "beta"),
        (lambda: EGreedyModule(spec=Categorical(2)), "eps"),
    ],
)
def test_values_that_can_be_scheduled(make, attribute):
    owner = make()
    trainer = tiny_trainer(total_frames=40)
    Schedule.linear(owner, attribute, 0.4, 0.0).register(trainer)
    assert float(getattr(owner, attribute)) == pytest.approx(0.4)
    trainer.progress.frames = 10
    trainer.registry.modules[attribute]()
    assert float(getattr(owner, attribute)) == pytest.approx(0.3)
    if isinstance(owner, nn.Module):  # also where a copy of it acts, in another process
        twin = make()
        twin.load_state_dict(owner.state_dict())
        assert float(getattr(twin, attribute)) == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("owner", "attribute"),
    [
        (torch.optim.SGD([torch.zeros(1)], lr=0.1), "learning_rate"),
        (torch.optim.Adam([torch.zeros(1)]), "betas"),
        (SimpleNamespace(), "eps"),
        (QNetwork(mlp(4, 2)), "in_keys"),
        (1.0, "real"),  # cannot be set
    ],
)
def test_a_missing_value_is_refused(owner, attribute):
    with pytest.raises(ConfigError, match=rf"Schedule\({type(owner).__name__}, '{attribute}'"):
        Schedule(owner, attribute, lambda fraction: 0.0)


def example(trainer):
    return Schedule.linear(trainer.optimizer, "lr", 0.1, 0.0)


# -- the exploration of the collector's policy ----------------------------------------------------


def explorer():
    return EpsilonGreedy(QNetwork(mlp(4, 2)), annealing_num_steps=40)


class Agent:
    def __init__(self, parts):
        self.parts = parts

    def __call__(self, observation):
        return self.parts["policies"][0].act(observation)["action"]


FALLING = [1.0, 0.82, 0.64, 0.46, 0.28, 0.1, 0.1]


@pytest.mark.parametrize(
    "acts",
    [
        lambda policy: policy,
        lambda policy: policy.act,
        lambda policy: lambda observation: policy.act(observation)["action"],
        lambda policy: partial(lambda own, observation: own.act(observation)["action"], policy),
        lambda policy: Agent({"policies": [policy]}),
    ],
    ids=["module", "method", "function", "partial", "object"],
)
@pytest.mark.parametrize("steps", [None, "method", "function"])
def test_exploration_is_stepped_once(acts, steps, logger):
    policy = explorer()
    collector = VectorCollector("CartPole-v1", acts(policy), num_envs=2, frames_per_batch=8)
    trainer = tiny_trainer(collector=collector, total_frames=56, logger=logger, log_interval=8)
    if steps == "method":
        trainer.register_op("post_steps", policy.step, frames=8)
    elif steps == "function":
        trainer.register_op("post_steps", lambda: policy.step(8))
    trainer.train()
    logged = logger.column("train/epsilon").values()
    assert list(logged) == pytest.approx(FALLING)
