from __future__ import annotations

import pytest
import torch
from classification import make_trainer

from hooktrainer import AverageWeights, Every


def example(trainer):
    return AverageWeights(trainer.loss_module, 0.9)


@pytest.mark.parametrize(
    ("options", "frames"),
    [
        ({"decay": 0.5}, [4, 8, 10, 14, 18, 20, 24, 28, 30]),
        ({"decay": None}, [4, 8, 10, 14, 18, 20, 24, 28, 30]),
        ({"decay": 0.5, "start": 20}, [20, 24, 28, 30]),
        ({"decay": None, "every": Every(epochs=1)}, [10, 20, 30]),
    ],
)
def test_by_hand(options, frames):
    trainer = make_trainer()
    weight = trainer.loss_module.net[1].weight
    hook = AverageWeights(trainer.loss_module, **options)
    hook.register(trainer)
    seen: dict[int, torch.Tensor] = {}

    def note() -> None:
        seen[trainer.collected_frames] = weight.detach().clone()

    trainer.register_op("post_steps", note)
    trainer.train()
    expected = seen[frames[0]]
    for number, at in enumerate(frames[1:], start=2):
        share = 1 / number if options["decay"] is None else 1 - options["decay"]
        expected = expected + share * (seen[at] - expected)
    torch.testing.assert_close(hook.averaged.module.net[1].weight, expected)
    live = weight.detach().clone()
    with hook.applied() as module:
        torch.testing.assert_close(module.net[1].weight.detach(), expected)
    assert torch.equal(weight, live)


def test_before_the_first_step_the_weights_are_the_present_ones():
    trainer = make_trainer()
    hook = AverageWeights(trainer.loss_module)
    with torch.no_grad():
        trainer.loss_module.net[1].weight.fill_(7.0)
    with hook.applied() as module:
        assert module.net[1].weight.unique().tolist() == [7.0]
