"""Losses of SAC's and TD3's critics: ensembles and distributions; networks, normalization."""

from __future__ import annotations

import copy
from functools import partial

import pytest
import torch
import torchrl.objectives as torchrl
from tensordict import TensorDict
from tensordict.nn import TensorDictModule
from test_off_policy import gradients, make_batch, make_critics, squashed
from torch import nn
from torchrl.modules import ProbabilisticActor, TanhNormal

from hooktrainer.errors import ConfigError
from hooktrainer.networks import (
    BatchRenorm,
    Box,
    Ensemble,
    UnitLinear,
    ValueNetwork,
    batch_statistics,
    mlp,
    project_weights,
    unit_mlp,
)
from hooktrainer.networks.ensemble import dropout_and_layer_norm, renormalized
from hooktrainer.objectives import (
    CategoricalSACLoss,
    CategoricalTD3Loss,
    CrossQLoss,
    REDQLoss,
    SACLoss,
    TQCLoss,
    XQCLoss,
    quantile_huber,
)
from hooktrainer.objectives.common import this_key


def wave(shape, phase=0.0):
    return torch.sin(0.7 * torch.arange(torch.Size(shape).numel()) + phase).reshape(shape)


def recorded_batch():
    following = TensorDict(
        observation=wave((6, 3), 2.0),
        reward=wave((6, 1), 3.0),
        terminated=torch.arange(6).eq(4).unsqueeze(-1),
        batch_size=[6],
    )
    content = {"observation": wave((6, 3)), "action": wave((6, 1), 1.0), "next": following}
    return TensorDict(content, batch_size=[6])


class FixedActor(nn.Module):
    """An action and a log-probability that are functions of the observation."""

    in_keys = ("observation",)
    action_features = 1

    def rsample(self, observation):
        return (observation[:, :1] * 0.5 - 0.1).tanh(), observation[:, 1] - 1.0


def ensemble(outputs=1, activation=nn.ReLU, **options):
    """Two Q-functions of 3 observed and 1 action features, whose parameters are waves."""
    network = Ensemble(2, 4, outputs, (4,), activation, **options)
    for place, parameter in enumerate(network.parameters()):
        parameter.data = torch.stack(
            [wave(parameter.shape[1:], 10 * number + place) for number in range(2)]
        )
    return ValueNetwork(network, ["observation", "action"])


OPTIONS = {"gamma": 0.9, "alpha_init": 0.3, "fixed_alpha": True, "loss_function": "l2"}


# -- the quantile Huber loss ----------------------------------------------------------------------


def test_the_quantile_huber_loss_by_hand():
    quantiles, targets = torch.tensor([[0.0, 2.0]]), torch.tensor([[1.0, 3.0, -0.5]])
    # Of quantile 0 at fraction 0.25: distances 1, 3, -0.5; above it the weight is 0.25, else 0.75.
    first = (0.25 * 0.5 + 0.25 * 2.5 + 0.75 * 0.125) / 3
    # Of quantile 2 at fraction 0.75: distances -1, 1, -2.5.
    second = (0.25 * 0.5 + 0.75 * 0.5 + 0.25 * 2.0) / 3
    found = quantile_huber(quantiles, targets, torch.tensor([0.25, 0.75]))
    torch.testing.assert_close(found, torch.tensor([first + second]))


def test_its_minimum_is_at_the_quantiles():
    targets = torch.linspace(-50.0, 50.0, 401)  # wide, as the loss is quadratic near 0
    fractions = torch.tensor([0.1, 0.5, 0.9])
    quantiles = torch.tensor([-40.0, 0.0, 40.0]).requires_grad_()
    quantile_huber(quantiles, targets, fractions).backward()
    torch.testing.assert_close(quantiles.grad, torch.zeros(3), atol=5e-3, rtol=0.0)


# -- TQC ------------------------------------------------------------------------------------------


def test_tqc_equals_sb3_contribs():
    """One step of sb3-contrib 2.9.2's TQC.train with these networks, batch, actions and alpha."""
    loss = TQCLoss(FixedActor(), ensemble(5), num_quantiles=5, drop_quantiles=2, **OPTIONS)
    out = loss(recorded_batch())
    assert out["loss_qvalue"].item() == pytest.approx(0.8755869269, abs=1e-6)
    assert out["loss_actor"].item() == pytest.approx(-0.4462596476, abs=1e-6)
    out["loss_qvalue"].backward()
    norms = [p.grad[0].norm().item() for p in loss.qvalue_network.parameters()]
    theirs = [0.1070768982, 0.1846503168, 0.2075135857, 0.1062549204]
    assert norms == pytest.approx(theirs, abs=1e-6)


def test_tqc_leaves_out_the_highest_quantiles_of_all_networks_together():
    values = [[1.0, 5.0, 9.0], [2.0, 8.0, 7.0]]  # without one each: 1, 2, 5, 7
    critics = []
    for quantiles in values:
        layer = nn.Linear(5, 3)
        layer.weight.data.zero_()
        layer.bias.data = torch.tensor(quantiles)
        critics.append(ValueNetwork(layer, ["observation", "action"]))
    options = {**OPTIONS, "alpha_init": 1e-20, "num_quantiles": 3}
    batch = make_batch(4)
    batch["next", "terminated"].zero_()
    loss = TQCLoss(squashed(), critics, drop_quantiles=1, **options)
    out = loss(batch)
    target = batch["next", "reward"] + 0.9 * torch.tensor([1.0, 2.0, 5.0, 7.0])
    fractions = torch.tensor([1 / 6, 3 / 6, 5 / 6])
    each = [quantile_huber(torch.tensor(v).expand(4, 3), target, fractions) for v in values]
    torch.testing.assert_close(out["loss_qvalue"], torch.stack(each).mean() / 3)
    torch.testing.assert_close(out["loss_actor"], torch.tensor(-32.0 / 6))
    worst = torch.maximum((5.0 - target.mean(-1)).abs(), (17 / 3 - target.mean(-1)).abs())
    torch.testing.assert_close(batch["td_error"], worst)


# -- REDQ and DroQ --------------------------------------------------------------------------------


class Parameters(nn.Module):
    """Mean and deviation of a `SquashedGaussian`."""

    def forward(self, x):
        loc, log_std = x.chunk(2, -1)
        return loc, log_std.exp()


def test_redq_equals_torchrls():
    actor, critics, batch = squashed(), make_critics(5), make_batch()
    module = TensorDictModule(
        nn.Sequential(copy.deepcopy(actor.network), Parameters()), ["observation"], ["loc", "scale"]
    )
    their_actor = ProbabilisticActor(
        module,
        in_keys=["loc", "scale"],
        distribution_class=TanhNormal,
        return_log_prob=True,
    )
    theirs = torchrl.REDQLoss(
        their_actor,
        copy.deepcopy(critics),
        num_qvalue_nets=5,
        sub_sample_len=2,
        target_entropy=-2.0,
        alpha_init=0.3,
        loss_function="l2",
    )
    theirs.make_value_estimator(gamma=0.9)
    torchrl.SoftUpdate(theirs, tau=0.1)

    class Ours(REDQLoss):
        """Draws in TorchRL's order: the subset, then the actions of both states together."""

        def _values_and_target(self, entries, alpha):
            torch.manual_seed(1)
            torch.randperm(5)
            seen = torch.stack([entries["observation"], entries["next", "observation"]])
            drawn = self.actor_network.rsample(seen)
            of_this, of_next = ([x[place] for x in drawn] for place in range(2))
            self.by_state = {"this": of_this, "next": [x.detach() for x in of_next]}
            return super()._values_and_target(entries, alpha)

        def _drawn(self, entries, at=this_key):
            return self.by_state["this" if at is this_key else "next"]

        def _for_target(self, values):
            torch.manual_seed(1)  # the subset again
            return super()._for_target(values)

    ours = Ours(actor, critics, num_in_target=2, **{**OPTIONS, "fixed_alpha": False})
    torch.manual_seed(1)
    expected = theirs(batch.clone())
    found = ours(batch)
    torch.testing.assert_close(found["loss_qvalue"], 5 * expected["loss_qvalue"])
    torch.testing.assert_close(found["loss_actor"], expected["loss_actor"])
    found["loss_actor"].backward()
    expected["loss_actor"].backward()
    ours_by_name = gradients(ours.actor_network)
    for name in ("0.weight", "0.bias", "2.weight", "2.bias", "4.weight", "4.bias"):
        key = ("module", "0", "module", "0", *name.split("."))
        expected = theirs.actor_network_params.get(key).grad
        torch.testing.assert_close(ours_by_name[f"network.{name}"], expected)


def test_the_subset_of_redq_changes_from_call_to_call():
    loss = REDQLoss(squashed(), make_critics(6), num_in_target=1, **OPTIONS)
    values = torch.arange(6.0).unsqueeze(-1).expand(6, 4)
    assert len({loss._for_target(values)[0].item() for _ in range(60)}) == 6


def test_an_ensemble_equals_its_networks_one_by_one():
    network = Ensemble(3, 5, 1, (8,), nn.ReLU)
    networks = make_networks(network)
    together = ValueNetwork(network, ["observation", "action"])
    one_by_one = [ValueNetwork(each, ["observation", "action"]) for each in networks]
    actor, batch = squashed(), make_batch()
    out = []
    for critics in (together, one_by_one):
        loss = REDQLoss(copy.deepcopy(actor), critics, num_in_target=3, **OPTIONS)
        torch.manual_seed(1)
        losses = loss(batch)
        losses["loss_actor"].backward()
        out.append((dict(losses), gradients(loss.actor_network), batch["td_error"]))
    torch.testing.assert_close(out[0], out[1])


def make_networks(ensemble):
    """The networks of an ensemble, one by one."""
    layers = [layer for layer in ensemble.layers if hasattr(layer, "weight")]
    networks = [mlp(5, 1, (8,), nn.ReLU) for _ in range(ensemble.networks)]
    for number, network in enumerate(networks):
        for layer, own in zip(layers, (network[0], network[2]), strict=True):
            own.weight.data = layer.weight.data[number].clone()
            own.bias.data = layer.bias.data[number, 0].clone()
    return networks


def test_the_layers_of_droq_are_linear_dropout_norm_activation():
    network = Ensemble(2, 4, 1, (6,), nn.ReLU, norm=dropout_and_layer_norm(0.5))
    x = torch.randn(3, 4)
    linear, norm, _, last = network.layers
    dropout, layer_norm = norm
    for number in range(2):
        layer_norm.weight.data[number] = wave((1, 6), number)
        layer_norm.bias.data[number] = wave((1, 6), number + 5)
    torch.manual_seed(0)
    found = network(x)
    torch.manual_seed(0)
    hidden = dropout(torch.stack([x @ w.T for w in linear.weight]) + linear.bias)
    for number in range(2):
        own = nn.functional.layer_norm(
            hidden[number], (6,), layer_norm.weight[number, 0], layer_norm.bias[number, 0]
        )
        value = own.relu() @ last.weight[number].T + last.bias[number]
        torch.testing.assert_close(found[:, [number]], value)
    assert not torch.equal(network(x), network(x))


def test_droq_equals_its_authors(monkeypatch):
    """Hiraoka's code (f89a79a: KUCodebase, SacAgent), with these networks, actions and dropout."""

    def dropout(x, p, training, inplace):
        return x * (wave(x.shape[-2:]) > -0.5) / (1 - p) if training else x

    monkeypatch.setattr(nn.functional, "dropout", dropout)
    critics = ensemble(norm=dropout_and_layer_norm(0.25))
    loss = with_other_targets(REDQLoss(FixedActor(), critics, **OPTIONS))
    out = loss(recorded_batch())
    assert out["loss_qvalue"].item() == pytest.approx(9.1778984, abs=1e-5)
    assert out["loss_actor"].item() == pytest.approx(-0.5254590, abs=1e-6)
    out["loss_qvalue"].backward()
    norms = [p.grad[0].norm().item() for p in loss.qvalue_network.parameters()]
    theirs = [0.3443569, 0.2854202, 1.553062, 1.0760493, 1.973667, 1.7684934]
    assert norms == pytest.approx(theirs, abs=1e-5)


# -- CrossQ ---------------------------------------------------------------------------------------


def crossq(activation=nn.ReLU, **options):
    critics = ensemble(activation=activation, linear=renormalized)
    return CrossQLoss(FixedActor(), critics, **{"policy_delay": 1, **OPTIONS, **options})


def test_crossq_equals_sb3_contribs():
    """One step of sb3-contrib 2.9.2's CrossQ.train, whose loss of the critics is half of this."""
    loss = crossq()
    out = loss(recorded_batch())
    assert out["loss_qvalue"].item() == pytest.approx(2 * 1.759912133, abs=1e-5)
    assert out["loss_actor"].item() == pytest.approx(0.7173919678, abs=1e-5)
    out["loss_qvalue"].backward()
    norms = [p.grad[0].norm().item() / 2 for p in loss.qvalue_network.parameters()]
    theirs = [0.3417, 0.29305, 0.32177, 0.2075, 0.33591, 2.10787, 2.06353, 1.4941]
    assert norms == pytest.approx(theirs, abs=2e-5)
    last = loss.qvalue_network[0].network.layers[-1][0]
    assert last.mean[1, 0].tolist() == pytest.approx([0.0127, 0.0008, 0.0267, 0.0012], abs=6e-5)
    assert last.var[1, 0].tolist() == pytest.approx([0.9976, 0.9903, 0.9966, 0.9905], abs=6e-5)


def test_crossq_equals_sb3_contribs_after_the_warm_up():
    """With a tiny eps, which theirs adds after the correction, not before."""
    loss = crossq(nn.Tanh)
    norms = [m for m in loss.qvalue_network.modules() if isinstance(m, BatchRenorm)]
    for place, norm in enumerate(norms):
        norm.warm_up, norm.eps = -1, 1e-8
        for number in range(2):
            norm.mean[number] = 0.3 * wave(norm.mean.shape[1:], place + number)
            norm.var[number] = 1 + 0.5 * wave(norm.var.shape[1:], place + number)
    out = loss(recorded_batch())
    assert out["loss_qvalue"].item() == pytest.approx(2 * 2.967151165, abs=1e-4)
    assert out["loss_actor"].item() == pytest.approx(-0.1786440760, abs=1e-5)
    theirs = [0.2780, 0.1238, -0.0661, -0.2489]
    assert norms[-1].mean[1, 0].tolist() == pytest.approx(theirs, abs=1e-4)


def test_crossq_has_no_target_network_and_delays_its_actor():
    loss = crossq(policy_delay=3)
    assert not [name for name in loss.state_dict() if name.startswith("target")]
    assert ["loss_actor" in loss(recorded_batch()) for _ in range(4)] == [False, False, True, False]


def test_the_actor_of_crossq_learns_statistics_in_its_own_update_only():
    actor = squashed()
    actor.network[0] = nn.Sequential(BatchRenorm(3), actor.network[0])
    norm = actor.network[0][0]
    loss = CrossQLoss(actor, make_critics(), policy_delay=2, **OPTIONS)
    batch = make_batch()
    loss(batch)
    assert norm.batches == 0
    loss(batch)
    assert norm.batches == 1
    torch.testing.assert_close(norm.mean[0], 0.01 * batch["observation"].mean(0))
    loss.eval()
    loss(batch)
    assert norm.batches == 1
    before = norm.mean.clone()
    actor(batch)
    actor.train()(batch)
    assert torch.equal(norm.mean, before)


@pytest.mark.parametrize("networks", [(), (2,)])
def test_batch_renormalization_by_hand(networks):
    norm = BatchRenorm(3, networks, momentum=0.1, warm_up=0, eps=0.0)
    x = wave((*networks, 50, 3)) * 10.0 + 3.0
    mean, std = x.mean(-2, keepdim=True), x.std(-2, keepdim=True)
    with batch_statistics(norm):
        torch.testing.assert_close(norm(x), (x - mean) / std)  # the first is the warm-up
        running, deviation = 0.1 * mean, (0.9 + 0.1 * std**2).sqrt()
        torch.testing.assert_close(norm.mean, running)
        scale = (std / deviation).clamp(1 / 3, 3)
        shift = ((mean - running) / deviation).clamp(-5, 5)
        torch.testing.assert_close(norm(x), (x - mean) / std * scale + shift)
    norm.reset_parameters()
    torch.testing.assert_close(norm(x), x)


@pytest.mark.parametrize("warm_up", [None, 9])
@pytest.mark.parametrize("networks", [(), (2,)])
def test_batch_statistics_and_their_gradients_by_hand(networks, warm_up):
    norm = BatchRenorm(3, networks, momentum=0.1, warm_up=warm_up, eps=0.5).double()
    norm.weight.data += wave(norm.weight.shape).double()
    norm.bias.data += wave(norm.bias.shape).double()
    x = (wave((*networks, 50, 3)).double() * 10.0 + 3.0).requires_grad_()
    var = x.var(-2, correction=int(warm_up is not None), keepdim=True)
    mean = x.mean(-2, keepdim=True)
    by_hand = (x - mean) / (var + 0.5).sqrt() * norm.weight + norm.bias
    with batch_statistics(norm):
        out = norm(x)
    torch.testing.assert_close(out, by_hand)
    torch.testing.assert_close(norm.mean, 0.1 * mean)
    torch.testing.assert_close(norm.var, 0.9 + 0.1 * var)
    inputs = [x, norm.weight, norm.bias]
    found = torch.autograd.grad(out.pow(3).sum(), inputs)
    torch.testing.assert_close(found, torch.autograd.grad(by_hand.pow(3).sum(), inputs))


@pytest.mark.parametrize("warm_up", [None, 9])
def test_batch_statistics_are_kept_precisely_under_autocast(warm_up):
    norm = BatchRenorm(3, (2,), momentum=1.0, warm_up=warm_up)
    x = wave((2, 50, 3))
    with batch_statistics(norm), torch.autocast("cpu", torch.bfloat16):
        norm(x.bfloat16())
    assert norm.mean.dtype == norm.var.dtype == torch.float32
    torch.testing.assert_close(norm.mean, x.mean(-2, keepdim=True), atol=0.02, rtol=0.02)


# -- categorical critics: those of SAC and FastTD3, and XQC ----------------------------------------

ATOMS = {"num_atoms": 5, "v_min": -1.0, "v_max": 1.0}


def with_other_targets(loss, network="qvalue_network"):
    """A loss whose target networks are not its networks."""
    targets = dict(getattr(loss, f"target_{network}").named_buffers())
    for name, parameter in getattr(loss, network).named_parameters():
        targets[name].copy_(0.5 * parameter.detach() + 0.1)
    return loss


def of_logits(*logits):
    """Q-functions of three atoms, the same for all observations and actions."""
    critics = []
    for row in logits:
        layer = nn.Linear(4, 3)
        layer.weight.data.zero_()
        layer.bias.data = torch.tensor(row)
        critics.append(ValueNetwork(layer, ["observation", "action"]))
    return critics


def test_categorical_critics_by_hand():
    """Probabilities of -1, 0, 1 are 1/2, 1/4, 1/4 and 1/6, 2/6, 3/6: the first has less mean."""
    first, second = torch.tensor([2.0, 1.0, 1.0]).log(), torch.tensor([1.0, 2.0, 3.0]).log()
    critics = of_logits(first.tolist(), second.tolist())
    batch = recorded_batch()[:2]
    batch["next", "reward"] = torch.tensor([[0.2], [0.2]])
    batch["next", "terminated"] = torch.tensor([[False], [True]])
    options = {**OPTIONS, "gamma": 0.5, "num_atoms": 3, "v_min": -1.0, "v_max": 1.0}
    loss = CategoricalSACLoss(FixedActor(), critics, **options)
    out = loss(batch)
    cost = 0.3 * (batch["next", "observation"][0, 1] - 1.0)
    # Next returns are the atoms less the cost; of them 1/2 each, the reward more, one target each.
    target = torch.zeros(2, 3)
    for atom, share in zip((-1.0, 0.0, 1.0), (0.5, 0.25, 0.25), strict=True):
        place = 0.2 + 0.5 * (atom - cost) + 1.0  # in atoms from the first
        below = int(place)
        target[0, below] += share * (below + 1 - place)
        target[0, below + 1] += share * (place - below)
    target[1] = torch.tensor([0.0, 0.8, 0.2])  # only the reward
    logs = first.log_softmax(0) + second.log_softmax(0)
    torch.testing.assert_close(out["loss_qvalue"], -(target @ logs).mean())
    means = target @ torch.tensor([-1.0, 0.0, 1.0])
    worst = torch.maximum((means + 0.25).abs(), (means - 1 / 3).abs())
    torch.testing.assert_close(batch["td_error"], worst)
    log_prob = batch["observation"][:, 1] - 1.0
    torch.testing.assert_close(out["loss_actor"], (0.3 * log_prob + 0.25).mean())


def test_a_categorical_ensemble_equals_its_networks_one_by_one():
    together = ensemble(5)
    linear, _, last = together.network.layers
    one_by_one = []
    for number in range(2):
        network = mlp(4, 5, (4,), nn.ReLU)
        for own, layer in ((network[0], linear), (network[2], last)):
            own.weight.data = layer.weight.data[number].clone()
            own.bias.data = layer.bias.data[number, 0].clone()
        one_by_one.append(ValueNetwork(network, ["observation", "action"]))
    out = []
    for critics in (together, one_by_one):
        batch = recorded_batch()
        losses = with_other_targets(CategoricalSACLoss(FixedActor(), critics, **ATOMS, **OPTIONS))(
            batch
        )
        out.append((dict(losses), batch["td_error"]))
    torch.testing.assert_close(out[0], out[1])


class FixedPolicy(nn.Module):
    """The action of `FixedActor`."""

    in_keys = ("observation",)
    box = Box(1)

    def evaluate(self, observation):
        return (observation[:, :1] * 0.5 - 0.1).tanh()


def test_categorical_td3_equals_fast_td3():
    """FastTD3's code (7acc3a3: fast_td3.py, update_main), with these networks and actions."""
    options = {"policy_delay": 1, "policy_noise": 0.0, "gamma": 0.9}
    loss = with_other_targets(CategoricalTD3Loss(FixedPolicy(), ensemble(5), **ATOMS, **options))
    out = loss(recorded_batch())
    assert out["loss_qvalue"].item() == pytest.approx(4.8822918, abs=1e-5)
    assert -out["loss_actor"].item() == pytest.approx(0.2164158, abs=1e-5)
    out["loss_qvalue"].backward()
    norms = [p.grad[0].norm().item() for p in loss.qvalue_network.parameters()]
    assert norms == pytest.approx([0.5264388, 0.8678145, 1.1172471, 0.6106553], abs=1e-5)


def test_xqc_equals_its_authors():
    """Their JAX code (danielpalenicek/xqc, 9a6832b), with these networks, batch and actions.

    The loss, gradients and statistics are of categorical_critic_loss_fn; the actor's loss is that
    of update_actor, before the critics' step.
    """
    critics = ensemble(5, make=unit_mlp)
    options = {**OPTIONS, **ATOMS, "policy_delay": 1}
    loss = with_other_targets(XQCLoss(FixedActor(), critics, **options))
    out = loss(recorded_batch())
    assert out["loss_qvalue"].item() == pytest.approx(4.8665380, abs=1e-5)
    assert out["loss_actor"].item() == pytest.approx(-0.2505760, abs=1e-5)
    out["loss_qvalue"].backward()
    norms = [p.grad[1].norm().item() for p in loss.qvalue_network.parameters()]
    theirs = [0.1938337, 0.0, 0.3218659, 0.4264998, 1.0748353, 1.2181878, 0.7272103]
    assert norms == pytest.approx(theirs, abs=1e-5)
    norm = critics.network.layers[2]
    assert norm.mean[1, 0].tolist() == pytest.approx(
        [0.0082075, -0.0133994, 0.0170430, -0.0187172], abs=1e-6
    )
    assert norm.var[1, 0].tolist() == pytest.approx(
        [0.9985371, 0.9939092, 0.9965537, 1.0052835], abs=1e-6
    )


def test_the_rows_of_unit_layers_have_norm_1_before_and_after_a_projection():
    networks = [unit_mlp(3, 2, (5,)), unit_mlp(3, 2, (5,), networks=(4,))]
    layers = [m for n in networks for m in n.modules() if isinstance(m, UnitLinear)]
    assert [tuple(layer.weight.shape) for layer in layers[2:]] == [(4, 5, 3), (4, 2, 5)]
    assert [layer.bias is None for layer in layers] == [True, False] * 2
    for layer in layers:
        torch.testing.assert_close(layer.weight.norm(dim=-1), torch.ones(layer.weight.shape[:-1]))
    before = [layer.weight.clone() for layer in layers]
    with torch.no_grad():
        for layer in layers:
            layer.weight.mul_(torch.rand(*layer.weight.shape[:-1], 1) + 0.5)
    assert not torch.allclose(layers[0].weight, before[0])
    project_weights(*networks)
    torch.testing.assert_close([layer.weight.data for layer in layers], before)


# -- arguments ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (partial(TQCLoss, num_quantiles=3, drop_quantiles=3), "drop_quantiles=3 of"),
        (partial(TQCLoss, drop_quantiles=-1), "drop_quantiles=-1"),
        (partial(REDQLoss, num_in_target=0), "num_in_target"),
        (partial(CrossQLoss, policy_delay=0), "policy_delay"),
        (partial(XQCLoss, v_min=1.0, v_max=1.0), "XQCLoss: v_min=1.0"),
        (partial(CategoricalSACLoss, num_atoms=1), "num_atoms=1"),
        (partial(SACLoss, policy_delay=0), "policy_delay"),
    ],
)
def test_impossible_arguments_are_refused(kind, message):
    with pytest.raises(ConfigError, match=message):
        kind(squashed(), make_critics())
