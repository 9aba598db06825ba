"""Provides what a recipe needs besides its algorithm: options, directory, loggers, checkpoints.

A recipe derives its options from `RunConfig` and passes the options of its `Run` to a `Trainer`::

    def main(args: Args) -> None:
        run = Run(args, "ppo_cartpole")
        ...
        trainer = Trainer(collector=..., **run.trainer_options)
        ...
        run.train(trainer)

    if __name__ == "__main__":
        launch(main)
"""

from __future__ import annotations

import inspect
import sys
import typing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ..base.words import printable
from ..errors import USER_ERRORS, WriteFailedError
from ..loop.signals import ending_cleanly
from .config import parse_run


def launch(main: Callable[[Any], None]) -> None:
    """Run a recipe from the command line: parse its options, and report errors in one line.

    Args:
        main: Takes the recipe's options, a dataclass named by its annotation.

    Raises:
        SystemExit: With code 2 if the options cannot work, 128 + n if signal n ends the run or what
            comes before it, 130 if a second signal aborts the run.
    """
    (parameter,) = inspect.signature(main).parameters
    args_type = typing.get_type_hints(main)[parameter]
    description = inspect.getmodule(main).__doc__
    with ending_cleanly(), mistakes_in_one_line():
        main(parse_run(args_type, sys.argv[1:], description=description))


@contextmanager
def mistakes_in_one_line() -> Iterator[None]:
    """In the block, a user's error is printed in one line instead of a traceback.

    Raises:
        SystemExit: With code 2, in place of such an error (1, if the disk failed while the run was
            under way); 130, in place of an interruption.
    """
    try:
        yield
    except USER_ERRORS as error:
        print(printable(f"error: {error}", keep="\n"), file=sys.stderr)
        for note in getattr(error, "__notes__", []):
            print(printable(f"  {note}", keep="\n"), file=sys.stderr)
        raise SystemExit(1 if isinstance(error, WriteFailedError) else 2) from None
    except KeyboardInterrupt as error:
        print(f"aborted by {str(error) or 'SIGINT'}; --resume latest continues.", file=sys.stderr)
        raise SystemExit(130) from None
