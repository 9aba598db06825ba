"""Losses over sequences equal a loop over their steps, and R2D2's of DI-engine."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from tensordict import TensorDict
from test_ensembles import wave, with_other_targets
from torch import nn

from hooktrainer import ConfigError
from hooktrainer.networks import (
    DeterministicPolicy,
    GRUMemory,
    LSTMMemory,
    MemoryTrunk,
    QNetwork,
    TanhGaussianPolicy,
    ValueNetwork,
    mlp,
    q_head,
)
from hooktrainer.objectives import DDPGLoss, DQNLoss, SACLoss, TD3Loss

SEQUENCES, TIME, ACTIONS, GAMMA = 6, 11, 3, 0.9


def make_trunk(kind: Any = GRUMemory) -> MemoryTrunk:
    return MemoryTrunk(mlp(2, 4, ()), kind(4, 5))


def make_batch(trunk: MemoryTrunk, continuous: bool = False) -> TensorDict:
    """Sequences with episodes that end in them, some of them truncated."""
    generator = torch.Generator().manual_seed(3)
    rand = lambda *shape: torch.randn(SEQUENCES, TIME, *shape, generator=generator)  # noqa: E731
    done = torch.rand(SEQUENCES, TIME, 1, generator=generator) < 0.2
    terminated = done & (torch.rand(SEQUENCES, TIME, 1, generator=generator) < 0.5)
    is_init = torch.zeros_like(done)
    is_init[:, 1:] = done[:, :-1]
    observation, reset = rand(2), rand(2)
    following = torch.cat([observation[:, 1:], rand(2)[:, :1]], 1)
    following = torch.where(done, reset, following)  # where it ends, another begins
    action = torch.randint(ACTIONS, (SEQUENCES, TIME), generator=generator)
    batch = TensorDict(
        {
            "observation": observation,
            "is_init": is_init,
            "action": rand(1).tanh() if continuous else action,
            "next": {"observation": following, "reward": rand(1), "terminated": terminated},
        },
        [SEQUENCES],
    )
    for key, zeros in zip(trunk.hidden_keys, trunk.memory.hidden.values(), strict=True):
        shape = (SEQUENCES, 1, *zeros.shape)
        batch.set(key, torch.randn(shape, generator=generator).tanh())
    return batch


def step_by_step(trunk: MemoryTrunk, batch: TensorDict) -> tuple[torch.Tensor, torch.Tensor]:
    """The features of each observation and of each next one, ``[sequences, time, features]``."""
    states = [batch.get(key)[:, 0] for key in trunk.hidden_keys]
    never = torch.zeros(SEQUENCES, 1, dtype=torch.bool)
    now, then = [], []
    for t in range(TIME):
        features, after = trunk.remember(
            batch["observation"][:, t], batch["is_init"][:, t], *states
        )
        states = list(after.values())
        now.append(features)
        then.append(trunk(batch["next", "observation"][:, t], never, *states))
    return torch.stack(now, 1), torch.stack(then, 1)


def perturb(network: nn.Module) -> None:
    """Have a target differ from what it follows."""
    with torch.no_grad():
        for value in network.buffers():
            if value.is_floating_point():
                value.add_(0.1 * torch.randn_like(value))


def actor_and_critics(policy: str) -> tuple[nn.Module, list[ValueNetwork]]:
    torch.manual_seed(0)
    trunk = make_trunk()
    make: Any = TanhGaussianPolicy if policy == "sac" else DeterministicPolicy
    outputs = 2 if policy == "sac" else 1
    actor = make(mlp(5, outputs, (8,)), 1, in_keys=trunk.in_keys, trunk=trunk)
    keys = [*trunk.in_keys, "action"]
    return actor, [ValueNetwork(mlp(6, 1, (8,)), keys, trunk=trunk) for _ in range(2)]


def make_loss(name: str, **options: Any) -> Any:
    actor, critics = actor_and_critics(name)
    if name == "sac":
        return SACLoss(actor, critics, gamma=GAMMA, **options)
    if name == "td3":
        return TD3Loss(actor, critics, gamma=GAMMA, policy_delay=1, **options)
    return DDPGLoss(actor, critics[0], gamma=GAMMA, **options)


def make_any(name: str, **options: Any) -> tuple[Any, MemoryTrunk]:
    if name != "dqn":
        loss = make_loss(name, **options)
        return loss, loss.actor_network.trunk
    torch.manual_seed(0)
    trunk = make_trunk()
    network = QNetwork(mlp(5, ACTIONS, (8,)), trunk.in_keys, trunk=trunk)
    return DQNLoss(network, gamma=GAMMA, **options), trunk


def of_features(loss: Any) -> Any:
    """The same loss with the same weights, of features that are in the batch."""
    plain = copy.deepcopy(loss)
    plain.__dict__["_trunks"] = []
    plain.read = lambda batch: dict(batch.items(True, True))
    for name, network in plain.named_children():
        for each in network if isinstance(network, nn.ModuleList) else [network]:
            each.trunk = None
            key = "own" if not name.startswith("target") else "target"
            each.in_keys = [key, *(["action"] if "action" in each.in_keys else [])]
    return plain


@pytest.mark.parametrize("name", ["dqn", "double dqn", "sac", "td3", "ddpg"])
def test_losses_of_sequences_are_the_plain_losses_of_features(name):
    options = {"double_dqn": True} if name.startswith("double") else {}
    loss, own = make_any(name.split()[-1], **options)
    targets = [getattr(loss, n) for n, _ in loss.named_children() if n.startswith("target")]
    for each in targets:
        perturb(each)
    target = next(m for m in targets[-1].modules() if isinstance(m, MemoryTrunk))
    batch = make_batch(own, continuous=not name.endswith("dqn"))
    torch.manual_seed(5)
    out = loss(batch)

    plain = of_features(loss)
    rows: dict[Any, torch.Tensor] = {}
    for key, trunk in (("own", own), ("target", target)):
        now, then = step_by_step(trunk, batch)
        rows[key], rows["next", key] = now.flatten(0, 1).detach(), then.flatten(0, 1).detach()
    for key in ("action", ("next", "reward"), ("next", "terminated")):
        rows[key] = batch[key].flatten(0, 1)
    flat = TensorDict({}, [SEQUENCES * TIME])
    for key, value in rows.items():
        flat.set(key, value)
    torch.manual_seed(5)
    expected = plain(flat)
    for key in expected.keys():  # noqa: SIM118 - a TensorDict iterates over its rows
        torch.testing.assert_close(out[key], expected[key])
    errors = flat["td_error"].reshape(SEQUENCES, TIME)
    priority = batch["td_error"].reshape(SEQUENCES)
    torch.testing.assert_close(priority, 0.9 * errors.amax(1) + 0.1 * errors.mean(1))


@pytest.mark.parametrize(("name", "burn_in"), [("dqn", 0), ("dqn", 4), ("sac", 2)])
def test_n_step_returns_end_with_their_episode_and_sequence(name, burn_in):
    loss, trunk = make_any(name, n_steps=3, burn_in=burn_in)
    batch = make_batch(trunk, continuous=name != "dqn")
    torch.manual_seed(5)
    out = loss(batch)

    plain = of_features(loss)
    plain.n_steps, plain.burn_in = 1, 0
    now, then = (x.detach() for x in step_by_step(trunk, batch))
    begins, terminated = batch["is_init"].squeeze(-1), batch["next", "terminated"]
    rows: dict[Any, list[torch.Tensor]] = {}
    for s in range(SEQUENCES):
        for t in range(burn_in, TIME):
            last = t
            while last < min(t + 2, TIME - 1) and not (begins[s, last + 1] or terminated[s, last]):
                last += 1
            rewards = batch["next", "reward"][s, t : last + 1]
            row = {
                "own": now[s, t],
                "target": now[s, t],
                "action": batch["action"][s, t],
                "steps_to_next_obs": torch.tensor([last - t + 1]),
                ("next", "own"): then[s, last],
                ("next", "target"): then[s, last],
                ("next", "reward"): sum(GAMMA**k * r for k, r in enumerate(rewards)),
                ("next", "terminated"): terminated[s, last],
            }
            for key, value in row.items():
                rows.setdefault(key, []).append(value)
    flat = TensorDict({}, [len(rows["own"])])
    for key, values in rows.items():
        flat.set(key, torch.stack(values))
    torch.manual_seed(5)
    for key, value in plain(flat).items():
        torch.testing.assert_close(out[key], value)


@pytest.mark.parametrize("name", ["sac", "td3", "ddpg"])
def test_a_memory_learns_from_the_q_functions_alone(name):
    loss = make_loss(name)
    trunk = loss.actor_network.trunk
    out = loss(make_batch(trunk, continuous=True))
    weights = list(trunk.parameters())
    assert torch.autograd.grad(
        out["loss_actor"], weights, retain_graph=True, allow_unused=True
    ) == (*(None for _ in weights),)
    of_values = out["loss_value" if name == "ddpg" else "loss_qvalue"]
    assert all(grad.abs().sum() > 0 for grad in torch.autograd.grad(of_values, weights))


@pytest.mark.parametrize("name", ["dqn", "sac", "td3", "ddpg"])
def test_burn_in_steps_have_no_gradient_but_update_the_states(name):
    burn_in = 4
    loss, trunk = make_any(name, burn_in=burn_in)
    batch = make_batch(trunk, continuous=name != "dqn")
    batch["is_init"].fill_(False)
    batch["observation"].requires_grad_()
    torch.manual_seed(5)
    out = loss(batch)
    total = sum(value for key, value in out.items() if key.startswith("loss"))
    total.backward()
    reached = batch["observation"].grad.abs().sum((0, 2)) > 0
    assert reached.tolist() == [t >= burn_in for t in range(TIME)]

    # It is the loss of the rest, begun with the hidden states that the first steps leave.
    with torch.no_grad():
        inputs = [batch[key] for key in trunk.in_keys]
        _, states = trunk.remember(*inputs)
    rest = TensorDict({}, [SEQUENCES])
    for key, value in batch.items(True, True):
        if (value.ndim > 2 and value.shape[1] == TIME) or key == "action":
            rest.set(key, value.detach()[:, burn_in:])
    for key, state in states.items():
        rest.set(key, state[:, burn_in - 1 : burn_in])
    other, _ = make_any(name)
    torch.manual_seed(5)
    for key, value in other(rest).items():
        torch.testing.assert_close(out[key], value)


def r2d2(n_steps: int, burn_in: int) -> tuple[torch.Tensor, DQNLoss, TensorDict]:
    """A loss's value, the loss, and its batch: two sequences, of which the second terminates."""
    trunk = MemoryTrunk(nn.Sequential(nn.Linear(3, 4), nn.ReLU()), LSTMMemory(4, 4))
    head = q_head(4, 3, (4,), dueling=True)
    for place, parameter in enumerate([*trunk.parameters(), *head.parameters()]):
        parameter.data = wave(parameter.shape, place)
    network = QNetwork(nn.Identity(), trunk.in_keys, trunk=trunk, head=head)
    options: Any = {"n_steps": n_steps, "burn_in": burn_in, "double_dqn": True}
    loss = DQNLoss(network, gamma=0.9, rescale_values=True, **options)
    observed = torch.cat([wave((2, 6, 3)), wave((2, 1, 3), 2.0)], 1)
    following = {
        "observation": observed[:, 1:],
        "reward": 3 * wave((2, 6, 1), 3.0),
        "terminated": torch.arange(12).view(2, 6, 1) == 11,
    }
    content = {
        "observation": observed[:, :-1],
        "is_init": torch.zeros(2, 6, 1, dtype=torch.bool),
        "memory": {"h": wave((2, 1, 4), 4.0), "c": wave((2, 1, 4), 5.0)},
        "action": torch.arange(12).view(2, 6) % 3,
        "next": following,
    }
    batch = TensorDict(content, [2])
    return with_other_targets(loss, "value_network")(batch)["loss"], loss, batch


def test_r2d2_equals_di_engines():
    """One step of DI-engine 0.5.3's R2D2Policy, with the paper's 0.001 in `rescaled`."""
    value, loss, batch = r2d2(n_steps=1, burn_in=2)
    assert value.item() == pytest.approx(2.2820864, abs=1e-5)
    torch.testing.assert_close(batch["td_error"].flatten(), torch.tensor([4.3504124, 7.4970808]))
    value.backward()
    norms = [parameter.grad.norm().item() for parameter in loss.value_network.parameters()]
    theirs = [0.7060116, 0.481294, 1.3132285, 0.3225963, 0.524071, 0.524071, 1.4701762]
    theirs += [3.2032516, 3.770669, 2.5282593, 0.250095, 0.6385444, 0.3859135, 0.9095344]
    assert norms == pytest.approx(theirs, abs=1e-5)
    # Of three steps theirs leaves out the last two, which do not have as many: ours are the mean of
    # four steps, and of these two.
    first = 4 * r2d2(n_steps=3, burn_in=2)[0] - 2 * r2d2(n_steps=3, burn_in=4)[0]
    assert first.item() == pytest.approx(2 * 5.6133041, abs=1e-4)


def test_impossible_sequences_are_refused():
    network = QNetwork(mlp(2, 3))
    with pytest.raises(ConfigError, match="DQNLoss: burn_in=2 is for networks with a memory, and"):
        DQNLoss(network, burn_in=2)
    with pytest.raises(ConfigError, match=r"n_steps=3 is for .* a memory.* use MultiStepReplay"):
        DQNLoss(network, n_steps=3)
    actor, _ = actor_and_critics("sac")
    _, critics = actor_and_critics("sac")
    with pytest.raises(ConfigError, match="SACLoss: its networks have several memories, or not"):
        SACLoss(actor, critics)
    loss, trunk = make_any("dqn", burn_in=TIME)
    with pytest.raises(ConfigError, match="burn_in=11 leaves nothing of sequences of 11 steps"):
        loss(make_batch(trunk))
    loss, trunk = make_any("dqn")
    batch = make_batch(trunk).exclude("memory")
    batch["memory", "h"] = torch.zeros(SEQUENCES, TIME, 5)
    batch.auto_batch_size_(2)
    with pytest.raises(ConfigError, match=r"the batch is \[6, 11\]; of networks with a memory it"):
        loss(batch)
