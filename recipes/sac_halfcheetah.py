"""SAC runs HalfCheetah.

    pip install 'hooktrainer[mujoco]'
    python recipes/sac_halfcheetah.py --seed 1

A million frames take hours on one CPU core; half of what is published for them is reached within
the first 100 000, in twenty minutes. Everything a run leaves behind lies in its directory:
config.yaml, run.json, metrics.csv, the TensorBoard files and the checkpoints. The method is Soft
Actor-Critic with a learned temperature (Haarnoja et al., 2018, arXiv:1812.05905).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from hooktrainer import (
    Evaluate,
    Every,
    LogEpisodes,
    ReplayBufferTrainer,
    TargetNetUpdaterHook,
    Trainer,
    VectorCollector,
)
from hooktrainer.networks import TanhGaussianPolicy, ValueNetwork, mlp
from hooktrainer.objectives import SACLoss, SoftUpdate
from hooktrainer.replay import ReplayBuffer
from hooktrainer.run.recipe import Run, RunArgs, launch

ENV, OBSERVATIONS, ACTIONS = "HalfCheetah-v5", 17, 6


@dataclass
class Args(RunArgs):
    """Options of the run."""

    total_frames: int = 1_000_000
    """frames after which the run ends"""
    num_envs: int = 4
    """number of parallel environments"""
    steps_per_batch: int = 4
    """steps per environment in each batch"""
    optim_steps_per_batch: int = 16
    """optimizer steps after each batch"""
    init_random_frames: int = 10_000
    """frames collected with random actions before the first optimizer step"""

    buffer_size: int = 1_000_000
    """capacity of the replay buffer, in transitions"""
    batch_size: int = 256
    """transitions per optimizer step"""
    lr: float = 1e-3
    """learning rate of the Q-functions and the temperature"""
    actor_lr: float = 3e-4
    """learning rate of the actor"""
    num_cells: int = 256
    """units in each of the two hidden layers"""
    gamma: float = 0.99
    """discount factor"""
    tau: float = 0.005
    """rate of the soft updates of the target networks, one per optimizer step"""

    compile: bool = False
    """whether to use torch.compile for the loss: starts seconds later, then runs faster"""

    eval_interval: int = 10_000
    """frames between two evaluations"""
    eval_episodes: int = 10
    """episodes per evaluation, played by the deterministic policy"""
    save_interval: int = 50_000
    """frames between two checkpoints"""


def main(args: Args) -> None:
    torch.manual_seed(args.seed)
    run = Run(args, "sac_halfcheetah")

    cells = (args.num_cells, args.num_cells)
    actor = TanhGaussianPolicy(mlp(OBSERVATIONS, 2 * ACTIONS, cells, nn.ReLU), ACTIONS)
    qvalue = ValueNetwork(
        mlp(OBSERVATIONS + ACTIONS, 1, cells, nn.ReLU), in_keys=["observation", "action"]
    )
    loss_module = SACLoss(actor, qvalue, gamma=args.gamma, loss_function="l2").to(run.device)
    if args.compile:
        loss_module.compile()
    slow = list(actor.parameters())
    fast = [*loss_module.qvalue_network.parameters(), loss_module.log_alpha]
    optimizer = torch.optim.Adam(
        [{"params": slow, "lr": args.actor_lr}, {"params": fast, "lr": args.lr}], fused=True
    )
    buffer = ReplayBuffer(
        args.buffer_size,
        batch_size=args.batch_size,
        keys=loss_module.in_keys,
        device=run.device,
    )

    trainer = Trainer(
        collector=VectorCollector(
            ENV,
            actor,
            num_envs=args.num_envs,
            frames_per_batch=args.num_envs * args.steps_per_batch,
            init_random_frames=args.init_random_frames,
        ),
        total_frames=args.total_frames,
        optim_steps_per_batch=args.optim_steps_per_batch,
        loss_module=loss_module,
        optimizer=optimizer,
        **run.trainer_options,
    )
    LogEpisodes().register(trainer)
    ReplayBufferTrainer(buffer).register(trainer)
    TargetNetUpdaterHook(SoftUpdate(loss_module, tau=args.tau)).register(trainer)
    Evaluate(
        ENV, actor, every=Every(frames=args.eval_interval), episodes=args.eval_episodes
    ).register(trainer)
    run.train(trainer)


if __name__ == "__main__":
    launch(main)
