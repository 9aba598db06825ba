"""Data sets by name: a directory, or one of Minari's."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from .dataset import Dataset, read_dataset
from .minari import load_minari

_MINARI: Final = "minari:"


def load_dataset(source: str | os.PathLike[str]) -> Dataset:
    """Load a data set from a directory, or from Minari.

    Args:
        source: A directory that `Dataset.save` wrote, or ``"minari:<id>"`` for a data set of
            Minari, which is downloaded if it is not on this machine.

    Raises:
        NotFoundError: If there is no data set.
        ConfigError: If the files are not what ``dataset.json`` says.
        MissingPackageError: If Minari is wanted and not installed.
    """
    if isinstance(source, str) and source.startswith(_MINARI):
        return load_minari(source.removeprefix(_MINARI))
    return read_dataset(Path(source))
