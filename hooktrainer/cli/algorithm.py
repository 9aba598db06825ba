"""Training with an algorithm: `python -m hooktrainer.cli.algorithm ppo --env CartPole-v1 …`.

Its options are the fields of the class in `hooktrainer.algorithms`. `hooktrainer train ppo` runs
this.
"""

from __future__ import annotations

import argparse
import dataclasses
import inspect
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import tyro

from ..loop.signals import ending_cleanly
from ..run import command_line
from ..run.config_file import with_config

if TYPE_CHECKING:
    from ..algorithms import Algorithm


def main(words: Sequence[str] | None = None) -> None:
    """Train with the algorithm that is named first, with the options that follow.

    Raises:
        SystemExit: With code 2 if the options cannot work, 128 + n if signal n ends it.
    """
    name, *options = sys.argv[1:] if words is None else words
    with ending_cleanly():  # while it imports, too
        from .. import algorithms
        from ..run.recipe import mistakes_in_one_line

        with mistakes_in_one_line():
            parse(algorithms.get(name), options).train(keep=True)


def parse(kind: type[Algorithm], words: Sequence[str]) -> Algorithm:
    """Return the run that a command line describes.

    Raises:
        ConfigError: If there is no option of a name.
        SystemExit: With 0 after ``--help``, 2 after words that are no options of it.
    """
    words = with_config(words)
    parsed: Algorithm = command_line.parse(
        kind,
        words,
        prog=f"hooktrainer train {kind.name()}",
        description=inspect.getdoc(kind),
        default=_defaults(kind, words),
    )
    return parsed


def _defaults(kind: type[Algorithm], words: Sequence[str]) -> Algorithm:
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


if __name__ == "__main__":
    main()
