"""Evaluates the policies of a run in the background, at the lowest priority.

python -m hooktrainer.policies.evaluation RUN SEED EPISODES ENVIRONMENT

The environment, as JSON, is the one that is trusted.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import torch

from ..base.untrusted import one_line
from .environment import Environment
from .play import evaluate_policy
from .saved import EPISODES, SEED, SavedPolicy, list_policies


def evaluate_run(
    run: Path,
    *,
    seed: int = SEED,
    episodes: int = EPISODES,
    again: bool = False,
    trust: bool | Environment = False,
) -> Iterator[tuple[SavedPolicy, Exception | None]]:
    """Evaluate a run's policies, the earliest first, including those saved meanwhile.

    Yields each policy with its evaluation, or with the error. ``trust`` is as for `load_policy`, or
    the one environment that is trusted; ``again`` includes policies that have an evaluation.
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
            trusted = saved.environment == trust if isinstance(trust, Environment) else trust
            yield evaluate_policy(saved, seed=seed, episodes=episodes, trust=trusted), None
        except Exception as error:  # an environment may raise anything
            if saved.path.exists():  # else it was thinned out meanwhile
                yield saved, error


def main(run: str, seed: str, episodes: str, environment: str) -> int:
    """Evaluate; the exit code is 1 if a policy could not be played."""
    torch.set_num_threads(1)
    own = Environment.decode(json.loads(environment))
    code = 0
    for saved, error in evaluate_run(Path(run), seed=int(seed), episodes=int(episodes), trust=own):
        if error is not None:
            code = 1
            what = one_line(f"{type(error).__name__}: {error}")
            print(f"{saved.path.name}: {what}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
