"""Data sets of transitions, for offline training: a plain format, Minari, and how to record one."""

from .collector import DatasetCollector
from .dataset import Dataset
from .load import load_dataset
from .record import RecordDataset

__all__ = ["Dataset", "DatasetCollector", "RecordDataset", "load_dataset"]
