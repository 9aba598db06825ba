"""`SymmetryAugmentation`: what becomes of a mini-batch, the mirror loss by hand, runs with them."""

from __future__ import annotations

import math

import pytest
import torch
from resuming import assert_compiled_equals_eager, small_ppo
from tensordict import TensorDict

from hooktrainer import CompiledStep, ConfigError, HookError, SymmetryAugmentation, Trainer
from hooktrainer.algorithms import Dreamer
from hooktrainer.networks import (
    CategoricalPolicy,
    DeterministicPolicy,
    DiagonalGaussianPolicy,
    ValueNetwork,
    mlp,
)
from hooktrainer.objectives import ClipPPOLoss, DDPGLoss, TRPOLoss
from hooktrainer.testing import tiny_trainer


def opposite(entries):
    return {"observation": -entries["observation"], "action": -entries["action"]}


def example(trainer):
    return SymmetryAugmentation(opposite)


def swapped(entries):
    return {key: entries[key].flip(-1) for key in ("observation", "action")}


def batch() -> TensorDict:
    return TensorDict(
        {
            "observation": torch.tensor([[1.0, 2.0], [3.0, 4.0]]),
            "action": torch.tensor([[5.0, 6.0], [7.0, 8.0]]),
            "advantage": torch.tensor([[0.5], [-0.5]]),
        },
        [2],
    )


def test_mirror_images_follow_the_collected_rows():
    given = batch()
    out = SymmetryAugmentation([opposite, swapped])(given)
    observations = [[1, 2], [3, 4], [-1, -2], [-3, -4], [2, 1], [4, 3]]
    actions = [[5, 6], [7, 8], [-5, -6], [-7, -8], [6, 5], [8, 7]]
    assert out["observation"].tolist() == observations
    assert out["action"].tolist() == actions
    assert out["advantage"].flatten().tolist() == [0.5, -0.5] * 3
    assert out["is_collected"].tolist() == [True] * 2 + [False] * 4
    assert (given == batch()).all()
    assert set(given.keys()) == set(batch().keys())


class Line(torch.nn.Module):
    """Mean w·x + b."""

    def __init__(self, w: float, b: float) -> None:
        super().__init__()
        self.w, self.b = (torch.nn.Parameter(torch.tensor([x])) for x in (w, b))

    def forward(self, x):
        return self.w * x + self.b


def line_loss(b: float = 0.5, **options) -> ClipPPOLoss:
    actor = DiagonalGaussianPolicy(Line(2.0, b), 1)
    return ClipPPOLoss(actor, ValueNetwork(mlp(1, 1)), diagnostics=0, **options)


def line_batch(n: int = 4) -> TensorDict:
    torch.manual_seed(0)
    rows = {key: torch.randn(n, 1) for key in ("observation", "action", "advantage")}
    rows |= {"action_log_prob": -torch.rand(n), "value_target": torch.randn(n, 1)}
    return TensorDict(rows, [n])


@pytest.mark.parametrize("augment", [True, False])
def test_the_mirror_loss_by_hand(augment):
    loss = line_loss()
    trainer = tiny_trainer(loss_module=loss)
    hook = SymmetryAugmentation(opposite, augment=augment, mirror_coeff=3.0)
    hook.register(trainer)
    rows = hook(line_batch()) if augment else line_batch()
    mirror = loss(rows)["loss_mirror"]
    # In -x the mean is -2x + b, and the mirror image of that in x is -2x - b: they are 2b = 1
    # apart. The derivative by b is 2 · 1 · 1, since the image is a constant.
    assert mirror.item() == pytest.approx(3.0)
    line = loss.actor_network.network
    w, b = torch.autograd.grad(mirror, [line.w, line.b])
    assert b.item() == pytest.approx(6.0)
    mean = line_batch()["observation"].mean().item()
    assert w.item() == pytest.approx(-6.0 * mean, abs=1e-5)
    trainer.shutdown()


def test_the_divergence_is_over_the_collected_rows():
    loss = line_loss(kl=True)
    alone = loss(line_batch())["kl"]
    trainer = tiny_trainer(loss_module=loss)
    hook = SymmetryAugmentation(opposite)
    hook.register(trainer)
    torch.testing.assert_close(loss(hook(line_batch()))["kl"], alone)
    trainer.shutdown()


@pytest.mark.parametrize(
    ("mirror", "message"),
    [
        (lambda e: -e["observation"], "the symmetry returned tensor"),
        (lambda e: {"observation": -e["observation"]}, "return a dict with 'action'"),
        (lambda e: {"action": e["action"], "obs": e["observation"]}, "'obs' of"),
        (lambda e: {"action": e["action"][:, :1]}, r"'action' of \[2, 1\]"),
    ],
)
def test_a_wrong_mirror_image_is_refused(mirror, message):
    with pytest.raises(HookError, match=message):
        SymmetryAugmentation(mirror)(batch())


# -- in PPO ----------------------------------------------------------------------------------------


def left_to_right(entries):
    """Pendulum in the mirror: sine, speed and torque have the other sign."""
    signs = torch.tensor([1.0, -1.0, -1.0])
    return {"observation": entries["observation"] * signs, "action": -entries["action"]}


def test_a_mirror_loss_of_discrete_actions_is_refused():
    hook = SymmetryAugmentation(left_to_right, mirror_coeff=0.5)
    with pytest.raises(ConfigError, match="no policy of continuous actions: leave mirror_coeff"):
        small_ppo("CartPole-v1", total_frames=96, hooks=[hook])


def test_a_mirror_loss_of_a_policy_without_a_mode_is_refused():
    loss = ClipPPOLoss(CategoricalPolicy(mlp(3, 2)), ValueNetwork(mlp(3, 1)))
    trainer = tiny_trainer(loss_module=loss)
    with pytest.raises(ConfigError, match="no policy of continuous actions: leave mirror_coeff"):
        SymmetryAugmentation(left_to_right, mirror_coeff=0.5).register(trainer)
    trainer.shutdown()
    hook = SymmetryAugmentation(left_to_right, mirror_coeff=0.5)
    with pytest.raises(ConfigError, match="DreamerLoss has no policy of continuous actions"):
        Dreamer(env="Pendulum-v1", total_frames=1, hooks=[hook]).trainer()


def test_a_deterministic_policy_has_a_mirror_loss():
    actor = DeterministicPolicy(Line(2.0, 0.5), 1, -10.0, 10.0)
    loss = DDPGLoss(actor, ValueNetwork(mlp(2, 1), ["observation", "action"]))
    trainer = tiny_trainer(loss_module=loss)
    SymmetryAugmentation(opposite, augment=False, mirror_coeff=0.5).register(trainer)
    seen = TensorDict({"observation": torch.ones(2, 1), "action": torch.zeros(2, 1)}, [2])
    ends = torch.zeros(2, 1, dtype=torch.bool)
    seen["next"] = {"observation": seen["observation"], "reward": ends.float(), "terminated": ends}
    # f(1) = 10 tanh(2.5), and f(-1) = 10 tanh(-1.5), which would have to be its opposite.
    apart = 10 * (math.tanh(2.5) + math.tanh(-1.5))
    assert loss(seen)["loss_mirror"].item() == pytest.approx(0.5 * apart**2, rel=1e-5)
    trainer.shutdown()


def test_the_policy_of_trpo_is_not_trained_on_mini_batches():
    loss = TRPOLoss(DiagonalGaussianPolicy(Line(2.0, 0.5), 1), ValueNetwork(mlp(1, 1)))
    trainer = tiny_trainer(loss_module=loss)
    with pytest.raises(ConfigError, match=r"learns from whole batches.*use PPO"):
        SymmetryAugmentation(opposite).register(trainer)
    trainer.shutdown()


def ppo(**options) -> Trainer:
    hook = SymmetryAugmentation(left_to_right, mirror_coeff=0.5)
    return small_ppo("Pendulum-v1", total_frames=96, hooks=[hook], **options)


def test_it_works_with_compiled_steps():
    trainer = assert_compiled_equals_eager(ppo)
    assert any(isinstance(hook, CompiledStep) for hook in trainer.registry.hooks())
