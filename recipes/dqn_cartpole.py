"""DQN solves CartPole, in seconds on one CPU core.

    python recipes/dqn_cartpole.py --seed 1
    python recipes/dqn_cartpole.py --prioritized

Everything a run leaves behind lies in its directory: config.yaml, run.json, metrics.csv, the
TensorBoard files and the checkpoints. The method is Deep Q-learning (Mnih et al., 2015) with double
Q-learning's targets (van Hasselt et al., 2016, arXiv:1509.06461) and, if asked for, prioritized
replay (Schaul et al., 2016, arXiv:1511.05952).
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
from hooktrainer.networks import EpsilonGreedy, QNetwork, mlp
from hooktrainer.objectives import DQNLoss, HardUpdate
from hooktrainer.optim import FlatAdam
from hooktrainer.replay import PrioritizedSampler, RandomSampler, ReplayBuffer
from hooktrainer.run import Run, RunConfig, launch


@dataclass(frozen=True, kw_only=True)
class Args(RunConfig):
    """Options of the run."""

    total_frames: int = 100_000
    """frames after which the run ends, solved or not"""
    num_envs: int = 8
    """number of parallel environments"""
    steps_per_batch: int = 8
    """steps per environment in each batch"""
    optim_steps_per_batch: int = 32
    """optimizer steps after each batch"""
    init_random_frames: int = 1_000
    """frames collected with random actions before the first optimizer step"""

    buffer_size: int = 100_000
    """capacity of the replay buffer, in transitions"""
    batch_size: int = 64
    """transitions per optimizer step"""
    prioritized: bool = False
    """whether to use prioritized replay"""
    alpha: float = 0.3
    """exponent of the priorities, which are squared TD errors; 0 for uniform sampling"""
    beta: float = 0.4
    """exponent of the importance weights, which correct the bias; 1 for all of it"""

    lr: float = 2.3e-3
    """learning rate"""
    num_cells: int = 256
    """units in each of the two hidden layers"""
    gamma: float = 0.99
    """discount factor"""
    target_interval: int = 100
    """optimizer steps between two updates of the target network"""
    double: bool = True
    """whether to use double Q-learning"""
    max_grad_norm: float = 10.0
    """the gradient is clipped to this norm"""

    eps_end: float = 0.04
    """final epsilon, the probability of a random action"""
    annealing_frames: int = 8_000
    """frames over which epsilon falls linearly from 1 to eps_end"""

    compile: Literal["step"] | None = None
    """compile the optimizer step with torch.compile: starts seconds later, then runs faster"""

    eval_interval: int = 1_000
    """frames between two evaluations"""
    eval_episodes: int = 100
    """episodes per evaluation, played by the greedy policy"""
    stop_at: float = 475.0
    """mean evaluation return at which the run stops, the task solved"""


def main(args: Args) -> None:
    torch.manual_seed(args.seed)
    run = Run(args, "dqn_cartpole")

    q_network = QNetwork(mlp(4, 2, (args.num_cells, args.num_cells), nn.ReLU))
    policy = EpsilonGreedy(
        q_network, eps_end=args.eps_end, annealing_num_steps=args.annealing_frames
    )
    loss_module = DQNLoss(
        q_network, gamma=args.gamma, loss_function="smooth_l1", double_dqn=args.double
    ).to(run.device)
    frames_per_batch = args.num_envs * args.steps_per_batch
    buffer = ReplayBuffer(
        args.buffer_size,
        batch_size=args.batch_size,
        sampler=PrioritizedSampler(args.buffer_size, args.alpha, args.beta)
        if args.prioritized
        else RandomSampler(),
        keys=loss_module.in_keys,
        device=run.device,
    )

    trainer = Trainer(
        collector=VectorCollector(
            "CartPole-v1",
            policy,
            num_envs=args.num_envs,
            frames_per_batch=frames_per_batch,
            init_random_frames=args.init_random_frames,
        ),
        total_frames=args.total_frames,
        optim_steps_per_batch=args.optim_steps_per_batch,
        loss_module=loss_module,
        optimizer=FlatAdam(loss_module.parameters(), lr=args.lr),
        clip_norm=args.max_grad_norm,
        **run.trainer_options,
    )
    if args.compile:
        CompiledStep().register(trainer)
    LogEpisodes().register(trainer)
    ReplayBufferTrainer(buffer).register(trainer)
    TargetNetUpdaterHook(
        HardUpdate(loss_module, value_network_update_interval=args.target_interval)
    ).register(trainer)
    Evaluate(
        "CartPole-v1",
        q_network,
        every=Every(frames=args.eval_interval),
        episodes=args.eval_episodes,
        stop_at=args.stop_at,
    ).register(trainer)
    run.train(trainer)


if __name__ == "__main__":
    launch(main)
