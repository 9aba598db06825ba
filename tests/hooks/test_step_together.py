"""Steps of several learners at once: what stays with each of them, and why."""

from __future__ import annotations

from itertools import chain, count

import pytest
import torch
from tensordict import TensorDict
from torch import nn

from hooktrainer import StepTogether, Trainer
from hooktrainer.base.noise import normal_like
from hooktrainer.graphs import compiling
from hooktrainer.graphs.compiling import CannotCompileError
from hooktrainer.graphs.random_calls import GivenDraws, NotedDraws
from hooktrainer.hooks import step_together
from hooktrainer.loop.lockstep import Lockstep
from hooktrainer.optim import FlatAdam
from hooktrainer.testing import FakeCollector


class Squares(nn.Module):
    """The mean square of a network's outputs."""

    def __init__(self, network):
        super().__init__()
        self.network = network
        self.in_keys = ["observation"]

    def forward(self, batch):
        return TensorDict({"loss_square": self.network(batch["observation"]).square().mean()})


class Scaled(Squares):
    """The same, times a parameter that is a single number, as SAC's temperature is."""

    def __init__(self, network):
        super().__init__(network)
        self.scale = nn.Parameter(torch.tensor(0.5))

    def forward(self, batch):
        out = self.network(batch["observation"])
        return TensorDict({"loss_square": (self.scale * out - 1).square().mean()})


class Noisy(Squares):
    """The same under noise on what the network reads."""

    def forward(self, batch):
        seen = batch["observation"]
        return TensorDict({"loss_square": self.network(seen + normal_like(seen)).square().mean()})


class DrawsItself(Squares):
    """The same without the function that losses draw by."""

    def forward(self, batch):
        seen = batch["observation"]
        noisy = seen + torch.randn_like(seen)
        return TensorDict({"loss_square": self.network(noisy).square().mean()})


def plain_network():
    return nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))


def other_network():
    return nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 1))


def trainer(seed, network=None, compiled=False, loss=Squares, lr=1e-2, **kwargs):
    torch.manual_seed(seed)
    loss = loss((network or plain_network)())
    made = Trainer(
        collector=FakeCollector(num_envs=2, time=16, seed=seed),
        total_frames=96,
        optim_steps_per_batch=2,
        loss_module=loss,
        optimizer=FlatAdam(loss.parameters(), lr=lr),
        clip_norm=0.5,
        progress_bar=False,
        **kwargs,
    )
    StepTogether(compiled=compiled).register(made)
    return made


def weights(made):
    return torch.cat([p.detach().reshape(-1) for p in made.loss_module.parameters()])


def run(seeds, say=print, **kwargs):
    group = Lockstep((trainer(seed, **kwargs) for seed in seeds), say=say)
    assert group.run() == [None] * len(seeds)
    return [weights(member.loop) for member in group.members]


def test_a_loss_of_ones_own_is_computed_together_and_each_is_as_by_itself():
    many, (alone,) = run([0, 1, 2]), run([1])
    assert torch.equal(many[1], alone)
    assert not torch.equal(many[0], many[1])
    plain = trainer(1)
    plain.remove_hook("step_together")
    plain.train()
    torch.testing.assert_close(alone, weights(plain), rtol=1e-4, atol=1e-6)
    without_company = trainer(1)
    without_company.train()
    assert torch.equal(weights(without_company), weights(plain))


@pytest.mark.parametrize("compiled", [False, True])
def test_a_parameter_may_be_a_single_number(compiled, monkeypatch):
    monkeypatch.setattr(compiling, "BACKEND", "eager")
    many, (alone,) = (run(seeds, compiled=compiled, loss=Scaled) for seeds in ([0, 1, 2], [1]))
    assert torch.equal(many[1], alone)
    plain = trainer(1, loss=Scaled)
    plain.train()
    torch.testing.assert_close(alone, weights(plain), rtol=1e-4, atol=1e-6)


def test_what_has_kernels_that_depend_on_others_is_computed_by_each():
    said = []
    two = run([0, 1], said.append, network=other_network)
    assert said == [
        "each seed computes its own optimizer steps, since a LayerNorm has no kernel whose bits "
        "depend on one learner alone."
    ]
    assert len(two) == 2


def test_draws_are_noted_and_given_again():
    def draw(x):
        return torch.randn_like(x) + torch.rand(3) + torch.empty(3).exponential_()

    x = torch.zeros(3)
    torch.manual_seed(0)
    with NotedDraws() as noted:
        expected = draw(x)
    torch.manual_seed(0)
    numbers = [call() for call in noted.draws]
    with GivenDraws(numbers):
        assert torch.equal(draw(x), expected)
    with NotedDraws(), pytest.raises(CannotCompileError, match=r"normal draws.*depend on others"):
        torch.normal(x, torch.ones(3))


@pytest.mark.parametrize("compiled", [False, True])
def test_what_a_loss_draws_is_each_learners_own(compiled, monkeypatch):
    monkeypatch.setattr(compiling, "BACKEND", "eager")
    said = []
    many, (alone,) = (
        run(seeds, said.append, compiled=compiled, loss=Noisy) for seeds in ([0, 1, 2], [1])
    )
    assert not [line for line in said if "cannot" in line]
    assert torch.equal(many[1], alone)
    plain = trainer(1, loss=Noisy)
    plain.remove_hook("step_together")
    plain.train()
    torch.testing.assert_close(alone, weights(plain), rtol=1e-4, atol=1e-6)


@pytest.mark.slow
@pytest.mark.usefixtures("inductor")
def test_compiled_networks_of_odd_sizes_do_not_depend_on_how_many_there_are():

    def odd_network():
        return nn.Sequential(nn.Linear(4, 7), nn.Tanh(), nn.Linear(7, 5), nn.Linear(5, 1))

    many, (alone,) = (run(seeds, compiled=True, network=odd_network) for seeds in ([0, 1, 2], [1]))
    assert torch.equal(many[1], alone)


def test_a_loss_that_draws_by_itself_is_compiled_for_none_and_that_is_said_once(monkeypatch):
    monkeypatch.setattr(compiling, "BACKEND", "eager")
    said = []
    made = run([0, 1], said.append, compiled=True, loss=DrawsItself)
    refused = [line for line in said if "cannot be compiled for all seeds" in line]
    assert len(refused) == 1
    assert refused[0].startswith("DrawsItself cannot")
    plain = trainer(1, loss=DrawsItself)
    plain.remove_hook("step_together")
    plain.train()
    assert torch.equal(made[1], weights(plain))


def test_memory_of_learners_that_have_ended_is_let_go():
    def made():
        for seed, frames in enumerate((32, 96, 1600, 1600)):
            one = trainer(seed)
            one.total_frames = frames
            yield one

    group = Lockstep(made())
    assert group.run() == [None] * 4
    (server,) = group.servers.values()
    assert len(server._groups) == 1  # the last two are together for long
    ended, stayed = group.members[0].loop, group.members[2].loop
    widths = [
        next(iter(loop.loss_module.parameters())).untyped_storage().nbytes()
        for loop in (ended, stayed)
    ]
    assert widths[0] < 2 * widths[1] / 4  # its own parameters alone, not the rows of four


def test_gradients_are_those_of_each_learner_clipped_and_finite_by_itself():
    """One learner's NaN keeps nobody else from stepping."""
    spoiled, good = trainer(0), trainer(1)
    with torch.no_grad():
        next(iter(spoiled.loss_module.parameters())).fill_(float("nan"))
    alone = trainer(1)

    def run(loops):
        for loop in loops:
            loop.remove_hook("nan_guard")
        return Lockstep(iter(loops)).run()

    run([spoiled, good])
    run([alone])
    assert weights(good).isfinite().all()
    assert torch.equal(weights(good), weights(alone))


def test_each_learner_steps_by_its_own_learning_rate():
    rates = [1e-2, 1e-3, 1e-2]
    group = Lockstep(trainer(seed, lr=rate) for seed, rate in enumerate(rates))
    assert group.run() == [None] * 3
    for seed, (rate, member) in enumerate(zip(rates, group.members, strict=True)):
        alone = Lockstep([trainer(seed, lr=rate)])
        assert alone.run() == [None]
        assert torch.equal(weights(member.loop), weights(alone.members[0].loop))


@pytest.mark.parametrize(("seconds", "made"), [(1e9, [22]), (20.0, [22, 17])])
def test_what_is_compiled_serves_until_what_it_wastes_costs_more_than_compiling(
    seconds, made, monkeypatch
):
    """Six learners, and behind them sixteen times the first, as mini-batches have two rows."""
    clock = chain([0.0, seconds], count(seconds))  # a second for each step but the first
    monkeypatch.setattr(step_together, "perf_counter", lambda: next(clock))

    def trainers(seeds, frames):
        for seed in seeds:
            one = trainer(seed, compiled=True)
            one.total_frames = frames.get(seed, 3200)
            yield one

    frames = {1: 32, 2: 64, 3: 96, 4: 128, 0: 128}
    group = Lockstep(trainers(range(6), frames))
    assert group.run() == [None] * 6
    (server,) = group.servers.values()
    assert [rows for _, rows in server._patterns] == made
    alone = Lockstep(trainers([5], frames))
    assert alone.run() == [None]
    assert torch.equal(weights(group.members[5].loop), weights(alone.members[0].loop))
