"""Statistics over seeds: estimates, intervals, comparisons, stopping rules.

A score is one number for each seed; a table of scores is ``[seeds, tasks]``. All are functions of
arrays, without PyTorch; SciPy is imported on first use.
"""

from typing import TYPE_CHECKING

from ..base.lazy import attach

if TYPE_CHECKING:
    from .improvement import Profile as Profile
    from .improvement import holm as holm
    from .improvement import performance_profile as performance_profile
    from .improvement import permutation_test as permutation_test
    from .improvement import probability_of_improvement as probability_of_improvement
    from .improvement import seeds_to_separate as seeds_to_separate
    from .intervals import ESTIMATORS as ESTIMATORS
    from .intervals import Interval as Interval
    from .intervals import curve_interval as curve_interval
    from .intervals import difference as difference
    from .intervals import interval as interval
    from .intervals import percentile_interval as percentile_interval
    from .intervals import prediction_interval as prediction_interval
    from .regression import Regression as Regression
    from .regression import judge_regression as judge_regression
    from .scores import REFERENCES as REFERENCES
    from .scores import SCORES as SCORES
    from .scores import Curve as Curve
    from .scores import Reference as Reference
    from .scores import first_reached as first_reached
    from .scores import score_function as score_function
    from .scores import shared_frames as shared_frames
    from .sequential import Decision as Decision
    from .sequential import decide as decide
    from .sequential import looks as looks
    from .survival import TimeToThreshold as TimeToThreshold
    from .survival import time_to_reach as time_to_reach
else:
    __getattr__, __dir__, __all__ = attach(__name__, __file__)
