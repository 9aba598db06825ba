"""Losses for data sets: behavior cloning, TD3+BC, discrete IQL and CQL: TorchRL's and by hand."""

from __future__ import annotations

import pytest
import torch
import torchrl.objectives as torchrl
from tensordict import TensorDict
from tensordict.nn import TensorDictModule
from torch import nn

from hooktrainer.errors import ConfigError
from hooktrainer.networks import (
    CategoricalPolicy,
    DeterministicPolicy,
    DiagonalGaussianPolicy,
    QNetwork,
    ValueNetwork,
    mlp,
)
from hooktrainer.objectives import BCLoss, DiscreteCQLLoss, DiscreteIQLLoss, TD3BCLoss

pytestmark = [
    pytest.mark.filterwarnings("ignore:No target network updater"),
    pytest.mark.filterwarnings("ignore:The name target_actor_network_params"),
]


def make_batch(discrete=False, size=32):
    terminated = torch.rand(size, 1) < 0.3
    following = {"observation": torch.randn(size, 3), "reward": torch.randn(size, 1)}
    following |= {"terminated": terminated, "done": terminated}
    content = {
        "observation": torch.randn(size, 3),
        "action": torch.randint(4, (size,)) if discrete else torch.rand(size, 2) * 2 - 1,
        "next": TensorDict(following, batch_size=[size]),
    }
    return TensorDict(content, batch_size=[size])


def gradients(losses, networks):
    total = sum(value for key, value in losses.items() if key.startswith("loss"))
    for network in networks:
        network.zero_grad()
    total.backward()
    return [p.grad.clone() for each in networks for p in each.parameters() if p.grad is not None]


@pytest.mark.parametrize("kind", ["categorical", "gaussian", "deterministic"])
def test_behavior_cloning_equals_torchrls(kind):
    batch = make_batch(discrete=kind == "categorical")
    if kind == "categorical":
        actor = CategoricalPolicy(mlp(3, 4))
        # TorchRL takes the policy for one of continuous actions by the names of its entries.
        theirs = torchrl.BCLoss(actor, loss_function=nn.functional.cross_entropy)
        theirs._get_prediction = lambda data, action: actor.evaluate(batch["observation"])
    elif kind == "gaussian":
        actor = DiagonalGaussianPolicy(mlp(3, 2), 2, out_keys=["action", "loc", "scale"])
        theirs = torchrl.BCLoss(actor)
    else:
        actor = DeterministicPolicy(mlp(3, 2), 2)
        theirs = torchrl.BCLoss(actor, loss_function="l2")
    ours = BCLoss(actor)(batch)["loss_bc"]
    torch.testing.assert_close(ours, theirs(batch.clone())["loss_bc"])
    by_hand = {
        "categorical": lambda: nn.functional.cross_entropy(
            actor.evaluate(batch["observation"]), batch["action"]
        ),
        "gaussian": lambda: (
            -torch.distributions.Normal(
                actor.evaluate(batch["observation"]), actor.distribution.log_std.exp()
            )
            .log_prob(batch["action"])
            .sum(-1)
            .mean()
        ),
        "deterministic": lambda: (
            (actor.evaluate(batch["observation"]) - batch["action"]).square().mean()
        ),
    }
    torch.testing.assert_close(ours, by_hand[kind]())


def test_td3_with_behavior_cloning_equals_torchrls():
    actor = DeterministicPolicy(mlp(3, 2), 2)
    critics = [ValueNetwork(mlp(5, 1), ["observation", "action"]) for _ in range(2)]
    ours = TD3BCLoss(
        actor, critics, policy_delay=1, policy_noise=0.0, alpha=1.7, loss_function="l2"
    )
    theirs = torchrl.TD3BCLoss(
        TensorDictModule(nn.Sequential(actor.network, actor.box), ["observation"], ["action"]),
        critics,
        bounds=(-1.0, 1.0),
        policy_noise=0.0,
        alpha=1.7,
        loss_function="l2",
    )
    theirs.make_value_estimator(gamma=0.99)
    batch = make_batch()
    found, expected = ours(batch.clone()), theirs(batch.clone())
    for key in ("loss_actor", "loss_qvalue"):
        torch.testing.assert_close(found[key], expected[key])
    # By hand, as in the paper.
    value = critics[0].evaluate(batch["observation"], actor.evaluate(batch["observation"]))
    away = (actor.evaluate(batch["observation"]) - batch["action"]).square().mean()
    by_hand = away - 1.7 * value.mean() / value.abs().mean()
    torch.testing.assert_close(found["loss_actor"], by_hand)
    (grad,) = torch.autograd.grad(found["loss_actor"], [actor.network[0].weight], retain_graph=True)
    weight = 1.7 / value.abs().mean().detach()  # a number, no function of the actor
    (expected_grad,) = torch.autograd.grad(away - weight * value.mean(), [actor.network[0].weight])
    torch.testing.assert_close(grad, expected_grad)


def test_the_scale_of_actions_does_not_matter():
    losses = []
    for scale in (1.0, 4.0):
        torch.manual_seed(0)
        actor = DeterministicPolicy(mlp(3, 2), 2, low=-scale, high=scale)
        q = ValueNetwork(mlp(5, 1), ["observation", "action"])
        q.network[0].weight.data[:, 3:] /= scale
        loss = TD3BCLoss(actor, [q], policy_delay=1, policy_noise=0.0)
        batch = make_batch()
        batch["action"] *= scale
        losses.append(loss(batch)["loss_actor"])
    torch.testing.assert_close(losses[0], losses[1])


def test_discrete_iql_equals_torchrls():
    actor = CategoricalPolicy(mlp(3, 4))
    critics = [QNetwork(mlp(3, 4)) for _ in range(2)]
    value = ValueNetwork(mlp(3, 1))
    options = {"temperature": 2.0, "expectile": 0.8, "loss_function": "l2"}
    ours = DiscreteIQLLoss(actor, critics, value, **options)
    named = [TensorDictModule(q.network, ["observation"], ["state_action_value"]) for q in critics]
    theirs = torchrl.DiscreteIQLLoss(
        actor, named, value_network=value, action_space="categorical", **options
    )
    theirs.make_value_estimator(gamma=0.99)
    batch = make_batch(discrete=True)
    # The targets are not the trained networks.
    for target, own in ((ours.target_qvalue_network, theirs.target_qvalue_network_params),):
        for number, network in enumerate(target):
            for name, parameter in network.network.named_parameters():
                moved = parameter.data + 0.1
                parameter.data.copy_(moved)
                own.get(("module", *name.split(".")))[number].data.copy_(moved)
    found, expected = ours(batch.clone()), theirs(batch.clone())
    for key in ("loss_actor", "loss_qvalue", "loss_value"):
        torch.testing.assert_close(found[key], expected[key])


def test_discrete_cql_equals_torchrls():
    network = QNetwork(mlp(3, 4))
    ours = DiscreteCQLLoss(network, double_dqn=True, loss_function="l2")
    theirs = torchrl.DiscreteCQLLoss(network, loss_function="l2", action_space="categorical")
    theirs.make_value_estimator(gamma=0.99)
    batch = make_batch(discrete=True)
    found, expected = ours(batch.clone()), theirs(batch.clone())
    torch.testing.assert_close(found["loss_cql"], expected["loss_cql"])
    torch.testing.assert_close(found["loss"] / 2, expected["loss_qvalue"])
    values = network.evaluate(batch["observation"])
    chosen = values[torch.arange(32), batch["action"]]
    by_hand = (values.exp().sum(-1).log() - chosen).mean()
    torch.testing.assert_close(found["loss_cql"], by_hand)
    weighted = DiscreteCQLLoss(network, min_q_weight=3.0, loss_function="l2")(batch.clone())
    torch.testing.assert_close(weighted["loss_cql"], 3 * by_hand)


def test_impossible_weights_are_refused():
    with pytest.raises(ConfigError, match="alpha=-1"):
        TD3BCLoss(DeterministicPolicy(mlp(3, 2), 2), ValueNetwork(mlp(5, 1)), alpha=-1.0)
    with pytest.raises(ConfigError, match="min_q_weight=-1"):
        DiscreteCQLLoss(QNetwork(mlp(3, 4)), min_q_weight=-1.0)
