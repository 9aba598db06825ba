from __future__ import annotations

import math
from functools import partial

import pytest
import torch
from tensordict import TensorDict

from hooktrainer import (
    ConfigError,
    Every,
    HookError,
    NonFiniteError,
    OptimizerHook,
    StateMismatchError,
)
from hooktrainer.optim import FlatAdam
from hooktrainer.testing import tiny_trainer


def weight(*values: float) -> torch.nn.Parameter:
    return torch.nn.Parameter(torch.tensor(values))


def losses(**values: torch.Tensor) -> TensorDict:
    return TensorDict(values, [])


def test_all_losses_are_added_and_nothing_else():
    w = weight(1.0)
    hook = OptimizerHook(torch.optim.SGD([w], lr=1.0))
    parts = losses(loss_a=w.sum(), loss_b=2 * w.sum(), entropy=100 * w.sum())
    hook(parts, True, None, 0)
    assert w.item() == pytest.approx(-2.0)


@pytest.mark.parametrize("kind", [partial(torch.optim.Adam, fused=True), FlatAdam])
@pytest.mark.parametrize("transposed", ["gradient", "parameter"])
def test_a_gradient_with_other_strides_than_its_parameter(kind, transposed):
    """Fused kernels walk through the memory of both, whatever their strides."""
    values, slope = torch.randn(4, 3), torch.randn(4, 3)
    plain = torch.nn.Parameter(values.clone())
    odd = torch.nn.Parameter(
        values.clone() if transposed == "gradient" else values.t().contiguous().t()
    )
    for w in (plain, odd):
        hook = OptimizerHook(kind([w], lr=0.1))

        def assign(optimizer, w=w):
            w.grad = slope.t().contiguous().t() if w is odd and transposed == "gradient" else slope

        hook.gradient_hooks.append(assign)
        for _ in range(2):
            hook(losses(loss=w.sum()), True, None, 0)
    torch.testing.assert_close(odd, plain)


@pytest.mark.parametrize(
    ("start", "by_norm", "bound", "end", "norm"),
    [
        ((3.0, 4.0), True, None, (0.0, 0.0), 5.0),
        ((3.0, 4.0), True, 1.0, (2.4, 3.2), 5.0),  # the norm is that before clipping
        ((3.0, 0.5), False, 1.0, (2.0, 0.0), math.hypot(3.0, 0.5)),
        ((0.1, 0.0), True, 5.0, (0.0, 0.0), 0.1),  # a short gradient is not stretched
    ],
)
def test_one_step_and_clipping_by_hand(start, by_norm, bound, end, norm):
    w = weight(*start)
    hook = OptimizerHook(torch.optim.SGD([w], lr=1.0))
    out = hook(losses(loss=w.square().sum() / 2), by_norm, bound, 0)
    assert torch.allclose(w, torch.tensor(end), atol=1e-5)
    assert out["grad_norm"].item() == pytest.approx(norm)
    assert w.grad is None


class Two(torch.nn.Module):
    """loss_a = a·(1 + b), loss_b = b·(1 + a): each depends on the other's parameter as well."""

    def __init__(self) -> None:
        super().__init__()
        self.a = torch.nn.Parameter(torch.tensor(1.0))
        self.b = torch.nn.Parameter(torch.tensor(2.0))

    def forward(self, batch):
        return losses(loss_a=self.a * (1 + self.b.detach()), loss_b=self.b * (1 + self.a.detach()))


def two_optimizers(loss, order="ab", **arguments):
    trainer = tiny_trainer(
        loss_module=loss, optimizer=None, total_frames=10, optim_steps_per_batch=1, **arguments
    )
    for name in order:
        optimizer = torch.optim.SGD([getattr(loss, name)], lr={"a": 0.1, "b": 0.01}[name])
        OptimizerHook(optimizer, [f"loss_{name}"]).register(trainer, name)
    return trainer


@pytest.mark.parametrize("order", ["ab", "ba"])
def test_actor_and_critic_in_either_order(order):
    """The actor's loss goes through the critic, as in DDPG, TD3 and SAC."""

    class ActorCritic(Two):
        def forward(self, batch):
            return losses(
                loss_a=-self.a.square() * self.b,  # d/da = -2·1·2 = -4
                loss_b=self.b.square() / 2,  # d/db = 2
            )

    loss = ActorCritic()
    two_optimizers(loss, order=order).train()
    assert loss.a.item() == pytest.approx(1.4)
    assert loss.b.item() == pytest.approx(1.98)


def test_a_gradient_that_is_not_finite_is_refused_before_the_step():
    w = weight(0.0)
    hook = OptimizerHook(torch.optim.SGD([w], lr=1.0))
    with pytest.raises(NonFiniteError, match=r"norm inf.* the parameters are as they were"):
        hook(losses(loss=w.sqrt().sum()), True, None, 0)
    assert w.item() == 0.0
    assert w.grad is None


def test_a_missing_component_is_named():
    w = weight(1.0)
    hook = OptimizerHook(torch.optim.SGD([w], lr=1.0), ["loss_actor"])
    with pytest.raises(HookError, match=r"\['loss_actor'\] among the losses \['loss_critic'\]"):
        hook(losses(loss_critic=w.sum()), True, None, 0)


def test_two_optimizers_over_the_same_loss_are_refused():
    loss = Two()
    trainer = two_optimizers(loss)
    with pytest.raises(ConfigError, match="loss_a"):
        OptimizerHook(torch.optim.SGD([loss.a], lr=1.0), ["loss_a"]).register(trainer, "c")
    with pytest.raises(ConfigError, match="every loss"):
        OptimizerHook(torch.optim.SGD([loss.a], lr=1.0)).register(trainer, "c")


# -- hyperparameters of a resumed run --------------------------------------------------------------


def resumed_with(lr: float, betas: tuple[float, float] = (0.9, 0.999), *, moved_to=None):
    """The parameter group of an optimizer that takes up the state of one with lr 0.5."""
    first = OptimizerHook(torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))], lr=0.5))
    if moved_to is not None:
        first.optimizer.param_groups[0]["lr"] = moved_to
    other = OptimizerHook(
        torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))], lr=lr, betas=betas)
    )
    other.load_state_dict(first.state_dict())
    return other.optimizer.param_groups[0]


def test_a_new_hyperparameter_replaces_the_saved_one():
    assert resumed_with(0.1)["lr"] == 0.1
    assert resumed_with(0.5, (0.8, 0.9))["betas"] == (0.8, 0.9)


def test_a_value_that_changed_during_the_run_continues():
    assert resumed_with(0.5, moved_to=0.25)["lr"] == 0.25
    assert resumed_with(0.1, moved_to=0.25)["lr"] == pytest.approx(0.05)


class ActorAndCritic(torch.nn.Module):
    """Two losses over one parameter each; the actor's depends on the critic as well."""

    def __init__(self, omits_actor: bool = False) -> None:
        super().__init__()
        self.actor, self.critic = weight(1.0), weight(1.0)
        self.omits_actor = omits_actor
        self.calls = 0

    def forward(self, batch):
        self.calls += 1
        out = losses(loss_critic=self.critic.sum())
        if not self.omits_actor or self.calls % 2 == 0:
            out["loss_actor"] = (self.actor * self.critic.detach().sign() + 0 * self.critic).sum()
        return out


def delayed_actor(total_frames=50, loss=None, unit="optim_steps", **overrides):
    loss = loss or ActorAndCritic()
    trainer = tiny_trainer(
        loss_module=loss,
        optimizer=None,
        total_frames=total_frames,
        optim_steps_per_batch=1,
        **overrides,
    )
    actor = torch.optim.Adam([loss.actor], lr=0.25)
    critic = torch.optim.SGD([loss.critic], lr=0.125)
    OptimizerHook(critic, ["loss_critic"]).register(trainer, "critic")
    delayed = OptimizerHook(actor, ["loss_actor"], every=Every(**{unit: 2}))
    delayed.register(trainer, "actor")
    return trainer, loss


@pytest.mark.parametrize("omits_actor", [False, True])
def test_a_delayed_actor_is_trained_every_second_step(omits_actor, logger):
    trainer, loss = delayed_actor(loss=ActorAndCritic(omits_actor), logger=logger)
    seen = []
    trainer.register_op("post_optim", lambda: seen.append((loss.actor.item(), loss.critic.item())))
    trainer.train()
    assert [critic for _, critic in seen] == [0.875, 0.75, 0.625, 0.5, 0.375]
    assert [actor for actor, _ in seen] == pytest.approx([1, 0.75, 0.75, 0.5, 0.5])
    assert loss.actor.grad is None  # nothing is left for the next step
    assert logger.column("train/grad_norm_actor")[50] == 1.0


def test_the_delay_continues_after_a_resume():
    whole, loss = delayed_actor()
    whole.train()
    first, _ = delayed_actor(30)  # between two of its steps
    first.train()
    second, again = delayed_actor()
    second.load_state_dict(first.state_dict())
    second.train()
    assert again.actor.equal(loss.actor)
    assert second.state_dict()["components"]["cadence/optimizer/actor"]["next"] == 6


def test_the_delay_causes_no_save(tmp_path):
    file, seen = tmp_path / "state.pt", []
    options = {"save_trainer_file": file, "save_trainer_interval": 1_000}
    trainer, _ = delayed_actor(unit="batches", **options)
    trainer.register_op("post_loss", lambda batch: trainer.skip_optim_step())
    trainer.register_op("batch_process", lambda batch: seen.append(file.exists()))
    trainer.train()
    assert seen == [False] * 5


@pytest.mark.parametrize("name", ["exp_avg", "exp_avg_sq", "step"])
def test_moments_of_another_shape_are_refused(name):
    """A fused Adam would read beyond their end."""

    def make():
        w = weight(1.0, 2.0, 3.0)
        return OptimizerHook(torch.optim.Adam([w], fused=True)), w

    hook, w = make()
    hook(losses(loss=w.sum()), True, None, 0)
    saved = hook.state_dict()
    make()[0].load_state_dict(saved)
    saved["state"][0] = {**saved["state"][0], name: torch.ones(2)}
    with pytest.raises(StateMismatchError, match=rf"'{name}' is \[2\] .* parameter \[3\]"):
        make()[0].load_state_dict(saved)


def example_trainer():
    return tiny_trainer(optimizer=None)


def example(trainer):
    return OptimizerHook(torch.optim.Adam(trainer.loss_module.parameters(), lr=0.1))


def test_restored_moments_have_the_strides_of_their_parameter():
    """Checkpoints keep values alone."""
    w = torch.nn.Parameter(torch.randn(3, 4).t())
    hook = OptimizerHook(torch.optim.Adam([w], fused=True))
    hook(losses(loss=(w * torch.randn(4, 3)).sum()), True, None, 0)
    state = hook.state_dict()
    expected = state["state"][0]["exp_avg"]
    state["state"] = {0: {key: x.contiguous() for key, x in state["state"][0].items()}}
    hook.load_state_dict(state)
    restored = hook.optimizer.state[w]["exp_avg"]
    assert torch.equal(restored, expected)
    assert restored.stride() == w.stride()
