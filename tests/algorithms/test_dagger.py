"""DAgger: who acts, what is kept, what is learned from it, and teachers that cannot be."""

from __future__ import annotations

from functools import partial

import gymnasium as gym
import numpy as np
import pytest
import torch
from any_env import AnyEnv
from gymnasium import spaces
from tensordict import TensorDict
from torch import nn
from torchrl.envs.utils import ExplorationType, set_exploration_type

from hooktrainer import load_policy
from hooktrainer.algorithms import DQN, PPO, DAgger
from hooktrainer.errors import ConfigError
from hooktrainer.hooks import TeacherMixture
from hooktrainer.hooks.distillation import taught_by
from hooktrainer.loop import Progress
from hooktrainer.networks import (
    CategoricalPolicy,
    DeterministicPolicy,
    Policy,
    QNetwork,
    distribution_for,
    mlp,
)
from hooktrainer.policies import PolicyRecorder

SMALL = {"num_cells": (8,), "steps_per_batch": 5, "optim_steps_per_batch": 3, "batch_size": 16}
SMALL |= {"eval_episodes": 2, "progress_bar": False, "tuned": False, "total_frames": 80}


def make_teacher() -> CategoricalPolicy:
    torch.manual_seed(1)
    return CategoricalPolicy(mlp(4, 2, (8,)))


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The path of a saved policy for CartPole."""
    path = tmp_path_factory.mktemp("teacher")
    PolicyRecorder(path, make_teacher(), "CartPole-v1").save(
        Progress(frames=0, optim_steps=0, seconds=1.0)
    )
    return path / f"step_{0:012d}"


def make(teacher, **options):
    return DAgger(env="CartPole-v1", teacher=teacher, **{**SMALL, **options}).trainer()


class Constant(nn.Module):
    def __init__(self, value: float) -> None:
        super().__init__()
        self.value = nn.Parameter(torch.tensor([value]))

    def forward(self, x):
        return self.value.expand(len(x), 1)


@pytest.mark.parametrize("beta", [0.0, 0.3, 1.0])
def test_the_teacher_acts_with_probability_beta(beta):
    torch.manual_seed(0)
    student, teacher = (DeterministicPolicy(Constant(x), 1) for x in (-9.0, 9.0))
    mixture = TeacherMixture(student, teacher, beta)
    observation = torch.zeros(2_000, 3)
    action = mixture.act(observation)["action"]
    assert action.shape == (2_000, 1)
    assert (action > 0).float().mean().item() == pytest.approx(beta, abs=0.05 * (0 < beta < 1))
    with set_exploration_type(ExplorationType.DETERMINISTIC):
        assert (mixture.act(observation)["action"] < 0).all()


def test_a_saved_teacher_acts_as_the_live_one(saved):
    batch = TensorDict({"observation": torch.randn(3, 5, 4)}, batch_size=[3, 5])
    batch["action"] = torch.zeros(3, 5, dtype=torch.int64)
    live = taught_by(make_teacher(), batch)["action"]
    loaded = taught_by(load_policy(saved), batch)["action"]
    assert loaded.dtype == live.dtype
    assert torch.equal(loaded, live)


@pytest.mark.parametrize("beta", [0.0, 0.5])
def test_the_data_are_all_states_with_the_teachers_actions(beta, saved):
    seen, betas = [], []
    trainer = make(saved, beta=beta)
    mixture = trainer.registry.modules["beta"].owner

    def note(batch):
        seen.append(batch.clone())
        betas.append(mixture.beta)

    trainer.register_op("pre_steps_log", note)
    trainer.train()
    assert betas == [1.0, beta, beta**2, beta**3]
    together = torch.cat([batch.reshape(-1) for batch in seen])
    buffer = trainer.registry.modules["replay_buffer"].replay_buffer
    assert len(buffer) == len(together) == 80
    stored = buffer.state_dict()["storage"][:80]
    torch.testing.assert_close(stored["observation"], together["observation"])
    expected = make_teacher().evaluate(together["observation"]).argmax(-1)
    assert torch.equal(stored["teacher_action"], expected)
    first, later = (batch["action"] == batch["teacher_action"] for batch in (seen[0], seen[3]))
    assert first.all()  # the teacher alone
    assert not later.all()

    # The loss is the student's cross-entropy of these, whoever acted.
    student = trainer.loss_module.actor_network
    by_hand = nn.functional.cross_entropy(student.evaluate(stored["observation"]), expected)
    torch.testing.assert_close(trainer.loss_module(stored)["loss_imitation"], by_hand)


def test_continuous_actions_are_learned_by_the_squared_difference():
    teacher = DeterministicPolicy(mlp(3, 1), 1, -2.0, 2.0)
    trainer = DAgger(env="Pendulum-v1", teacher=teacher, **SMALL).trainer()
    trainer.train()
    stored = trainer.registry.modules["replay_buffer"].replay_buffer.state_dict()["storage"][:80]
    torch.testing.assert_close(
        stored["teacher_action"], teacher.evaluate(stored["observation"]).detach()
    )
    student = trainer.loss_module.actor_network
    by_hand = (student.evaluate(stored["observation"]) - stored["teacher_action"]).square().mean()
    torch.testing.assert_close(trainer.loss_module(stored)["loss_imitation"], by_hand)


@pytest.mark.parametrize("form", ["path", "module"])
def test_the_student_becomes_the_teacher(form, saved):
    teacher = str(saved) if form == "path" else make_teacher()
    options = {"lr": 1e-2, "optim_steps_per_batch": 50, "batch_size": 64, "total_frames": 200}
    trainer = make(teacher, **options)
    trainer.train()
    stored = trainer.registry.modules["replay_buffer"].replay_buffer.state_dict()["storage"][:200]
    student = trainer.loss_module.actor_network
    agree = student.evaluate(stored["observation"]).argmax(-1)
    expected = make_teacher().evaluate(stored["observation"]).argmax(-1)
    assert (agree == expected).float().mean() > 0.95


OBSERVED = spaces.Box(-1, 1, (3,))


def random_policy(space: spaces.Space) -> Policy:
    distribution = distribution_for(space, "squashed")
    network = mlp(3, distribution.parameter_features)
    return Policy(network, distribution, out_keys=["action"])


@pytest.mark.parametrize(
    ("action", "make_policy"),
    [
        (spaces.Discrete(4), lambda space: QNetwork(mlp(3, 4))),
        (spaces.MultiDiscrete([3, 2]), random_policy),
        (spaces.MultiBinary(3), random_policy),
        (spaces.Dict(a=spaces.Discrete(2), b=spaces.Box(0, 2, (2,))), random_policy),
    ],
    ids=["values", "multi discrete", "multi binary", "dict"],
)
def test_of_other_teachers_the_best_actions_are_learned(action, make_policy):
    torch.manual_seed(0)
    teacher = make_policy(action)
    trainer = DAgger(env=partial(AnyEnv, OBSERVED, action), teacher=teacher, **SMALL).trainer()
    trainer.train()
    stored = trainer.registry.modules["replay_buffer"].replay_buffer.state_dict()["storage"][:80]
    with set_exploration_type(ExplorationType.DETERMINISTIC):
        expected = teacher.act(stored["observation"])["action"]
    torch.testing.assert_close(stored["teacher_action"], expected)
    student = trainer.loss_module.actor_network
    log_prob, _ = student.log_prob_and_entropy([stored["observation"]], stored["teacher_action"])
    torch.testing.assert_close(trainer.loss_module(stored)["loss_imitation"], -log_prob.mean())


def test_teachers_of_another_environment_are_refused(saved):
    for env, said in (
        ("Acrobot-v1", r"does not act in Acrobot-v1: observation has shape \[6\]"),
        ("Pendulum-v1", r"does not act in Pendulum-v1: observation has shape \[3\]"),
    ):
        with pytest.raises(ConfigError, match=said):
            DAgger(env=env, teacher=saved, **SMALL).trainer()
    with pytest.raises(ConfigError, match=r"Distillation\(function\): pass a policy"):
        make(lambda observation: np.int64(0))
    remembers = DQN(env="CartPole-v1", memory="gru", eval_episodes=0, progress_bar=False)
    with pytest.raises(ConfigError, match="the teacher has a memory"):
        make(remembers.trainer().loss_module.value_network)


@pytest.mark.parametrize(
    ("action", "memory", "said"),
    [
        (spaces.Discrete(2), "gru", "the teacher has a memory: pass one"),
        (spaces.Dict(a=spaces.Discrete(2)), None, "the teacher gives several actions, or"),
    ],
    ids=["memory", "several actions"],
)
def test_why_a_saved_teacher_cannot_teach_is_said_before_it_is_asked(
    action, memory, said, tmp_path
):
    """Asked for an action in another environment, it would lack what it reads there."""
    env = partial(AnyEnv, spaces.Dict(x=spaces.Box(-1, 1, (2,))), action)
    few = {"num_cells": (8,), "eval_episodes": 1, "progress_bar": False, "num_envs": 2}
    few |= {"steps_per_batch": 5, "total_frames": 20}
    PPO(env=env, run_dir=tmp_path, snapshots=2, memory=memory, mini_batch_size=5, **few).train()
    with pytest.raises(ConfigError, match=said):
        make(tmp_path)


class _Odd(gym.Env):
    """Sees numbers from 4 on, a nested dict and a mask; pays for the action allowed."""

    observation_space = spaces.Dict(
        number=spaces.Discrete(3, start=4), deep=spaces.Dict(x=spaces.Box(-1, 1, (2,)))
    )
    action_space = spaces.Discrete(3, start=-1)

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self._see()

    def step(self, action):
        assert action == self.number - 5
        self.steps += 1
        observation, info = self._see()
        return observation, 1.0, self.steps == 5, False, info

    def _see(self):
        self.number = int(self.np_random.integers(4, 7))
        seen = {"number": self.number, "deep": {"x": np.zeros(2, np.float32)}}
        return seen, {"action_mask": np.arange(4, 7) == self.number}


def test_a_saved_teacher_reads_what_batches_hold(tmp_path):
    few = {"num_cells": (8,), "eval_episodes": 1, "progress_bar": False, "num_envs": 2}
    few |= {"steps_per_batch": 5, "total_frames": 20}
    PPO(env=_Odd, run_dir=tmp_path, snapshots=2, **few).train()
    trainer = DAgger(env=_Odd, teacher=tmp_path, optim_steps_per_batch=1, **few).train()
    assert trainer.metrics.reported["eval/return"] == 5.0
