"""The priorities of hooktrainer's own hooks: who goes first at a hook point.

Hooks of higher priority go first; among equals, the one that was registered first. Any number may
be passed to `Trainer.register_op`; these are the ones that hooktrainer's hooks use, so that a hook
of yours can be put before them, between them or behind them.
"""

from __future__ import annotations

import math
from typing import Final

FIRST: Final = math.inf
EARLY: Final = 1000.0
DEFAULT: Final = 0.0
AFTER: Final = -1.0
LATE: Final = -1000.0
LAST: Final = -math.inf

PRIORITIES: Final = {
    "FIRST": (FIRST, "around all others, such as what records or meets at the beginning"),
    "EARLY": (EARLY, "before what it protects or prepares: guards, scalers, schedules"),
    "DEFAULT": (DEFAULT, "everything else: samplers, advantages, optimizers, evaluation"),
    "AFTER": (AFTER, "completes what those did, such as steps when all gradients are there"),
    "LATE": (LATE, "needs the result: what reads a sample or the metrics"),
    "LAST": (LAST, "around all others, such as what records or meets at the end"),
}
"""Name to number and use, in run order."""
