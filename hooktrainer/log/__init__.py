"""Loggers: `csv`, `tensorboard`, `mlflow`, `wandb`, and whatever a user brings."""

from __future__ import annotations

from .adapter import as_logger, as_loggers
from .background import BackgroundSink
from .csv import read_csv
from .factory import generate_exp_name, get_logger
from .logger import Logger
from .sink import GuardedSink, Sink
from .tensorboard import read_scalars

__all__ = [
    "BackgroundSink",
    "GuardedSink",
    "Logger",
    "Sink",
    "as_logger",
    "as_loggers",
    "generate_exp_name",
    "get_logger",
    "read_csv",
    "read_scalars",
]
