"""Log how many environment frames were collected."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tensordict import TensorDictBase

from ..base.batches import count_valid
from ..base.checks import check_count
from ..loop.hook import TrainerHookBase
from ..loop.metrics import Total

if TYPE_CHECKING:
    from ..loop.loop import Loop


class CountFramesLog(TrainerHookBase):
    """Counts environment frames and logs the count as ``n_frames``.

    Args:
        frame_skip: Environment frames per collected step.
        log_pbar: Whether the count is shown in the progress bar.
    """

    def __init__(self, frame_skip: int, log_pbar: bool = False) -> None:
        check_count("frame_skip", frame_skip)
        self.frame_skip = frame_skip
        self.log_pbar = log_pbar
        self.frame_count = 0

    def __call__(self, batch: TensorDictBase) -> dict[str, Any]:
        """Count the frames of ``batch``; padded steps are left out."""
        self.frame_count += count_valid(batch) * self.frame_skip
        return {"n_frames": Total(self.frame_count), "log_pbar": self.log_pbar}

    def state_dict(self) -> dict[str, Any]:
        """Return the count."""
        return {"frame_count": self.frame_count}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the count."""
        self.frame_count = state_dict["frame_count"]

    def register(self, trainer: Loop, name: str = "count_frames_log") -> None:
        """Register at ``pre_steps_log``."""
        trainer.register_module(name, self)
        trainer.register_op("pre_steps_log", self)
