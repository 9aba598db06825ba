"""hooktrainer's DQN on CartPole-v1, one gradient step a frame, with CSV and TensorBoard logging."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import tyro
from measure import Meter, Run
from ours import LOG_INTERVAL, Tick, make_logger
from torch import nn

from hooktrainer import (
    CompiledStep,
    LogEpisodes,
    OptimizerHook,
    ReplayBufferTrainer,
    TargetNetUpdaterHook,
    Trainer,
    VectorCollector,
)
from hooktrainer.networks import EpsilonGreedy, QNetwork, mlp
from hooktrainer.objectives import DQNLoss, HardUpdate
from hooktrainer.optim import FlatAdam
from hooktrainer.replay import ReplayBuffer


@dataclass(kw_only=True)
class Args(Run):
    """Options of the hooktrainer DQN run."""

    frames_per_batch: int = 16
    """frames that are collected, and gradient steps that are made, per iteration"""
    compile: bool = False
    """compile the optimizer step"""


def main(args: Args) -> None:
    """Train, and print the result as one line of JSON."""
    args.prepare()
    q_network = QNetwork(mlp(4, 2, (120, 84), nn.ReLU))
    policy = EpsilonGreedy(
        q_network, eps_init=1.0, eps_end=0.05, annealing_num_steps=args.frames // 2
    )
    loss_module = DQNLoss(q_network, gamma=0.99, loss_function="l2")
    trainer = Trainer(
        collector=VectorCollector(
            "CartPole-v1",
            policy,
            num_envs=1,
            frames_per_batch=args.frames_per_batch,
            init_random_frames=1_000,
        ),
        total_frames=args.frames,
        optim_steps_per_batch=args.frames_per_batch,
        loss_module=loss_module,
        logger=make_logger(args),
        log_interval=LOG_INTERVAL,
        progress_bar=False,
        seed=args.seed,
    )
    if args.compile:
        CompiledStep().register(trainer)
    LogEpisodes().register(trainer)
    OptimizerHook(FlatAdam(loss_module.parameters(), lr=2.5e-4), grad_norm=False).register(trainer)
    ReplayBufferTrainer(ReplayBuffer(10_000, batch_size=128, keys=loss_module.in_keys)).register(
        trainer
    )
    updater = HardUpdate(loss_module, value_network_update_interval=500)
    TargetNetUpdaterHook(updater).register(trainer)
    trainer.register_op("post_steps", lambda: policy.step(args.frames_per_batch))

    @torch.no_grad()
    def act(observation: np.ndarray) -> np.ndarray:
        return q_network.network(torch.from_numpy(observation)).argmax(-1).numpy()

    meter = Meter(args, "CartPole-v1")
    Tick(meter, act, every=100).register(trainer)
    meter.start()
    trainer.train()
    meter.print()


if __name__ == "__main__":
    main(tyro.cli(Args))
