"""Training with an algorithm: `python -m hooktrainer.cli.algorithm ppo --env CartPole-v1 …`.

Its options are the fields of the class in `hooktrainer.algorithms`. `hooktrainer train ppo` runs
this.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from ..base.endings import interruptible


def main(words: Sequence[str] | None = None) -> None:
    """Train with the algorithm that is named first, with the options that follow.

    Raises:
        SystemExit: With code 2 if the options cannot work, 128 + n if signal n ends it, 1 if one
            of several seeds has failed.
    """
    name, *options = sys.argv[1:] if words is None else words
    with interruptible():
        from ..loop.signals import ending_cleanly
    with ending_cleanly():  # while it imports, too
        from .. import algorithms
        from ..algorithms.algorithm import parse
        from ..run.recipe import mistakes_in_one_line

        with mistakes_in_one_line():
            kind = algorithms.get(name)
            parse(kind, options, f"hooktrainer train {kind.name()}").train_as_program()


if __name__ == "__main__":
    main()
