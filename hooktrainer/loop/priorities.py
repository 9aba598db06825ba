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
    "FIRST": (FIRST, "around all others: `Tracer`, the meeting of several learners"),
    "EARLY": (
        EARLY,
        "before what it protects or prepares: `NanGuard`, `RewardScaler`, "
        "`ObservationNormalizer`, `Schedule`, estimates renewed by `ValueEstimatorHook`",
    ),
    "DEFAULT": (DEFAULT, "everything else: samplers, advantages, optimizers, evaluation"),
    "AFTER": (
        AFTER,
        "completes what those did: steps of several `OptimizerHook`s when all "
        "gradients are there, `ModelRollouts` on a sample",
    ),
    "LATE": (
        LATE,
        "needs the result: `RewardNormalizer` on a sample, `EarlyStopping` and "
        "`SaveOnBest` on metrics",
    ),
    "LAST": (LAST, "around all others: `Profiler`, the meeting of several learners"),
}
"""Name to number and use, in run order."""
