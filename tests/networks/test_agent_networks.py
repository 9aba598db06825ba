"""Networks of several agents: parameters of their own, of all together, and their policies."""

from __future__ import annotations

import pytest
import torch
from tensordict import TensorDict
from tensordict.nn import InteractionType, set_interaction_type
from torch import nn

from hooktrainer.networks import (
    MEMORIES,
    AgentMLP,
    AgentsMemory,
    AgentsPolicy,
    CategoricalPolicy,
    CentralNetwork,
    DiagonalGaussianPolicy,
    EncodedMixer,
    JointEncoder,
    MonotonicMixer,
    SumMixer,
    fresh_copy,
    memory_for,
    mlp,
)


def test_each_agent_has_parameters_of_its_own():
    network = AgentMLP(3, 4, 2, (8,), nn.ReLU)
    x = torch.randn(5, 7, 3, 4)
    out = network(x)
    assert out.shape == (5, 7, 3, 2)
    for agent in range(3):
        single = mlp(4, 2, (8,), nn.ReLU)
        for layer, many in zip(single[::2], network.layers[::2], strict=True):
            layer.weight.data = many.weight[agent].data
            layer.bias.data = many.bias[agent, 0].data
        torch.testing.assert_close(out[:, :, agent], single(x[:, :, agent]))
    assert not torch.equal(network.layers[0].weight[0], network.layers[0].weight[1])
    out[:, :, 1].sum().backward()
    assert network.layers[0].weight.grad[0].abs().sum() == 0
    assert network.layers[0].weight.grad[1].abs().sum() > 0


def test_a_fresh_copy_has_new_parameters_for_each_agent():
    network = AgentMLP(3, 4, 2, (8,))
    before = [parameter.clone() for parameter in network.parameters()]
    copied = list(fresh_copy(network).parameters())
    for mine, old, new in zip(network.parameters(), before, copied, strict=True):
        assert torch.equal(mine, old)
        assert new.shape == old.shape
        assert not any(map(torch.equal, new, old))  # of no agent


@pytest.mark.parametrize("share", [True, False])
def test_a_central_network_sees_all_agents_and_the_state(share):
    encoder = JointEncoder([(nn.Identity(), 1, True), (nn.Identity(), 1, False)])
    inner = mlp(3 * 4 + 5, 1) if share else AgentMLP(3, 3 * 4 + 5, 1)
    network = CentralNetwork(encoder, inner, 3)
    seen, state = torch.randn(6, 3, 4, requires_grad=True), torch.randn(6, 5)
    value = network(seen, state)
    assert value.shape == (6, 3, 1)
    value[0, 0].backward()
    assert (seen.grad[0].abs().sum(-1) > 0).all()  # of each agent's observation
    assert not seen.grad[1:].any()
    same = torch.equal(value[:, 0], value[:, 1])
    assert same if share else not same
    if share:
        joined = torch.cat([seen.flatten(-2), state], -1)
        torch.testing.assert_close(value[:, 1], inner(joined))


@pytest.mark.parametrize("leave", [False, True])
@pytest.mark.parametrize("share", [True, False])
@pytest.mark.parametrize("name", MEMORIES)
def test_each_agent_remembers_its_own_steps(name, share, leave):
    torch.manual_seed(0)
    alone = [memory_for(name, 3, 4, length=5) for _ in range(1 if share else 2)]
    memory = AgentsMemory(alone, 2, leave)
    x, is_init = torch.randn(2, 12, 2, 3), torch.rand(2, 12, 1) < 0.2
    is_init[:, 0] = True
    acts = torch.rand(2, 12, 2) < 0.6 if leave else torch.ones(2, 12, 2, dtype=torch.bool)
    given = torch.cat([x, acts.unsqueeze(-1).float()], -1) if leave else x
    zeros = [state.expand(2, 1, *state.shape) for state in memory.hidden.values()]
    over, _ = memory(given, is_init, *zeros)

    states, steps = tuple(state[:, 0] for state in zeros), []
    for t in range(12):
        out, states = memory(given[:, t], is_init[:, t], *states)
        steps.append(out)
    torch.testing.assert_close(over, torch.stack(steps, 1))

    episodes = is_init.squeeze(-1).cumsum(1)
    for env in range(2):
        for agent in range(2):  # the steps in which it acts are all that there is for it
            own = acts[env, :, agent].nonzero().squeeze(-1)
            begins = torch.ones(1, len(own), 1, dtype=torch.bool)
            begins[0, 1:, 0] = episodes[env, own[1:]] > episodes[env, own[:-1]]
            one = alone[0 if share else agent]
            first = [state.expand(1, 1, *state.shape) for state in one.hidden.values()]
            expected, _ = one(x[env, own, agent].unsqueeze(0), begins, *first)
            torch.testing.assert_close(over[env, own, agent], expected[0])


def test_the_policies_of_groups_act_together():
    policy = AgentsPolicy(
        {
            "wolf": CategoricalPolicy(
                mlp(3, 5), [("wolf", "observation")], action_mask_key=("wolf", "action_mask")
            ),
            "sheep": DiagonalGaussianPolicy(mlp(2, 1), 1, in_keys=[("sheep", "observation")]),
        }
    )
    assert policy.in_keys == [
        ("wolf", "observation"),
        ("wolf", "action_mask"),
        ("sheep", "observation"),
    ]
    mask = torch.zeros(4, 2, 5, dtype=torch.bool)
    mask[..., 3] = True
    inputs = [torch.randn(4, 2, 3), mask, torch.randn(4, 1, 2)]
    out = policy.act(*inputs)
    assert (out["wolf", "action"] == 3).all()
    assert {key: tuple(value.shape) for key, value in out.items()} == {
        ("wolf", "action"): (4, 2),
        ("wolf", "action_log_prob"): (4, 2),
        ("sheep", "action"): (4, 1, 1),
        ("sheep", "action_log_prob"): (4, 1),
    }
    assert set(policy.out_keys) == set(out)
    batch = TensorDict({}, [4])
    for key, value in zip(policy.in_keys, inputs, strict=True):
        batch[key] = value
    with set_interaction_type(InteractionType.DETERMINISTIC):
        written = policy(batch)
        assert written["sheep", "action"].equal(policy.act(*inputs)["sheep", "action"])


def test_mixers_add_or_mix_monotonically():
    values = torch.randn(6, 3, 1, requires_grad=True)
    assert SumMixer()(values).equal(values.sum(-2))
    mixer = MonotonicMixer(4, agents=3, cells=8)
    mixer(values, torch.randn(6, 4)).sum().backward()
    assert (values.grad > 0).all()
    encoded = EncodedMixer(JointEncoder([(nn.Identity(), 1, True)]), MonotonicMixer(6, 3))
    assert encoded(values, torch.randn(6, 3, 2)).shape == (6, 1)
