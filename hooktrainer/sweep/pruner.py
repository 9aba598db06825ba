"""`MedianPruner`: ends trials that have fallen behind half of those that have come as far."""

from __future__ import annotations

import numpy as np
from optuna.pruners import BasePruner
from optuna.study import Study
from optuna.trial import FrozenTrial

OTHERS = 3
"""Trials that have to have come as far before one is compared with them."""


class MedianPruner(BasePruner):
    """Ends a trial that has never scored as much as the median of the others had by its frames.

    Optuna's `MedianPruner` compares with trials that came to their end, so that it ends none of the
    first that train side by side. Here all count that have come as far, also what is still running
    and what was ended there.

    Args:
        first: Frames before which no trial is ended.
    """

    def __init__(self, first: int) -> None:
        self._first = first

    def prune(self, study: Study, trial: FrozenTrial) -> bool:
        """Whether a trial is to be ended."""
        frames = trial.last_step
        if frames is None or frames < self._first:
            return False
        others = [
            one.intermediate_values[frames]
            for one in study.get_trials(deepcopy=False)
            if one.number != trial.number and frames in one.intermediate_values
        ]
        if len(others) < OTHERS:
            return False
        return max(trial.intermediate_values.values()) < float(np.median(others))
