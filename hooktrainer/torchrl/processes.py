"""TorchRL's collectors that collect in processes of their own, and signals that end these as well.

From a terminal and from many clusters a signal goes to the whole process group. TorchRL's processes
die of it, and a call that waits for their answer may wait for ever. The run has no more batch to
collect then, so that it can end as it would otherwise, and be saved, without them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..collect.adapt import waits_for_processes

if TYPE_CHECKING:
    from ..loop.control import Control


def only_cleans_up(handler: Any) -> bool:
    """Whether a signal's handler is the one that TorchRL's memory-mapped storages install.

    It removes their files and ends the process. The files are removed at a normal exit as well.
    """
    name, module = getattr(handler, "__name__", ""), getattr(handler, "__module__", None) or ""
    return name == "_signal_cleanup_handler" and module.startswith("torchrl.")


def send_to(collector: Any, control: Control, send: Callable[[], None]) -> None:
    """Send a collector something; one that a signal may have cut off is not waited for.

    Args:
        collector: Any collector, or ``None``.
        control: That of the run.
        send: Sends it.
    """
    if waits_for_processes(collector):
        control.unless_signalled(send)
    else:
        send()


class CollectorProcesses:
    """The state of such a collector: none, if a signal ended its processes before it was asked.

    Args:
        collector: The collector.
        control: That of the run.
    """

    def __init__(self, collector: Any, control: Control) -> None:
        self._collector = collector
        self._control = control

    def state_dict(self) -> dict[str, Any]:
        """Return the collector's state; an empty one, if it is gone."""
        try:
            return self._collector.state_dict()
        except Exception:
            if self._control.signal is None:
                raise
            return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the state, and send the weights, which were not sent after a signal."""
        if state_dict:
            self._collector.load_state_dict(state_dict)
        else:
            warnings.warn(
                "the state of the collector is not in what is loaded, since a signal had ended its "
                "processes when it was saved: its environments and their transforms begin anew.",
                stacklevel=5,
            )
        self._collector.update_policy_weights_()
