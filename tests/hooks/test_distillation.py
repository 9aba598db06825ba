"""`Distillation`: what the teacher says, the losses by hand, students that learn, exact resumes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from resuming import assert_compiled_equals_eager, small_ppo
from tensordict import TensorDict
from torch import nn

from hooktrainer import (
    ConfigError,
    Distillation,
    MiniBatches,
    Trainer,
    VectorCollector,
    find_policy,
    load_policy,
)
from hooktrainer.algorithms import SAC, Dreamer
from hooktrainer.networks import (
    CategoricalPolicy,
    DeterministicPolicy,
    DiagonalGaussianPolicy,
    ValueNetwork,
    mlp,
)
from hooktrainer.objectives import ImitationLoss, TRPOLoss
from hooktrainer.optim import FlatAdam
from hooktrainer.testing import tiny_trainer


def choice() -> CategoricalPolicy:
    return CategoricalPolicy(mlp(4, 2, (8,)))


def example_trainer() -> Trainer:
    torch.manual_seed(0)
    loss = ImitationLoss(choice(), "kl")
    return tiny_trainer(loss_module=loss)


def example(trainer):
    return Distillation(choice())


class Constant(nn.Module):
    """Always the same, whatever it sees."""

    def __init__(self, *values: float) -> None:
        super().__init__()
        self.values = nn.Parameter(torch.tensor(values))

    def forward(self, x):
        return self.values.expand(*x.shape[:-1], -1)


def seen(n: int = 3) -> TensorDict:
    return TensorDict({"observation": torch.randn(n, 4), "action": torch.zeros(n, 1)}, [n])


def gaussian(loc: float, log_std: float = 0.0) -> DiagonalGaussianPolicy:
    return DiagonalGaussianPolicy(Constant(loc), 1, log_std)


def taught(student, teacher, kind: str, batch: TensorDict) -> torch.Tensor:
    loss = ImitationLoss(student, kind)
    trainer = tiny_trainer(loss_module=loss)
    hook = Distillation(teacher)
    hook.register(trainer)
    out = loss(hook(batch))["loss_imitation"]
    trainer.shutdown()
    return out


def test_the_losses_by_hand():
    assert taught(gaussian(1.0), gaussian(3.0), "mse", seen()).item() == pytest.approx(4.0)
    # log(2 / 1) + (1 + 2²) / (2 · 2²) - 1/2, from N(3, 1) to N(1, 2²)
    kl = taught(gaussian(1.0, np.log(2.0)), gaussian(3.0), "kl", seen()).item()
    assert kl == pytest.approx(np.log(2.0) + 5 / 8 - 0.5)
    student, teacher = CategoricalPolicy(Constant(0.0, 0.0)), CategoricalPolicy(Constant(2.0, 0.0))
    p = 1 / (1 + np.exp(-2.0))
    expected = p * np.log(2 * p) + (1 - p) * np.log(2 * (1 - p))
    batch = seen().set("action", torch.zeros(3, dtype=torch.int64))
    assert taught(student, teacher, "kl", batch).item() == pytest.approx(expected, rel=1e-5)
    sure = DeterministicPolicy(Constant(100.0), 1, -2.0, 2.0)
    assert taught(gaussian(1.0), sure, "mse", seen()).item() == pytest.approx(1.0)


def test_a_teacher_may_read_other_entries():
    batch = seen().set("critic", torch.randn(3, 2))
    teacher = DiagonalGaussianPolicy(nn.Linear(2, 1), 1, in_keys=["critic"])
    out = Distillation(teacher)(batch)
    torch.testing.assert_close(out["teacher_action"], teacher.mode(batch["critic"]).detach())
    assert batch.get("teacher_action", None) is None
    with pytest.raises(KeyError, match="critic"):
        Distillation(teacher)(seen())


def test_impossible_arguments_are_refused():
    with pytest.raises(ConfigError, match=r"Distillation\(function\): pass a policy"):
        Distillation(lambda x: x)
    for student in (choice_of_two(), CategoricalPolicy(Constant(0.0, 1.0))):
        with pytest.raises(ConfigError, match="are discrete: use kind='kl'"):
            ImitationLoss(student)
    with pytest.raises(ConfigError, match="pass 'mse' or 'kl'"):
        ImitationLoss(gaussian(0.0), "l1")
    with pytest.raises(ConfigError, match="of DeterministicPolicy has no closed form"):
        ImitationLoss(DeterministicPolicy(Constant(0.0), 1), "kl")
    trainer = tiny_trainer()
    with pytest.raises(ConfigError, match="ScriptedLoss has no policy that could be taught"):
        Distillation(gaussian(0.0)).register(trainer)
    trainer.shutdown()
    with pytest.raises(ConfigError, match="DreamerLoss has no policy that could be taught"):
        Dreamer(env="Pendulum-v1", total_frames=1, hooks=[Distillation(gaussian(0.0))]).trainer()


def choice_of_two():
    from hooktrainer.networks import Categorical, Policy

    return Policy(mlp(4, 2), Categorical(2))


# -- runs ------------------------------------------------------------------------------------------


def student_trainer(teacher, total_frames: int = 256, **options) -> Trainer:
    """Pure distillation: the student plays CartPole, the teacher says what it would do."""
    torch.manual_seed(3)
    student = CategoricalPolicy(mlp(4, 2, (16,)))
    loss = ImitationLoss(student, "kl", certain=options.pop("certain", False))
    trainer = Trainer(
        collector=VectorCollector("CartPole-v1", student, num_envs=2, frames_per_batch=64),
        total_frames=total_frames,
        optim_steps_per_batch=None,
        num_epochs=4,
        loss_module=loss,
        optimizer=FlatAdam(loss.parameters(), lr=3e-2),
        progress_bar=False,
        seed=1,
        **options,
    )
    MiniBatches(16, loss.in_keys).register(trainer)
    Distillation(teacher).register(trainer)
    return trainer


def steer() -> CategoricalPolicy:
    """A teacher that pushes the cart to where the pole falls."""
    layer = nn.Linear(4, 2)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[0.0, 0.0, -8.0, -4.0], [0.0, 0.0, 8.0, 4.0]]))
        layer.bias.zero_()
    return CategoricalPolicy(layer)


def agreement(student, teacher) -> float:
    state = 0.2 * torch.randn(500, 4, generator=torch.Generator().manual_seed(0))
    best = [policy.evaluate(state).argmax(-1) for policy in (student, teacher)]
    return (best[0] == best[1]).float().mean().item()


def test_actions_of_the_teacher_are_replayed():
    teacher = DeterministicPolicy(mlp(3, 1), 1, -2.0, 2.0)
    small = {"total_frames": 32, "num_envs": 2, "init_random_frames": 8, "batch_size": 8}
    off = {"eval_episodes": 0, "progress_bar": False}
    trainer = SAC(env="Pendulum-v1", hooks=[Distillation(teacher)], **small, **off).train()
    assert trainer.metrics.reported["loss/imitation"] > 0
    sample = trainer.registry.modules["replay_buffer"].replay_buffer.sample()
    expected = teacher.evaluate(sample["observation"])
    torch.testing.assert_close(sample["teacher_action"], expected.detach())


def test_a_loss_that_would_not_train_the_policy_is_refused():
    trainer = tiny_trainer(loss_module=TRPOLoss(choice(), ValueNetwork(mlp(4, 1))))
    with pytest.raises(ConfigError, match=r"takes no further terms: its policy.*Use PPO"):
        Distillation(choice(), kind="kl").register(trainer)
    trainer.shutdown()


def test_the_student_learns_what_the_teacher_does():
    teacher = steer()
    trainer = student_trainer(teacher, 1024)
    student = trainer.loss_module.actor_network
    before = agreement(student, teacher)
    trainer.train()
    assert agreement(student, teacher) > max(0.93, before)
    # Only the student has acted.
    assert trainer.collector.policy is student


def test_it_is_added_to_another_loss_compiled_or_not():
    trainer = assert_compiled_equals_eager(
        lambda **how: small_ppo(
            "CartPole-v1", hooks=[Distillation(steer(), coeff=2.0, kind="kl")], **how
        )
    )
    assert trainer.metrics.reported["loss/imitation"] > 0


@pytest.mark.usefixtures("warm_python")
def test_a_saved_policy_teaches(tmp_path):
    run = tmp_path / "run"
    small_ppo("CartPole-v1", total_frames=64, eval_episodes=1, run_dir=run, snapshots=2).train()
    teacher = load_policy(find_policy(tmp_path / "run" / "policies" / "latest"))
    batch = TensorDict(
        {"observation": torch.randn(2, 5, 4), "action": torch.zeros(2, 5, dtype=torch.int64)},
        [2, 5],
    )
    told = Distillation(teacher)(batch)["teacher_action"]
    assert told.shape == (2, 5)
    assert told[1, 3].item() == teacher(batch["observation"][1, 3].numpy())
    student_trainer(teacher, 64, certain=True).train()
