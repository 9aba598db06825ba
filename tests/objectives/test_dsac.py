"""The discrete SAC loss: equality with TorchRL's, by hand, and with action masks."""

from __future__ import annotations

import copy
import math

import pytest
import torch
import torchrl.objectives as torchrl
from tensordict import TensorDict
from tensordict.nn import TensorDictModule
from test_off_policy import drawn, gradients
from torch import nn
from torchrl.modules import ProbabilisticActor

from hooktrainer.errors import ConfigError
from hooktrainer.networks import CategoricalPolicy, QNetwork, mlp
from hooktrainer.objectives import DiscreteSACLoss

ACTIONS = 4


def make_networks(**options):
    critics = [QNetwork(mlp(3, ACTIONS)) for _ in range(2)]
    return CategoricalPolicy(mlp(3, ACTIONS), out_keys=["action"], **options), critics


def make_batch(size=32):
    terminated = torch.rand(size, 1) < 0.3
    following = TensorDict(
        observation=torch.randn(size, 3),
        reward=torch.randn(size, 1),
        done=terminated,
        terminated=terminated,
        batch_size=[size],
    )
    return TensorDict(
        observation=torch.randn(size, 3),
        action=torch.randint(ACTIONS, (size,)),
        next=following,
        batch_size=[size],
    )


@pytest.mark.parametrize("weighted", [False, True])
def test_it_equals_torchrls(weighted):
    actor, critics = make_networks()
    batch = make_batch()
    if weighted:
        batch["priority_weight"] = torch.rand(32)
    module = TensorDictModule(copy.deepcopy(actor.network), ["observation"], ["logits"])
    their_actor = ProbabilisticActor(
        module, in_keys=["logits"], distribution_class=torch.distributions.Categorical
    )
    theirs = torchrl.DiscreteSACLoss(
        their_actor,
        [
            TensorDictModule(copy.deepcopy(c.network), ["observation"], ["action_value"])
            for c in critics
        ],
        action_space="categorical",
        num_actions=ACTIONS,
        loss_function="l2",
        alpha_init=0.3,
    )
    theirs.make_value_estimator(gamma=0.9)
    torchrl.SoftUpdate(theirs, tau=0.1)
    options = {"gamma": 0.9, "loss_function": "l2", "alpha_init": 0.3}
    ours = DiscreteSACLoss(actor, critics, ACTIONS, **options)
    our_batch, their_batch = batch.clone(), batch.clone()
    found, expected = drawn(ours, our_batch), drawn(theirs, their_batch)
    for key in ("loss_actor", "loss_qvalue", "loss_alpha", "alpha", "entropy"):
        torch.testing.assert_close(found[key], expected[key].mean(), atol=1e-5, rtol=1e-5)
    sum(found[key] for key in ours.out_keys).backward()
    sum(expected[key] for key in ours.out_keys).backward()
    mine = gradients(ours)
    torch.testing.assert_close(mine["log_alpha"], theirs.log_alpha.grad)
    for name, parameter in critics[1].network.named_parameters():
        stacked = theirs.qvalue_network_params.get(("module", *name.split(".")))
        gradient = mine[f"qvalue_network.1.network.{name}"]
        assert gradient.shape == parameter.shape
        torch.testing.assert_close(gradient, stacked.grad[1])
    for name, _ in actor.network.named_parameters():
        key = ("module", "0", "module", *name.split("."))
        expected_gradient = theirs.actor_network_params.get(key).grad
        torch.testing.assert_close(mine[f"actor_network.network.{name}"], expected_gradient)


class Constant(nn.Module):
    """The same numbers for every observation."""

    def __init__(self, *numbers):
        super().__init__()
        self.numbers = nn.Parameter(torch.tensor(numbers))

    def forward(self, observation):
        return self.numbers.expand(*observation.shape[:-1], -1)


def by_hand(mask, next_mask):
    """Losses of one transition with reward 1, action 0 and masks of three actions.

    Its temperature is one that the least finite number must not be multiplied by.
    """
    actor = CategoricalPolicy(
        Constant(0.0, math.log(3.0), 5.0), out_keys=["action"], action_mask_key="action_mask"
    )
    critics = [QNetwork(Constant(*values)) for values in ([1.0, 4.0, -9.0], [2.0, 3.0, -9.0])]
    options = {"gamma": 0.5, "alpha_init": 2.0, "loss_function": "l2"}
    loss = DiscreteSACLoss(actor, critics, 3, target_entropy_ratio=0.5, **options)
    content = {
        "observation": torch.zeros(1, 2),
        "action": torch.zeros(1, dtype=torch.int64),
        "action_mask": torch.tensor([mask]),
        "next": {
            "observation": torch.zeros(1, 2),
            "reward": torch.ones(1, 1),
            "terminated": torch.zeros(1, 1, dtype=torch.bool),
            "action_mask": torch.tensor([next_mask]),
        },
    }
    batch = TensorDict(content, [1])
    return loss(batch), batch, loss


def test_forbidden_actions_have_no_part_in_it():
    out, batch, loss = by_hand([True, True, False], [True, True, False])
    # Of what is allowed, probabilities 1/4 and 3/4, and least values 1 and 3.
    entropy = -(0.25 * math.log(0.25) + 0.75 * math.log(0.75))
    target = 1 + 0.5 * (0.25 * 1 + 0.75 * 3 + 2.0 * entropy)
    assert out["entropy"].item() == pytest.approx(entropy)
    assert out["loss_actor"].item() == pytest.approx(-2.0 * entropy - 2.5)
    assert out["loss_qvalue"].item() == pytest.approx((1 - target) ** 2 + (2 - target) ** 2)
    missing = 0.5 * math.log(2) - entropy
    assert out["loss_alpha"].item() == pytest.approx(-math.log(2.0) * missing, abs=1e-6)
    assert batch["td_error"].item() == pytest.approx(abs(1 - target))
    out["loss_actor"].backward()
    assert loss.actor_network.network.numbers.grad.isfinite().all()


def test_a_single_allowed_action_is_certain():
    out, _, _ = by_hand([False, True, False], [True, False, False])
    assert out["entropy"].item() == 0.0
    assert out["loss_alpha"].item() == 0.0
    assert out["loss_actor"].item() == pytest.approx(-3.0)
    target = 1 + 0.5 * 1
    assert out["loss_qvalue"].item() == pytest.approx((1 - target) ** 2 + (2 - target) ** 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"target_entropy_ratio": 1.5}, "target_entropy_ratio"),
        ({"num_actions": 0}, "num_actions"),
    ],
)
def test_impossible_arguments_are_refused(arguments, message):
    with pytest.raises(ConfigError, match=message):
        DiscreteSACLoss(*make_networks(), **{"num_actions": ACTIONS, **arguments})
