from __future__ import annotations

import pytest
import torch
from tensordict import TensorDict

from hooktrainer import Every, ModelRollouts, ReplayBufferTrainer
from hooktrainer.errors import ConfigError
from hooktrainer.networks import DynamicsEnsemble, TanhGaussianPolicy, mlp
from hooktrainer.replay import ReplayBuffer
from hooktrainer.testing import FakeCollector, tiny_trainer

KEYS = ["observation", "action", *(("next", k) for k in ("observation", "reward", "terminated"))]


def transitions(number: int) -> TensorDict:
    observation, action = torch.randn(number, 2), torch.rand(number, 1) * 2 - 1
    following = {
        "observation": observation + action,
        "reward": -observation[:, :1].abs(),
        "terminated": torch.zeros(number, 1, dtype=torch.bool),
    }
    data = {"observation": observation, "action": action, "next": following}
    return TensorDict(data, batch_size=[number])


def make_hook(**options) -> ModelRollouts:
    torch.manual_seed(0)
    real = ReplayBuffer(500, batch_size=4, keys=KEYS)
    imagined = ReplayBuffer(60, batch_size=12, keys=KEYS)
    settings = {"fit_steps": 3, "fit_batch_size": 16, "num_rollouts": 10, "horizon": 2} | options
    return ModelRollouts(
        DynamicsEnsemble(2, 1, num_models=2, num_cells=(8,)),
        TanhGaussianPolicy(mlp(2, 2, (8,)), action_features=1),
        real,
        imagined,
        every=Every(batches=2),
        **settings,
    )


class Collector:
    """Batches of made-up transitions."""

    def __iter__(self):
        for _ in range(6):
            yield transitions(10)


def train(hook: ModelRollouts, steps=None):
    trainer = tiny_trainer(collector=Collector(), total_frames=60)
    ReplayBufferTrainer(hook.replay_buffer).register(trainer)
    hook.register(trainer)
    if steps is not None:
        trainer.register_op("post_loss", lambda batch: steps.append(batch))
    trainer.train()
    return trainer


def test_rollouts_come_at_the_cadence_and_complete_the_samples():
    hook, steps = make_hook(), []
    trainer = train(hook, steps)
    # Batches 2, 4 and 6 imagine 10 rollouts of 2 steps each; each batch makes 2 optimizer steps.
    assert hook.imagined == 60
    assert [len(step) for step in steps] == [4] * 2 + [16] * 10
    assert trainer.metrics.latest("model/frames") == 60
    assert hook.dynamics.inputs.count == 60


def test_a_rollout_follows_the_policy_in_the_model():
    hook = make_hook(num_rollouts=5, horizon=3)
    hook.replay_buffer.extend(transitions(50))
    hook.imagine()
    first, second, third = (
        {key: hook.model_buffer.state_dict()["storage"][start : start + 5].get(key) for key in KEYS}
        for start in (0, 5, 10)
    )
    assert second["observation"].equal(first["next", "observation"])
    assert third["observation"].equal(second["next", "observation"])
    starts = hook.replay_buffer.state_dict()["storage"][:50]["observation"].tolist()
    assert all(row in starts for row in first["observation"].tolist())
    assert first["action"].abs().max() <= 1.0


class Continuous(FakeCollector):
    """Its actions are two numbers each."""

    def _batch(self):
        batch = super()._batch()
        return batch.set("action", batch["observation"][..., :2].tanh())


def example_trainer():
    return tiny_trainer(collector=Continuous())


def is_beyond(observation, following):
    return following[:, :1] > 1


def example(trainer):
    real, imagined = (ReplayBuffer(50, batch_size=4, keys=KEYS) for _ in range(2))
    ReplayBufferTrainer(real).register(trainer)
    policy = TanhGaussianPolicy(mlp(4, 4, (8,)), action_features=2)
    model = DynamicsEnsemble(4, 2, num_models=2, num_cells=(8,))
    return ModelRollouts(
        model,
        policy,
        real,
        imagined,
        every=Every(batches=2),
        fit_steps=2,
        num_rollouts=5,
        terminates=is_beyond,
    )


def test_imagined_steps_that_never_end_are_reported():
    hook, ended = make_hook(), transitions(10)
    ended["next", "terminated"][:] = True
    hook.replay_buffer.extend(ended)
    with pytest.warns(UserWarning, match="imagined steps never do.*pass terminates="):
        hook.imagine()
    hook.imagine()  # once is enough
    hook = make_hook(terminates=lambda observation, following: observation[:, :1] > 0)
    hook.replay_buffer.extend(ended)
    hook.imagine()


@pytest.mark.parametrize(
    "terminates", [lambda _, following: following[:, 0] > 0, lambda _, following: following[:, :1]]
)
def test_ends_that_are_not_a_column_of_truths_are_refused(terminates):
    hook = make_hook(terminates=terminates)
    hook.replay_buffer.extend(transitions(10))
    with pytest.raises(ConfigError, match=r"terminates returns .*: make it torch.bool, \[10, 1\]"):
        hook.imagine()
