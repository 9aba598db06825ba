"""What can change a loss is noticed without the compiler, and numbers alone are no change."""

from __future__ import annotations

from collections import deque

import numpy as np
import pytest
import torch
from tensordict.nn import InteractionType, set_interaction_type
from torch import nn
from torch.nn.modules.module import register_module_forward_hook

from hooktrainer.graphs import FunctionalLoss
from hooktrainer.graphs.compiling import Structure
from hooktrainer.networks import QNetwork, mlp
from hooktrainer.objectives import DQNLoss, SoftUpdate, Term
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
    unchanged = Structure(FunctionalLoss(loss))
    assert unchanged
    change(loss)
    assert not unchanged


class Slots:
    __slots__ = ("factor", "unset")


def test_closures_defaults_slots_and_queues_are_looked_at():
    factor, slots, queue = 1.0, Slots(), deque([1.0])
    generator = np.random.default_rng(0)
    slots.factor = 1.0

    def function(x, more=1.0):
        return later if x is None else (factor, slots, queue, generator, more)

    def change(place):
        nonlocal factor, later
        if place == 0:
            factor = 2.0
        elif place == 1:
            slots.factor = 2.0
        elif place == 2:
            queue.append(2.0)
        elif place == 3:
            function.__defaults__ = (2.0,)
        elif place == 4:
            later = 2.0
        else:
            generator.random()

    for place in range(6):
        unchanged = Structure(function)
        assert unchanged
        change(place)
        assert not unchanged
        assert (Structure(function).key != unchanged.key) == (place < 5)
    later = None


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
    unchanged = Structure(FunctionalLoss(loss))
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


@pytest.mark.parametrize("kind", sorted(CHANGES.keys() - {"a parameter", "a buffer"}))
def test_what_is_more_than_another_tensor_changes_the_key(kind):
    loss = make()
    CHANGES[kind](loss)
    assert Structure(loss).key != Structure(make()).key
