from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from tensordict.nn import TensorDictModule

from hooktrainer import LogValidationReward
from hooktrainer.testing import tiny_trainer


@pytest.fixture
def environment():
    """CartPole that counts its closings."""
    from torchrl.envs.libs.gym import GymEnv

    class Counted(GymEnv):
        closings = 0

        def close(self, **arguments):
            type(self).closings += 1
            return super().close(**arguments)

    env = Counted("CartPole-v1", device="cpu", categorical_action_encoding=True)
    yield env
    if not env.is_closed:
        env.close()


class Left(torch.nn.Module):
    """Always to the left: CartPole falls after 8 to 10 steps."""

    def __init__(self) -> None:
        super().__init__()
        self.modes = []

    def forward(self, observation):
        self.modes.append(self.training)
        return torch.zeros(observation.shape[:-1], dtype=torch.int64)


def left() -> TensorDictModule:
    return TensorDictModule(Left(), ["observation"], ["action"])


def hook(environment, policy=None, **arguments) -> LogValidationReward:
    return LogValidationReward(
        **{
            "record_interval": 2,
            "record_frames": 40,
            "policy_exploration": policy or left(),
            "environment": environment,
        }
        | arguments
    )


def test_every_second_call_beginning_with_the_first(environment, logger):
    trainer = tiny_trainer(logger=logger, log_interval=10)
    hook(environment).register(trainer)
    trainer.train()
    assert list(logger.column("r_evaluation")) == [10, 30, 50]


def test_reward_per_step_and_mean_return(environment):
    environment.set_seed(0)
    metrics = hook(environment, frame_skip=4)(None)
    assert metrics["r_evaluation"].item() == pytest.approx(0.25)  # 1 a step, over 4
    assert 4 <= metrics["total_r_evaluation"].item() <= 10  # the last episode is cut short


def test_other_keys_and_names(environment):
    metrics = hook(
        environment,
        log_keys=["action", ("next", "reward"), ("next", "done")],
        out_keys={"action": "a", ("next", "reward"): "r"},
    )(None)
    assert set(metrics) == {"a", "r", "total_r", "next_done", "log_pbar"}
    assert metrics["a"].item() == 0.0


def test_evaluating_does_not_change_what_training_draws(environment):
    class Random(Left):
        def forward(self, observation):
            random.random(), np.random.rand()
            return torch.randint(2, observation.shape[:-1])

    def draw():
        return random.random(), np.random.rand(), torch.rand(()).item()

    evaluate = hook(environment, TensorDictModule(Random(), ["observation"], ["action"]))
    random.seed(0), np.random.seed(0), torch.manual_seed(0)
    expected = draw()
    random.seed(0), np.random.seed(0), torch.manual_seed(0)
    evaluate(None)
    assert draw() == expected


def test_the_environment_is_closed_once(environment):
    trainer = tiny_trainer()
    hook(environment).register(trainer)
    trainer.train()
    assert type(environment).closings == 1


def example(trainer):
    from torchrl.envs.libs.gym import GymEnv

    env = GymEnv("CartPole-v1", device="cpu", categorical_action_encoding=True)
    policy = TensorDictModule(Left(), ["observation"], ["action"])
    return LogValidationReward(
        record_interval=2, record_frames=5, policy_exploration=policy, environment=env
    )
