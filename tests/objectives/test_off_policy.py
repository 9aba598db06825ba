"""Off-policy losses of an actor and Q-functions: one contract, and equality with TorchRL's."""

from __future__ import annotations

import copy
import math

import pytest
import torch
import torchrl.objectives as torchrl
from gymnasium import spaces
from tensordict import TensorDict
from tensordict.nn import TensorDictModule
from torch import nn

from hooktrainer.errors import ConfigError
from hooktrainer.networks import (
    DeterministicPolicy,
    DiagonalGaussianPolicy,
    Policy,
    TanhGaussianPolicy,
    ValueNetwork,
    distribution_for,
    mlp,
)
from hooktrainer.objectives import CQLLoss, DDPGLoss, IQLLoss, SACLoss, TD3Loss


def make_critics(number=2):
    """Q-functions of 3 observed and 2 action features."""
    return [ValueNetwork(mlp(5, 1), ["observation", "action"]) for _ in range(number)]


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
        action=torch.rand(size, 2) * 2 - 1,
        next=following,
        batch_size=[size],
    )


def deterministic(**bounds):
    return DeterministicPolicy(mlp(3, 2), 2, **bounds)


def squashed(**bounds):
    return TanhGaussianPolicy(mlp(3, 4), 2, **bounds)


WIDE = {"low": -2.0, "high": [2.0, 3.0]}
NETWORKS = {
    DDPGLoss: lambda: (deterministic(**WIDE), make_critics(1)[0]),
    TD3Loss: lambda: (deterministic(), make_critics()),
    SACLoss: lambda: (squashed(**WIDE), make_critics()),
    CQLLoss: lambda: (squashed(), make_critics()),
    IQLLoss: lambda: (
        DiagonalGaussianPolicy(mlp(3, 2), 2),
        make_critics(),
        ValueNetwork(mlp(3, 1)),
    ),
}
TRAINED = {  # the networks that each loss reaches
    DDPGLoss: {"loss_actor": "actor_network", "loss_value": "value_network"},
    TD3Loss: {"loss_actor": "actor_network", "loss_qvalue": "qvalue_network"},
    SACLoss: {
        "loss_actor": "actor_network",
        "loss_qvalue": "qvalue_network",
        "loss_alpha": "log_alpha",
    },
    CQLLoss: {"loss_actor": "actor_network", "loss_cql": "qvalue_network"},
    IQLLoss: {f"loss_{name}": f"{name}_network" for name in ("actor", "qvalue", "value")},
}
EVERY_ACTOR = {TD3Loss: {"policy_delay": 1}}


def make(kind, networks=None, **arguments):
    return kind(*(networks or NETWORKS[kind]()), **EVERY_ACTOR.get(kind, {}) | arguments)


def drawn(loss, batch):
    """Call a loss with the same random numbers each time."""
    torch.manual_seed(1)
    return loss(batch)


def gradients(module):
    """Name to gradient, which is set to None."""
    found = {n: p.grad.clone() for n, p in module.named_parameters() if p.grad is not None}
    module.zero_grad()
    return found


def total(losses):
    return sum(value for key, value in losses.items() if key.startswith("loss"))


# -- equality with TorchRL ------------------------------------------------------------------------


@pytest.mark.parametrize("optional", [None, "priority_weight", "steps_to_next_obs"])
@pytest.mark.parametrize(
    ("kind", "ours_alone", "theirs_alone", "arguments"),
    [
        (DDPGLoss, {}, {"delay_actor": True}, {}),
        (DDPGLoss, {}, {"delay_actor": True}, {"loss_function": "smooth_l1"}),
        (TD3Loss, {}, {"bounds": (-1.0, 1.0)}, {}),
        (
            TD3Loss,
            {},
            {"bounds": (-1.0, 1.0)},
            {"loss_function": "l2", "policy_noise": 0.8, "noise_clip": 0.3},
        ),
        (SACLoss, {}, {"target_entropy": -2.0}, {}),
        (SACLoss, {}, {"target_entropy": -2.0}, {"loss_function": "l2", "alpha_init": 0.2}),
        (IQLLoss, {}, {}, {}),
        (IQLLoss, {}, {}, {"loss_function": "l2", "temperature": 3.0, "expectile": 0.8}),
        (IQLLoss, {"actor": squashed}, {}, {}),
    ],
)
def test_equals_torchrls(kind, ours_alone, theirs_alone, arguments, optional):
    networks, batch = NETWORKS[kind](), make_batch()
    if "actor" in ours_alone:  # which has no log_prob_and_entropy, but TorchRL's get_dist
        networks = (ours_alone["actor"](), *networks[1:])
    if kind is IQLLoss:  # TorchRL's ignores both
        optional = None
    if optional == "priority_weight":
        batch[optional] = torch.rand(32)
    elif optional:
        batch[optional] = torch.randint(1, 4, (32, 1))
    their_kind = getattr(torchrl, kind.__name__)
    theirs = their_kind(*map(copy.deepcopy, networks), **theirs_alone, **arguments)
    theirs.make_value_estimator(gamma=0.9)
    torchrl.SoftUpdate(theirs, tau=0.1)  # or it warns that there is none
    ours = make(kind, networks, gamma=0.9, **arguments)
    our_batch, their_batch = batch.clone(), batch.clone()
    our_losses, their_losses = drawn(ours, our_batch), drawn(theirs, their_batch)
    assert set(our_losses.keys()) <= set(their_losses.keys())
    assert set(TRAINED[kind]) <= set(our_losses.keys())
    for key, value in our_losses.items():
        torch.testing.assert_close(value, their_losses[key].mean(), atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(our_batch["td_error"], their_batch["td_error"])

    total(our_losses).backward()
    total(their_losses).backward()
    mine = gradients(ours)
    if kind is SACLoss:
        torch.testing.assert_close(mine["log_alpha"], theirs.log_alpha.grad)
    for network in (n for n in TRAINED[kind].values() if n != "log_alpha"):
        stacked = getattr(theirs, f"{network}_params")
        for name, _ in getattr(ours, network).named_parameters():
            if name.startswith(("0.", "1.")) and network == "qvalue_network":
                number, name = name.split(".", 1)
                expected = stacked.get(tuple(name.split("."))).grad[int(number)]
                name = f"{number}.{name}"
            else:
                expected = stacked.get(tuple(name.split("."))).grad
            torch.testing.assert_close(mine[f"{network}.{name}"], expected, atol=1e-4, rtol=1e-3)


# -- what all have in common ----------------------------------------------------------------------


@pytest.mark.parametrize("kind", NETWORKS)
def test_each_loss_reaches_its_own_parameters_only(kind):
    loss = make(kind)
    for key, network in TRAINED[kind].items():
        loss(make_batch())[key].backward()
        assert {name.split(".")[0] for name in gradients(loss)} == {network}


@pytest.mark.parametrize(
    ("kind", "arguments", "message"),
    [
        (CQLLoss, {"num_random": 0}, "num_random"),
        (CQLLoss, {"min_q_weight": -1.0}, "min_q_weight"),
        (IQLLoss, {"expectile": 1.0}, "expectile"),
        (IQLLoss, {"temperature": -1.0}, "temperature"),
        (SACLoss, {"num_qvalue_nets": 0}, "num_qvalue_nets"),
        (TD3Loss, {"policy_delay": 0}, "policy_delay"),
        (TD3Loss, {"policy_noise": -1.0}, "policy_noise"),
    ],
    ids=str,
)
def test_impossible_arguments_are_refused(kind, arguments, message):
    with pytest.raises(ConfigError, match=message):
        make(kind, **arguments)


@pytest.mark.parametrize(
    ("kind", "argument"),
    [(CQLLoss, "deterministic_backup"), (IQLLoss, "gama"), (DDPGLoss, "num_qvalue_nets")],
)
def test_unknown_arguments_are_refused(kind, argument):
    with pytest.raises(TypeError, match=argument):
        make(kind, **{argument: 2})


# -- TD3 ------------------------------------------------------------------------------------------


def test_the_delay_of_td3s_actor_is_saved():
    loss = TD3Loss(*NETWORKS[TD3Loss]())
    assert ["loss_actor" in loss(make_batch()) for _ in range(3)] == [False, True, False]
    twin = TD3Loss(*NETWORKS[TD3Loss]())
    twin.load_state_dict(loss.state_dict())
    assert "loss_actor" in twin(make_batch())


def test_the_weights_of_iql_are_bounded():
    actor, critics, value = NETWORKS[IQLLoss]()
    value.network[-1].bias.data -= 10.0  # advantages near 10, whose exponential is above 100
    losses = IQLLoss(actor, critics, value)(make_batch())
    torch.testing.assert_close(losses["loss_actor"], 100 * losses["entropy"])


# -- CQL ------------------------------------------------------------------------------------------


def test_the_penalty_is_the_integral_over_the_box_minus_the_value_of_the_data():
    class FirstFeature(nn.Module):
        def forward(self, observation, action):
            return 2.0 * action[..., :1]

    critic = TensorDictModule(
        FirstFeature(), in_keys=["observation", "action"], out_keys=["state_action_value"]
    )
    actor = squashed(low=-3.0, high=[3.0, 5.0])
    batch = make_batch(16)
    options = {"num_random": 4000, "min_q_weight": 0.5}
    penalty = CQLLoss(actor, [critic, critic], **options)(batch)["loss_cql"]
    # The integral of exp(2 a) over [-3, 3], times the width 8 of the other feature; each source
    # estimates it with 4000 samples, and the three sums are not averaged.
    integral = math.log((math.exp(6) - math.exp(-6)) / 2 * 8 * 3 * 4000)
    per_network = integral - 2.0 * batch["action"][:, 0].mean()
    torch.testing.assert_close(penalty, 0.5 * 2 * per_network, atol=0.1, rtol=0.0)


def test_cql_without_penalty_is_sac_without_entropy():
    networks, batch = NETWORKS[CQLLoss](), make_batch()
    ours = drawn(CQLLoss(*networks, min_q_weight=0.0), batch.clone())
    theirs = drawn(SACLoss(*networks, alpha_init=1e-20, fixed_alpha=True), batch)
    torch.testing.assert_close(ours["loss_qvalue"], theirs["loss_qvalue"])
    assert set(ours.keys()) == {*theirs.keys(), "loss_cql"}


@pytest.mark.parametrize(
    ("space", "most"),
    [
        (spaces.Discrete(10), math.log(2)),
        (spaces.MultiDiscrete([4, 6]), 0.0),  # one of each
        (spaces.MultiBinary(10), 2 * math.log(2)),
        (spaces.Dict(a=spaces.Discrete(10), b=spaces.Box(-1, 1, (3,))), math.log(2)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_target_of_the_entropy_is_that_of_the_allowed_actions(space, most):
    """Half of the greatest entropy of ten actions is out of reach where two are allowed."""
    distribution = distribution_for(space, "squashed")
    layer = nn.Linear(3, distribution.parameter_features)
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)  # all actions are equally likely
    actor = Policy(layer, distribution, out_keys=["action"], action_mask_key="action_mask")
    width = math.prod(distribution.encoded_shape)
    loss = SACLoss(actor, ValueNetwork(mlp(3 + width, 1), ["observation", "action"]))
    mask = torch.zeros(8, 10, dtype=torch.bool)
    mask[:, [0, 5]] = True
    seen = {"observation": torch.randn(8, 3), "action_mask": mask}
    ends = {"reward": torch.randn(8, 1), "terminated": torch.zeros(8, 1, dtype=torch.bool)}
    batch = TensorDict({**seen, "next": TensorDict({**seen, **ends}, [8])}, [8])
    batch["action"] = actor.act(*actor.inputs(batch))["action"]
    loss(batch)["loss_alpha"].backward()
    drawn = -3.0 if isinstance(space, spaces.Dict) else 0.0  # of the continuous part
    target = distribution.target_entropy_within(mask)
    torch.testing.assert_close(target, torch.full((8,), 0.5 * most + drawn))
    if not drawn:
        assert loss.log_alpha.grad.item() == pytest.approx(0.5 * most, abs=1e-5)  # which lowers it
