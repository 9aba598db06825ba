"""TorchRL's `PPOTrainer` on CartPole-v1, with TensorBoard logging."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
import tyro
from measure import Meter, Run
from tensordict.nn import TensorDictModule
from torch import nn
from torch.distributions import Categorical
from torchrl.collectors import Collector
from torchrl.data import LazyTensorStorage, SamplerWithoutReplacement, TensorDictReplayBuffer
from torchrl.modules import ProbabilisticActor, ValueOperator
from torchrl.objectives import ClipPPOLoss
from torchrl.record.loggers.tensorboard import TensorboardLogger
from torchrl.trainers.algorithms import PPOTrainer
from torchrl_env import Tick, cartpole


@dataclass(kw_only=True)
class Args(Run):
    """Options of the TorchRL PPO run."""

    settings: Literal["matched", "zoo"] = "matched"
    """the settings that all peers share, or those of RL Baselines3 Zoo"""
    env: Literal["default", "lean", "vector"] = "default"
    """how the environments are built: see `torchrl_env.cartpole`"""
    num_envs: int | None = None
    """number of environments, if not that of the settings"""
    width: int = 64
    """units in each hidden layer of the actor and of the critic"""


def mlp(width: int, out: int, gain: float) -> nn.Sequential:
    """Return a network 4 -> width -> width -> out with tanh and orthogonal weights."""
    layers = [nn.Linear(4, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh()]
    layers.append(nn.Linear(width, out))
    for layer, scale in zip(layers[::2], (2**0.5, 2**0.5, gain), strict=True):
        nn.init.orthogonal_(layer.weight, scale)
        nn.init.zeros_(layer.bias)
    return nn.Sequential(*layers)


def main(args: Args) -> None:
    """Train, and print the result as one line of JSON."""
    warnings.filterwarnings("ignore")
    args.prepare()
    zoo = args.settings == "zoo"
    num_envs = args.num_envs or (8 if zoo else 4)
    size = num_envs * (32 if zoo else 128)
    env = cartpole(args.env, num_envs, args.seed)
    policy_network = mlp(args.width, 2, 0.01)
    actor = ProbabilisticActor(
        TensorDictModule(policy_network, ["observation"], ["logits"]),
        in_keys=["logits"],
        spec=env.action_spec,
        distribution_class=Categorical,
        return_log_prob=True,
    )
    critic = ValueOperator(mlp(args.width, 1, 1.0), in_keys=["observation"])
    loss = ClipPPOLoss(
        actor,
        critic,
        clip_epsilon=0.2,
        entropy_coeff=0.0 if zoo else 0.01,
        critic_coeff=0.5,
        loss_critic_type="l2",
        normalize_advantage=True,
    )
    optimizer = torch.optim.Adam(loss.parameters(), lr=1e-3 if zoo else 2.5e-4, eps=1e-5)
    batches = args.frames // size
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 1e-8, batches) if zoo else None
    trainer = PPOTrainer(
        collector=Collector(env, actor, frames_per_batch=size, total_frames=-1),
        total_frames=args.frames,
        frame_skip=1,
        optim_steps_per_batch=None,
        loss_module=loss,
        optimizer=optimizer,
        lr_scheduler=schedule,
        logger=TensorboardLogger("torchrl_ppo", log_dir=str(args.log_dir)),
        clip_norm=0.5,
        progress_bar=False,
        num_epochs=20 if zoo else 4,
        gamma=0.98 if zoo else 0.99,
        lmbda=0.8 if zoo else 0.95,
        episode_reward_key="reward_sum",
        replay_buffer=TensorDictReplayBuffer(
            storage=LazyTensorStorage(size),
            sampler=SamplerWithoutReplacement(),
            batch_size=size if zoo else size // 4,
        ),
    )

    @torch.no_grad()
    def act(observation: np.ndarray) -> np.ndarray:
        return policy_network(torch.from_numpy(observation)).argmax(-1).numpy()

    meter = Meter(args, "CartPole-v1")
    Tick(meter, trainer, act).register()
    meter.start()
    trainer.train()
    meter.print()


if __name__ == "__main__":
    main(tyro.cli(Args))
