"""hooktrainer's SAC and TD3 on Pendulum-v1, one gradient step a frame, with CSV and TensorBoard."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
import tyro
from measure import Meter, Run
from ours import LOG_INTERVAL, Tick, make_logger
from torch import nn

from hooktrainer import (
    CompiledStep,
    Every,
    LogEpisodes,
    OptimizerHook,
    ReplayBufferTrainer,
    TargetNetUpdaterHook,
    Trainer,
    VectorCollector,
)
from hooktrainer.networks import (
    AdditiveGaussian,
    DeterministicPolicy,
    TanhGaussianPolicy,
    ValueNetwork,
    mlp,
)
from hooktrainer.objectives import SACLoss, SoftUpdate, TD3Loss
from hooktrainer.optim import FlatAdam
from hooktrainer.replay import ReplayBuffer


@dataclass(kw_only=True)
class Args(Run):
    """Options of the hooktrainer runs."""

    algorithm: Literal["sac", "td3"] = "sac"
    """what to train"""
    frames_per_batch: int = 16
    """frames that are collected, and gradient steps that are made, per iteration"""
    compile: bool = False
    """compile the optimizer step"""


def main(args: Args) -> None:
    """Train, and print the result as one line of JSON."""
    args.prepare()
    cells = (256, 256)
    qvalue = ValueNetwork(mlp(4, 1, cells, nn.ReLU), in_keys=["observation", "action"])
    if args.algorithm == "sac":
        actor = TanhGaussianPolicy(mlp(3, 2, cells, nn.ReLU), action_features=1, low=-2.0, high=2.0)
        explores = actor
        loss_module = SACLoss(actor, qvalue, gamma=0.99, loss_function="l2")
    else:
        actor = DeterministicPolicy(
            mlp(3, 1, cells, nn.ReLU), action_features=1, low=-2.0, high=2.0
        )
        explores = AdditiveGaussian(actor, 0.1)
        loss_module = TD3Loss(actor, qvalue, gamma=0.99, loss_function="l2")
    trainer = Trainer(
        collector=VectorCollector(
            "Pendulum-v1",
            explores,
            num_envs=1,
            frames_per_batch=args.frames_per_batch,
            init_random_frames=100,
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
    # A group each: TD3's actor has a gradient at every second step only.
    own = list(actor.parameters())
    acts = set(own)
    others = [p for p in loss_module.parameters() if p not in acts]
    optimizer = FlatAdam([{"params": own}, {"params": others}], lr=1e-3)
    OptimizerHook(optimizer, grad_norm=False).register(trainer)
    ReplayBufferTrainer(
        ReplayBuffer(args.frames, batch_size=256, keys=loss_module.in_keys)
    ).register(trainer)
    delay = Every(optim_steps=2) if args.algorithm == "td3" else None
    TargetNetUpdaterHook(SoftUpdate(loss_module, tau=0.005), every=delay).register(trainer)

    @torch.no_grad()
    def act(observation: np.ndarray) -> np.ndarray:
        mean = actor.network(torch.from_numpy(observation).float())[:, :1]  # before the tanh
        return 2.0 * mean.tanh().numpy()

    meter = Meter(args, "Pendulum-v1")
    Tick(meter, act, every=100).register(trainer)
    meter.start()
    trainer.train()
    meter.print()


if __name__ == "__main__":
    main(tyro.cli(Args))
