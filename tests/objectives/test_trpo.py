"""TRPO's step: by hand, equal to sb3-contrib's on a recorded batch, within its limit."""

from __future__ import annotations

import math

import pytest
import torch
from tensordict import TensorDict
from torch import nn

from hooktrainer import NonFiniteError
from hooktrainer.networks import (
    Bernoulli,
    CategoricalPolicy,
    DiagonalGaussianPolicy,
    Policy,
    TanhGaussianPolicy,
    ValueNetwork,
    mlp,
)
from hooktrainer.objectives import TRPOLoss
from hooktrainer.optim import conjugate_gradient, trust_region_step

OPTIONS = {"max_kl": 0.01, "damping": 0.1, "cg_steps": 10, "backtracks": 10, "shrink": 0.8}


def wave(*shape, step=1.0):
    """Numbers that look random and are the same with every library."""
    number = torch.arange(1, math.prod(shape) + 1, dtype=torch.float32)
    return torch.sin(step * number).reshape(shape)


def recorded(actor):
    """A batch of 32 steps of a policy with given weights."""
    layers = [layer for layer in actor.network.modules() if isinstance(layer, nn.Linear)]
    with torch.no_grad():
        for number, layer in enumerate(layers):
            layer.weight.copy_(wave(*layer.weight.shape, step=1.0 + number))
            layer.bias.copy_(0.1 * wave(*layer.bias.shape, step=3.0 + number))
    continuous = isinstance(actor, DiagonalGaussianPolicy)
    batch = TensorDict(
        observation=wave(32, 3, step=0.7),
        action=wave(32, 2, step=1.3) if continuous else torch.arange(32) * 7 % 3,
        advantage=wave(32, 1, step=2.1),
        value_target=wave(32, 1, step=0.3),
        batch_size=[32],
    )
    log_prob, _ = actor.log_prob_and_entropy([batch["observation"]], batch["action"])
    batch["action_log_prob"] = log_prob.detach()
    return batch


# Of sb3-contrib 2.9.2: the parameters after `TRPO.train` on the rollout buffer filled with these
# steps, with n_critic_updates=0, cg_max_steps=10. Of continuous actions it takes the divergence's
# mean over their 2 features, where the paper has the sum: its limit and damping are half of ours.
THEIRS = {
    "categorical": """
        0.8574614 0.9007630 0.1120746 -0.7275290 -0.9836116 -0.3464528 0.6205765
        1.0124282 0.4838183 -0.5465202 -1.0016997 -0.5366887 0.0684518 0.0183761
        -0.0292297 -0.0307420 0.9445091 -0.7873282 -0.2529532 0.9662662 -0.5743421
        -0.5205866 0.9872029 -0.2954274 -0.7558779 0.9274846 -0.0319090 -0.8749622
        0.0155149 0.0057467 -0.0516634
    """,
    "gaussian": """
        0.8481750 0.9042994 0.1267707 -0.7525372 -0.9643509 -0.2919814 0.6465854
        0.9947705 0.4307984 -0.5402554 -1.0011127 -0.5420556 0.0314535 -0.0181263
        0.0263859 -0.0472494 0.9054618 -0.7530454 -0.2832809 0.9933754 -0.5731872
        -0.5120087 0.9697940 -0.2703317 -0.0838654 0.0367040 -0.4964168 -0.4310377
    """,
}


@pytest.mark.parametrize("kind", THEIRS)
def test_the_step_equals_sb3_contribs(kind):
    if kind == "categorical":
        actor: Policy = CategoricalPolicy(mlp(3, 3, (4,)))
    else:
        actor = DiagonalGaussianPolicy(mlp(3, 2, (4,)), 2, log_std=-0.5)
    batch = recorded(actor)
    loss = TRPOLoss(actor, ValueNetwork(mlp(3, 1, (4,))))
    features = 2 if kind == "gaussian" else 1
    options = {**OPTIONS, "max_kl": 0.01 * features, "damping": 0.1 * features}
    step = trust_region_step(list(actor.parameters()), loss.policy_terms(batch), **options)
    found = torch.cat([parameter.detach().reshape(-1) for parameter in actor.parameters()])
    expected = torch.tensor([float(number) for number in THEIRS[kind].split()])
    torch.testing.assert_close(found, expected, atol=2e-5, rtol=0)
    assert 0 < step.kl < options["max_kl"]
    assert step.improvement > 0


def test_by_hand():
    """Logits are parameters: the Fisher information is diag(p) - pp' and all can be written out."""
    logits = nn.Parameter(torch.tensor([0.3, -0.2, 0.1], dtype=torch.float64))
    p = logits.detach().softmax(0)
    objective = torch.tensor([1.0, 0.0, -1.0], dtype=torch.float64)  # of each action

    def terms():
        log_p = logits.log_softmax(0)
        return -(log_p.exp() @ objective), (p * (p.log() - log_p)).sum()

    start, fisher = logits.detach().clone(), p.diag() - p.outer(p) + 0.1 * torch.eye(3)
    direction = torch.linalg.solve(fisher, p * (objective - p @ objective))
    largest = direction * (2 * 0.05 / (direction @ fisher @ direction)).sqrt()
    step = trust_region_step([logits], terms, **{**OPTIONS, "max_kl": 0.05})
    torch.testing.assert_close(logits.detach(), start + step.fraction * largest)
    assert step.fraction == 1.0
    after = logits.detach().softmax(0)
    assert step.kl == pytest.approx((p * (p / after).log()).sum().item())
    assert step.improvement == pytest.approx(((after - p) @ objective).item())


def test_steps_beyond_the_limit_are_shrunk_and_those_that_do_not_improve_are_undone():
    weight = nn.Parameter(torch.zeros(2))
    # The divergence grows faster than its quadratic model: a step of norm d has d² + 100 d⁴.
    slope, limit = torch.tensor([1.0, 2.0]), 0.02

    def terms():
        square = weight @ weight
        return -(slope @ weight), square + 100 * square**2

    step = trust_region_step([weight], terms, **{**OPTIONS, "max_kl": limit, "damping": 0.0})
    largest = math.sqrt(limit)  # its square is the model's divergence
    tried = [0.8**number for number in range(10)]
    fits = [f for f in tried if (f * largest) ** 2 + 100 * (f * largest) ** 4 < limit]
    assert step.fraction == pytest.approx(fits[0])
    assert fits[0] < 1
    assert weight.norm().item() == pytest.approx(fits[0] * largest)
    before = weight.detach().clone()

    def never():  # it rises on both sides of where it is
        return terms()[0] + 1e3 * (weight - before).abs().sum(), (weight - before).square().sum()

    assert trust_region_step([weight], never, **OPTIONS).fraction == 0
    assert torch.equal(weight.detach(), before)


def test_conjugate_gradient_solves():
    square = torch.randn(6, 6, dtype=torch.float64)
    matrix, b = square @ square.T + torch.eye(6), torch.randn(6, dtype=torch.float64)
    x = conjugate_gradient(lambda v: matrix @ v, b, 20, tolerance=1e-20)
    torch.testing.assert_close(x, torch.linalg.solve(matrix, b))


@pytest.mark.parametrize("kind", ["closed form", "estimate", "bits"])
def test_the_hessian_of_the_divergence_is_the_fisher_information(kind):
    """Where there is no closed form: the mean outer product of the scores of the actions."""
    if kind == "bits":
        actor = Policy(mlp(3, 2, (4,)), Bernoulli((2,)))
    elif kind == "estimate":
        actor = TanhGaussianPolicy(mlp(3, 2, (4,)), 1)
    else:
        actor = CategoricalPolicy(mlp(3, 3, (4,)))
    data = TensorDict(observation=torch.randn(50, 3), advantage=torch.randn(50, 1), batch_size=[50])
    with torch.no_grad():
        data["action"] = actor.act(data["observation"])["action"]
    log_prob, _ = actor.log_prob_and_entropy([data["observation"]], data["action"])
    data["action_log_prob"] = log_prob.detach()
    parameters = list(actor.parameters())
    _, kl = TRPOLoss(actor, ValueNetwork(mlp(3, 1))).policy_terms(data)()
    assert kl.abs() < 1e-6
    slope = torch.autograd.grad(kl, parameters, create_graph=True)
    vector = [torch.randn_like(parameter) for parameter in parameters]
    along = sum((a * b).sum() for a, b in zip(slope, vector, strict=True))
    product = torch.autograd.grad(along, parameters)

    def weighted(log_probs, weights):
        scores = [
            torch.autograd.grad(one, parameters, retain_graph=True) for one in log_probs.flatten()
        ]
        expected = [torch.zeros_like(p) for p in parameters]
        for score, weight in zip(scores, weights.flatten(), strict=True):
            along = sum((a * b).sum() for a, b in zip(score, vector, strict=True))
            expected = [e + weight * along * s for e, s in zip(expected, score, strict=True)]
        return expected

    if kind == "closed form":
        log_probs = actor.evaluate(data["observation"]).log_softmax(-1)
        expected = weighted(log_probs, log_probs.detach().exp() / 50)
    else:
        expected = weighted(log_prob, torch.full((50,), 1 / 50))
    for ours, theirs in zip(product, expected, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-3)


def test_the_value_is_trained_on_its_own_parameters_alone():
    trunk = nn.Linear(3, 5)
    actor = Policy(nn.Linear(5, 3), CategoricalPolicy(mlp(3, 3)).distribution, trunk=trunk)
    critic = ValueNetwork(nn.Linear(5, 1), trunk=trunk)
    loss = TRPOLoss(actor, critic, critic_coeff=0.5)
    batch = TensorDict(observation=torch.randn(8, 3), value_target=torch.randn(8, 1))
    batch.batch_size = [8]
    value = critic.network(trunk(batch["observation"]))
    found = loss(batch)["loss_critic"]
    torch.testing.assert_close(found, 0.5 * (value - batch["value_target"]).square().mean())
    found.backward()
    assert trunk.weight.grad is None
    assert {id(p) for p in loss.own_critic_parameters} == {
        id(p) for p in critic.network.parameters()
    }
    assert all(parameter.grad is not None for parameter in loss.own_critic_parameters)


def test_padding_counts_for_nothing_and_entropy_is_a_bonus():
    actor = CategoricalPolicy(mlp(3, 3, (4,)))
    batch = recorded(actor)
    loss = TRPOLoss(actor, ValueNetwork(mlp(3, 1)), entropy_coeff=0.5)
    plain, _ = TRPOLoss(actor, ValueNetwork(mlp(3, 1))).policy_terms(batch)()
    mask = torch.arange(32) < 20
    padded = batch.clone()
    padded["collector"] = TensorDict(mask=mask, batch_size=[32])
    padded["advantage"][20:] = 1e6
    assert loss.policy_terms(padded)()[0] == loss.policy_terms(batch[:20])()[0]
    _, entropy = actor.log_prob_and_entropy([batch["observation"]], batch["action"])
    assert loss.policy_terms(batch)()[0].item() == pytest.approx(
        (plain - 0.5 * entropy.mean()).item()
    )


def test_a_gradient_that_is_not_finite_is_refused():
    actor = CategoricalPolicy(mlp(3, 3, (4,)))
    batch = recorded(actor)
    loss = TRPOLoss(actor, ValueNetwork(mlp(3, 1)))
    before = [parameter.clone() for parameter in actor.parameters()]
    batch["advantage"][3] = math.nan
    with pytest.raises(NonFiniteError, match="surrogate loss is not finite"):
        trust_region_step(list(actor.parameters()), loss.policy_terms(batch), **OPTIONS)
    assert all(torch.equal(a, b) for a, b in zip(before, actor.parameters(), strict=True))
    with pytest.raises(KeyError, match=r"needs 'advantage'.*GAE"):
        loss.policy_terms(batch.exclude("advantage"))
