"""Collects a data set of Pendulum, good and bad episodes mixed, for the offline recipes.

    python recipes/collect_pendulum.py --dataset data/pendulum

The data are everything that SAC sees while it learns the task (Haarnoja et al., 2018,
arXiv:1812.05905): random actions at first, good ones in the end, with a mean return half-way
between. The file has a plain format, safetensors.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from hooktrainer import (
    LogEpisodes,
    ReplayBufferTrainer,
    TargetNetUpdaterHook,
    Trainer,
    VectorCollector,
)
from hooktrainer.data import RecordDataset
from hooktrainer.networks import TanhGaussianPolicy, ValueNetwork, mlp
from hooktrainer.objectives import SACLoss, SoftUpdate
from hooktrainer.replay import ReplayBuffer
from hooktrainer.run import Run, RunConfig, launch


@dataclass(frozen=True, kw_only=True)
class Args(RunConfig):
    """Options of the run."""

    dataset: Path = Path("data/pendulum")
    """file to write, which must not exist yet"""
    total_frames: int = 12_000
    """transitions of the data set"""
    num_envs: int = 4
    """number of parallel environments"""
    steps_per_batch: int = 4
    """steps per environment in each batch"""
    optim_steps_per_batch: int = 8
    """optimizer steps after each batch"""
    init_random_frames: int = 2_000
    """frames collected with random actions before the first optimizer step"""

    batch_size: int = 256
    """transitions per optimizer step"""
    lr: float = 1e-3
    """learning rate of the actor, the Q-functions and the temperature"""
    num_cells: int = 64
    """units in each of the two hidden layers"""
    gamma: float = 0.99
    """discount factor"""
    tau: float = 0.01
    """rate of the soft updates of the target networks, one per optimizer step"""


def main(args: Args) -> None:
    torch.manual_seed(args.seed)
    run = Run(args, "collect_pendulum")

    cells = (args.num_cells, args.num_cells)
    actor = TanhGaussianPolicy(mlp(3, 2, cells, nn.ReLU), action_features=1, low=-2.0, high=2.0)
    qvalue = ValueNetwork(mlp(3 + 1, 1, cells, nn.ReLU), in_keys=["observation", "action"])
    loss_module = SACLoss(actor, qvalue, gamma=args.gamma, loss_function="l2").to(run.device)
    buffer = ReplayBuffer(
        100_000, batch_size=args.batch_size, keys=loss_module.in_keys, device=run.device
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
        optimizer=torch.optim.Adam(loss_module.parameters(), lr=args.lr, fused=True),
        **run.trainer_options,
    )
    LogEpisodes().register(trainer)
    RecordDataset(
        args.dataset, env="Pendulum-v1", description=f"SAC while it learns, seed {args.seed}"
    ).register(trainer)
    ReplayBufferTrainer(buffer).register(trainer)
    TargetNetUpdaterHook(SoftUpdate(loss_module, tau=args.tau)).register(trainer)
    run.train(trainer)


if __name__ == "__main__":
    launch(main)
