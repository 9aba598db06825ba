"""What hooktrainer's own benchmark scripts share: the meter's hook and the logger."""

from __future__ import annotations

from measure import Act, Meter, Run
from tensordict import TensorDictBase

from hooktrainer import Trainer, TrainerHookBase, get_logger
from hooktrainer.log import Logger


class Tick(TrainerHookBase):
    """Reports every batch to the meter, and stops the run when the meter returns True.

    Args:
        meter: the meter.
        act: the deterministic policy.
        every: least number of frames between two ticks.
    """

    def __init__(self, meter: Meter, act: Act, every: int = 1) -> None:
        self.meter = meter
        self.act = act
        self.every = every
        self._next = 0
        self._trainer: Trainer | None = None

    def register(self, trainer: Trainer, name: str = "tick") -> None:
        """Register at the end of the loop and, if returns are needed, where batches arrive."""
        self._trainer = trainer
        if self.meter.run.solve:
            trainer.register_op("pre_steps_log", self.returns)
        trainer.register_op("post_steps", self)
        trainer.register_module(name, self)

    def returns(self, batch: TensorDictBase) -> None:
        """Note the returns of finished episodes."""
        with self.meter.paused():
            done = batch["next", "done"]
            self.meter.returns.extend(batch["next", "episode_reward"][done].tolist())

    def __call__(self) -> None:
        """Tick."""
        frames = self._trainer.collected_frames
        if frames < min(self._next, self.meter.run.frames):
            return
        self._next = frames + self.every
        if self.meter.tick(frames, self.act):
            self._trainer.request_stop("the benchmark is over")


def make_logger(run: Run) -> Logger:
    """Return a logger that writes CSV and TensorBoard files."""
    return get_logger(("csv", "tensorboard"), run.log_dir, "benchmark")
