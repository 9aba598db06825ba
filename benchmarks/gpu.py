"""An iteration of PPO on many tensor environments, with the trainer and without.

Without it the same collector, value estimator, loss and optimizer are called from a loop by hand,
which logs nothing, checks nothing and saves nothing. The difference is the trainer's part.

    make bench-gpu ARGS='--num-envs 4096 --compile step'
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import torch

from hooktrainer import TrainerHookBase
from hooktrainer.algorithms import PPO

STEPS, EPOCHS, PARTS = 24, 5, 4


class Clock(TrainerHookBase):
    """Takes the time of some iterations, without waiting between them."""

    is_saved = False

    def __init__(self, first: int, number: int, wait: Any) -> None:
        self.first, self.last, self.wait = first, first + number, wait
        self.seconds = 0.0

    def __call__(self, batch: Any) -> None:
        batches = self.trainer.progress.batches
        if batches in (self.first, self.last):
            self.wait()
            self.seconds = time.perf_counter() - self.seconds
        if batches == self.last:
            self.trainer.request_stop("it was measured")

    def register(self, trainer: Any, name: str = "clock") -> None:
        trainer.register_module(name, self)
        trainer.register_op("batch_process", self, priority=1e9)


def run(args: argparse.Namespace, compile: str | None, *hooks: Any) -> Any:
    frames = args.num_envs * STEPS
    return PPO(
        env=args.env,
        num_envs=args.num_envs,
        steps_per_batch=STEPS,
        num_epochs=EPOCHS,
        mini_batch_size=frames // PARTS,
        total_frames=10_000 * frames,
        log_interval=10 * frames,
        eval_episodes=0,
        progress_bar=False,
        device=args.device,
        compile=compile,
        precision=args.precision,
        anneal_lr=False,
        hooks=hooks,
    ).trainer()


def with_trainer(args: argparse.Namespace, compile: str | None, wait: Any) -> float:
    clock = Clock(args.warm_up, args.iterations, wait)
    run(args, compile, clock).train()
    return clock.seconds / args.iterations


def by_hand(args: argparse.Namespace, wait: Any) -> float:
    trainer = run(args, None)
    collect, loss_module = trainer.source.collect, trainer.loss_module
    estimate = trainer.registry.modules["value_estimator"].value_estimator
    optimizer, keys = trainer.optimizer, loss_module.in_keys
    seconds = 0.0
    for iteration in range(args.warm_up + args.iterations):
        if iteration == args.warm_up:
            wait()
            seconds = time.perf_counter()
        batch = estimate(collect()).select(*keys).reshape(-1)
        for _ in range(EPOCHS):
            order = torch.randperm(len(batch), device=args.device)
            for part in batch[order].split(len(batch) // PARTS):
                losses = loss_module(part)
                sum(v for k, v in losses.items() if k.startswith("loss")).backward()
                optimizer.clip_grad_norm_(0.5)
                optimizer.step()
                optimizer.zero_grad()
    wait()
    seconds = time.perf_counter() - seconds
    trainer.shutdown()
    return seconds / args.iterations


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--env", default="torch/CartPole-v1")
    parser.add_argument("--num-envs", type=int, default=4096)
    parser.add_argument("--iterations", type=int, default=50)
    parser.add_argument("--warm-up", type=int, default=10)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--precision", choices=["bf16", "fp16"])
    parser.add_argument("--compile", choices=["step", "all"], nargs="*", default=["step", "all"])
    args = parser.parse_args()
    wait = torch.cuda.synchronize if args.device.startswith("cuda") else lambda: None
    hand = by_hand(args, wait)
    frames = args.num_envs * STEPS
    rows = [("by hand, eager", hand), ("the trainer, eager", with_trainer(args, None, wait))]
    rows += [(f"the trainer, compile={c}", with_trainer(args, c, wait)) for c in args.compile]
    print(f"PPO, {args.env}, {args.num_envs} x {STEPS}, {EPOCHS} x {PARTS} steps, {args.device}")
    for what, seconds in rows:
        share = f"{frames / seconds:14,.0f} frames/s  {hand / seconds:5.2f} x by hand"
        print(f"{what:28} {1000 * seconds:9.2f} ms an iteration {share}")
    print(f"the trainer's part of an eager iteration: {100 * (1 - hand / rows[1][1]):.1f} %")


if __name__ == "__main__":
    main()
