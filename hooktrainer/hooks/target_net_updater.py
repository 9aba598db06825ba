"""`TargetNetUpdaterHook`: updates the target networks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import ConfigError
from ..loop.cadence import Every
from ..loop.hook import TrainerHookBase

if TYPE_CHECKING:
    pass


class TargetNetUpdaterHook(TrainerHookBase):
    """Steps a target updater, such as `torchrl.objectives.SoftUpdate` or ``HardUpdate``.

    Args:
        target_params_updater: Anything with a method ``step()``.
        every: When to step it; by default, at every optimizer step.
    """

    at = "post_optim"
    default_name = "target_net_updater"

    def __init__(self, target_params_updater: Any, every: Every | None = None) -> None:
        if not callable(getattr(target_params_updater, "step", None)):
            raise ConfigError(
                f"TargetNetUpdaterHook({target_params_updater!r:.80}): it has no step(); pass a "
                "SoftUpdate or HardUpdate of the loss module."
            )
        self.target_params_updater = target_params_updater
        self.every = every

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
