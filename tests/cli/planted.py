"""A training script in which something goes wrong at a step that is known."""

import torch

from hooktrainer import Trainer, TrainerHookBase
from hooktrainer.algorithms import PPO
from hooktrainer.algorithms.algorithm import algorithm


class Plant(TrainerHookBase):
    """Spoils a parameter after an optimizer step, or logs a level that falls."""

    at = "post_optim"
    is_saved = False

    def __init__(self, nan_at: int, fall_at: int) -> None:
        self.nan_at, self.fall_at = nan_at, fall_at

    def __call__(self) -> None:
        step = self.trainer.optim_count
        self.trainer.metrics.log({"mine/level": float(step < self.fall_at)})
        if step == self.nan_at:
            with torch.no_grad():
                next(iter(self.trainer.loss_module.parameters())).view(-1)[3] = torch.nan


@algorithm
class Planted(PPO):
    """PPO, with a plant."""

    nan_at: int = 10**9
    """the step after which a parameter is NaN"""
    fall_at: int = 10**9
    """the step at which the level falls"""

    def build(self, task) -> Trainer:
        trainer = super().build(task)
        Plant(self.nan_at, self.fall_at).register(trainer)
        return trainer


if __name__ == "__main__":
    Planted.main()
