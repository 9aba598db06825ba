"""A small transformer learns to add by GRPO, from rewards alone.

    hooktrainer train sft --task addition --run-dir runs/sft
    python recipes/grpo_addition.py --init runs/sft

The first line trains on so few solved sums that 6 % of the answers are right; the second improves
on that by rewards alone. A run that is killed goes on bit for bit with --resume latest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from hooktrainer import Every, MiniBatches, Trainer
from hooktrainer.algorithms.text import load_model
from hooktrainer.networks import CausalTransformer
from hooktrainer.objectives import GRPOLoss
from hooktrainer.optim import FlatAdam
from hooktrainer.run import Run, RunConfig, launch
from hooktrainer.sequences import (
    CompletionCollector,
    EvaluateCompletions,
    GroupAdvantage,
    Rewards,
    text_task,
)


@dataclass(frozen=True, kw_only=True)
class Args(RunConfig):
    """Options of the run."""

    init: str | None = None
    """run or checkpoint of sft whose weights to begin with; None: random ones"""
    total_frames: int = 100_000
    """completions to train on"""
    prompts_per_batch: int = 32
    """sums in a batch"""
    completions_per_prompt: int = 8
    """completions of each sum, its group"""
    mini_batch_size: int = 128
    """completions per optimizer step"""
    lr: float = 1e-3
    """learning rate"""
    eval_interval: int = 10_000
    """completions between two evaluations"""
    eval_episodes: int = 200
    """held-out sums in an evaluation, completed by the most probable tokens"""


def correct(completions: Sequence[str], answer: Sequence[str]) -> list[float]:
    return [float(one == right) for one, right in zip(completions, answer, strict=True)]


def digits(completions: Sequence[str], answer: Sequence[str]) -> list[float]:
    """Score the fraction of digits that are right: a group without a right sum teaches, too."""
    pairs = zip(completions, answer, strict=True)
    return [sum(map(str.__eq__, one, right)) / max(len(one), len(right)) for one, right in pairs]


def main(args: Args) -> None:
    torch.manual_seed(args.seed)
    run = Run(args, "grpo_addition")
    sums = text_task("addition")  # rows such as {"prompt": "057+308=", "answer": "5630"}
    model = CausalTransformer(len(sums.tokenizer), context_length=32, width=96).to(run.device)
    if args.init is not None and not run.holds_state:
        load_model(model, args.init)
    loss_module = GRPOLoss(model).to(run.device)
    texts = {"tokenizer": sums.tokenizer, "max_new_tokens": sums.max_new_tokens}
    collector = CompletionCollector(
        model,
        sums.prompts,
        prompts_per_batch=args.prompts_per_batch,
        completions_per_prompt=args.completions_per_prompt,
        **texts,
    )
    trainer = Trainer(
        collector=collector,
        total_frames=args.total_frames,
        optim_steps_per_batch=None,  # as many as there are mini-batches
        loss_module=loss_module,
        optimizer=FlatAdam(loss_module.parameters(), lr=args.lr),
        clip_norm=1.0,
        **run.trainer_options,
    )
    Rewards([correct, digits], sums.prompts, sums.tokenizer).register(trainer)
    GroupAdvantage().register(trainer)
    MiniBatches(args.mini_batch_size).register(trainer)
    every, episodes = Every(samples=args.eval_interval), args.eval_episodes
    EvaluateCompletions(
        sums.held_out, model, rewards=correct, every=every, episodes=episodes, **texts
    ).register(trainer)
    run.train(trainer)


if __name__ == "__main__":
    launch(main)
