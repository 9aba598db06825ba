"""TorchRL's `DQNTrainer` on CartPole-v1, one gradient step per frame, with TensorBoard logging."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
import tyro
from measure import Meter, Run
from tensordict.nn import TensorDictSequential
from torch import nn
from torchrl.collectors import Collector
from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
from torchrl.modules import EGreedyModule, QValueActor
from torchrl.objectives import DQNLoss, HardUpdate
from torchrl.record.loggers.tensorboard import TensorboardLogger
from torchrl.trainers.algorithms import DQNTrainer
from torchrl_env import Tick, cartpole


@dataclass(kw_only=True)
class Args(Run):
    """Options of the TorchRL DQN run."""

    env: Literal["default", "lean"] = "default"
    """how the environment is built: see `torchrl_env.cartpole`"""
    frames_per_batch: int = 1
    """frames that are collected, and gradient steps that are made, per iteration"""


def main(args: Args) -> None:
    """Train, and print the result as one line of JSON."""
    warnings.filterwarnings("ignore")
    args.prepare()
    env = cartpole(args.env, 1, args.seed)
    network = nn.Sequential(
        nn.Linear(4, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 2)
    )
    actor = QValueActor(network, in_keys=["observation"], spec=env.action_spec_unbatched)
    greedy = EGreedyModule(
        env.action_spec_unbatched, eps_init=1.0, eps_end=0.05, annealing_num_steps=args.frames // 2
    )
    loss = DQNLoss(actor, loss_function="l2", delay_value=True)
    loss.make_value_estimator(gamma=0.99)
    trainer = DQNTrainer(
        collector=Collector(
            env,
            TensorDictSequential(actor, greedy),
            frames_per_batch=args.frames_per_batch,
            total_frames=-1,
            init_random_frames=1_000,
        ),
        total_frames=args.frames,
        frame_skip=1,
        optim_steps_per_batch=args.frames_per_batch,
        loss_module=loss,
        optimizer=torch.optim.Adam(loss.parameters(), lr=2.5e-4),
        logger=TensorboardLogger("torchrl_dqn", log_dir=str(args.log_dir)),
        clip_grad_norm=True,
        clip_norm=10.0,
        progress_bar=False,
        replay_buffer=TensorDictReplayBuffer(storage=LazyTensorStorage(10_000), batch_size=128),
        target_net_updater=HardUpdate(loss, value_network_update_interval=500),
        greedy_module=greedy,
    )

    @torch.no_grad()
    def act(observation: np.ndarray) -> np.ndarray:
        return network(torch.from_numpy(observation)).argmax(-1).numpy()

    meter = Meter(args, "CartPole-v1")
    Tick(meter, trainer, act, every=100).register()
    meter.start()
    trainer.train()
    meter.print()


if __name__ == "__main__":
    main(tyro.cli(Args))
