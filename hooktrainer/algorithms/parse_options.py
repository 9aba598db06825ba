"""A run of an algorithm as a command line describes it."""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from ..run.config_file import filled, parse_run
from .config import AlgorithmConfig


def parse(
    kind: type[AlgorithmConfig],
    words: Sequence[str],
    prog: str | None = None,
    saved: Mapping[str, Any] | None = None,
) -> Any:
    """Return the run that a command line describes.

    Args:
        kind: The algorithm.
        words: The command line, without the program's name.
        prog: The program's name; by default the script's.
        saved: Values of fields that the words do not say.

    Raises:
        ConfigError: If there is no option of a name.
        SystemExit: With 0 after ``--help``, 2 after words that are no options of it.
    """
    return parse_run(
        kind,
        words,
        saved=saved,
        default=partial(_defaults, kind),
        prog=prog,
        description=inspect.getdoc(kind),
    )


def _defaults(kind: type[AlgorithmConfig], saved: Mapping[str, Any], words: Sequence[str]) -> Any:
    """The run without what the words say, but for the environment, which the defaults are for."""
    peek = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    peek.add_argument("--env", nargs="?")
    peek.add_argument("--tuned", action=argparse.BooleanOptionalAction)
    said, _ = peek.parse_known_args(list(words))
    given = {"tuned": True, **saved}
    given |= {name: value for name, value in vars(said).items() if value is not None}
    return filled(kind, given, kind.tuned_settings_for(given.get("env"), given["tuned"]))
