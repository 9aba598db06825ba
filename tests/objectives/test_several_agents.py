"""Losses and advantages of several agents: by hand, and equal to TorchRL's on the same data."""

from __future__ import annotations

import warnings

import pytest
import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule, TensorDictSequential
from torch import nn

from hooktrainer.networks import (
    AgentMLP,
    CentralNetwork,
    DiagonalGaussian,
    JointEncoder,
    MonotonicMixer,
    Policy,
    QNetwork,
    SumMixer,
    ValueNetwork,
    mlp,
)
from hooktrainer.objectives import (
    GAE,
    ClipPPOLoss,
    LossByGroup,
    QMixLoss,
    SoftUpdate,
    Term,
    keys_of,
)

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torchrl.modules import QValueModule
    from torchrl.modules.models.multiagent import QMixer
    from torchrl.objectives import ClipPPOLoss as TorchRLPPO
    from torchrl.objectives import ValueEstimators
    from torchrl.objectives.multiagent import QMixerLoss

PPO_KEYS = ("action", "advantage", "value_target")


# -- advantages -----------------------------------------------------------------------------------


def estimated(done_key, done):
    """The advantages of one environment, three steps and two agents, whose values are 1 and 2."""
    values = torch.tensor([[1.0, 2], [1, 2], [1, 2]]).view(1, 3, 2, 1)
    rewards = torch.tensor([[1.0, 2], [3, 4], [5, 6]]).view(1, 3, 2, 1)
    following = {"agents": {"reward": rewards, "known": values}}
    batch = TensorDict({"agents": {"known": values}, "next": following}, [1, 3])
    batch.set(("next", done_key) if done_key == "done" else ("next", *done_key), done)
    network = ValueNetwork(nn.Identity(), [("agents", "known")], [("agents", "state_value")])
    gae = GAE(gamma=0.5, lmbda=0.5, value_network=network)
    gae.set_keys(
        **keys_of("agents", "reward", "advantage", "value_target"),
        value=("agents", "state_value"),
        done=done_key,
        terminated=done_key,
    )
    out = gae(batch)["agents", "advantage"]
    assert out.shape == (1, 3, 2, 1)
    return out.view(3, 2).tolist()


def test_an_environments_end_is_the_end_of_all_its_agents():
    done = torch.tensor([False, True, False]).view(1, 3, 1)
    # delta = r + 0.5 V' - V, without V' where it ends; A_0 = delta_0 + 0.25 A_1.
    assert estimated("done", done) == [
        [1 + 0.5 - 1 + 0.25 * 2, 2 + 1 - 2 + 0.25 * 2],
        [3 - 1, 4 - 2],
        [5 + 0.5 - 1, 6 + 1 - 2],
    ]


def of_turns(gamma, lmbda, values, next_values, rewards, done, terminated, acts, next_acts):
    """The advantages of one agent's complete turns, by row: each turn is collected, then GAE."""
    turns, open_turn = [], None
    for t in range(len(rewards)):
        if acts[t]:
            open_turn = {"row": t, "value": values[t], "reward": 0.0}
        if open_turn is None:
            continue
        open_turn["reward"] += rewards[t]
        if done[t] or next_acts[t]:
            after = 0.0 if terminated[t] else next_values[t]
            turns.append(open_turn | {"next": after, "done": done[t]})
            open_turn = None
    advantages, following = {}, 0.0
    if open_turn is not None:  # the value of the turn that is not complete is the next value
        assert turns[-1]["done"] or turns[-1]["next"] == open_turn["value"]
    for turn in reversed(turns):
        delta = turn["reward"] + gamma * turn["next"] - turn["value"]
        following = advantages[turn["row"]] = delta + gamma * lmbda * following * (not turn["done"])
    return advantages


def test_turns_are_steps_of_their_agent():
    torch.manual_seed(0)
    time = 40
    order = torch.randint(3, (time + 1,))
    acts = (order.unsqueeze(-1) == torch.arange(3)).unsqueeze(0)  # [1, time + 1, 3]
    done = torch.zeros(1, time, 3, 1, dtype=torch.bool)
    done[:, [11, 25]] = True
    terminated = done.clone()
    terminated[:, 25] = False
    seen, rewards = torch.randn(1, time + 1, 3, 1), torch.randn(1, time, 3, 1)
    now, then = seen[:, :-1], seen[:, 1:].clone()
    then[done] = 9.0  # the last of an episode, not the first of the next one
    batch = TensorDict({"agents": {"known": now, "mask": acts[:, :-1]}}, [1, time])
    batch["next"] = TensorDict({"agents": {"known": then, "mask": acts[:, 1:]}}, [1, time])
    ends = {"reward": rewards, "done": done, "terminated": terminated}
    batch["next", "agents"].update(ends)
    network = ValueNetwork(nn.Identity(), [("agents", "known")], [("agents", "state_value")])
    gae = GAE(gamma=0.9, lmbda=0.8, value_network=network)
    gae.set_keys(
        value=("agents", "state_value"),
        **keys_of("agents", "reward", "advantage", "value_target", "done", "terminated"),
        **keys_of("agents", "mask", "learned"),
    )
    out = gae(batch)["agents"]
    whole = [now, then, rewards, done, terminated, acts[:, :-1, :, None], acts[:, 1:, :, None]]
    count = 0
    for agent in range(3):
        columns = [entry[0, :, agent, 0].tolist() for entry in whole]
        expected = of_turns(0.9, 0.8, *columns)
        rows = out["learned"][0, :, agent].nonzero().squeeze(-1).tolist()
        assert rows == sorted(expected)
        found = out["advantage"][0, rows, agent, 0]
        assert found.tolist() == pytest.approx([expected[row] for row in rows], abs=1e-5)
        target = out["value_target"][0, rows, agent, 0]
        torch.testing.assert_close(target, found + now[0, rows, agent, 0])
        count += len(rows)
    assert 36 <= count < 40


def test_an_agent_that_ends_alone_is_cut_off_alone():
    done = torch.tensor([[False, False], [True, False], [False, False]]).view(1, 3, 2, 1)
    assert estimated(("agents", "done"), done) == [
        [1.0, 1 + 0.25 * (3 + 0.25 * 5)],
        [2.0, 3 + 0.25 * 5],
        [4.5, 5.0],
    ]


# -- MAPPO ----------------------------------------------------------------------------------------

AGENTS, FEATURES, ACTIONS = 3, 5, 2


def ppo_keys():
    return {
        **keys_of("agents", *PPO_KEYS),
        "sample_log_prob": ("agents", "action_log_prob"),
        "value": ("agents", "state_value"),
    }


def batch_of_ppo():
    shape = (16, AGENTS)
    agents = {
        "observation": torch.randn(*shape, FEATURES),
        "action": torch.randn(*shape, ACTIONS),
        "action_log_prob": torch.randn(*shape) - 3,
        "advantage": torch.randn(*shape, 1),
        "value_target": torch.randn(*shape, 1),
        "state_value": torch.randn(*shape, 1),
    }
    return TensorDict({"agents": TensorDict(agents, shape)}, [16])


def gradients(loss, *modules):
    parameters = [p for module in modules for p in module.parameters()]
    return torch.autograd.grad(loss, parameters)


@pytest.mark.parametrize("share", [True, False])
@pytest.mark.parametrize("central", [True, False])
def test_mappos_losses_and_gradients_are_torchrls(share, central):
    make = mlp if share else lambda *sizes: AgentMLP(AGENTS, *sizes)
    value = make(AGENTS * FEATURES if central else FEATURES, 1, (8, 8))
    if central:
        value = CentralNetwork(JointEncoder([(nn.Identity(), 1, True)]), value, AGENTS)
    keys = [("agents", "observation")]
    policy = Policy(make(FEATURES, ACTIONS, (8, 8)), DiagonalGaussian((ACTIONS,), -0.5), keys)
    critic = ValueNetwork(value, keys, [("agents", "state_value")])
    batch, found = batch_of_ppo(), []
    for kind in (ClipPPOLoss, TorchRLPPO):
        loss = kind(policy, critic, clip_value=0.2, loss_critic_type="l2")
        loss.set_keys(**ppo_keys())
        out = loss(batch.clone())
        losses = {key: out[key] for key in ("loss_objective", "loss_critic", "loss_entropy")}
        found.append((losses, gradients(sum(losses.values()), policy, critic)))
    torch.testing.assert_close(*found, rtol=1e-5, atol=1e-5)


def test_several_groups_are_several_losses():
    def loss(group, features):
        keys = [(group, "observation")]
        made = ClipPPOLoss(
            Policy(mlp(features, ACTIONS), DiagonalGaussian((ACTIONS,)), keys),
            ValueNetwork(mlp(features, 1), keys),
            diagnostics=0,
        )
        made.set_keys(**keys_of(group, *PPO_KEYS), sample_log_prob=(group, "action_log_prob"))
        return made

    batch = batch_of_ppo()
    batch["wolf"] = batch.pop("agents")
    batch["sheep"] = batch["wolf"][:, :1].clone()
    parts = {"wolf": loss("wolf", FEATURES), "sheep": loss("sheep", FEATURES)}
    both = LossByGroup(parts)
    out = both(batch)
    assert set(out.keys()) == set(both.out_keys)
    for name, part in parts.items():
        assert out[f"loss_objective_{name}"] == part(batch)["loss_objective"]
    both.add_term(Term(["further"], lambda entries: {"loss_further": entries["further"].mean()}))
    batch["further"] = torch.ones(len(batch))
    assert both(batch)["loss_further"] == 1.0
    assert LossByGroup({"wolf": parts["wolf"]}).out_keys == parts["wolf"].out_keys
    assert {("wolf", "advantage"), ("sheep", "advantage")} <= set(both.in_keys)


# -- value mixing ---------------------------------------------------------------------------------


def batch_of_qmix(actions=4):
    def part():
        seen = TensorDict({"observation": torch.randn(16, AGENTS, FEATURES)}, [16, AGENTS])
        return {"agents": seen, "state": torch.randn(16, 7)}

    batch = TensorDict({**part(), "next": TensorDict(part(), [16])}, [16])
    batch["agents", "action"] = torch.randint(actions, (16, AGENTS))
    batch["next", "reward"] = torch.randn(16, 1)
    batch["next", "done"] = torch.rand(16, 1) < 0.3
    batch["next", "terminated"] = batch["next", "done"].clone()
    return batch


@pytest.mark.parametrize("mixing", ["qmix", "vdn"])
def test_the_loss_and_gradients_of_value_mixing_are_torchrls(mixing):
    network, observed = mlp(FEATURES, 4, (8,)), [("agents", "observation")]
    mixer = MonotonicMixer(7, AGENTS, 6) if mixing == "qmix" else SumMixer()
    states = ["state"] if mixing == "qmix" else []
    ours = QMixLoss({"agents": QNetwork(network, observed)}, mixer, states, gamma=0.9)
    names = ("action", "action_value", "chosen_action_value")
    action, values, chosen = (("agents", name) for name in names)
    theirs = QMixerLoss(
        TensorDictSequential(
            TensorDictModule(network, in_keys=observed, out_keys=[values]),
            QValueModule(
                action_value_key=values,
                out_keys=[action, values, chosen],
                action_space="categorical",
            ),
        ),
        TensorDictModule(mixer, in_keys=[chosen, *states], out_keys=["chosen_action_value"]),
        action_space="categorical",
        delay_value=True,
    )
    theirs.set_keys(
        action=action,
        action_value=values,
        local_value=chosen,
        global_value="chosen_action_value",
        reward="reward",
        done="done",
        terminated="terminated",
    )
    theirs.make_value_estimator(ValueEstimators.TD0, gamma=0.9)
    batch, found = batch_of_qmix(), []
    for loss in (ours, theirs):
        data = batch.clone()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            out = loss(data)["loss"]
        found.append((out, data["td_error"], gradients(out, network, mixer)))
    torch.testing.assert_close(*found)


def test_the_mixer_is_torchrls():
    ours = MonotonicMixer(7, AGENTS, 6)
    theirs = QMixer(state_shape=(7,), mixing_embed_dim=6, n_agents=AGENTS, device="cpu")
    names = {
        "hyper_w_1": "hidden_weight",
        "hyper_b_1": "hidden_bias",
        "hyper_w_final": "output_weight",
        "V": "output_bias",
    }
    for their_name, our_name in names.items():
        getattr(ours, our_name).load_state_dict(getattr(theirs, their_name).state_dict())
    values, state = torch.randn(16, AGENTS, 1), torch.randn(16, 7)
    torch.testing.assert_close(ours(values, state), theirs(values, state))


def test_values_are_mixed_by_hand():
    value = QNetwork(nn.Linear(2, 2, bias=False), [("agents", "observation")])
    nn.init.eye_(value.network.weight)  # the value of an action is that feature
    loss = QMixLoss({"agents": value}, SumMixer(), gamma=0.5)
    SoftUpdate(loss, tau=1.0).step()

    def seen(*rows):
        return torch.tensor([rows])

    batch = TensorDict(
        {
            "agents": {
                "observation": seen([1.0, 2], [3, 4]),
                "action": torch.tensor([[0, 1]]),
                "mask": torch.tensor([[True, True]]),
            },
            "next": {
                "agents": {
                    "observation": seen([5.0, 6], [8, 7]),
                    "mask": torch.tensor([[True, False]]),
                },
                "reward": torch.tensor([[1.0]]),
                "terminated": torch.tensor([[False]]),
            },
        },
        [1],
    )
    # Both act: 1 + 4. Next the second is gone: 1 + 0.5 * 6 = 4.
    assert loss(batch)["loss"] == (5 - 4) ** 2
    assert batch["td_error"].tolist() == [[1.0]]
    batch["next", "agents", "mask"] = torch.tensor([[True, True]])
    assert loss(batch)["loss"] == (5 - (1 + 0.5 * 14)) ** 2
    batch["next", "terminated"] = torch.tensor([[True]])
    assert loss(batch)["loss"] == (5 - 1) ** 2


def test_agents_that_do_not_act_are_left_out_of_every_mean():
    def loss(keys):
        made = ClipPPOLoss(policy, critic, clip_value=0.2, normalize_advantage=True)
        made.set_keys(**keys)
        return made

    observed = [("agents", "observation")]
    policy = Policy(mlp(FEATURES, ACTIONS), DiagonalGaussian((ACTIONS,)), observed)
    critic = ValueNetwork(mlp(FEATURES, 1), observed)
    keys = ppo_keys()
    batch = batch_of_ppo()
    acts = torch.rand(16, AGENTS) < 0.6
    batch["agents", "mask"] = acts
    there = TensorDict({"agents": batch["agents"][acts]}, [int(acts.sum())])
    batch["agents", "advantage"][~acts] = torch.nan
    batch["agents", "value_target"][~acts] = torch.nan
    masked = loss({**keys, "mask": ("agents", "mask")})(batch)
    torch.testing.assert_close(dict(masked), dict(loss(keys)(there)))
    assert ("agents", "mask") in loss({**keys, "mask": ("agents", "mask")}).in_keys
