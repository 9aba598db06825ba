"""Distributions over actions: equal to torch's, in every space, and blind to what is masked."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces

from hooktrainer.errors import ConfigError
from hooktrainer.networks import (
    Beta,
    Joint,
    Policy,
    SquashedGaussian,
    SquashedStateDependentGaussian,
    distribution_for,
    mlp,
)

SPACES = {
    "discrete": spaces.Discrete(3),
    "multi discrete": spaces.MultiDiscrete([3, 2, 4]),
    "matrix of choices": spaces.MultiDiscrete([[2, 3], [4, 2]]),
    "bits": spaces.MultiBinary(3),
    "box": spaces.Box(-1.0, 1.0, (2,)),
    "matrix": spaces.Box(-1.0, 1.0, (2, 3)),
}
BOUNDED = spaces.Box(np.array([-2.0, 0.0], "f4"), np.array([2.0, 10.0], "f4"))
ALL = pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)


def make(space, **kwargs):
    distribution = distribution_for(space, **kwargs)
    keys = ["action", "action_log_prob"]
    parameters = torch.randn(5, 7, distribution.parameter_features)
    sample = distribution.sample(parameters, keys, deterministic=False)
    return distribution, parameters, distribution.complete(sample, keys)


@ALL
def test_log_probabilities_and_entropies_are_those_of_torch(space):
    distribution, parameters, out = make(space)
    action = out["action"]
    assert action.shape == (5, 7, *(space.shape or ()))
    log_prob, entropy = distribution.log_prob_and_entropy(parameters, action)
    torch.testing.assert_close(out["action_log_prob"], log_prob)
    theirs = distribution.as_torch(parameters)
    flat = action
    if not isinstance(space, spaces.Box) and space.shape:  # torch has no matrices of choices
        flat = action.flatten(2)
    torch.testing.assert_close(log_prob, theirs.log_prob(flat.to(parameters.dtype)))
    torch.testing.assert_close(entropy, theirs.entropy())


@pytest.mark.parametrize("name", ["discrete", "box", "matrix"])
def test_the_divergence_is_that_of_torch(name):
    distribution, parameters, _ = make(SPACES[name])
    old = torch.randn_like(parameters)
    keys = distribution.kl_keys
    before = distribution.complete(distribution.sample(old, keys, False), keys)
    if "scale" in keys:  # a deviation that has changed
        before["scale"] = before["scale"] * 1.5
        old = torch.distributions.Independent(
            torch.distributions.Normal(before["loc"], before["scale"]), len(SPACES[name].shape)
        )
    else:
        old = distribution.as_torch(old)
    expected = torch.distributions.kl_divergence(old, distribution.as_torch(parameters))
    torch.testing.assert_close(distribution.kl_from(before, parameters), expected)


def test_the_edges_of_bounded_distributions():
    squashed, beta = SquashedGaussian((1,)), Beta((1,))
    _, log_std = squashed.loc_and_log_std(torch.tensor([[0.0, 50.0], [0.0, -50.0]]))
    assert log_std.squeeze(-1).tolist() == [2.0, -20.0]
    by_state = SquashedStateDependentGaussian(1, (1,))
    assert by_state.loc_and_log_std(torch.full((1, 1), 1e6))[0].abs().item() == 2.0
    # softplus(x) + 1 = 3 and 2: the mode is 2 / 3 of the way.
    parameters = torch.tensor([[2.0, 1.0]]).expm1().log()
    for mode in (beta.mode(parameters), beta.sample(parameters, ["action"], True)["action"]):
        torch.testing.assert_close(mode, torch.tensor([[1 / 3]]))
    halved = beta.mode(parameters.bfloat16())
    torch.testing.assert_close(halved, torch.tensor([[1 / 3]]), atol=1e-2, rtol=1e-2)
    assert beta.log_prob_and_entropy(parameters, torch.ones(1, 1))[0].isfinite().all()


@pytest.mark.parametrize("continuous", ["squashed", "beta"])
@pytest.mark.parametrize("space", [BOUNDED, spaces.Box(-3.0, 1.0, (2, 2))], ids=["rows", "matrix"])
def test_bounded_distributions_stay_in_the_box_and_know_their_density(continuous, space):
    distribution, parameters, out = make(space, continuous=continuous)
    action = out["action"]
    saturated = (action - torch.from_numpy(space.low)).abs().flatten(2).amin(-1) < 1e-3
    saturated |= (action - torch.from_numpy(space.high)).abs().flatten(2).amin(-1) < 1e-3
    assert (action >= torch.from_numpy(space.low)).all()
    assert (action <= torch.from_numpy(space.high)).all()
    log_prob, _ = distribution.log_prob_and_entropy(parameters, action)
    torch.testing.assert_close(log_prob, out["action_log_prob"])  # so PPO's ratios begin at 1
    theirs = distribution.as_torch(parameters).log_prob(action.flatten(2))
    torch.testing.assert_close(log_prob[~saturated], theirs[~saturated], atol=2e-3, rtol=1e-3)
    assert log_prob.isfinite().all()


def test_entropies_are_those_of_many_samples():
    for kind in (SquashedGaussian, Beta):
        torch.manual_seed(0)
        distribution = kind((1,), -2.0, 3.0)
        parameters = torch.tensor([0.3, 0.1]).expand(50_000, 2)
        log_prob = distribution.sample(parameters, ["action_log_prob"], False)["action_log_prob"]
        entropy = distribution.log_prob_and_entropy(parameters, torch.zeros(50_000, 1))[1]
        assert float(entropy.mean()) == pytest.approx(-float(log_prob.mean()), abs=0.02)


def test_samples_of_a_squashed_gaussian_are_differentiable_and_its_mode_is_in_the_middle():
    distribution = distribution_for(BOUNDED, "squashed")
    parameters = torch.zeros(3, 4, requires_grad=True)
    action, log_prob = distribution.rsample(parameters)
    (action.sum() + log_prob.sum()).backward()
    assert parameters.grad.abs().sum() > 0
    mode = distribution.sample(torch.zeros(1, 4), ["action"], deterministic=True)["action"]
    torch.testing.assert_close(mode, torch.tensor([[0.0, 5.0]]))


@pytest.mark.parametrize("name", ["discrete", "multi discrete", "matrix of choices", "bits"])
def test_what_a_mask_forbids_is_never_chosen_and_does_no_harm(name):
    space = SPACES[name]
    distribution = distribution_for(space)
    torch.manual_seed(0)
    mask = torch.rand(400, distribution.mask_size) < 0.6
    sizes = [1] * 3 if name == "bits" else np.ravel(getattr(space, "nvec", 3)).tolist()
    starts = np.cumsum([0, *sizes[:-1]])
    if name != "bits":
        mask[:, starts] = True  # something is allowed
    logits = torch.randn(400, distribution.parameter_features, requires_grad=True)
    parameters = distribution.masked(logits, mask)
    action = distribution.sample(parameters, ["action"], False)["action"].reshape(400, -1)
    if name == "bits":
        assert not action[~mask].any()
    else:
        allowed = mask.gather(1, action + torch.from_numpy(starts))
        assert allowed.all()
    shaped = action.reshape(400, *(space.shape or ()))
    log_prob, entropy = distribution.log_prob_and_entropy(parameters, shaped)
    assert log_prob.isfinite().all()
    assert entropy.isfinite().all()
    (log_prob.sum() + entropy.sum()).backward()
    assert logits.grad.isfinite().all()
    assert not logits.grad[~mask].any()


DICT = spaces.Dict(
    move=spaces.Box(-1, 1, (2, 2)),
    shoot=spaces.Discrete(3),
    rest=spaces.Tuple((spaces.MultiBinary(2), spaces.MultiDiscrete([2, 3]))),
)


def test_a_joint_distribution_is_its_parts():
    joint = distribution_for(DICT)
    assert isinstance(joint, Joint)
    assert joint.shape == (4 + 2 + 2 + 1,)
    parameters = torch.randn(6, joint.parameter_features)
    keys = ["action", "action_log_prob"]
    out = joint.complete(joint.sample(parameters, keys, False), keys)
    assert out["action"].dtype == torch.float32
    log_prob, entropy = joint.log_prob_and_entropy(parameters, out["action"])
    torch.testing.assert_close(log_prob, out["action_log_prob"])
    # Parts stand in the order of the space, whose keys are sorted or kept as Gymnasium has them.
    parts, place, taken = [], 0, 0
    for part in joint.parts:
        width = int(np.prod(part.shape))
        own = parameters[:, place : place + part.parameter_features]
        action = out["action"][:, taken : taken + width].reshape(6, *part.shape)
        action = action.long() if part.mask_size else action
        parts.append(part.log_prob_and_entropy(own, action))
        place, taken = place + part.parameter_features, taken + width
    torch.testing.assert_close(log_prob, sum(each for each, _ in parts))
    torch.testing.assert_close(entropy, sum(each for _, each in parts))
    discrete = distribution_for(spaces.Tuple((spaces.Discrete(2), spaces.Discrete(3))))
    sample = discrete.sample(torch.zeros(4, 5), ["action"], False)
    assert sample["action"].dtype == torch.int64


@pytest.mark.parametrize(
    ("space", "kwargs", "message"),
    [
        (spaces.Text(3), {}, "no distribution here"),
        (spaces.Dict({}), {}, "is empty: give it at least one entry"),
        (spaces.Box(-np.inf, np.inf, (1,)), {"continuous": "beta"}, "finite"),
        (spaces.Box(-1, 1, (1,)), {"continuous": "gamma"}, "gamma.*squashed"),
    ],
)
def test_a_space_that_nobody_serves_is_said(space, kwargs, message):
    with pytest.raises(ConfigError, match=message):
        distribution_for(space, **kwargs)


def test_a_policy_takes_a_mask_only_where_there_is_something_to_choose():
    box = spaces.Box(-1, 1, (1,))
    for space in (box, spaces.Dict(a=box)):
        with pytest.raises(ConfigError, match=r"action_mask_key='m'.*nothing to choose from"):
            Policy(mlp(2, 1), distribution_for(space), action_mask_key="m")


@pytest.mark.parametrize("width", [4, 8])
def test_a_network_of_the_wrong_width_is_one_line(width):
    policy = Policy(mlp(2, width), distribution_for(spaces.MultiDiscrete([3, 2])))
    message = rf"Policy: the network returns {width} features, but a MultiCategorical needs 5"
    for call in (policy.act, policy.evaluate):
        with pytest.raises(ConfigError, match=message) as error:
            call(torch.zeros(1, 2))
        assert "\n" not in str(error.value)


# -- for Q-functions of discrete actions ---------------------------------------------------------

MIXED = spaces.Dict(bits=spaces.MultiBinary(2), move=BOUNDED, pick=spaces.Discrete(3))


@pytest.mark.parametrize(
    ("space", "action", "expected"),
    [
        (SPACES["discrete"], 2, [0, 0, 1]),
        (SPACES["multi discrete"], [2, 0, 1], [0, 0, 1, 1, 0, 0, 1, 0, 0]),
        (SPACES["matrix of choices"], [[1, 0], [2, 1]], [0, 1, 1, 0, 0, 0, 0, 1, 0, 0, 1]),
        (SPACES["bits"], [1, 0, 1], [1, 0, 1]),
        (MIXED, [1.0, 0.0, 1.5, 7.5, 2.0], [1, 0, 1.5, 7.5, 0, 0, 1]),
    ],
)
def test_encoded_actions_by_hand(space, action, expected):
    distribution = distribution_for(space, "squashed")
    [encoded] = distribution.encoded(torch.tensor([action]))
    assert encoded.tolist() == expected
    assert tuple(encoded.shape) == distribution.encoded_shape


@pytest.mark.parametrize("name", ["discrete", "multi discrete", "matrix of choices", "bits"])
def test_the_gradient_through_a_discrete_action_is_that_of_its_mean(name):
    distribution = distribution_for(SPACES[name])
    logits = torch.randn(4, distribution.parameter_features, requires_grad=True)
    weights = torch.randn(4, *distribution.encoded_shape)
    action, log_prob = distribution.rsample(logits)
    assert {*action.detach().round().flatten().tolist()} == {0.0, 1.0}
    index = distribution.sample(logits.detach(), ["action"], True)["action"]
    torch.testing.assert_close(log_prob, -distribution.log_prob_and_entropy(logits, index)[1])
    [found] = torch.autograd.grad((action * weights).sum(), logits)
    theirs = distribution.as_torch(logits)
    if name == "discrete":
        mean = theirs.probs
    elif name == "bits":
        mean = theirs.base_dist.mean
    else:
        sizes = SPACES[name].nvec.ravel().tolist()
        pairs = zip(theirs.base_dist.probs.unbind(-2), sizes, strict=True)
        mean = torch.cat([probs[:, :size] for probs, size in pairs], -1)
    [expected] = torch.autograd.grad((mean * weights).sum(), logits)
    torch.testing.assert_close(found, expected)


def test_a_differentiable_sample_of_a_dict_is_that_of_its_parts():
    distribution = distribution_for(MIXED, "squashed")
    parameters = torch.randn(6, distribution.parameter_features, requires_grad=True)
    torch.manual_seed(1)
    action, log_prob = distribution.rsample(parameters)
    torch.manual_seed(1)
    parts = parameters.split_with_sizes([2, 4, 3], -1)
    drawn = [part.rsample(own) for part, own in zip(distribution.parts, parts, strict=True)]
    torch.testing.assert_close(action, torch.cat([each for each, _ in drawn], -1))
    torch.testing.assert_close(log_prob, sum(log for _, log in drawn))
    expected = 0.5 * (2 * np.log(2) + np.log(3)) - 2
    assert distribution.target_entropy == pytest.approx(expected)
