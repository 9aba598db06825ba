"""The base class: what hooks get from it."""

from __future__ import annotations

import dataclasses

import pytest

from hooktrainer import TrainerHookBase
from hooktrainer.testing import tiny_trainer


class Stopper(TrainerHookBase):
    """Stops the run after its first batch."""

    def register(self, trainer, name="stopper"):
        trainer.register_module(name, self)
        trainer.register_op("post_steps", self)

    def __call__(self):
        self.trainer.request_stop("enough")


@pytest.mark.parametrize(
    "put",
    [
        lambda trainer, hook: trainer.register_op("post_steps", hook),
        lambda trainer, hook: trainer.register_op("post_steps", hook.__call__),
        lambda trainer, hook: trainer.register_module("stopper", hook),
    ],
    ids=["op", "method", "module"],
)
def test_each_way_of_registering_sets_the_trainer(put):
    trainer, hook = tiny_trainer(), Stopper()
    assert not hook.is_registered
    put(trainer, hook)
    assert hook.is_registered
    assert hook.trainer is trainer


def test_a_frozen_hook_can_be_registered():
    @dataclasses.dataclass(frozen=True)
    class Frozen(Stopper):
        reason: str = "enough"

    trainer, hook = tiny_trainer(), Frozen()
    hook.register(trainer)
    assert hook.trainer is trainer
