"""Data sets of transitions, for offline training: a plain format, Minari, and how to record one."""

from .dataset import Dataset
from .dataset_collector import DatasetCollector, load_dataset
from .record import RecordDataset

__all__ = ["Dataset", "DatasetCollector", "RecordDataset", "load_dataset"]
