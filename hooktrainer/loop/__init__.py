"""The training loop: hook points, registry, metrics, cadences, timing and state."""

from typing import TYPE_CHECKING

from ..base.lazy import attach

if TYPE_CHECKING:
    from .cadence import Progress as Progress
    from .control import Control as Control
    from .metrics import Metrics as Metrics
    from .metrics import Total as Total
    from .metrics import WindowValue as WindowValue
    from .signals import GracefulSignals as GracefulSignals
    from .signals import SignalExit as SignalExit
    from .signals import ending_cleanly as ending_cleanly
    from .timing import Span as Span
    from .timing import Timing as Timing
    from .timing import Trace as Trace
    from .timing import time_rows as time_rows
    from .timing import time_table as time_table
else:
    __getattr__, __dir__, __all__ = attach(__name__, __file__)
