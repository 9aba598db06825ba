"""Log how often the data are trained on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tensordict import TensorDictBase

from ..loop.hook import TrainerHookBase
from ..loop.metrics import Latest

if TYPE_CHECKING:
    from ..loop.loop import Loop


class UTDRHook(TrainerHookBase):
    """Logs the update-to-data ratio: transitions trained on per transition collected.

    Metrics: ``utd_ratio``, ``write_count`` (transitions collected) and ``update_count`` (optimizer
    steps). The size of an update is the batch size of the replay buffer, 1 without one.

    Args:
        trainer: The trainer whose ratio is logged.
    """

    def __init__(self, trainer: Loop) -> None:
        self.trainer = trainer

    def __call__(self, batch: TensorDictBase) -> dict[str, Any]:
        """Return the metrics; none before anything was collected."""
        written, batch_size = self._counts()
        if not written:
            return {}
        updates = self.trainer.optim_count
        return {
            "utd_ratio": Latest(batch_size * updates / written),
            "write_count": Latest(written),
            "update_count": Latest(updates),
        }

    def _counts(self) -> tuple[int, int]:
        """Transitions written, and transitions per update."""
        for module in self.trainer.registry.modules.values():
            buffer = getattr(module, "replay_buffer", None)
            if buffer is not None:
                size = getattr(module, "batch_size", None) or getattr(buffer, "batch_size", None)
                return int(buffer.write_count), size or 1
        return self.trainer.collected_frames // self.trainer.frame_skip, 1

    def register(self, trainer: Loop, name: str = "utdr_hook") -> None:
        """Register at ``pre_steps_log``."""
        trainer.register_module(name, self)
        trainer.register_op("pre_steps_log", self)
