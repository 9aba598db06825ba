"""Losses of language models: by hand, against TRL's numbers, and on a small transformer.

The numbers under `TRL` were computed by ``GRPOTrainer._compute_loss`` and
``DPOTrainer._compute_loss`` of TRL 1.16, called with the log-probabilities of `batch` in place of
a model's. Each is the loss and the sum of its gradient times 0, 1, 2, ... (in TRL's layout for
GRPO, without the prompt).
"""

from __future__ import annotations

import math

import pytest
import torch
from tensordict import TensorDict
from torch import nn

from hooktrainer.errors import ConfigError, NonFiniteError
from hooktrainer.networks import CausalTransformer, Sampling
from hooktrainer.networks.language_model import packed
from hooktrainer.objectives import (
    DPOLoss,
    GRPOLoss,
    SFTLoss,
    TokenPPOLoss,
    group_advantage,
    token_gae,
)

PROMPT, T, N = 2, 7, 4
ROW, COLUMN = torch.meshgrid(torch.arange(N), torch.arange(T), indexing="ij")
LOG_PROB = -0.1 - ((7 * ROW + 3 * COLUMN) % 11) / 10
RECORDED = LOG_PROB - ((5 * ROW + 2 * COLUMN) % 7 - 3) / 10
REFERENCE = LOG_PROB - ((3 * ROW + 4 * COLUMN) % 5 - 2) / 10
OLD = LOG_PROB - ((2 * ROW + 3 * COLUMN) % 5 - 2) / 10
LENGTH = torch.tensor([7, 5, 6, 3])
SAMPLED = (COLUMN >= PROMPT) & (LENGTH.unsqueeze(-1) > COLUMN)
SAMPLED[2, 3] = False  # a token of a tool


class Table(nn.Module):
    """Predicts token 0 with given log-probabilities ``[N, T]``, and otherwise token 1."""

    def __init__(self, log_prob: torch.Tensor):
        super().__init__()
        self.log_prob = nn.Parameter(log_prob.clone())

    def forward(self, tokens, lengths):
        self.seen = lengths
        rows = [LENGTH.tolist().index(length) for length in lengths]
        zero = packed(self.log_prob[rows].roll(-1, 1), lengths)
        return torch.stack([zero, (1 - zero.exp()).log()], -1)


def batch() -> TensorDict:
    return TensorDict(
        tokens=torch.zeros(N, T, dtype=torch.int64),
        length=LENGTH,
        sampled=SAMPLED,
        log_prob=RECORDED.where(SAMPLED, 0.0),
        old_log_prob=OLD.where(SAMPLED, 0.0),
        stopped=torch.tensor([True, False, True, True]),
        advantage=torch.tensor([1.0, -0.5, -0.3, 1.2]),
        batch_size=[N],
    )


def pairs() -> TensorDict:
    """The first two sequences as chosen, the others as rejected, these with less padding."""
    whole = batch().select("tokens", "length", "sampled")
    rejected = {"tokens": whole["tokens"][2:, :6], "sampled": whole["sampled"][2:, :6]}
    return TensorDict(chosen=whole[:2], rejected={**rejected, "length": LENGTH[2:]}, batch_size=[2])


def total(out):
    return sum(value for key, value in out.items() if key.startswith("loss"))


def weighted_gradient(model, start):
    grad = model.log_prob.grad[:, start:]
    return (grad * torch.arange(grad.numel()).view_as(grad)).sum().item()


OFF_POLICY = {"correction": "truncate", "bounds": (0.0, 1.2)}
TRL = {
    "grpo": ({}, -0.404825, 1.396892),
    "with a reference": ({"kl_coeff": 0.04}, -0.404494, 1.396127),
    "dapo": ({"average": "token", "clip_high": 0.28}, -0.352879, -0.996929),
    "dr. grpo": ({"average": "constant", "max_tokens": 10}, -0.102686, 0.372693),
    "gspo": ({"importance": "sequence", "clip": 0.03, "clip_high": 0.04}, -0.356312, 1.733537),
    "truncated": (OFF_POLICY, -0.413131, -4.070207),
    "masked": ({"correction": "mask", "bounds": (0.8, 1.2)}, -0.022104, 0.879972),
    # The loss of CISPO is another, its gradient is that of truncated importance sampling.
    "cispo": (
        {"clip": None, "average": "token", "correction": "truncate", "bounds": (0.0, 1.1)},
        None,
        -0.837743,
    ),
}


@pytest.mark.parametrize("name", TRL)
def test_grpo_equals_trls(name):
    options, value, gradient = TRL[name]
    model = Table(LOG_PROB)
    reference = {"reference": Table(REFERENCE)} if "kl_coeff" in options else {}
    out = GRPOLoss(model, **options, **reference)(batch())
    if value is not None:
        assert total(out).item() == pytest.approx(value, abs=2e-6)
    total(out).backward()
    assert weighted_gradient(model, PROMPT) == pytest.approx(gradient, abs=1e-5)
    assert not model.log_prob.grad[~SAMPLED].any()
    if reference:
        assert out["kl"].item() == pytest.approx(0.00994568, abs=1e-7)


@pytest.mark.parametrize(
    ("variant", "value", "gradient"),
    [("sigmoid", 0.718460, 3.331234), ("hinge", 1.05, 6.5), ("ipo", 1.067778, 27.555557)],
)
def test_dpo_equals_trls(variant, value, gradient):
    model = Table(LOG_PROB)
    out = DPOLoss(model, Table(REFERENCE), beta=0.5, variant=variant)(pairs())
    assert out["loss_preference"].item() == pytest.approx(value, abs=2e-6)
    assert out["reward_chosen"].item() == pytest.approx(-0.025, abs=1e-6)
    assert out["reward_rejected"].item() == pytest.approx(0.025, abs=1e-6)
    assert out["reward_margin"].item() == pytest.approx(-0.05, abs=1e-6)
    assert out["accuracy"].item() == 0
    out["loss_preference"].backward()
    assert weighted_gradient(model, 0) == pytest.approx(gradient, abs=1e-5)


def test_dpo_by_hand_with_smoothed_labels_and_a_frozen_reference():
    model = Table(LOG_PROB)
    loss = DPOLoss(model, beta=2.0, label_smoothing=0.25)
    assert [name for name, _ in loss.named_parameters()] == ["model.log_prob"]
    assert loss(pairs())["loss_preference"].item() == pytest.approx(math.log(2))  # d = 0
    with torch.no_grad():
        model.log_prob[0, 2] += 0.1  # of a chosen token: d = 0.1 for one pair of two
    positive, negative = (math.log(1 + math.exp(sign * 0.2)) for sign in (-1, 1))
    out = loss(pairs())
    expected = (0.75 * positive + 0.25 * negative + math.log(2)) / 2
    assert out["loss_preference"].item() == pytest.approx(expected, abs=1e-6)
    assert out["accuracy"].item() == 0.5
    assert "reference.log_prob" in loss.state_dict()


def test_sft_by_hand():
    model = Table(LOG_PROB)
    nll = -LOG_PROB
    out = SFTLoss(model)(batch())
    assert out["loss_nll"].item() == pytest.approx(nll[SAMPLED].mean().item())
    assert out["perplexity"].item() == pytest.approx(math.exp(nll[SAMPLED].mean()))
    right = (LOG_PROB[SAMPLED] > math.log(0.5)).float()
    torch.testing.assert_close(out["accuracy"], right.mean())
    means = torch.stack([nll[row][SAMPLED[row]].mean() for row in range(N)])
    out = SFTLoss(model, average="sequence")(batch())
    assert out["loss_nll"].item() == pytest.approx(means.mean().item())


@pytest.mark.parametrize("average", ["constant", "sequence"])
def test_parts_that_count_by_sequences_add_up_to_the_large_batch(average):
    options = {"average": average, "max_tokens": 5 if average == "constant" else None}
    loss = SFTLoss(CausalTransformer(8, T, width=16, depth=1, heads=2), **options)
    whole = batch()
    whole["tokens"] = torch.randint(8, (N, T))
    expected = loss(whole)["loss_nll"]
    parts = loss(whole[:1])["loss_nll"] + 3 * loss(whole[1:])["loss_nll"]
    torch.testing.assert_close(parts / 4, expected)


# -- GRPO's options and diagnostics.


def test_reinforce_is_weighted_by_the_ratio():
    model = Table(LOG_PROB)
    out = GRPOLoss(model, clip=None, average="token")(batch())
    ratio = (LOG_PROB - RECORDED).exp()[SAMPLED]
    advantage = batch()["advantage"].unsqueeze(-1).expand(N, T)[SAMPLED]
    assert out["loss_objective"].item() == pytest.approx(-(ratio * advantage).mean().item())
    assert "clip_fraction" not in out
    out["loss_objective"].backward()
    torch.testing.assert_close(model.log_prob.grad[SAMPLED], -ratio * advantage / len(ratio))


def test_diagnostics_by_hand():
    out = GRPOLoss(Table(LOG_PROB))(batch())
    change = (LOG_PROB - RECORDED)[SAMPLED]
    ratio = change.exp()
    p = LOG_PROB[SAMPLED].exp()
    expected = {
        "kl_approx": -change.mean(),
        "mean_ratio": ratio.mean(),
        "max_ratio": ratio.max(),
        "ESS": ratio.sum() ** 2 / (ratio**2).sum() / len(ratio),
        "clip_fraction": ((ratio < 0.8) | (ratio > 1.2)).float().mean(),
        "entropy": -(p * p.log() + (1 - p) * (1 - p).log()).mean(),
    }
    for name, value in expected.items():
        torch.testing.assert_close(out[name], value, msg=name)
        assert not out[name].requires_grad


def test_entropy_bonus():
    loss = GRPOLoss(Table(LOG_PROB), entropy_coeff=0.5, average="token")
    out = loss(batch())
    torch.testing.assert_close(out["loss_entropy"], -0.5 * out["entropy"])
    out["loss_entropy"].backward()
    p = LOG_PROB.exp()[SAMPLED]  # dH/dlog p = p * (log(1 - p) - log p)
    expected = -0.5 * p * ((1 - p).log() - p.log()) / len(p)
    torch.testing.assert_close(loss.model.log_prob.grad[SAMPLED], expected)
    loss.entropy_coeff = 0.0  # can be annealed
    assert loss(batch())["loss_entropy"] == 0


@pytest.mark.parametrize("kind", ["k1", "k2", "k3"])
def test_divergences(kind):
    model = Table(LOG_PROB)
    loss = GRPOLoss(model, kl_coeff=1.0, kl=kind, reference=Table(REFERENCE), average="token")
    out = loss(batch())
    d = (LOG_PROB - REFERENCE)[SAMPLED]
    value = {"k1": d, "k2": d**2 / 2, "k3": (-d).exp() - 1 + d}[kind].mean()
    torch.testing.assert_close(out["loss_kl"], value)
    torch.testing.assert_close(out["kl"], value)
    out["loss_kl"].backward()
    gradient = 1 - (-d).exp() if kind == "k3" else d
    torch.testing.assert_close(model.log_prob.grad[SAMPLED], gradient / len(d))


def test_advantages_of_tokens():
    data, model = batch(), Table(LOG_PROB)
    each = data["advantage"].unsqueeze(-1)
    for importance in ("token", "sequence"):
        loss = GRPOLoss(model, importance=importance)
        expected = loss(data)["loss_objective"]
        out = loss(data.clone().set("advantage", each.expand(N, T).clone()))
        assert out["loss_objective"] == expected
    data["advantage"] = COLUMN * each  # GSPO-token: the ratio of the sequence, for each advantage
    GRPOLoss(model, importance="sequence", clip=None)(data)["loss_objective"].backward()
    count = SAMPLED.sum(1, keepdim=True)
    ratio = ((LOG_PROB - RECORDED).where(SAMPLED, 0.0).sum(1, keepdim=True) / count).exp()
    expected = (-ratio * data["advantage"] / count / N).where(SAMPLED, 0.0)
    torch.testing.assert_close(model.log_prob.grad, expected)
    with pytest.raises(ValueError, match=r"\[4, 1\].*\[4\].*\[4, 7\]"):
        loss(data.clone().set("advantage", each))


def test_cut_off_completions_are_left_out_but_counted():
    data, model = batch(), Table(LOG_PROB)
    kept = [0, 2, 3]
    out = GRPOLoss(model, mask_cut_off=True)(data)
    assert model.seen == LENGTH[kept].tolist()
    expected = GRPOLoss(model)(data[kept])["loss_objective"] * 3 / 4
    torch.testing.assert_close(out["loss_objective"], expected)
    out["loss_objective"].backward()
    assert not model.log_prob.grad[1].any()
    model.zero_grad()
    all_cut = data.set("stopped", torch.zeros(N, dtype=torch.bool))
    options = {"kl_coeff": 0.1, "entropy_coeff": 0.1, "correction": "mask", "average": "token"}
    out = GRPOLoss(model, mask_cut_off=True, **options)(all_cut)
    total(out).backward()
    assert total(out) == 0
    assert not model.log_prob.grad.any()


@pytest.mark.parametrize("exact", [False, True])
def test_at_the_first_step_ratios_are_1(exact):
    torch.manual_seed(0)
    model = CausalTransformer(8, T, width=16, depth=1, heads=2, exact=exact)
    data = batch()
    data["tokens"] = torch.randint(8, (N, T))
    sampling = Sampling(temperature=0.7, top_p=0.99)
    for row in range(N):  # one by one, as a check of packing
        logits = model(data["tokens"][row, : LENGTH[row]], [int(LENGTH[row])])
        log_probs = sampling.log_probs(logits)[:-1].detach()
        chosen = log_probs.gather(-1, data["tokens"][row, 1 : LENGTH[row]].unsqueeze(-1))
        data["log_prob"][row, 1 : LENGTH[row]] = chosen.squeeze(-1).clamp_min(-1e4)
    out = GRPOLoss(model, sampling=sampling, average="token")(data)
    assert out["max_ratio"].item() == pytest.approx(1, abs=0 if exact else 1e-5)
    assert out["kl_approx"].item() == pytest.approx(0, abs=0 if exact else 1e-5)
    assert out["clip_fraction"] == 0


@pytest.mark.parametrize("correction", [None, "truncate", "mask"])
def test_a_token_that_is_now_cut_has_no_weight_and_makes_no_nan(correction):
    data, model = batch(), Table(LOG_PROB)
    with torch.no_grad():
        model.log_prob[1, 3] = math.log(0.1)  # top_k=1 leaves the other token
        model.log_prob[SAMPLED & (ROW != 1)] = math.log(0.6)
    options = {"clip": None, "correction": correction, "kl_coeff": 0.1, "entropy_coeff": 0.1}
    out = GRPOLoss(model, sampling=Sampling(top_k=1), reference=Table(LOG_PROB), **options)(data)
    total(out).backward()
    assert all(value.isfinite().all() for value in out.values())
    assert model.log_prob.grad.isfinite().all()


def test_the_divergence_has_the_temperature_but_is_not_cut():
    options = {"kl_coeff": 1.0, "reference": Table(REFERENCE)}
    cut, warm, plain = (
        GRPOLoss(Table(LOG_PROB), sampling=sampling, **options)(batch())["kl"]
        for sampling in (Sampling(2.0, top_k=1), Sampling(2.0), Sampling())
    )
    assert cut == warm != plain


def test_the_reference_travels_with_the_loss():
    model = CausalTransformer(8, T, width=16, depth=1, heads=2)
    loss, data = GRPOLoss(model, kl_coeff=0.1), batch()
    with torch.no_grad():
        model.head.weight.add_(torch.randn_like(model.head.weight))
    assert len(list(loss.parameters())) == len(list(model.parameters()))
    other = GRPOLoss(CausalTransformer(8, T, width=16, depth=1, heads=2), kl_coeff=0.1)
    other.load_state_dict(loss.state_dict())
    assert loss(data)["loss_kl"] == other(data)["loss_kl"] > 0


# -- Advantages of groups.


def test_group_advantages():
    reward = torch.tensor([1.0, 0.0, 0.5, 0.2, 0.1, 0.1, 0.1, 0.1, 0.0, 1.0, 1.0, 0.0])
    group = torch.arange(3).repeat_interleave(4)
    ours = group_advantage(reward, group)
    trl = [1.3217388, -0.9769375, 0.1724007, -0.5172022, 0, 0, 0, 0]
    trl += [-0.8658754, 0.8658754, 0.8658754, -0.8658754]
    torch.testing.assert_close(ours, torch.tensor(trl), atol=1e-6, rtol=0)
    assert not ours[4:8].any()
    order = torch.randperm(12)  # completions finish in any order
    torch.testing.assert_close(group_advantage(reward[order], 5 * group[order]), ours[order])
    centered = group_advantage(reward, group, scale=False)
    torch.testing.assert_close(centered[:4], reward[:4] - 0.425)
    others = group_advantage(reward, group, baseline="leave_one_out", scale=False)
    torch.testing.assert_close(others[0], 1 - torch.tensor(0.7 / 3))
    assert not others[4:8].any()
    plain = group_advantage(reward, group, baseline=None, scale="batch")
    torch.testing.assert_close(plain, (reward - reward.mean()) / (reward.std() + 1e-4))
    for count in (1, 3, 6, 7):  # exactly, though sums of 0.1 are rounded in single precision
        assert not group_advantage(torch.full((count,), 0.1), torch.zeros(count)).any()


@pytest.mark.parametrize(
    ("reward", "group", "options", "error", "message"),
    [
        ([1.0, math.nan], [7, 8], {}, NonFiniteError, "completion 1, of group 8"),
        ([1.0, 2.0, 3.0], [7, 7, 8], {"baseline": "leave_one_out"}, ConfigError, "group 8"),
        ([1.0, 2.0], [1, 1], {"baseline": None}, ConfigError, "baseline=None"),
        ([1.0, 2.0], [1, 1], {"baseline": "median"}, ConfigError, "median"),
        ([[1.0], [2.0]], [1, 1], {}, ValueError, r"\(2, 1\)"),
    ],
)
def test_bad_rewards_are_refused(reward, group, options, error, message):
    with pytest.raises(error, match=message):
        group_advantage(torch.tensor(reward), torch.tensor(group), **options)


# -- PPO with a value of each token.


def test_token_gae_by_hand():
    # gamma 0.5, lambda 0.5. Tokens 1, 2 and 4 are sampled; 3 was given, 5 is padding.
    sampled = torch.tensor([[False, True, True, False, True, False]])
    value = torch.tensor([[9.0, 2.0, 4.0, 9.0, 6.0, math.nan]])
    advantage, target = token_gae(torch.tensor([3.0]), value, sampled, gamma=0.5, lmbda=0.5)
    # deltas: 0+2-2=0, 0+3-4=-1, 3+0-6=-3
    assert advantage.tolist() == [[0, 0.25 * (-1 - 0.75), -1.75, 0, -3, 0]]
    assert target.tolist() == [[0, 2 - 0.4375, 2.25, 0, 3, 0]]
    of_tokens = torch.tensor([[0.0, 0.0, 0.0, 1.0, 3.0, 0.0]])  # 1 is a tool's, for token 2
    advantage, _ = token_gae(of_tokens, value, sampled, gamma=0.5, lmbda=0.5)
    assert advantage.tolist() == [[0, 0.25 * -0.75, -0.75, 0, -3, 0]]


class Values(nn.Module):
    def __init__(self):
        super().__init__()
        self.value = nn.Parameter(torch.tensor(0.5))

    def forward(self, tokens, lengths):
        steps = torch.cat([torch.arange(length) for length in lengths])
        return (self.value * steps).unsqueeze(-1)  # row t, before token t + 1


def test_token_ppo_adds_the_error_of_values():
    loss, data = TokenPPOLoss(Table(LOG_PROB), Values(), critic_coeff=2.0), batch()
    values = loss.values(data)
    torch.testing.assert_close(values, (0.5 * (COLUMN - 1)).where(SAMPLED, 0.0))
    data["advantage"], data["value_target"] = token_gae(data["advantage"], values, SAMPLED)
    out = loss(data)
    expected = 2 * (values - data["value_target"])[SAMPLED].square().mean()
    torch.testing.assert_close(out["loss_critic"], expected)
    torch.testing.assert_close(
        out["loss_objective"], GRPOLoss(loss.model, average="token")(data)["loss_objective"]
    )
    total(out).backward()
    assert loss.value_model.value.grad != 0
    with pytest.raises(KeyError, match="value_target"):
        loss(data.exclude("value_target"))


# -- Bad input.


def bad(**entries):
    return TensorDict(batch().to_dict() | entries, [N])


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        (bad(sampled=COLUMN == 0), ValueError, "'sampled'"),
        (bad(length=LENGTH + 1), ValueError, "to 8"),
        (bad(length=LENGTH - 3), ValueError, "from 0"),
        (bad(length=LENGTH.unsqueeze(-1)), ValueError, r"\(4, 1\)"),
        (batch().exclude("log_prob"), KeyError, "'log_prob'"),
    ],
)
def test_bad_batches_are_refused(data, error, message):
    with pytest.raises(error, match=message):
        GRPOLoss(Table(LOG_PROB))(data)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (GRPOLoss, {"kl": "k1"}),
        (GRPOLoss, {"reference": Table(REFERENCE)}),
        (GRPOLoss, {"clip": None, "clip_high": 0.3}),
        (GRPOLoss, {"bounds": (0.0, 3.0)}),
        (GRPOLoss, {"bounds": (2.0, 3.0), "correction": "mask"}),
        (GRPOLoss, {"max_tokens": 5}),
        (GRPOLoss, {"average": "constant"}),
        (GRPOLoss, {"clip": -0.2}),
        (GRPOLoss, {"kl_coeff": -0.2}),
        (GRPOLoss, {"correction": "clamp"}),
        (SFTLoss, {"average": "constant", "max_tokens": 0}),
        (DPOLoss, {"variant": "ppo"}),
        (DPOLoss, {"variant": "ipo", "label_smoothing": 0.1}),
        (DPOLoss, {"label_smoothing": 0.5}),
        (DPOLoss, {"beta": 0.0}),
    ],
)
def test_bad_options_are_refused(kind, options):
    with pytest.raises(ConfigError, match="|".join(options)):
        kind(Table(LOG_PROB), **options)


def test_what_is_read_depends_on_the_options():
    read = {"tokens", "length", "sampled", "log_prob", "advantage"}
    assert set(GRPOLoss(Table(LOG_PROB)).in_keys) == read
    loss = GRPOLoss(Table(LOG_PROB), correction="truncate", mask_cut_off=True)
    assert set(loss.in_keys) == read | {"old_log_prob", "stopped"}
    with pytest.raises(KeyError, match="old_log_prob"):
        loss(batch().exclude("old_log_prob"))
    assert "old_log_prob" not in GRPOLoss(Table(LOG_PROB), clip=None, correction="mask").in_keys
