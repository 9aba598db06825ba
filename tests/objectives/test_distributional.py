"""C51, QR-DQN and IQN: by hand, as TorchRL's, sb3-contrib's, Tianshou's."""

from __future__ import annotations

import itertools

import pytest
import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule
from test_dqn import batch_by_hand, make_batch
from test_ensembles import recorded_batch, wave, with_other_targets
from torch import nn
from torchrl.modules import DistributionalQValueActor
from torchrl.objectives import DistributionalDQNLoss as TorchRLLoss
from torchrl.objectives import HardUpdate as TorchRLUpdate

from hooktrainer.errors import ConfigError
from hooktrainer.networks import (
    CategoricalQNetwork,
    FractionEmbedding,
    QNetwork,
    QuantileQNetwork,
    mlp,
    q_head,
)
from hooktrainer.objectives import CategoricalDQNLoss, DQNLoss, QuantileDQNLoss
from hooktrainer.objectives.distributional import project

N = 7
NOW = [[-1.0, 0.5, 2.0], [0.0, 0.25, 3.0]]
TARGET = [[0.0, 2.5, -3.0], [1.0, 0.5, -0.75]]


def test_probabilities_are_shared_among_the_nearest_atoms():
    atoms = torch.tensor([0.0, 1.0, 2.0])
    returns = torch.tensor([[0.25, 1.0, 9.0], [-1.0, 1.5, 2.0]])
    probability = torch.tensor([[0.4, 0.4, 0.2], [0.5, 0.3, 0.2]])
    expected = [[0.3, 0.1 + 0.4, 0.2], [0.5, 0.15, 0.15 + 0.2]]
    torch.testing.assert_close(project(probability, returns, atoms), torch.tensor(expected))
    returns[0, 1] = float("nan")  # for the trainer to say who gave it
    assert project(probability, returns, atoms).isnan().any(1).tolist() == [True, False]
    returns[0, 1] = 1.0
    halved = project(probability.bfloat16(), returns, atoms)
    torch.testing.assert_close(halved, torch.tensor(expected), atol=1e-2, rtol=1e-2)


class Transposed(nn.Module):
    def forward(self, x):
        return x.transpose(-1, -2)


@pytest.mark.parametrize("optional", [None, "priority_weight", "steps_to_next_obs"])
def test_c51_equals_torchrls(optional):
    network = CategoricalQNetwork(mlp(4, 3 * N, (16,)), N, v_min=-3.0, v_max=3.0)
    batch = make_batch()
    if optional == "priority_weight":
        batch[optional] = torch.rand(32)
    if optional == "steps_to_next_obs":
        batch[optional] = torch.randint(1, 4, (32, 1))
    ours = CategoricalDQNLoss(network, gamma=0.9, double_dqn=True)
    by_atom = nn.Sequential(network.network, nn.Unflatten(-1, (3, N)), Transposed())
    module = TensorDictModule(by_atom, ["observation"], ["action_value"])
    actor = DistributionalQValueActor(module, support=network.atoms, action_space="categorical")
    theirs = TorchRLLoss(actor, gamma=0.9)
    TorchRLUpdate(theirs)  # or it warns that there is none
    moved = {}  # by shape, of which there are no two alike
    for name, value in ours.target_value_network.named_buffers():
        if name != "atoms":
            moved[value.shape] = value.add_(0.3 * torch.randn_like(value))
    for value in theirs.target_value_network_params.values(True, True):
        if value.shape in moved:
            value.copy_(moved.pop(value.shape))
    assert not moved
    our_batch = batch.clone()
    our_loss, their_loss = ours(our_batch)["loss"], theirs(batch.clone())["loss"]
    torch.testing.assert_close(our_loss, their_loss)
    parameters = list(network.parameters())
    for mine, other in zip(
        torch.autograd.grad(our_loss, parameters),
        torch.autograd.grad(their_loss, parameters),
        strict=True,
    ):
        torch.testing.assert_close(mine, other)
    assert (our_batch["td_error"] > 0).all()


def test_the_priority_of_c51_is_a_divergence():
    """Zero where the prediction is the target, here a half at 0 and a half at 1."""
    network = CategoricalQNetwork(nn.Identity(), 3, v_min=0.0, v_max=2.0)
    batch = batch_by_hand()
    batch["observation"] = torch.tensor([[0.0, 0.0, -99.0] * 2, [0.0, 0.0, 0.0] * 2])
    batch["next", "observation"] = batch["observation"]
    batch["next", "reward"].fill_(0.5)
    batch["next", "terminated"].fill_(True)
    losses = CategoricalDQNLoss(network)(batch)
    divergence = torch.tensor([[0.0], [1.5]]).clamp_min(1.0).log()
    torch.testing.assert_close(batch["td_error"], divergence, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(losses["loss"], torch.tensor([2.0, 3.0]).log().mean())


# The numbers of sb3-contrib 2.9.2: for each row and for both,
# sb3_contrib.common.utils.quantile_huber_loss(torch.tensor(NOW), torch.tensor(TARGET)).
SB3 = [1.75, 0.623263955116272]


def quantile_batch() -> TensorDict:
    """Rows of which the quantiles of the action are NOW, and those of the best next one TARGET."""
    now, target = torch.tensor(NOW), torch.tensor(TARGET)
    batch = batch_by_hand()  # the actions are 1 and 0
    batch["observation"] = torch.stack([torch.cat([now[0] - 9, now[0]]), torch.cat([now[1]] * 2)])
    batch["next", "observation"] = torch.cat([target - 9, target], 1)
    batch["next", "reward"].fill_(0.0)
    batch["next", "terminated"].fill_(False)
    return batch


@pytest.mark.parametrize("double", [False, True])
def test_qr_equals_sb3_contribs(double):
    batch = quantile_batch()
    loss = QuantileDQNLoss(QuantileQNetwork(nn.Identity(), 3), gamma=1.0, double_dqn=double)
    losses = loss(batch)
    torch.testing.assert_close(batch["td_error"].flatten(), torch.tensor(SB3))
    torch.testing.assert_close(losses["loss"], torch.tensor(SB3).mean())
    batch["priority_weight"] = torch.tensor([1.0, 3.0])
    torch.testing.assert_close(loss(batch)["loss"], torch.tensor((SB3[0] + 3 * SB3[1]) / 4))


def test_qr_by_hand():
    # One row: quantiles 0 and 3 of the fractions 1/4 and 3/4, both targets 1 + 0.5 * 0.
    batch = batch_by_hand()[:1]
    batch["observation"] = torch.tensor([[9.0, 9.0, 0.0, 3.0]])
    batch["next", "observation"] = torch.zeros(1, 4)
    loss = QuantileDQNLoss(QuantileQNetwork(nn.Identity(), 2), gamma=0.5)(batch)["loss"]
    # The first is 1 too low, Huber 0.5, the second 2 too high, Huber 1.5.
    assert loss.item() == pytest.approx(0.25 * 0.5 + (1 - 0.75) * 1.5)


def iqn(actions=3, n=5, features=8, **options) -> QuantileQNetwork:
    head = q_head(features, actions, (6,), **options)
    return QuantileQNetwork(
        mlp(4, features, ()), n, embedding=FractionEmbedding(features, 16), head=head
    )


def test_iqn_draws_fractions_of_its_own_for_each_row():
    network = iqn()
    x = torch.randn(6, 4)
    quantiles, fractions = network.distribution(x)
    assert (quantiles.shape, fractions.shape) == ((6, 3, 5), (6, 5))
    assert ((fractions >= 0) & (fractions < 1)).all()
    assert len(fractions.unique()) == 30
    embedded = network.embedding(network.network(x), fractions)
    expected = network.head(embedded.reshape(30, 8)).reshape(6, 5, 3).transpose(1, 2)
    torch.testing.assert_close(quantiles, expected)
    # It acts on evenly spaced ones, without random numbers.
    assert torch.equal(network.act(x)["action"], network.act(x)["action"])
    spaced = torch.tensor([0.1, 0.3, 0.5, 0.7, 0.9]).expand(6, 5)
    value = network.head(network.embedding(network.network(x), spaced)).mean(1)
    torch.testing.assert_close(network.evaluate(x), value)
    assert not network.remember(x)[0].requires_grad


def test_iqn_is_the_quantile_loss_of_what_it_draws():
    network, batch = iqn(), make_batch(8)
    loss = QuantileDQNLoss(network, gamma=0.9, double_dqn=True)
    torch.manual_seed(1)
    value = loss(batch)["loss"]
    torch.manual_seed(1)
    now, fractions = network.distribution(batch["observation"])
    best = network.evaluate(batch["next", "observation"]).argmax(-1)
    then, _ = loss.target_value_network.distribution(batch["next", "observation"])
    total = 0.0
    for row, i, j in itertools.product(range(8), range(5), range(5)):
        going = 0.9 * ~batch["next", "terminated"][row, 0]
        target = batch["next", "reward"][row, 0] + going * then[row, best[row], j]
        error = (target - now[row, batch["action"][row], i]).detach()
        huber = 0.5 * error**2 if error.abs() <= 1 else error.abs() - 0.5
        total += (fractions[row, i] - float(error < 0)).abs() * huber / 5 / 8
    torch.testing.assert_close(value, total)


def test_iqn_equals_tianshous(monkeypatch):
    """One step of Tianshou 0.5.1's IQNPolicy with these networks, batch and fractions.

    It has no cosine of ``i = 0``, which is 1: its bias is the sum of that one's weight and ours.
    """
    network, batch = iqn(), recorded_batch()
    for place, parameter in enumerate(network.parameters()):
        parameter.data = wave(parameter.shape, place)
    batch["observation"], batch["next", "observation"] = wave((6, 4)), wave((6, 4), 2.0)
    batch["action"] = torch.arange(6) % 3
    loss = with_other_targets(QuantileDQNLoss(network, gamma=0.9, double_dqn=True), "value_network")
    phases = iter([0.0, 0.2])  # of the fractions of the network and of its target

    def fractions(*shape, device):
        return (0.37 * torch.arange(30) + next(phases)).view(shape) % 1

    monkeypatch.setattr(torch, "rand", fractions)
    out = loss(batch)["loss"]
    assert out.item() == pytest.approx(5.6637554, abs=1e-5)
    out.backward()
    norms = [parameter.grad.norm().item() for parameter in network.parameters()]
    theirs = [3.7203579, 4.0908308, 4.242322, 1.311999, 3.6978264, 0.7393075, 5.6101317, 3.536803]
    assert norms == pytest.approx(theirs, abs=1e-5)


NETWORKS = {
    "c51": lambda **options: CategoricalQNetwork(mlp(4, 3 * N), N, **options),
    "qr": lambda **options: QuantileQNetwork(mlp(4, 3 * N), N, **options),
}


@pytest.mark.parametrize("kind", NETWORKS)
def test_it_acts_on_means_and_never_as_forbidden(kind):
    network = NETWORKS[kind](action_mask_key="mask")
    x, mask = torch.randn(64, 4), torch.rand(64, 3) < 0.6
    mask[:, 1] = True
    numbers, places = network.distribution(x, mask)
    mean = numbers.mean(-1) if kind == "qr" else (numbers.exp() * places).sum(-1)
    torch.testing.assert_close(network.evaluate(x, torch.ones(64, 3) > 0), mean)
    action = network.act(x, mask)["action"]
    assert torch.equal(action, mean.masked_fill(~mask, -1e9).argmax(-1))
    batch = make_batch(64)
    batch["mask"], batch["next", "mask"] = mask, mask
    loss = (CategoricalDQNLoss if kind == "c51" else QuantileDQNLoss)(network, gamma=0.9)
    out = loss(batch)["loss"]
    assert torch.isfinite(out)
    batch["next", "mask"] = ~mask | (torch.arange(3) == 1)
    assert not torch.allclose(loss(batch)["loss"], out)


def test_rescaled_values():
    # h(x) = sqrt(x + 1) - 1 + 0.001 x: h(8) = 2.008, h(-3) = -1.003, h(15) = 3.015.
    batch = batch_by_hand()
    batch["observation"] = torch.tensor([[0.0, 2.5], [-1.0, 0.0]])
    batch["next", "observation"] = torch.tensor([[0.0, 2.008], [9.0, 9.0]])
    batch["next", "reward"] = torch.tensor([[11.0], [-3.0]])
    losses = DQNLoss(QNetwork(nn.Identity()), gamma=0.5, rescale_values=True)(batch)
    errors = torch.tensor([[2.5 - 3.015], [-1.0 + 1.003]])
    torch.testing.assert_close(batch["td_error"], errors**2, atol=1e-4, rtol=1e-3)
    torch.testing.assert_close(losses["loss"], (errors**2).mean(), atol=1e-4, rtol=1e-3)


def test_quantiles_of_rescaled_values_are_rescaled_quantiles():
    batch = quantile_batch()
    batch["next", "observation"] = batch["next", "observation"].clamp_min(0.0)  # h(0) = 0
    network = QuantileQNetwork(nn.Identity(), 3)
    losses = [
        QuantileDQNLoss(network, gamma=gamma, rescale_values=rescales)(batch)["loss"]
        for gamma, rescales in ((1.0, False), (1.0, True), (0.5, True))
    ]
    torch.testing.assert_close(losses[0], losses[1], atol=1e-3, rtol=1e-3)
    assert abs(losses[2] - losses[1]) > 0.1


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: CategoricalQNetwork(mlp(4, 2), 1), "n=1 at least 2"),
        (
            lambda: CategoricalQNetwork(mlp(4, 6), 3, v_min=2.0, v_max=1.0),
            "v_min=2.0 must be below",
        ),
        (lambda: QuantileQNetwork(mlp(4, 6), 3, embedding=FractionEmbedding(6)), "needs a head"),
    ],
)
def test_what_cannot_work_is_refused(make, said):
    with pytest.raises(ConfigError, match=said):
        make()
