"""TorchRL's `SACTrainer` on Pendulum-v1, one gradient step per frame, with TensorBoard logging."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import torch
import tyro
from measure import Meter, Run
from tensordict.nn import NormalParamExtractor, TensorDictModule
from torch import nn
from torchrl.collectors import Collector
from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
from torchrl.modules import MLP, ProbabilisticActor, TanhNormal, ValueOperator
from torchrl.objectives import SACLoss, SoftUpdate
from torchrl.record.loggers.tensorboard import TensorboardLogger
from torchrl.trainers.algorithms import SACTrainer
from torchrl_env import Tick, pendulum


@dataclass(kw_only=True)
class Args(Run):
    """Options of the TorchRL SAC run."""

    frames_per_batch: int = 1
    """frames that are collected, and gradient steps that are made, per iteration"""


def main(args: Args) -> None:
    """Train, and print the result as one line of JSON."""
    warnings.filterwarnings("ignore")
    args.prepare()
    env = pendulum(args.seed)
    trunk = MLP(3, 2, num_cells=[256, 256], activation_class=nn.ReLU)
    actor = ProbabilisticActor(
        TensorDictModule(
            nn.Sequential(trunk, NormalParamExtractor()), ["observation"], ["loc", "scale"]
        ),
        in_keys=["loc", "scale"],
        spec=env.action_spec_unbatched,
        distribution_class=TanhNormal,
        distribution_kwargs={"low": -2.0, "high": 2.0},
        return_log_prob=True,
    )
    value = ValueOperator(
        MLP(4, 1, num_cells=[256, 256], activation_class=nn.ReLU),
        in_keys=["observation", "action"],
    )
    loss = SACLoss(
        actor,
        value,
        loss_function="l2",
        delay_qvalue=True,
        num_qvalue_nets=2,
        action_spec=env.action_spec_unbatched,
    )
    loss.make_value_estimator(gamma=0.99)
    trainer = SACTrainer(
        collector=Collector(
            env,
            actor,
            frames_per_batch=args.frames_per_batch,
            total_frames=-1,
            init_random_frames=100,
        ),
        total_frames=args.frames,
        frame_skip=1,
        optim_steps_per_batch=args.frames_per_batch,
        loss_module=loss,
        optimizer=torch.optim.Adam(loss.parameters(), lr=1e-3),
        logger=TensorboardLogger("torchrl_sac", log_dir=str(args.log_dir)),
        clip_grad_norm=False,
        progress_bar=False,
        replay_buffer=TensorDictReplayBuffer(
            storage=LazyTensorStorage(args.frames), batch_size=256
        ),
        target_net_updater=SoftUpdate(loss, tau=0.005),
    )

    @torch.no_grad()
    def act(observation: np.ndarray) -> np.ndarray:
        mean = trunk(torch.from_numpy(observation).float())[:, :1]
        return 2.0 * mean.tanh().numpy()

    meter = Meter(args, "Pendulum-v1")
    Tick(meter, trainer, act, every=100).register()
    meter.start()
    trainer.train()
    meter.print()


if __name__ == "__main__":
    main(tyro.cli(Args))
