"""Plays the policies of a run that were not played yet, at the lowest priority.

python -m hooktrainer.policies.evaluate RUN
"""

from __future__ import annotations

import argparse
import fcntl
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import torch

from .evaluation import EPISODES, SEED
from .play import evaluate_policy
from .saved import SavedPolicy, list_policies, policy_directory

_LOCK = ".evaluate.lock"


def evaluate_run(
    run: Path, *, seed: int = SEED, episodes: int = EPISODES, again: bool = False
) -> Iterator[tuple[SavedPolicy, Exception | None]]:
    """Evaluate the policies of a run, the earliest first, those that are saved meanwhile included.

    Args:
        run: The run's directory.
        seed: See `play_episodes`.
        episodes: Likewise.
        again: Whether to play those as well that were played already.

    Yields:
        Each policy with its evaluation, or with what went wrong.
    """
    done: set[Path] = set()
    while waiting := [
        saved
        for saved in list_policies(run)
        if saved.path not in done and (again or saved.evaluation is None)
    ]:
        saved = waiting[0]
        done.add(saved.path)
        try:
            yield evaluate_policy(saved, seed=seed, episodes=episodes), None
        except Exception as error:  # an environment may raise anything
            if saved.path.exists():  # else it was thinned out meanwhile
                yield saved, error


@contextmanager
def alone(run: Path) -> Iterator[bool]:
    """Whether no other process evaluates policies of the run; none will while the block runs."""
    with (policy_directory(run) / _LOCK).open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            free = True
        except BlockingIOError:
            free = False
        yield free


def main() -> int:
    """Evaluate; the exit code is 1 if a policy could not be played."""
    parser = argparse.ArgumentParser(prog="python -m hooktrainer.policies.evaluate")
    parser.add_argument("run", type=Path, metavar="RUN", help="directory of the run")
    parser.add_argument("--seed", type=int, default=SEED, help="seed of the episodes")
    parser.add_argument("--episodes", type=int, default=EPISODES, help="episodes of each policy")
    parser.add_argument(
        "--with-parent", action="store_true", help="end at once when standard input ends"
    )
    args = parser.parse_args()
    with suppress(OSError, AttributeError):
        os.nice(19)
    torch.set_num_threads(1)
    if args.with_parent:
        threading.Thread(target=_end_with_input, daemon=True).start()
    code = 0
    with alone(args.run) as free:
        if free:
            for saved, error in evaluate_run(args.run, seed=args.seed, episodes=args.episodes):
                if error is not None:
                    code = 1
                    print(f"{saved.path.name}: {type(error).__name__}: {error}", file=sys.stderr)
    return code


def _end_with_input() -> None:
    while os.read(0, 1024):  # not sys.stdin, which an interpreter that ends would wait for
        pass
    os._exit(130)


if __name__ == "__main__":
    sys.exit(main())
