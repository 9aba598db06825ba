"""CQL learns to swing up Pendulum from a data set alone, without a step of its own.

    python recipes/cql_pendulum.py --seed 1
    python recipes/cql_pendulum.py --dataset minari:<id>

The data set is made first if it is not there (collect_pendulum.py); one of Minari's has to be of
Pendulum as well. run.json holds the mean return of its episodes, data/return, beside that of the
learned policy, eval/return. The method is Conservative Q-Learning (Kumar et al., 2020,
arXiv:2006.04779).
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from hooktrainer import Evaluate, Every, TargetNetUpdaterHook, Trainer
from hooktrainer.networks import TanhGaussianPolicy, ValueNetwork, mlp
from hooktrainer.objectives import CQLLoss, SoftUpdate
from hooktrainer.replay.datasets import DatasetCollector, load_dataset
from hooktrainer.run.recipe import Run, RunArgs, launch


@dataclass
class Args(RunArgs):
    """Options of the run."""

    dataset: str = "data/pendulum"
    """directory of the data set, which is made if it is not there; or minari:<id>"""
    total_frames: int = 2_560_000
    """transitions to train on, batch_size at every optimizer step"""
    batch_size: int = 256
    """transitions per optimizer step"""
    lr: float = 1e-3
    """learning rate of all networks"""
    num_cells: int = 64
    """units in each of the two hidden layers"""
    gamma: float = 0.99
    """discount factor"""
    tau: float = 0.01
    """rate of the soft updates of the target networks, one per optimizer step"""
    min_q_weight: float = 1.0
    """weight of the penalty on Q-values of actions that are not in the data"""
    num_random: int = 4
    """actions sampled from each of three distributions to estimate that penalty"""

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
    run = Run(args, "cql_pendulum", collects=False)

    cells = (args.num_cells, args.num_cells)
    actor = TanhGaussianPolicy(mlp(3, 2, cells, nn.ReLU), action_features=1, low=-2.0, high=2.0)
    qvalue = ValueNetwork(mlp(3 + 1, 1, cells, nn.ReLU), in_keys=["observation", "action"])
    loss_module = CQLLoss(
        actor,
        qvalue,
        min_q_weight=args.min_q_weight,
        num_random=args.num_random,
        gamma=args.gamma,
        loss_function="l2",
    ).to(run.device)

    trainer = Trainer(
        collector=DatasetCollector(
            dataset, args.batch_size, loss_module.in_keys, device=run.device
        ),
        total_frames=args.total_frames,
        optim_steps_per_batch=1,
        loss_module=loss_module,
        optimizer=torch.optim.Adam(loss_module.parameters(), lr=args.lr, fused=True),
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
