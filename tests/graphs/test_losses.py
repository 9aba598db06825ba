"""A compiled step of every loss equals the eager one, random numbers included."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from marks import slow_except
from tensordict import TensorDict
from torch import nn

from hooktrainer import objectives
from hooktrainer.graphs import FunctionalLoss, GradientGraph, StepGraph, StepRules, compiling
from hooktrainer.networks import (
    CategoricalPolicy,
    CategoricalQNetwork,
    CentralQNetwork,
    DeterministicPolicy,
    JointEncoder,
    MonotonicMixer,
    QNetwork,
    QuantileQNetwork,
    TanhGaussianPolicy,
    ValueNetwork,
    mlp,
)
from hooktrainer.objectives import (
    BCLoss,
    CategoricalDQNLoss,
    CategoricalSACLoss,
    CategoricalTD3Loss,
    ClipPPOLoss,
    CQLLoss,
    CrossQLoss,
    DDPGLoss,
    DiscreteCQLLoss,
    DiscreteIQLLoss,
    DiscreteSACLoss,
    DQNLoss,
    DreamerLoss,
    DTLoss,
    ImitationLoss,
    IQLLoss,
    Loss,
    LossByGroup,
    MADDPGLoss,
    MASACLoss,
    PQNLoss,
    QMixLoss,
    QuantileDQNLoss,
    REDQLoss,
    SACLoss,
    TD3BCLoss,
    TD3Loss,
    TQCLoss,
    TRPOLoss,
    XQCLoss,
    keys_of,
)
from hooktrainer.optim import FlatAdam

LOW, HIGH = -torch.ones(2), torch.ones(2)


def q_function(outputs: int = 1) -> ValueNetwork:
    return ValueNetwork(mlp(6, outputs, (8,)), ["observation", "action"])


def q_network() -> QNetwork:
    return QNetwork(mlp(4, 2, (8,)))


def categorical() -> CategoricalPolicy:
    return CategoricalPolicy(mlp(4, 2, (8,)))


def squashed() -> TanhGaussianPolicy:
    return TanhGaussianPolicy(mlp(4, 4, (8,)), (2,), LOW, HIGH)


def deterministic() -> DeterministicPolicy:
    return DeterministicPolicy(mlp(4, 2, (8,)), (2,), LOW, HIGH)


def value() -> ValueNetwork:
    return ValueNetwork(mlp(4, 1, (8,)))


def by_group() -> LossByGroup:
    losses = {}
    for name in ("wolf", "sheep"):
        policy = CategoricalPolicy(mlp(4, 2, (8,)), [(name, "observation")])
        critic = ValueNetwork(mlp(4, 1, (8,)), [(name, "observation")], [(name, "state_value")])
        losses[name] = ClipPPOLoss(policy, critic)
        losses[name].set_keys(
            sample_log_prob=(name, "action_log_prob"),
            value=(name, "state_value"),
            **keys_of(name, "action", "advantage", "value_target"),
        )
    return LossByGroup(losses)


TEAM = [("team", "observation")]


def central() -> CentralQNetwork:
    return CentralQNetwork(JointEncoder([(nn.Identity(), 1, True)]), mlp(18, 3, (8,)), 3, TEAM)


MAKE: dict[type[Loss], Callable[[], Loss]] = {
    ClipPPOLoss: lambda: ClipPPOLoss(CategoricalPolicy(mlp(4, 2, (8,))), value(), clip_value=True),
    SACLoss: lambda: SACLoss(squashed(), q_function()),
    TD3Loss: lambda: TD3Loss(deterministic(), q_function(), policy_delay=2),
    DDPGLoss: lambda: DDPGLoss(deterministic(), q_function()),
    IQLLoss: lambda: IQLLoss(squashed(), q_function(), value()),
    CQLLoss: lambda: CQLLoss(squashed(), q_function()),
    REDQLoss: lambda: REDQLoss(squashed(), [q_function(), q_function()]),
    TQCLoss: lambda: TQCLoss(squashed(), [q_function(5), q_function(5)], num_quantiles=5),
    CrossQLoss: lambda: CrossQLoss(squashed(), [q_function(), q_function()], policy_delay=1),
    CategoricalSACLoss: lambda: CategoricalSACLoss(squashed(), q_function(5), num_atoms=5),
    CategoricalTD3Loss: lambda: CategoricalTD3Loss(deterministic(), q_function(5), num_atoms=5),
    XQCLoss: lambda: XQCLoss(squashed(), q_function(5), num_atoms=5, policy_delay=1),
    TD3BCLoss: lambda: TD3BCLoss(deterministic(), q_function()),
    BCLoss: lambda: BCLoss(deterministic()),
    DQNLoss: lambda: DQNLoss(q_network()),
    CategoricalDQNLoss: lambda: CategoricalDQNLoss(CategoricalQNetwork(mlp(4, 10, (8,)), 5)),
    QuantileDQNLoss: lambda: QuantileDQNLoss(QuantileQNetwork(mlp(4, 10, (8,)), 5)),
    PQNLoss: lambda: PQNLoss(q_network()),
    DiscreteCQLLoss: lambda: DiscreteCQLLoss(q_network()),
    DiscreteIQLLoss: lambda: DiscreteIQLLoss(categorical(), q_network(), value()),
    DiscreteSACLoss: lambda: DiscreteSACLoss(categorical(), q_network(), 2),
    TRPOLoss: lambda: TRPOLoss(categorical(), value()),
    QMixLoss: lambda: QMixLoss(
        {"team": QNetwork(mlp(4, 2, (8,)), [("team", "observation")])},
        MonotonicMixer(4, 3),
        ["state"],
    ),
    MADDPGLoss: lambda: MADDPGLoss(
        {"team": DeterministicPolicy(mlp(4, 2, (8,)), (2,), LOW, HIGH, TEAM)},
        {"team": [central()]},
    ),
    MASACLoss: lambda: MASACLoss(
        {"team": TanhGaussianPolicy(mlp(4, 4, (8,)), (2,), LOW, HIGH, TEAM)},
        {"team": [central(), central()]},
    ),
    LossByGroup: by_group,
    ImitationLoss: lambda: ImitationLoss(squashed()),
}
DISCRETE = (ClipPPOLoss, DQNLoss, PQNLoss, DiscreteIQLLoss, DiscreteSACLoss, TRPOLoss)
CENTRAL = (MADDPGLoss, MASACLoss)


def batch(kind: type[Loss], rows: int = 8) -> TensorDict:
    random = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=random)

    def steps(*agents: int) -> dict[str, torch.Tensor]:
        shape = (rows, *agents)
        whole = torch.randint(0, 2, shape, generator=random)
        discrete = issubclass(kind, DISCRETE) or (bool(agents) and kind not in CENTRAL)
        return {
            "observation": normal(*shape, 4),
            "action": whole if discrete else normal(*shape, 2).tanh(),
            "action_log_prob": -normal(*shape).abs(),
            "advantage": normal(*shape, 1),
            "value_target": normal(*shape, 1),
            "state_value": normal(*shape, 1),
            "teacher_action": normal(*shape, 2),
        }

    flags = torch.zeros(rows, 1, dtype=torch.bool)
    flags[1] = True
    following = {"observation": normal(rows, 4), "reward": normal(rows, 1)}
    out = TensorDict(
        {**steps(), "state": normal(rows, 4)}
        | {"next": {**following, "terminated": flags, "done": flags, "state": normal(rows, 4)}},
        [rows],
    )
    for name in ("wolf", "sheep", "team"):
        for key, entry in steps(3).items():
            out.set((name, key), entry)
        out.set(("next", name, "observation"), normal(rows, 3, 4))
        out.set(("next", name, "reward"), normal(rows, 3, 1))
        out.set(("next", name, "terminated"), flags.unsqueeze(1).expand(rows, 3, 1).clone())
    return out


def test_every_loss_is_here():
    named = (getattr(objectives, name) for name in objectives.__all__)
    kinds = {each for each in named if isinstance(each, type) and issubclass(each, Loss)}
    # Those of tokens pack sequences, whose lengths a graph does not know.
    of_tokens = {each for each in kinds if each.__module__.endswith(".tokens")}
    # Sequences have other entries: DT is compiled as an algorithm, Dreamer refuses to be.
    assert kinds - of_tokens - {Loss, DTLoss, DreamerLoss} == set(MAKE)


class Tied(nn.Module):
    """Two layers of one weight, one of them held twice."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.second.weight = self.first.weight
        self.again = self.first

    def forward(self, batch: TensorDict) -> TensorDict:
        out = self.second(self.first(batch["observation"]).tanh()).tanh()
        return TensorDict({"loss": self.again(out).square().mean()})


def test_parameters_and_modules_in_several_places(monkeypatch):
    monkeypatch.setattr(compiling, "BACKEND", "eager")
    eager, compiled = Tied(), Tied()
    functional = FunctionalLoss(compiled)
    steps = [FlatAdam(loss.parameters(), lr=0.01) for loss in (eager, compiled)]
    graph = None
    for _ in range(3):
        eager(batch(DQNLoss))["loss"].backward()
        steps[0].step()
        steps[0].zero_grad()
        entries = functional.read(batch(DQNLoss))
        if graph is None:
            graph = StepGraph(functional, steps[1], StepRules(clips=None))
        graph([entries], None)
    torch.testing.assert_close(compiled.state_dict(), eager.state_dict())
    assert all(isinstance(p, nn.Parameter) for p in compiled.parameters())


class Turned(nn.Module):
    """A layer whose weight is copied transposed, so that its gradient comes transposed."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 4))

    def forward(self, batch: TensorDict) -> TensorDict:
        out = batch["observation"] @ self.weight.t().contiguous()
        return TensorDict({"loss": out.square().mean()})


def test_gradients_have_the_strides_of_their_parameters(monkeypatch):
    monkeypatch.setattr(compiling, "BACKEND", "eager")
    loss = Turned()
    functional = FunctionalLoss(loss)
    graph = GradientGraph(functional, [(list(loss.parameters()), None)])
    ((parameters, grads),) = graph(functional.read(batch(DQNLoss)))[1]
    loss(batch(DQNLoss))["loss"].backward()
    for parameter, grad in zip(parameters, grads, strict=True):
        assert grad.stride() == parameter.stride()
        torch.testing.assert_close(grad, parameter.grad)


QUICK = (ClipPPOLoss, TD3Loss, CrossQLoss, CategoricalSACLoss, QuantileDQNLoss, QMixLoss)


@pytest.mark.parametrize("kind", slow_except(MAKE, *QUICK), ids=lambda kind: kind.__name__)
def test_a_step_equals_the_eager_one(kind, monkeypatch):
    monkeypatch.setattr(compiling, "BACKEND", "eager")
    lines = []
    monkeypatch.setattr(compiling, "print_line", lines.append)
    losses, optimizers = [], []
    for _ in range(2):
        torch.manual_seed(1)
        loss = MAKE[kind]()
        own = [p for n, p in loss.named_parameters() if n.startswith("actor_network")]
        rest = [p for n, p in loss.named_parameters() if not n.startswith("actor_network")]
        groups = [{"params": own, "lr": 0.02}] if own else []
        groups += [{"params": rest}] if rest else []
        losses.append(loss)
        optimizers.append(FlatAdam(groups, lr=0.01, weight_decay=0.1))
    eager, compiled = losses
    functional = FunctionalLoss(compiled)
    graphs = {}
    data = batch(kind)
    for step in range(4):
        torch.manual_seed(step)
        out = eager(data.clone())
        sum(value for key, value in out.items() if key.startswith("loss")).backward()
        want = {key: value.detach() for key, value in out.items()}
        norm = optimizers[0].clip_grad_norm_(0.5)
        optimizers[0].step()
        optimizers[0].zero_grad()

        compiled._begin()
        entries = compiled.read(data.clone())
        if compiled.variant not in graphs:
            graphs[compiled.variant] = StepGraph(functional, optimizers[1], StepRules(clips="norm"))
        torch.manual_seed(step)
        [(got, got_norm, _)] = graphs[compiled.variant]([entries], 0.5)
        torch.testing.assert_close({key: got[key] for key in want}, want, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(got_norm, norm)
        torch.testing.assert_close(compiled.state_dict(), eager.state_dict())
    moments = [optimizer.state_dict()["state"] for optimizer in optimizers]
    torch.testing.assert_close(moments[1], moments[0])
    assert len(graphs) == (2 if issubclass(kind, TD3Loss) else 1)
    assert len(lines) == 2 * len(graphs)  # compiled once each
