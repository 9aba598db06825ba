"""The bare loop: it trains with what it is given, and imports none of it."""

from __future__ import annotations

import pytest
import torch

from hooktrainer import ConfigError, OptimizerHook
from hooktrainer.collect import adapt
from hooktrainer.loop.loop import Loop
from hooktrainer.testing import FakeCollector, ScriptedLoss, tiny_trainer


def make_loop(**arguments) -> Loop:
    loss = ScriptedLoss()
    hooks = [OptimizerHook(torch.optim.SGD(loss.parameters(), lr=0.1))]
    defaults = {"collector": FakeCollector(), "total_frames": 50, "optim_steps_per_batch": 2}
    more = {"loss_module": loss, "hooks": hooks, "progress_bar": False}
    given = {**defaults, **more, **arguments}
    return Loop(**given | {"collector": adapt(given["collector"])})


def test_it_trains_as_a_trainer_does():
    loop, trainer = make_loop(), tiny_trainer(nan_guard=False)
    loop.train()
    trainer.train()
    assert loop.collected_frames == trainer.collected_frames == 50
    assert loop.loss_module.parameter.equal(trainer.loss_module.parameter)
    state = loop.state_dict()
    again = make_loop(total_frames=70)
    again.load_state_dict(state)
    again.train()
    assert (again.collected_frames, again.optim_count) == (70, 14)


def test_the_loop_adds_no_hooks():
    assert list(make_loop(hooks=()).registry.modules) == []
    assert list(make_loop().registry.modules) == ["optimizer"]
    with pytest.raises(ConfigError, match="nothing is registered at the optimizer point"):
        make_loop(hooks=()).train()
