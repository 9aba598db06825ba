"""IQL learns to swing up Pendulum from a data set alone, without a step of its own.

    python recipes/iql_pendulum.py --seed 1
    python recipes/iql_pendulum.py --dataset minari:<id>

The data set is made first if it is not there (collect_pendulum.py); one of Minari's has to be of
Pendulum as well. run.json holds the mean return of its episodes, data/return, next to that of the
learned policy, eval/return. The method is Implicit Q-Learning (Kostrikov et al., 2021,
arXiv:2110.06169).
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from hooktrainer import Evaluate, Every, TargetNetUpdaterHook, Trainer
from hooktrainer.data import DataCollector, load_dataset
from hooktrainer.networks import Box, DiagonalGaussianPolicy, ValueNetwork, mlp
from hooktrainer.objectives import IQLLoss, SoftUpdate
from hooktrainer.optim import FlatAdam
from hooktrainer.run import Run, RunConfig, launch


@dataclass(frozen=True, kw_only=True)
class Args(RunConfig):
    """Options of the run."""

    dataset: str = "data/pendulum"
    """file of the data set, which is made if it is not there; or minari:<id>"""
    total_frames: int = 2_560_000
    """transitions to train on, batch_size at every optimizer step"""
    batch_size: int = 256
    """transitions per optimizer step"""
    lr: float = 1e-3
    """learning rate of all networks"""
    num_cells: int = 128
    """units in each of the two hidden layers"""
    gamma: float = 0.99
    """discount factor"""
    tau: float = 0.01
    """rate of the soft updates of the target networks, one per optimizer step"""
    expectile: float = 0.95
    """expectile of the Q-values that the value function is fitted to; above 0.5"""
    temperature: float = 1.0
    """inverse temperature of the actor's weights, exp(temperature * advantage)"""

    eval_interval: int = 256_000
    """transitions between two evaluations"""
    eval_episodes: int = 20
    """episodes per evaluation, played by the deterministic policy"""
    log_interval: int = 128_000
    """transitions in a log window"""
    save_interval: int = 512_000
    """transitions between two checkpoints"""


def main(args: Args) -> None:
    if not (args.dataset.startswith("minari:") or Path(args.dataset).exists()):
        script = Path(__file__).with_name("collect_pendulum.py")
        subprocess.run([sys.executable, str(script), "--dataset", args.dataset], check=True)
    dataset = load_dataset(args.dataset)
    torch.manual_seed(args.seed)
    run = Run(args, "iql_pendulum", collects=False)

    cells = (args.num_cells, args.num_cells)
    mean = nn.Sequential(mlp(3, 1, cells, nn.ReLU), Box(1, low=-2.0, high=2.0))
    actor = DiagonalGaussianPolicy(mean, action_features=1)
    qvalue = ValueNetwork(mlp(3 + 1, 1, cells, nn.ReLU), in_keys=["observation", "action"])
    loss_module = IQLLoss(
        actor,
        qvalue,
        ValueNetwork(mlp(3, 1, cells, nn.ReLU)),
        temperature=args.temperature,
        expectile=args.expectile,
        gamma=args.gamma,
        loss_function="l2",
    ).to(run.device)

    trainer = Trainer(
        collector=DataCollector(
            dataset.select(loss_module.in_keys),
            args.batch_size,
            replacement=True,
            device=run.device,
        ),
        total_frames=args.total_frames,
        optim_steps_per_batch=1,
        loss_module=loss_module,
        optimizer=FlatAdam(loss_module.parameters(), lr=args.lr),
        **run.trainer_options,
    )
    TargetNetUpdaterHook(SoftUpdate(loss_module, tau=args.tau)).register(trainer)
    trainer.register_op(
        "post_steps_log", dataset.log, every=Every(frames=args.eval_interval, at_start=True)
    )
    Evaluate(
        "Pendulum-v1", actor, every=Every(frames=args.eval_interval), episodes=args.eval_episodes
    ).register(trainer)
    run.train(trainer)


if __name__ == "__main__":
    launch(main)
