"""SAC swings up Pendulum, in about a minute on one CPU core.

    python recipes/sac_pendulum.py --seed 1

Everything a run leaves behind lies in its directory: config.yaml, run.json, metrics.csv, the
TensorBoard files and the checkpoints. The method is Soft Actor-Critic with a learned temperature
(Haarnoja et al., 2018, arXiv:1812.05905).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn

from hooktrainer import (
    CompiledStep,
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
from hooktrainer.optim import FlatAdam
from hooktrainer.replay import ReplayBuffer
from hooktrainer.run import Run, RunConfig, launch


@dataclass(frozen=True, kw_only=True)
class Args(RunConfig):
    """Options of the run."""

    total_frames: int = 20_000
    """frames after which the run ends"""
    num_envs: int = 4
    """number of parallel environments"""
    steps_per_batch: int = 4
    """steps per environment in each batch"""
    optim_steps_per_batch: int = 8
    """optimizer steps after each batch"""
    init_random_frames: int = 800
    """frames collected with random actions before the first optimizer step"""

    buffer_size: int = 100_000
    """capacity of the replay buffer, in transitions"""
    batch_size: int = 256
    """transitions per optimizer step"""
    lr: float = 1e-3
    """learning rate of the actor, the Q-functions and the temperature"""
    num_cells: int = 128
    """units in each of the two hidden layers"""
    gamma: float = 0.99
    """discount factor"""
    tau: float = 0.01
    """rate of the soft updates of the target networks, one per optimizer step"""
    alpha_init: float = 1.0
    """initial temperature, the weight of the entropy"""

    compile: Literal["step"] | None = None
    """compile the optimizer step with torch.compile: starts seconds later, then runs faster"""

    eval_interval: int = 1_000
    """frames between two evaluations"""
    eval_episodes: int = 20
    """episodes per evaluation, played by the deterministic policy"""


def main(args: Args) -> None:
    torch.manual_seed(args.seed)
    run = Run(args, "sac_pendulum")

    cells = (args.num_cells, args.num_cells)
    actor = TanhGaussianPolicy(mlp(3, 2, cells, nn.ReLU), action_features=1, low=-2.0, high=2.0)
    qvalue = ValueNetwork(mlp(3 + 1, 1, cells, nn.ReLU), in_keys=["observation", "action"])
    loss_module = SACLoss(
        actor, qvalue, gamma=args.gamma, loss_function="l2", alpha_init=args.alpha_init
    ).to(run.device)
    buffer = ReplayBuffer(
        args.buffer_size,
        batch_size=args.batch_size,
        keys=loss_module.in_keys,
        device=run.device,
    )

    trainer = Trainer(
        collector=VectorCollector(
            "Pendulum-v1",
            actor,
            num_envs=args.num_envs,
            frames_per_batch=args.num_envs * args.steps_per_batch,
            init_random_frames=args.init_random_frames,
        ),
        total_frames=args.total_frames,
        optim_steps_per_batch=args.optim_steps_per_batch,
        loss_module=loss_module,
        optimizer=FlatAdam(loss_module.parameters(), lr=args.lr),
        **run.trainer_options,
    )
    if args.compile:
        CompiledStep().register(trainer)
    LogEpisodes().register(trainer)
    ReplayBufferTrainer(buffer).register(trainer)
    TargetNetUpdaterHook(SoftUpdate(loss_module, tau=args.tau)).register(trainer)
    Evaluate(
        "Pendulum-v1", actor, every=Every(frames=args.eval_interval), episodes=args.eval_episodes
    ).register(trainer)
    run.train(trainer)


if __name__ == "__main__":
    launch(main)
