"""PPO balances mjlab's cart pole, whose environments MuJoCo Warp steps as tensors.

    pip install mjlab                                # which brings MuJoCo Warp and rsl_rl
    python recipes/ppo_mjlab_cartpole.py --seed 1    # on a CPU, after minutes of compiling
    python recipes/ppo_mjlab_cartpole.py --num-envs 4096 --simulate-on cuda:0 \
        --placement 'learner: gpu:0'                 # on a GPU

Observations come in two groups, one for the policy, with noise, and one for the value network. The
settings are those that mjlab has for rsl_rl, the learning rate that follows the divergence between
the policies included (Schulman et al., 2017, arXiv:1707.06347; Rudin et al., 2021,
arXiv:2109.11978). A resumed run begins new episodes, since the simulator cannot be saved.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn

from hooktrainer import (
    KLAdaptiveLR,
    LogEpisodes,
    MiniBatches,
    Trainer,
    ValueEstimatorHook,
    VectorCollector,
)
from hooktrainer.collect.worlds import RslRlWorld
from hooktrainer.errors import MissingPackageError
from hooktrainer.networks import DiagonalGaussianPolicy, ValueNetwork, mlp
from hooktrainer.objectives import GAE, ClipPPOLoss
from hooktrainer.optim import FlatAdam
from hooktrainer.run import Run, RunConfig, launch


@dataclass(frozen=True, kw_only=True)
class Args(RunConfig):
    """Options of the run."""

    total_frames: int = 500_000
    """frames after which the run ends"""
    task: Literal["Mjlab-Cartpole-Balance", "Mjlab-Cartpole-Swingup"] = "Mjlab-Cartpole-Balance"
    """mjlab's name of the task"""
    simulate_on: str = "cpu"
    """the device that the environments are simulated on"""
    num_envs: int = 64
    """number of parallel environments"""
    steps_per_batch: int = 32
    """steps per environment in each batch"""
    num_epochs: int = 5
    """epochs over each batch"""
    mini_batches: int = 4
    """mini-batches of each epoch"""

    lr: float = 1e-3
    """initial learning rate"""
    desired_kl: float = 0.01
    """divergence from the policy that collected, which the learning rate follows"""
    gamma: float = 0.99
    """discount factor"""
    lmbda: float = 0.95
    """lambda of generalized advantage estimation"""
    clip_epsilon: float = 0.2
    """clipping range of the probability ratio, and of the change of values"""
    entropy_coeff: float = 0.01
    """weight of the entropy bonus"""
    max_grad_norm: float = 1.0
    """the gradient is clipped to this norm"""


def simulator(args: Args) -> RslRlWorld:
    """All environments, as mjlab's own training script makes them."""
    try:
        import mjlab.tasks  # noqa: F401  which knows them by their names
        from mjlab.envs import ManagerBasedRlEnv
        from mjlab.rl import RslRlVecEnvWrapper
        from mjlab.tasks.registry import load_env_cfg
    except ImportError as error:
        raise MissingPackageError(
            f"mjlab: {error}. It is there after: pip install mjlab"
        ) from error
    config = load_env_cfg(args.task)
    config.scene.num_envs, config.seed = args.num_envs, args.seed
    env = ManagerBasedRlEnv(cfg=config, device=args.simulate_on)
    return RslRlWorld(RslRlVecEnvWrapper(env), random_episode_lengths=True)


def main(args: Args) -> None:
    torch.manual_seed(args.seed)
    run = Run(args, "ppo_mjlab_cartpole")
    world = simulator(args)

    observed = {key: space.shape[0] for key, space in world.observation_space.spaces.items()}
    (seen,) = (key for key in observed if key != "critic")
    cells, actions = (64, 64), world.action_space.shape[0]
    actor = DiagonalGaussianPolicy(
        mlp(observed[seen], actions, cells, nn.ELU), actions, in_keys=[seen]
    )
    critic = ValueNetwork(mlp(observed["critic"], 1, cells, nn.ELU), in_keys=["critic"])
    loss_module = ClipPPOLoss(
        actor,
        critic,
        clip_epsilon=args.clip_epsilon,
        clip_value=True,
        entropy_coeff=args.entropy_coeff,
        critic_coeff=1.0,
        loss_critic_type="l2",
        normalize_advantage=True,
        kl=True,  # which KLAdaptiveLR reads
    ).to(run.device)
    optimizer = FlatAdam(loss_module.parameters(), lr=args.lr)
    frames_per_batch = args.num_envs * args.steps_per_batch

    trainer = Trainer(
        collector=VectorCollector(
            world, actor, num_envs=args.num_envs, frames_per_batch=frames_per_batch
        ),
        total_frames=args.total_frames,
        num_epochs=args.num_epochs,
        optim_steps_per_batch=None,  # as many as there are mini-batches
        loss_module=loss_module,
        optimizer=optimizer,
        clip_norm=args.max_grad_norm,
        **run.trainer_options,
    )
    LogEpisodes().register(trainer)
    ValueEstimatorHook(GAE(gamma=args.gamma, lmbda=args.lmbda, value_network=critic)).register(
        trainer
    )
    MiniBatches(frames_per_batch // args.mini_batches, loss_module.in_keys).register(trainer)
    KLAdaptiveLR(optimizer, desired_kl=args.desired_kl).register(trainer)
    run.train(trainer)


if __name__ == "__main__":
    launch(main)
