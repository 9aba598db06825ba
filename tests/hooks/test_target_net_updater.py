from __future__ import annotations

from hooktrainer import Every, TargetNetUpdaterHook
from hooktrainer.testing import tiny_trainer


def test_now_and_then():
    class Updater:
        steps = 0

        def step(self):
            self.steps += 1

    trainer, updater = tiny_trainer(), Updater()  # 10 optimizer steps
    TargetNetUpdaterHook(updater, every=Every(optim_steps=3)).register(trainer)
    assert "Every(optim_steps=3)" in trainer.describe()
    trainer.train()
    assert updater.steps == 3


class CountingUpdater:
    """A target updater as far as its hook is concerned."""

    def __init__(self) -> None:
        self.counter = 0

    def step(self) -> None:
        self.counter += 1


def example(trainer):
    return TargetNetUpdaterHook(CountingUpdater())
