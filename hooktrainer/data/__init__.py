"""Training on data: a collector of batches from a data set, and the data sets of offline RL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..base.lazy import attach

if TYPE_CHECKING:
    from .collector import DataCollector as DataCollector
    from .datasets import Dataset as Dataset
    from .datasets import RecordDataset as RecordDataset
    from .datasets import load_dataset as load_dataset
    from .subsequences import Subsequences as Subsequences
else:
    __getattr__, __dir__, __all__ = attach(__name__, __file__)
