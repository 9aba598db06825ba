"""Loggers: `csv`, `tensorboard`, `mlflow`, `wandb`, `prometheus`, and adapters for others."""

from typing import TYPE_CHECKING

from ..base.lazy import attach

if TYPE_CHECKING:
    from .csv import CSVSink as CSVSink
    from .csv import read_csv as read_csv
    from .logger import Logger as Logger
    from .logger import as_logger as as_logger
    from .logger import as_loggers as as_loggers
    from .mlflow import MLflowSink as MLflowSink
    from .prometheus import PrometheusSink as PrometheusSink
    from .sink import BackgroundSink as BackgroundSink
    from .sink import Sink as Sink
    from .sink import generate_exp_name as generate_exp_name
    from .tensorboard import TensorBoardSink as TensorBoardSink
    from .tensorboard import read_scalars as read_scalars
    from .wandb import WandbSink as WandbSink
else:
    __getattr__, __dir__, __all__ = attach(__name__, __file__)
