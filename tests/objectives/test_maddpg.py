"""MADDPG and MASAC: for one agent DDPG and SAC, of several by hand, and masks."""

from __future__ import annotations

import copy

import pytest
import torch
from tensordict import TensorDict
from torch import nn

from hooktrainer.networks import (
    AgentMLP,
    AgentsMemory,
    CentralQNetwork,
    DeterministicPolicy,
    GRUMemory,
    JointEncoder,
    MemoryTrunk,
    TanhGaussianPolicy,
    ValueNetwork,
    mlp,
)
from hooktrainer.objectives import DDPGLoss, MADDPGLoss, MASACLoss, SACLoss, SoftUpdate

SEEN = [("agents", "observation")]


def batch_of(agents: int, rows: int = 6) -> TensorDict:
    torch.manual_seed(1)
    batch = TensorDict({"agents": {"observation": torch.randn(rows, agents, 3)}}, [rows])
    batch["agents", "action"] = torch.rand(rows, agents, 2) * 2 - 1
    batch["next"] = TensorDict({"agents": {"observation": torch.randn(rows, agents, 3)}}, [rows])
    batch["next", "agents", "reward"] = torch.randn(rows, agents, 1)
    batch["next", "agents", "terminated"] = torch.rand(rows, agents, 1) < 0.3
    return batch


def central(agents: int, network: nn.Module | None = None) -> CentralQNetwork:
    encoder = JointEncoder([(nn.Identity(), 1, True)])
    network = network or mlp(5 * agents, agents, (8,))
    return CentralQNetwork(encoder, network, agents, SEEN)


@pytest.mark.parametrize("soft", [False, True])
def test_for_one_agent_it_is_the_loss_of_one(soft):
    torch.manual_seed(0)
    network = mlp(3, 4 if soft else 2, (8,))
    actor = (TanhGaussianPolicy if soft else DeterministicPolicy)(network, 2, in_keys=SEEN)
    alone = copy.deepcopy(actor)
    alone.in_keys = ["observation"]
    networks = [mlp(5, 1, (8,)) for _ in range(2 if soft else 1)]
    values = [ValueNetwork(copy.deepcopy(one), ["observation", "action"]) for one in networks]
    critics = {"agents": [central(1, one) for one in networks]}
    kind = MASACLoss if soft else MADDPGLoss
    ours = kind({"agents": actor}, critics, gamma=0.9)
    theirs = (
        SACLoss(alone, values, gamma=0.9, loss_function="l2")
        if soft
        else DDPGLoss(alone, values[0], gamma=0.9)
    )
    batch = batch_of(1)
    flat = TensorDict({key: batch["agents", key][:, 0] for key in ("observation", "action")}, [6])
    after = ("observation", "reward", "terminated")
    flat["next"] = {key: batch["next", "agents", key][:, 0] for key in after}
    torch.manual_seed(2)
    found = ours(batch)
    torch.manual_seed(2)
    expected = theirs(flat)
    value = "loss_qvalue" if soft else "loss_value"
    torch.testing.assert_close(found["loss_value"], expected[value])
    torch.testing.assert_close(found["loss_actor"], expected["loss_actor"])
    if soft:
        torch.testing.assert_close(found["loss_alpha"], expected["loss_alpha"])
    for loss, out in ((ours, found), (theirs, expected)):
        sum(value for key, value in out.items() if key.startswith("loss")).backward()
        assert all(p.grad is not None for p in loss.parameters())
    pairs = zip(
        [*actor.parameters(), *(p for one in networks for p in one.parameters())],
        [*alone.parameters(), *(p for one in values for p in one.parameters())],
        strict=True,
    )
    for mine, other in pairs:
        torch.testing.assert_close(mine.grad, other.grad)


def hand(loss: MADDPGLoss, batch: TensorDict, weights: torch.Tensor) -> tuple[float, float]:
    """The losses of the actor and the critic, agent by agent and row by row."""
    actor, target_actor = loss.actors["agents"], loss.target_actors["agents"]
    critic, target = loss.critics["agents"][0], loss.target_critics["agents"][0]
    actor_loss = critic_loss = 0.0
    for row, each in zip(batch, weights, strict=True):
        seen, then = row["agents", "observation"], row["next", "agents", "observation"]
        taken = row["agents", "action"] * each.unsqueeze(-1)
        following = target_actor.evaluate(then)
        if ("next", "agents", "mask") in row.keys(True):
            following = following * row["next", "agents", "mask"].unsqueeze(-1)
        new = actor.evaluate(seen)
        for agent, weight in enumerate(each.tolist()):
            varied = taken.clone()
            varied[agent] = new[agent]
            actor_loss -= weight * critic(varied.flatten(), seen)[agent].item()
            value = target(following.flatten(), then)[agent].item()
            over = bool(row["next", "agents", "terminated"][agent])
            wanted = row["next", "agents", "reward"][agent].item() + 0.9 * value * (not over)
            critic_loss += weight * (critic(taken.flatten(), seen)[agent].item() - wanted) ** 2
    number = weights.sum().item()
    return actor_loss / number, critic_loss / number


@pytest.mark.parametrize("share", [True, False])
@pytest.mark.parametrize("masked", [False, True])
def test_an_agents_value_is_of_its_new_action_and_the_others_old_ones(share, masked):
    torch.manual_seed(0)
    actor = DeterministicPolicy(mlp(3, 2, (8,)), 2, in_keys=SEEN)
    critic = central(3, None if share else AgentMLP(3, 15, 1, (8,)))
    loss = MADDPGLoss({"agents": actor}, {"agents": [critic]}, gamma=0.9)
    for parameter in loss.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)  # targets differ
    batch = batch_of(3)
    weights = torch.ones(6, 3)
    if masked:
        weights = (torch.rand(6, 3) < 0.6).float()
        batch["agents", "mask"] = weights.bool()
        batch["next", "agents", "mask"] = torch.rand(6, 3) < 0.6
    out = loss(batch)
    expected = hand(loss, batch, weights)
    found = out["loss_actor"].item(), out["loss_value"].item()
    assert found == pytest.approx(expected, abs=1e-5)
    # Each loss trains its own parameters.
    out["loss_actor"].backward()
    assert all(p.grad is None for p in critic.parameters())
    assert batch["td_error"].shape == (6,)


def test_critics_without_a_memory_train_policies_with_one():
    torch.manual_seed(0)
    trunk = MemoryTrunk(
        nn.Identity(), AgentsMemory([GRUMemory(3, 4)], 2), SEEN, ("agents", "memory")
    )
    actor = DeterministicPolicy(mlp(4, 2, (8,)), 2, in_keys=trunk.in_keys, trunk=trunk)
    critic = central(2)
    loss = MADDPGLoss({"agents": actor}, {"agents": [critic]}, gamma=0.0, burn_in=1)
    batch = torch.stack([batch_of(2, 5), batch_of(2, 5)]).auto_batch_size_(1)
    batch["is_init"] = torch.zeros(2, 5, 1, dtype=torch.bool)
    batch["agents", "memory", "h"] = torch.zeros(2, 1, 2, 4)
    out = loss(batch)
    actions, seen = (batch["agents", key][:, 1:] for key in ("action", "observation"))
    value = critic(actions.flatten(2).flatten(0, 1), seen.flatten(0, 1))
    reward = batch["next", "agents", "reward"][:, 1:].flatten(0, 1).squeeze(-1)
    torch.testing.assert_close(out["loss_value"], (value - reward).square().mean())
    out["loss_actor"].backward()
    assert all(p.grad.any() for p in trunk.memory.parameters())
    assert all(p.grad is None for p in critic.parameters())


def test_several_groups_see_each_other():
    torch.manual_seed(0)
    keys = {name: [(name, "observation")] for name in ("wolf", "sheep")}
    seen = [key for own in keys.values() for key in own]
    sizes = {"wolf": 2, "sheep": 1}
    actors = {
        name: TanhGaussianPolicy(mlp(3, 4, (8,)), 2, in_keys=own) for name, own in keys.items()
    }
    critics = {
        name: [
            CentralQNetwork(
                JointEncoder([(nn.Identity(), 1, True)] * 2), mlp(15, number, (8,)), number, seen
            )
        ]
        * 2
        for name, number in sizes.items()
    }
    loss = MASACLoss(actors, critics)
    batch = TensorDict({}, [6])
    for name, number in sizes.items():
        own = batch_of(number)
        batch[name], own["next", name] = own["agents"], own["next", "agents"]
        batch["next", name] = own["next", name]
    out = loss(batch)
    assert set(loss.out_keys) <= set(out.keys())
    assert out["loss_alpha_sheep"].requires_grad
    before = out["loss_value_sheep"].item()
    torch.manual_seed(0)
    batch["wolf", "action"] = -batch["wolf", "action"]
    assert loss(batch)["loss_value_sheep"].item() != pytest.approx(before)
    SoftUpdate(loss, tau=0.5).step()
