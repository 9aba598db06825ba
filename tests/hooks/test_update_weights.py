from __future__ import annotations

import pytest

from hooktrainer import UpdateWeights
from hooktrainer.testing import FakeCollector, tiny_trainer


class Receiving(FakeCollector):
    """A collector that keeps the weights it is sent, and when."""

    def __init__(self) -> None:
        super().__init__()
        self.received = []

    def update_policy_weights_(self, *args, **kwargs):
        self.received.append((self.yielded, args, kwargs))

    @property
    def when(self) -> list[int]:
        return [batches for batches, _, _ in self.received]


def run(hook_of, **arguments):
    collector = Receiving()
    trainer = tiny_trainer(collector=collector, **arguments)
    hook_of(collector).register(trainer)
    trainer.train()
    return collector


@pytest.mark.parametrize(
    ("hook_of", "when"),
    [
        (UpdateWeights, [0, 1, 2, 3, 4, 5]),
        (lambda c: UpdateWeights(c, weight_update_map={"p": "loss_module"}), [0, 1, 2, 3, 4, 5]),
        (lambda c: UpdateWeights(c, 2), [0, 2, 4]),
        # Steps 3, 6 and 9, two a batch:
        (lambda c: UpdateWeights(c, 3, interval_unit="optim_steps"), [0, 2, 3, 5]),
    ],
    ids=["every batch", "mapped", "every second batch", "every third step"],
)
def test_weights_are_sent_at_the_start_and_at_the_interval(hook_of, when):
    assert run(hook_of).when == when


def example(trainer):
    return UpdateWeights(trainer.collector, 2)
