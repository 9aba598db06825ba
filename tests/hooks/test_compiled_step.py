from __future__ import annotations

import itertools
import logging
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from marks import slow_except
from tensordict import TensorDict
from torch import nn

from hooktrainer import (
    CompiledStep,
    ConfigError,
    Every,
    MiniBatches,
    NonFiniteError,
    OptimizerHook,
    Trainer,
    ValueEstimatorHook,
)
from hooktrainer.graphs import GradientGraph, GraphOr, StepGraph, compiling
from hooktrainer.networks import (
    MEMORIES,
    CategoricalPolicy,
    MemoryTrunk,
    ValueNetwork,
    memory_for,
    mlp,
)
from hooktrainer.objectives import GAE, ClipPPOLoss, Term
from hooktrainer.optim import FlatAdam

BATCHES, ROWS = 3, 48
DEFAULTS = {
    "total_frames": BATCHES * ROWS,
    "optim_steps_per_batch": None,
    "num_epochs": 2,
    "clip_norm": 0.5,
}


def data() -> list[TensorDict]:
    random = torch.Generator().manual_seed(0)
    return [
        TensorDict(
            {
                "observation": torch.randn(ROWS, 4, generator=random),
                "action": torch.randint(0, 2, (ROWS,), generator=random),
                "action_log_prob": -torch.rand(ROWS, generator=random),
                "advantage": torch.randn(ROWS, 1, generator=random),
                "value_target": torch.randn(ROWS, 1, generator=random),
            },
            [ROWS],
        )
        for _ in range(BATCHES)
    ]


def ppo() -> ClipPPOLoss:
    torch.manual_seed(1)
    policy = CategoricalPolicy(mlp(4, 2, (8,)))
    return ClipPPOLoss(policy, ValueNetwork(mlp(4, 1, (8,))), normalize_advantage=True)


def train(
    *hooks: Any,
    step: CompiledStep | None,
    loss: nn.Module | None = None,
    mini_batches: bool = True,
    **kwargs: Any,
) -> Trainer:
    loss = loss or ppo()
    if "optimizer" not in kwargs:
        kwargs["optimizer"] = FlatAdam(loss.parameters(), lr=0.01)
    rows, state = [], kwargs.pop("state", None)
    trainer = Trainer(
        loss_module=loss,
        logger=Rows(rows),
        log_interval=ROWS,
        progress_bar=False,
        seed=3,
        **DEFAULTS | {"collector": data()} | kwargs,
    )
    trainer.rows = rows
    if mini_batches and kwargs.get("optim_steps_per_batch") is None:
        MiniBatches(8).register(trainer)
    for hook in (*hooks, *([] if step is None else [step])):
        hook.register(trainer)
    if state is not None:
        trainer.load_state_dict(state)
    trainer.train()
    return trainer


class Rows:
    def __init__(self, rows):
        self.rows = rows

    def log_scalar(self, name, value, step=None):
        if not name.startswith("time/") and not name.startswith("system/"):
            self.rows.append((step, name, value))

    def close(self):
        pass


class At:
    """Registers a function at a point."""

    def __init__(self, point, call, **kwargs):
        self.point, self.call, self.kwargs = point, call, kwargs

    def register(self, trainer):
        self.trainer = trainer
        trainer.register_op(self.point, self.call, **self.kwargs)


def assert_compiled_equals_eager(run: Callable[[CompiledStep | None], Trainer]) -> None:
    assert_same(run(CompiledStep()), run(None))


def assert_same(one: Trainer, other: Trainer) -> None:
    torch.testing.assert_close(one.loss_module.state_dict(), other.loss_module.state_dict())
    assert [row[:2] for row in one.rows] == [row[:2] for row in other.rows]
    for (_, name, a), (_, _, b) in zip(one.rows, other.rows, strict=True):
        assert a == pytest.approx(b, rel=1e-4, abs=1e-5), name


@pytest.fixture
def called(monkeypatch):
    """Which graphs are called, and for how many steps."""
    calls: list[tuple[str, int]] = []

    def spy(kind, number):
        call = kind.__call__

        def counted(self, *args, **kwargs):
            calls.append((kind.__name__, number(*args)))
            return call(self, *args, **kwargs)

        monkeypatch.setattr(kind, "__call__", counted)

    spy(StepGraph, lambda batches, clip_norm, rows, is_finite: len(rows or batches))
    spy(GradientGraph, lambda entries: 1)
    return calls


@pytest.mark.parametrize(
    ("steps", "groups"), [(1, [1, 1, 1, 1, 1, 1]), (4, [4, 2]), (99, [6])], ids=str
)
def test_several_steps_are_one_graph_and_nothing_else_changes(steps, groups, called):
    compiled = train(step=CompiledStep(steps))
    assert called == [("StepGraph", n) for n in groups * 2 * BATCHES]
    assert_same(compiled, train(step=None))


def test_advantages_are_a_graph_until_the_run_ends():
    calls = []

    def run(step):
        loss = ppo()
        gae = GAE(gamma=0.9, lmbda=0.8, value_network=loss.critic_network)
        look = At("pre_steps_log", lambda batch, gae=gae: calls.append(gae.compiled))
        hooks = [At("batch_process", in_time), ValueEstimatorHook(gae), look]
        trainer = train(*hooks, step=step, loss=loss)
        assert gae.compiled is None
        return trainer

    assert_compiled_equals_eager(run)
    assert [type(call) for call in calls] == [GraphOr] * BATCHES + [type(None)] * BATCHES


def in_time(batch):
    whole = batch.reshape(4, -1)
    ends = torch.arange(ROWS).reshape(*whole.shape, 1) % 5 == 0
    steps = {"reward": whole["value_target"], "done": ends, "terminated": ends}
    steps["observation"] = whole["observation"].roll(-1, 1)
    return whole.set("next", TensorDict(steps, whole.shape))


def look(loss: nn.Module, point: str, **kwargs: Any) -> tuple[At, list[torch.Tensor]]:
    """A hook that remembers the weights, whatever point it is at, and what it finds."""
    weights, found = next(loss.parameters()), []
    return At(point, lambda *_: found.append(weights.detach().clone()), **kwargs), found


@pytest.mark.parametrize("point", ["post_optim", "post_optim_log", "process_optim_batch"])
def test_a_hook_between_the_steps_sees_each(point, called):
    found = []
    for step in (None, CompiledStep()):
        loss = ppo()
        hook, weights = look(loss, point)
        train(hook, step=step, loss=loss)
        found.append(weights)
    torch.testing.assert_close(found[1], found[0])
    pairs = itertools.pairwise(found[1])
    assert sum(not torch.equal(before, after) for before, after in pairs) >= 12 * BATCHES - 1
    assert set(called) == {("StepGraph", 1)}


@pytest.mark.parametrize("point", ["post_loss", "optimizer"])
def test_a_hook_between_the_loss_and_the_step_sees_the_weights_of_before(point, called):
    found, runs = [], []
    for step in (None, CompiledStep()):
        loss = ppo()
        before = next(loss.parameters()).detach().clone()
        hook, weights = look(loss, point, priority=5)
        runs.append(train(hook, step=step, loss=loss))
        assert torch.equal(weights[0], before)
        found.append(weights)
    torch.testing.assert_close(found[1], found[0])
    assert_same(*runs)
    assert set(called) == {("GradientGraph", 1)}


@pytest.mark.parametrize("steps", [1, 4])
def test_no_step_follows_a_nan_loss(steps):
    ends = []
    for step in (None, CompiledStep(steps)):
        loss = ppo()
        spoil = At("batch_process", spoiled)
        with pytest.raises(NonFiniteError, match=r"loss_objective is nan at optimizer step 3"):
            train(spoil, step=step, loss=loss, num_epochs=1)
        ends.append(loss.state_dict())
    torch.testing.assert_close(ends[1], ends[0])


def spoiled(batch):
    """Rows of which, drawn as this seed draws them, the third mini-batch has one that is NaN."""
    torch.manual_seed(7)
    state = torch.get_rng_state()
    third = torch.randperm(ROWS).split(8)[2]
    torch.set_rng_state(state)
    batch["advantage"][third[0]] = float("nan")
    return batch


@pytest.mark.parametrize(
    "kwargs",
    [{"clip_norm": None}, {"clip_norm": 0.01, "clip_grad_norm": False}, {"nan_guard": False}],
    ids=str,
)
def test_clipping_and_guards(kwargs, called):
    assert_compiled_equals_eager(lambda step: train(step=step, **kwargs))
    assert ("StepGraph", 4) in called


def test_any_optimizer_gets_compiled_gradients(called, capsys):
    def run(step):
        loss = ppo()
        sgd = torch.optim.SGD(loss.parameters(), lr=0.1, momentum=0.9)
        return train(step=step, loss=loss, optimizer=sgd)

    assert_compiled_equals_eager(run)
    assert set(called) == {("GradientGraph", 1)}
    assert capsys.readouterr().out.count("since the optimizer is a SGD, not a FlatAdam") == 1


@pytest.mark.parametrize("optimizer", [FlatAdam, torch.optim.Adam])
def test_frozen_layers_and_late_groups_are_as_in_the_optimizer(optimizer, monkeypatch):
    monkeypatch.setattr(compiling, "BACKEND", "eager")

    def run(step: CompiledStep | None) -> Trainer:
        loss, batches = ppo(), []
        first, *rest = loss.actor_network.network, loss.critic_network
        groups = [{"params": list(part.parameters())} for part in (first[0], first[2], *rest)]

        def freeze():
            batches.append(0)
            first[0].requires_grad_(len(batches) == 2)
            if len(batches) == 3 and optimizer is FlatAdam:
                loss.zero_grad()
                made.add_param_group(groups[2])

        made = optimizer(groups[: 2 if optimizer is FlatAdam else 3], lr=0.01)
        return train(At("pre_optim_steps", freeze), step=step, loss=loss, optimizer=made)

    assert_same(run(CompiledStep(2)), run(None))


def test_parameters_outside_the_loss_are_trained_eagerly(caplog):
    def run(step: CompiledStep | None) -> Trainer:
        loss, other = ppo(), nn.Parameter(torch.zeros(()))
        loss.add_term(Term([], lambda entries: {"loss_other": (other - 1).square()}))
        parameters = [*loss.parameters(), other]
        return train(step=step, loss=loss, optimizer=torch.optim.Adam(parameters, lr=0.01))

    assert_compiled_equals_eager(run)
    assert "an optimizer has parameters that are not the loss's" in caplog.text


class Crossed(nn.Module):
    """Two losses, of which each depends on the parameters of both."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b = nn.Linear(4, 1), nn.Linear(4, 1)

    def forward(self, batch):
        a, b = self.a(batch["observation"]), self.b(batch["observation"])
        return TensorDict({"loss_a": (a * b).mean(), "loss_b": (a - b + 1).square().mean()})


@pytest.mark.parametrize("every", [None, Every(optim_steps=2)], ids=["always", "every second"])
def test_each_optimizer_gets_the_gradient_of_its_own_losses(every, called):
    runs = []
    for step in (CompiledStep(), None):
        loss = Crossed()
        first = OptimizerHook(torch.optim.SGD(loss.a.parameters(), lr=0.1), ["loss_a"], every=every)
        second = OptimizerHook(FlatAdam(loss.b.parameters(), lr=0.1), ["loss_b"])
        second.register = partial(second.register, name="second")
        runs.append(train(first, second, step=step, loss=loss, optimizer=None))
    assert_same(*runs)
    assert set(called) == {("GradientGraph", 1)}


class Writes(nn.Module):
    """A loss that writes into its batch, as those of other libraries do."""

    in_keys = ("observation",)

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Linear(4, 1)

    def forward(self, batch):
        error = self.net(batch["observation"]).square()
        batch.set("td_error", error.detach())
        return TensorDict({"loss": error.mean()})


def test_a_custom_loss_may_write_into_the_batch():
    found = []
    for step in (CompiledStep(), None):
        seen = At("post_loss", lambda sub_batch: found.append(sub_batch["td_error"].clone()))
        train(seen, step=step, loss=Writes())
    half = len(found) // 2
    torch.testing.assert_close(found[:half], found[half:])


class Branches(Writes):
    """A loss that cannot be a graph: what it computes depends on a number in the data."""

    def forward(self, batch):
        error = self.net(batch["observation"]).square().mean()
        return TensorDict({"loss": error * 2 if error.item() > 0.1 else error})


def test_a_loss_that_cannot_be_compiled_warns_and_runs_eagerly(caplog, monkeypatch):
    monkeypatch.setattr(compiling, "BACKEND", "eager")
    compiled = train(step=CompiledStep(), loss=Branches())
    said = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert len(said) == 1
    assert said[0].startswith("Branches cannot be compiled, and is computed eagerly: ")
    assert "test_compiled_step.py" in said[0]
    assert_same(compiled, train(step=None, loss=Branches()))


def step_nothing(losses, clip_grad_norm, clip_norm, index):
    return losses


def test_losses_and_steps_that_cannot_be_compiled_are_refused():
    with pytest.raises(ConfigError, match=r"CompiledStep: the loss is a function, not a"):
        train(At("optimizer", step_nothing), step=CompiledStep(), loss=lambda b: b, optimizer=None)
    with pytest.raises(ConfigError, match=r"CompiledStep: no OptimizerHook takes the steps"):
        train(At("optimizer", step_nothing), step=CompiledStep(), optimizer=None)
    loss = ppo()
    loss.register_forward_hook(lambda *_: None)
    with pytest.raises(ConfigError, match="ClipPPOLoss has forward hooks"):
        train(step=CompiledStep(), loss=loss)
    loss = ppo()
    loss.__class__ = type("Doubled", (ClipPPOLoss,), {"forward": lambda self, batch: batch})
    with pytest.raises(ConfigError, match=r"Doubled.forward takes no compute="):
        train(step=CompiledStep(), loss=loss)


@pytest.mark.parametrize("kind", slow_except(MEMORIES, 0))
def test_with_a_memory_each_step_is_a_graph(kind, called, monkeypatch, capsys):
    monkeypatch.setattr(compiling, "BACKEND", "eager")

    def remembering() -> ClipPPOLoss:
        torch.manual_seed(1)
        trunk = MemoryTrunk(nn.Linear(4, 4), memory_for(kind, 4, 8))
        actor = CategoricalPolicy(mlp(8, 2, ()), trunk.in_keys, trunk=trunk)
        return ClipPPOLoss(actor, ValueNetwork(mlp(8, 1, ()), trunk.in_keys, trunk=trunk))

    def with_states(batch):
        shape, trunk = batch.shape, loss.actor_network.trunk
        draw = torch.zeros if kind == "transformer" else torch.randn  # of which not all is real
        states = {key: draw(*shape, *zero.shape) for key, zero in states_of(trunk)}
        begins = torch.arange(ROWS).reshape(*shape, 1) % 5 == 0
        return batch.update({"is_init": begins}).update(TensorDict(states, shape))

    def states_of(trunk):
        return zip(trunk.hidden_keys, trunk.memory.hidden.values(), strict=True)

    runs = []
    for step in (CompiledStep(), None):
        loss = remembering()
        hooks = [
            At("batch_process", lambda batch: with_states(batch.reshape(-1, 3))),
            MiniBatches(8, sequences=True),
        ]
        # Of a transformer some gradients are rounding alone, which Adam's eps has to outweigh.
        adam = FlatAdam(loss.parameters(), lr=0.01, eps=1e-3)
        runs.append(train(*hooks, step=step, loss=loss, mini_batches=False, optimizer=adam))
    assert_same(*runs)
    assert set(called) == {("StepGraph", 1)}
    assert "since in a graph a memory is unrolled over time" in capsys.readouterr().out
