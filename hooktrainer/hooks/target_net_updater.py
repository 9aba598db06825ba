"""`TargetNetUpdaterHook`: updates the target networks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..loop.cadence import Every
from ..loop.hook import TrainerHookBase


@dataclass(eq=False, repr=False)
class TargetNetUpdaterHook(TrainerHookBase):
    """Steps a target updater, such as `torchrl.objectives.SoftUpdate` or ``HardUpdate``.

    Args:
        target_params_updater: Anything with a method ``step()``.
        every: When to step it; by default, at every optimizer step.
    """

    at = "post_optim"
    default_name = "target_net_updater"

    target_params_updater: Any
    every: Every | None = None

    def __call__(self) -> None:
        """Update the target parameters."""
        self.target_params_updater.step()

    def state_dict(self) -> dict[str, Any]:
        """Return the updater's count of steps, if it has one."""
        counter = getattr(self.target_params_updater, "counter", None)
        return {} if counter is None else {"counter": counter}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the count."""
        if "counter" in state_dict:
            self.target_params_updater.counter = state_dict["counter"]
