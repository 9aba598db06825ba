"""Step a learning-rate scheduler."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Literal

from torch.optim.lr_scheduler import LRScheduler

from ..base.checks import needed_by_step
from ..errors import ConfigError
from ..loop.hook import TrainerHookBase

if TYPE_CHECKING:
    from ..loop.loop import Loop


class LRSchedulerHook(TrainerHookBase):
    """Steps a scheduler after every batch or every optimizer step, and logs the learning rate.

    It is logged as ``train/lr`` (of a hook registered under another name: ``train/lr_<name>``).
    A batch without an optimizer step, as during random warm-up, does not step the scheduler.

    How many steps a scheduler is for, it knows itself, and takes along into a resumed run. One that
    is at its end when a run goes on with a larger ``total_frames`` is warned of. `Schedule` follows
    the run's length instead.

    Args:
        scheduler: The scheduler.
        interval: ``"batch"`` or ``"optim"``.

    Raises:
        ConfigError: If the interval is another, or the scheduler's step takes a metric, as that of
            ``ReduceLROnPlateau`` does.
    """

    def __init__(
        self, scheduler: LRScheduler, interval: Literal["batch", "optim"] = "batch"
    ) -> None:
        if interval not in ("batch", "optim"):
            raise ConfigError(f"LRSchedulerHook(interval={interval!r}): pass 'batch' or 'optim'.")
        if (needed := needed_by_step(scheduler)) is not None:
            raise ConfigError(
                f"{type(scheduler).__name__}.step needs {needed}, which LRSchedulerHook has none "
                "of: call it in a hook of yours, with trainer.metrics.latest(name) for instance."
            )
        self.scheduler = scheduler
        self.interval = interval
        self._last_optim_count = 0
        self._name = "lr_scheduler"
        self._metric = "train/lr"

    def __call__(self) -> None:
        """Step the scheduler if an optimizer step was made since the last call.

        A hook that is not registered cannot know, and steps it at every call.
        """
        if self.is_registered:
            optim_count = self.trainer.optim_count
            if optim_count == self._last_optim_count:
                return
            self._last_optim_count = optim_count
        self.scheduler.step()

    def log_lr(self, batch: Any) -> dict[str, float]:
        """Metric: the learning rate of the first parameter group."""
        return {self._metric: float(self.scheduler.get_last_lr()[0])}

    def on_train_start(self, trainer: Loop) -> None:
        """Warn of a scheduler that has nothing left for a run that goes on longer than planned."""
        before = trainer.resumed_total_frames
        if before is not None and before < trainer.total_frames and _is_at_its_end(self.scheduler):
            warnings.warn(
                f"LRSchedulerHook {self._name!r}: its {type(self.scheduler).__name__} is at its "
                f"end, with a learning rate of {self.scheduler.get_last_lr()[0]:.4g}, but the run "
                f"goes on: total_frames {before:,} → {trainer.total_frames:,}. Register a "
                "hooktrainer.Schedule in its place, which follows the run's length, and resume "
                "with strict=False (--no-strict).",
                stacklevel=2,
            )

    def state_dict(self) -> dict[str, Any]:
        """Return the scheduler's state."""
        return {
            "scheduler": self.scheduler.state_dict(),
            "last_optim_count": self._last_optim_count,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the scheduler."""
        self.scheduler.load_state_dict(state_dict["scheduler"])
        self._last_optim_count = state_dict["last_optim_count"]

    def register(self, trainer: Loop, name: str = "lr_scheduler") -> None:
        """Register at ``post_steps`` or ``post_optim``, and at ``pre_steps_log``."""
        self._name = name
        if name != "lr_scheduler":
            self._metric = f"train/lr_{name}"
        trainer.register_module(name, self)
        trainer.register_op("post_optim" if self.interval == "optim" else "post_steps", self)
        trainer.register_op("pre_steps_log", self.log_lr)


def _is_at_its_end(scheduler: LRScheduler) -> bool:
    """Whether all rates are zero, or the last step was the last of those the scheduler is for.

    One that came to its end earlier, as a warm-up does, is as it was meant to be.
    """
    if not any(scheduler.get_last_lr()):
        return True
    last: Any = getattr(scheduler, "_schedulers", [scheduler])[-1]  # of a SequentialLR
    ends = (getattr(last, name, None) for name in ("total_iters", "T_max", "total_steps"))
    return last.last_epoch in ends
