"""A2C solves CartPole, in seconds on one CPU core.

    python recipes/a2c_cartpole.py --seed 1

Everything a run leaves behind lies in its directory: config.yaml, run.json, metrics.csv, the
TensorBoard files and the checkpoints. The method is advantage actor-critic (Mnih et al., 2016,
arXiv:1602.01783), synchronous: one optimizer step on each batch. The loss is TorchRL's.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torchrl.objectives import A2CLoss

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
    steps_per_batch: int = 16
    """steps per environment in each batch"""

    lr: float = 2e-3
    """initial learning rate; falls linearly to zero at total_frames"""
    gamma: float = 0.99
    """discount factor"""
    lmbda: float = 0.95
    """lambda of generalized advantage estimation; 1 for plain n-step returns"""
    entropy_coeff: float = 0.0
    """weight of the entropy bonus"""
    critic_coeff: float = 0.5
    """weight of the value loss"""
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
    run = Run(args, "a2c_cartpole")

    actor = CategoricalPolicy(orthogonal_init(mlp(4, 2), output_gain=0.01)).to(run.device)
    critic = ValueNetwork(orthogonal_init(mlp(4, 1))).to(run.device)
    loss_module = A2CLoss(
        actor,
        critic,
        entropy_coeff=args.entropy_coeff,
        critic_coeff=args.critic_coeff,
        loss_critic_type="l2",
    ).to(run.device)
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
    gae = GAE(gamma=args.gamma, lmbda=args.lmbda, value_network=critic, average_gae=True)
    ValueEstimatorHook(gae).register(trainer)
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
