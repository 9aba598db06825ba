"""REINFORCE solves CartPole, in seconds on one CPU core.

    python recipes/reinforce_cartpole.py --seed 1

Everything a run leaves behind lies in its directory: config.yaml, run.json, metrics.csv, the
TensorBoard files and the checkpoints. The method is REINFORCE (Williams, 1992, Simple statistical
gradient-following algorithms) with a learned baseline: every action is reinforced by the discounted
return that followed it, less the baseline. The loss is TorchRL's.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torchrl.objectives import ReinforceLoss

from hooktrainer import (
    Evaluate,
    Every,
    LogEpisodes,
    Schedule,
    Trainer,
    ValueEstimatorHook,
    VectorCollector,
)
from hooktrainer.networks import CategoricalPolicy, ValueNetwork, mlp, orthogonal_init
from hooktrainer.objectives import GAE
from hooktrainer.optim import FlatAdam
from hooktrainer.run.recipe import Run, RunArgs, launch


@dataclass
class Args(RunArgs):
    """Options of the run."""

    total_frames: int = 300_000
    """frames after which the run ends, solved or not"""
    num_envs: int = 8
    """number of parallel environments"""
    steps_per_batch: int = 128
    """steps per environment in each batch"""

    lr: float = 1e-2
    """initial learning rate; falls linearly to zero at total_frames"""
    gamma: float = 0.99
    """discount factor"""
    max_grad_norm: float = 0.5
    """the gradient is clipped to this norm"""

    eval_interval: int = 10_000
    """frames between two evaluations"""
    eval_episodes: int = 100
    """episodes per evaluation, played by the deterministic policy"""
    stop_at: float = 475.0
    """mean evaluation return at which the run stops, the task solved"""


def main(args: Args) -> None:
    torch.manual_seed(args.seed)
    run = Run(args, "reinforce_cartpole")

    actor = CategoricalPolicy(orthogonal_init(mlp(4, 2), output_gain=0.01)).to(run.device)
    critic = ValueNetwork(orthogonal_init(mlp(4, 1))).to(run.device)
    loss_module = ReinforceLoss(actor, critic, loss_critic_type="l2").to(run.device)
    optimizer = FlatAdam(loss_module.parameters(), lr=args.lr, eps=1e-5)
    frames_per_batch = args.num_envs * args.steps_per_batch

    trainer = Trainer(
        collector=VectorCollector(
            "CartPole-v1", actor, num_envs=args.num_envs, frames_per_batch=frames_per_batch
        ),
        total_frames=args.total_frames,
        optim_steps_per_batch=1,
        loss_module=loss_module,
        optimizer=optimizer,
        clip_norm=args.max_grad_norm,
        **run.trainer_options,
    )
    LogEpisodes().register(trainer)
    # With lambda 1 the advantage is the return less the baseline. Where the batch ends before the
    # episode does, the baseline stands for the rest.
    returns = GAE(gamma=args.gamma, lmbda=1.0, value_network=critic, average_gae=True)
    ValueEstimatorHook(returns).register(trainer)
    Schedule.linear(optimizer, "lr", args.lr, 0.0).register(trainer)
    Evaluate(
        "CartPole-v1",
        actor,
        every=Every(frames=args.eval_interval),
        episodes=args.eval_episodes,
        stop_at=args.stop_at,
    ).register(trainer)
    run.train(trainer)


if __name__ == "__main__":
    launch(main)
