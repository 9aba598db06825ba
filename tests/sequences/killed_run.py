"""`hooktrainer train grpo` on sums, with a record of the prompts it trained on.

The first argument is ``plain``, ``turns``, where a tool answers, or ``processes``, which score.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial

import torch
from tensordict import TensorDictBase

import hooktrainer.algorithms.grpo as algorithm
from hooktrainer.algorithms.algorithm import parse
from hooktrainer.loop.hook import TrainerHookBase
from hooktrainer.loop.signals import ending_cleanly
from hooktrainer.run.recipe import mistakes_in_one_line

SMALL = (
    *("--task", "addition", "--width", "16", "--depth", "1", "--heads", "2", "--eval-episodes"),
    *("8", "--eval-interval", "640", "--prompts-per-batch", "8", "--completions-per-prompt", "4"),
    *("--mini-batch-size", "16", "--save-interval", "64", "--log-interval", "64"),
    *("--logger", "csv", "--no-progress-bar"),
)


@dataclass(eq=False, repr=False)
class Trained(TrainerHookBase):
    """Records the group of every completion that was trained on."""

    at = "post_steps_log"
    saved_attributes = ("groups",)

    groups: torch.Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int64))

    def __call__(self, batch: TensorDictBase) -> None:
        self.groups = torch.cat([self.groups, batch["group"]])


def respond(text: str, row: Mapping[str, str]) -> str | None:
    """Ask for more, until the answer is long enough."""
    return "+" if len(text) < 4 else None


def main(kind: str, words: list[str]) -> None:
    """Train."""
    if kind == "turns":
        collector = partial(algorithm.CompletionCollector, respond=respond)
        algorithm.CompletionCollector = collector  # type: ignore
    if kind == "processes":
        algorithm.Rewards = partial(algorithm.Rewards, processes=2)  # type: ignore
    with ending_cleanly(), mistakes_in_one_line():
        run = parse(algorithm.GRPO, [*SMALL, *words], "killed_run.py")
        replace(run, hooks=(Trained(),)).train_as_program()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
