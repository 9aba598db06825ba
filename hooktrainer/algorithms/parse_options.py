"""A run of an algorithm as a command line describes it."""

from __future__ import annotations

import argparse
import dataclasses
import inspect
from collections.abc import Sequence
from typing import Any

import tyro

from ..run import command_line
from ..run.config_file import with_config
from .config import AlgorithmConfig


def parse(kind: type[AlgorithmConfig], words: Sequence[str], prog: str | None = None) -> Any:
    """Return the run that a command line describes.

    Args:
        kind: The algorithm.
        words: The command line, without the program's name.
        prog: The program's name; by default the script's.

    Raises:
        ConfigError: If there is no option of a name.
        SystemExit: With 0 after ``--help``, 2 after words that are no options of it.
    """
    words = with_config(words)
    return command_line.parse(
        kind,
        words,
        prog=prog,
        description=inspect.getdoc(kind),
        default=_defaults(kind, words),
    )


def _defaults(kind: type[AlgorithmConfig], words: Sequence[str]) -> Any:
    """The run without what the words say, but for the environment, which the defaults are for."""
    peek = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    peek.add_argument("--env", nargs="?")
    peek.add_argument("--tuned", action=argparse.BooleanOptionalAction, default=True)
    said, _ = peek.parse_known_args(list(words))
    given: dict[str, Any] = {"tuned": said.tuned}
    if said.env is not None:
        given["env"] = said.env
    missing = {
        one.name: tyro.MISSING
        for one in dataclasses.fields(kind)
        if one.default is dataclasses.MISSING
        and one.default_factory is dataclasses.MISSING
        and one.name not in {**kind.tuned_settings_for(said.env, said.tuned), **given}
    }
    return kind(**given, **missing)
