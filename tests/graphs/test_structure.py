"""What can change a loss is noticed without the compiler, and numbers alone are no change."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from tensordict.nn import InteractionType, set_interaction_type
from torch import nn
from torch.nn.modules.module import register_module_forward_hook

from hooktrainer.graphs import compiling
from hooktrainer.graphs.compiling import Graph, quiet
from hooktrainer.graphs.functional_loss import FunctionalLoss
from hooktrainer.graphs.inductor import Structure
from hooktrainer.networks import QNetwork, mlp
from hooktrainer.objectives import DQNLoss, SoftUpdate
from hooktrainer.objectives.common import Term
from hooktrainer.optim import FlatAdam


def make() -> DQNLoss:
    return DQNLoss(QNetwork(mlp(4, 2, (3,), nn.ReLU)), double_dqn=True)


def replace_buffer(loss: DQNLoss) -> None:
    layer = loss.target_value_network.network[0]
    layer._buffers["weight"] = layer.weight.clone()


CHANGES = {
    "a coefficient": lambda loss: setattr(loss, "gamma", 0.5),
    "a flag": lambda loss: setattr(loss, "double_dqn", False),
    "the keys": lambda loss: loss.set_keys(reward="bonus"),
    "a term": lambda loss: loss.add_term(Term([], lambda entries: {})),
    "the mode": lambda loss: loss.eval(),
    "the mode of a layer": lambda loss: loss.value_network.network[1].eval(),
    "a layer": lambda loss: loss.value_network.network.append(nn.Tanh()),
    "another layer": lambda loss: loss.value_network.network.__setitem__(1, nn.Tanh()),
    "a parameter": lambda loss: setattr(
        loss.value_network.network[0], "bias", nn.Parameter(torch.zeros(3))
    ),
    "no parameter": lambda loss: setattr(loss.value_network.network[0], "bias", None),
    "a buffer": replace_buffer,
    "a hook": lambda loss: loss.value_network.network[0].register_forward_hook(lambda *_: None),
    "a hook before": lambda loss: loss.target_value_network.register_forward_pre_hook(
        lambda *_: None
    ),
    "a method": lambda loss: setattr(loss.value_network.network[0], "forward", lambda x: x),
    "an attribute": lambda loss: setattr(loss, "more", 1),
    "no attribute": lambda loss: delattr(loss, "gamma"),
    "a tensor for a number": lambda loss: vars(loss).update(gamma=torch.zeros(2)),
    "the distance": lambda loss: setattr(loss, "_distance", nn.functional.l1_loss),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_is_noticed(change):
    loss = make()
    unchanged = Structure(FunctionalLoss(loss).body)
    assert unchanged
    change(loss)
    assert not unchanged


def test_what_torch_keeps_for_all_is_looked_at():
    unchanged = Structure(make())
    with torch.autocast("cpu", torch.bfloat16):
        assert not unchanged
    with set_interaction_type(InteractionType.MEAN):
        assert not unchanged
    handle = register_module_forward_hook(lambda *_: None)
    assert not unchanged
    handle.remove()
    assert unchanged


def test_numbers_are_no_change():
    loss = make()
    updater, optimizer = SoftUpdate(loss, tau=0.5), FlatAdam(loss.parameters())
    unchanged = Structure(FunctionalLoss(loss).body)
    for parameter in loss.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    updater.step()
    loss.load_state_dict(make().state_dict())
    loss.value_network.act(torch.zeros(1, 4))
    loss.eval()
    loss.train()
    loss.gamma = 0.9 + 0.09
    assert unchanged


class Theirs(nn.Linear):
    pass


@pytest.mark.parametrize(
    "part",
    [Theirs(4, 2), partial(Theirs, 4), lambda x: x, [{"a": Theirs(1, 1)}], iter("a")],
)
def test_it_does_not_answer_for_the_code_of_others(part):
    loss = make()
    vars(loss)["more"] = part
    with pytest.raises(LookupError):
        Structure(loss)


class Counting:
    """A function as a graph, and how often the compiler was asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, module: nn.Module, function=None) -> None:
        monkeypatch.setattr(compiling, "BACKEND", "eager")
        torch._dynamo.reset()
        self.graph = Graph(function or module.__call__, "it", quiet, module=module)
        self.asked = 0
        ask = self.graph._look_anew

        def count(args):
            self.asked += 1
            return ask(args)

        self.graph._look_anew = count


@pytest.fixture
def linear():
    return nn.Sequential(nn.Linear(2, 1, bias=False), nn.ReLU())


def test_the_compiler_is_asked_where_something_has_changed_and_nowhere_else(monkeypatch, linear):
    call = Counting(monkeypatch, linear)
    for turn in range(4):
        linear[0].weight.data.fill_(turn)
        assert call.graph(torch.ones(1, 2)).item() == 2 * turn
    assert call.asked == 1
    linear[1] = nn.Identity()
    assert call.graph(-torch.ones(1, 2)).item() == -6
    assert call.graph(torch.ones(1, 2)).item() == 6
    assert call.asked == 2


def test_other_arguments_are_noticed(monkeypatch, linear):
    def function(given):
        out = linear(given["x"].float())
        return out if given["more"] is None else out + given["more"]

    call = Counting(monkeypatch, linear, function)
    linear[0].weight.data.fill_(1.0)
    x = torch.ones(3, 2)
    cases = [
        {"x": x, "more": None},
        {"x": x[:2], "more": None},
        {"x": x.double(), "more": None},
        {"x": x.int().t().contiguous().t(), "more": None},
        {"x": x, "more": torch.ones(1)},
        {"x": x, "more": 2.0},
        {"more": None, "x": x},
    ]
    for number, case in enumerate(cases, start=1):
        for _ in range(2):
            more = 0.0 if case["more"] is None else float(case["more"])
            assert torch.equal(call.graph(case), torch.full((len(case["x"]), 1), 2.0 + more))
        assert call.asked == number


def test_a_parameter_put_in_the_place_of_another_is_used_from_then_on(monkeypatch, linear):
    call = Counting(monkeypatch, linear)
    x = torch.ones(1, 2)
    call.graph(x)
    for value in (3.0, 4.0):
        linear[0].weight = nn.Parameter(torch.full((1, 2), value))
        assert call.graph(x).item() == 2 * value
        assert call.graph.again(x).item() == 2 * value


@pytest.mark.parametrize("kind", sorted(CHANGES.keys() - {"a parameter", "a buffer"}))
def test_what_is_more_than_another_tensor_changes_the_key(kind):
    loss = make()
    CHANGES[kind](loss)
    try:
        key = Structure(loss).key
    except LookupError:
        return
    assert key != Structure(make()).key
