"""`DTLoss` and what it reads: by hand, and equal to transformers' `DecisionTransformerModel`."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tensordict import TensorDict
from torch import nn

from hooktrainer.data import DataCollector, Dataset, Subsequences
from hooktrainer.errors import ConfigError
from hooktrainer.networks import Box, Categorical, DecisionTransformer, DecisionTransformerPolicy
from hooktrainer.objectives import DTLoss

KEYS = ("return_to_go", "observation", "action", "step", "mask")
LENGTHS = (5, 1, 3)  # of the episodes; two more transitions belong to none that ends


def make_dataset(discrete: bool = False, lengths=LENGTHS, rest: int = 2) -> Dataset:
    torch.manual_seed(0)
    number = sum(lengths) + rest
    terminated = torch.zeros(number, 1, dtype=torch.bool)
    truncated = torch.zeros(number, 1, dtype=torch.bool)
    for episode, end in enumerate(np.cumsum(lengths) - 1):
        (truncated if episode % 2 else terminated)[end] = True
    following = {"observation": torch.randn(number, 3), "reward": torch.randn(number, 1)}
    following |= {"terminated": terminated, "truncated": truncated}
    action = torch.randint(4, (number,)) if discrete else torch.rand(number, 2) * 6 - 1
    content = {"observation": torch.randn(number, 3), "action": action}
    content["next"] = TensorDict(following, batch_size=[number])
    return Dataset(TensorDict(content, batch_size=[number]))


def make_policy(discrete: bool = False, heads: int = 2, **options) -> DecisionTransformerPolicy:
    torch.manual_seed(1)
    actions = Categorical(4) if discrete else Box(2, -1.0, 5.0)
    size = 4 if discrete else 2
    network = DecisionTransformer(
        nn.Linear(3, 8), size, size, max_steps=6, width=8, depth=2, heads=heads
    )
    network.return_norm.update(torch.randn(20, 1) * 2 + 1)
    return DecisionTransformerPolicy(network, actions, 3, **{"context_length": 4, **options})


def test_parts_of_episodes_by_hand():
    dataset = make_dataset()
    parts = Subsequences(dataset, 4)
    assert len(parts) == 9  # not the two that belong to no episode that ends
    rewards = dataset.transitions["next", "reward"][:, 0].tolist()
    returns = [sum(rewards[:5]), rewards[5], sum(rewards[6:9])]
    assert list(parts.returns) == pytest.approx(returns)

    batch = parts([3, 5, 0, 6])
    assert batch.shape == (4,)
    assert batch["mask"].int().tolist() == [[1, 1, 0, 0], [1, 0, 0, 0], [1] * 4, [1, 1, 1, 0]]
    steps = [[3, 4], [0], [0, 1, 2, 3], [0, 1, 2]]
    places = [[3, 4], [5], [0, 1, 2, 3], [6, 7, 8]]
    ends = [5, 6, 5, 9]
    for row, (step, place, end) in enumerate(zip(steps, places, ends, strict=True)):
        there = batch["mask"][row]
        assert batch["step"][row][there].tolist() == step
        for key in ("observation", "action"):
            torch.testing.assert_close(batch[key][row][there], dataset.transitions[key][place])
        left = [sum(rewards[at:end]) for at in place]
        assert batch["return_to_go"][row, :, 0][there].tolist() == pytest.approx(left)


def test_returns_are_those_that_the_data_set_has():
    dataset = make_dataset()
    dataset.returns = [1.5, 2.5]  # of a recording, which knows the whole episodes
    assert Subsequences(dataset, 4).returns == [1.5, 2.5]


def test_one_episode_is_enough_and_no_end_is_refused():
    alone = Subsequences(make_dataset(lengths=(2,), rest=0), 20)
    assert alone([0, 1])["mask"].sum(1).tolist() == [2, 1]
    with pytest.raises(ConfigError, match=r"none of the 7 transitions .* ends an episode"):
        Subsequences(make_dataset(lengths=(), rest=7), 4)


def test_every_transition_begins_a_part():
    parts = Subsequences(make_dataset(), 4)
    drawn = DataCollector(range(len(parts)), 512, replacement=True, collate=parts).collect()
    assert drawn.shape == (512,)
    begins = {tuple(row) for row in drawn["observation"][:, 0].tolist()}
    assert len(begins) == 9


@pytest.mark.parametrize("discrete", [False, True])
def test_the_loss_by_hand(discrete):
    policy, parts = make_policy(discrete), Subsequences(make_dataset(discrete), 4)
    batch = parts([3, 5, 0, 6])
    found = DTLoss(policy)(batch)["loss_dt"]
    losses = []
    for row in batch.unbind(0):  # each without its padding
        number = int(row["mask"].sum())
        seen = {key: row[key][:number].unsqueeze(0) for key in KEYS}
        action = seen["action"]
        encoded = torch.eye(4)[action] if discrete else (action - 2) / 3
        out = policy.network(
            seen["return_to_go"], seen["observation"], encoded, seen["step"], seen["mask"]
        )[0]
        if discrete:
            losses += nn.functional.cross_entropy(out, action[0], reduction="none").tolist()
        else:
            losses += (out.tanh() - encoded[0]).square().mean(-1).tolist()
    assert len(losses) == 2 + 1 + 4 + 3
    assert found.item() == pytest.approx(np.mean(losses), rel=1e-5)


@pytest.mark.parametrize("discrete", [False, True])
def test_no_step_sees_what_comes_after_its_observation(discrete):
    policy = make_policy(discrete)
    batch = Subsequences(make_dataset(discrete), 4)([0, 1])
    inputs = [batch["return_to_go"], batch["observation"], policy.encoded(batch["action"]).float()]
    inputs = [value.clone().requires_grad_() for value in inputs]
    out = policy.network(*inputs, batch["step"], batch["mask"])
    grads = torch.autograd.grad(out[:, 2].sum(), inputs)
    reached = [grad.abs().sum((0, 2)).gt(0).tolist() for grad in grads]
    assert reached == [[True, True, True, False]] * 2 + [[True, True, False, False]]


def test_where_padding_is_does_not_matter():
    policy = make_policy()
    batch = Subsequences(make_dataset(), 4)([6])
    inputs = [batch["return_to_go"], batch["observation"], policy.encoded(batch["action"])]
    inputs += [batch["step"], batch["mask"]]
    after = policy.network(*inputs)[:, :3]
    torch.testing.assert_close(
        policy.network(*(value.roll(1, 1) for value in inputs))[:, 1:], after
    )
    inputs[1][:, 3] += 100.0
    torch.testing.assert_close(policy.network(*inputs)[:, :3], after)


@pytest.mark.parametrize("heads", [1, 2])
def test_the_network_equals_the_one_of_transformers(heads):
    """With its activation, without biases; weights are copied from ours."""
    transformers = pytest.importorskip("transformers")
    ours = make_policy(heads=heads).network
    theirs = transformers.DecisionTransformerModel(
        transformers.DecisionTransformerConfig(
            state_dim=3,
            act_dim=2,
            hidden_size=8,
            max_ep_len=6,
            n_layer=2,
            n_head=heads,
            n_inner=32,
            activation_function="relu2",
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
        )
    ).eval()
    for parameter in theirs.encoder.parameters():
        nn.init.zeros_(parameter)  # biases, and the positions that it adds to the steps
    pairs = [
        (theirs.embed_return, ours.embed_return),
        (theirs.embed_state, ours.embed_observation),
        (theirs.embed_action, ours.embed_action),
        (theirs.embed_timestep, ours.embed_step),
        (theirs.embed_ln, ours.embedding_norm),
        (theirs.encoder.ln_f, ours.norm),
        (theirs.predict_action[0], ours.head),
    ]
    for layer, block in zip(theirs.encoder.h, ours.blocks, strict=True):
        pairs += [(layer.ln_1, block.attention_norm), (layer.ln_2, block.mlp_norm)]
        for conv, linear in (
            (layer.attn.c_attn, block.attention_in),
            (layer.attn.c_proj, block.attention_out),
            (layer.mlp.c_fc, block.mlp_in),
            (layer.mlp.c_proj, block.mlp_out),
        ):
            conv.weight.data.copy_(linear.weight.data.T)
    for to, of in pairs:
        to.weight.data.copy_(of.weight.data)
        if getattr(of, "bias", None) is not None:
            to.bias.data.copy_(of.bias.data)

    batch = Subsequences(make_dataset(), 4)([3, 5, 0, 6])
    action = torch.randn(4, 4, 2)
    there = batch["mask"]
    with torch.no_grad():
        expected = theirs(
            states=batch["observation"],
            actions=action,
            returns_to_go=ours.return_norm(batch["return_to_go"]),
            timesteps=batch["step"],
            attention_mask=there.long(),
        ).action_preds
        found = ours(
            batch["return_to_go"], batch["observation"], action, batch["step"], there
        ).tanh()
    torch.testing.assert_close(found[there], expected[there])


def test_sizes_that_cannot_work_are_refused():
    with pytest.raises(ConfigError, match="width=8: pass a multiple of heads=3"):
        make_policy(heads=3)
    with pytest.raises(ConfigError, match="context_length=0"):
        make_policy(context_length=0)
