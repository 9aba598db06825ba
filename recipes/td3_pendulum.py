"""TD3 swings up Pendulum, in half a minute on one CPU core.

    python recipes/td3_pendulum.py --seed 1

Everything a run leaves behind lies in its directory: config.yaml, run.json, metrics.csv, the
TensorBoard files and the checkpoints. The method is Twin Delayed Deep Deterministic policy gradient
(Fujimoto et al., 2018, arXiv:1802.09477).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from hooktrainer import (
    Evaluate,
    Every,
    LogEpisodes,
    ReplayBufferTrainer,
    Trainer,
    VectorCollector,
)
from hooktrainer.modules import AdditiveGaussian, DeterministicPolicy, ValueNetwork, mlp
from hooktrainer.objectives import SoftUpdate, TD3Loss
from hooktrainer.recipe import Run, RunArgs, launch
from hooktrainer.replay import ReplayBuffer


@dataclass
class Args(RunArgs):
    """Options of the run."""

    total_frames: int = 20_000
    """frames after which the run ends"""
    num_envs: int = 4
    """environments stepped side by side"""
    steps_per_batch: int = 4
    """steps of each environment in a batch"""
    optim_steps_per_batch: int = 8
    """optimizer steps after each batch"""
    init_random_frames: int = 800
    """frames collected with random actions before the first optimizer step"""

    buffer_size: int = 100_000
    """transitions kept; then the oldest are overwritten"""
    batch_size: int = 256
    """transitions per optimizer step"""
    lr: float = 1e-3
    """learning rate of the actor and the Q-functions"""
    num_cells: int = 128
    """width of the two hidden layers"""
    gamma: float = 0.99
    """discount factor"""
    tau: float = 0.01
    """how far the target networks move at every move"""
    policy_delay: int = 2
    """optimizer steps of which the last moves the actor and the targets"""
    policy_noise: float = 0.2
    """deviation of the noise on the target's action, in halves of the range of actions"""
    noise_clip: float = 0.5
    """greatest noise on the target's action, in halves of the range of actions"""
    sigma: float = 0.1
    """deviation of the noise by which the policy explores, in halves of the range of actions"""

    compile: bool = False
    """whether to compile the loss: slower for seconds, faster for a long run"""

    eval_interval: int = 1_000
    """frames between two evaluations"""
    eval_episodes: int = 20
    """episodes per evaluation, played by the deterministic policy"""


def main(args: Args) -> None:
    torch.set_num_threads(1)  # networks this small only lose time to several
    torch.manual_seed(args.seed)
    run = Run(args, "td3_pendulum")

    cells = (args.num_cells, args.num_cells)
    actor = DeterministicPolicy(mlp(3, 1, cells, nn.ReLU), action_features=1, low=-2.0, high=2.0)
    policy = AdditiveGaussian(actor, args.sigma)
    qvalue = ValueNetwork(mlp(3 + 1, 1, cells, nn.ReLU), in_keys=["observation", "action"])
    loss_module = TD3Loss(
        actor,
        qvalue,
        policy_delay=args.policy_delay,
        policy_noise=args.policy_noise,
        noise_clip=args.noise_clip,
        gamma=args.gamma,
        loss_function="l2",
    )
    if args.compile:
        loss_module.compile()
    buffer = ReplayBuffer(args.buffer_size, batch_size=args.batch_size, keys=loss_module.in_keys)

    trainer = Trainer(
        collector=VectorCollector(
            "Pendulum-v1",
            policy,
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
    ReplayBufferTrainer(buffer).register(trainer)
    trainer.register_op(
        "post_optim",
        SoftUpdate(loss_module, tau=args.tau).step,
        every=Every(optim_steps=args.policy_delay),
    )
    Evaluate(
        "Pendulum-v1", actor, every=Every(frames=args.eval_interval), episodes=args.eval_episodes
    ).register(trainer)
    run.train(trainer)


if __name__ == "__main__":
    launch(main)
