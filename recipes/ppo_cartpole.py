"""PPO solves CartPole, in seconds on one CPU core.

    python recipes/ppo_cartpole.py --seed 1
    python recipes/ppo_cartpole.py --overlap 1                   # collects while it learns
    python recipes/ppo_cartpole.py --env torch/CartPole-v1 --compile all   # as compiled tensors
    torchrun --nproc-per-node 2 recipes/ppo_cartpole.py          # two learners
    python recipes/ppo_cartpole.py --engine ray --collectors 2   # two collectors, with Ray

Everything a run leaves behind lies in its directory: config.yaml, run.json, metrics.csv, the
TensorBoard files and the checkpoints. The method is Proximal Policy Optimization (Schulman et al.,
2017, arXiv:1707.06347).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from hooktrainer import (
    CompiledStep,
    ConfigError,
    Evaluate,
    Every,
    LogEpisodes,
    MiniBatches,
    Schedule,
    Trainer,
    ValueEstimatorHook,
    VectorCollector,
)
from hooktrainer.networks import CategoricalPolicy, ValueNetwork, mlp, orthogonal_init
from hooktrainer.objectives import GAE, ClipPPOLoss
from hooktrainer.optim import FlatAdam
from hooktrainer.run import Run, RunConfig, launch


@dataclass(frozen=True, kw_only=True)
class Args(RunConfig):
    """Options of the run."""

    total_frames: int = 100_000
    """frames after which the run ends, solved or not"""
    env: Literal["CartPole-v1", "torch/CartPole-v1"] = "CartPole-v1"
    """the environment: Gymnasium's, or the same as a batch of tensors"""
    num_envs: int = 16
    """number of parallel environments"""
    steps_per_batch: int = 64
    """steps per environment in each batch"""
    num_epochs: int = 10
    """epochs over each batch"""
    mini_batch_size: int = 256
    """frames in each mini-batch"""

    lr: float = 3e-3
    """initial learning rate; falls linearly to zero at total_frames"""
    gamma: float = 0.99
    """discount factor"""
    lmbda: float = 0.95
    """lambda of generalized advantage estimation"""
    clip_epsilon: float = 0.2
    """clipping range of the probability ratio around 1"""
    entropy_coeff: float = 0.0
    """weight of the entropy bonus"""
    critic_coeff: float = 0.5
    """weight of the value loss"""
    max_grad_norm: float = 0.5
    """the gradient is clipped to this norm"""

    compile: Literal["step", "all"] | None = None
    """what torch.compile makes graphs of: step, the optimizer step; all, collecting from
    torch/CartPole-v1 as well. It starts seconds later, then runs faster"""

    eval_interval: int = 2_500
    """frames between two evaluations"""
    eval_episodes: int = 100
    """episodes per evaluation, played by the deterministic policy"""
    stop_at: float = 475.0
    """mean evaluation return at which the run stops, the task solved"""


def main(args: Args) -> None:
    torch.manual_seed(args.seed)
    run = Run(args, "ppo_cartpole")

    actor = CategoricalPolicy(orthogonal_init(mlp(4, 2), output_gain=0.01))
    critic = ValueNetwork(orthogonal_init(mlp(4, 1)))
    loss_module = ClipPPOLoss(
        actor,
        critic,
        clip_epsilon=args.clip_epsilon,
        entropy_coeff=args.entropy_coeff,
        critic_coeff=args.critic_coeff,
        loss_critic_type="l2",
        normalize_advantage=True,
        diagnostics=4,  # entropy, clip fraction and so on at every fourth step
    ).to(run.device)
    optimizer = FlatAdam(loss_module.parameters(), lr=args.lr, eps=1e-5)
    frames_per_batch = args.num_envs * args.steps_per_batch

    if args.compile == "all" and not args.env.startswith("torch/"):
        raise ConfigError("compile='all' is for torch/CartPole-v1: pass --env, or --compile step.")
    trainer = Trainer(
        collector=VectorCollector(
            args.env,
            actor,
            num_envs=args.num_envs,
            frames_per_batch=frames_per_batch,
            compile=args.compile == "all",
        ),
        total_frames=args.total_frames,
        num_epochs=args.num_epochs,
        optim_steps_per_batch=None,  # as many as there are mini-batches
        loss_module=loss_module,
        optimizer=optimizer,
        clip_norm=args.max_grad_norm,
        **run.trainer_options,
    )
    if args.compile:
        CompiledStep().register(trainer)
    LogEpisodes().register(trainer)
    ValueEstimatorHook(GAE(gamma=args.gamma, lmbda=args.lmbda, value_network=critic)).register(
        trainer
    )
    keys = ["observation", "action", "action_log_prob", "advantage", "value_target"]
    MiniBatches(args.mini_batch_size, keys).register(trainer)
    Schedule.linear(optimizer, "lr", args.lr, 0.0).register(trainer)
    Evaluate(
        args.env,
        actor,
        every=Every(frames=args.eval_interval),
        episodes=args.eval_episodes,
        stop_at=args.stop_at,
    ).register(trainer)
    run.train(trainer)


if __name__ == "__main__":
    launch(main)
