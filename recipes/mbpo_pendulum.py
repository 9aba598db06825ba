"""Model-based: swings up Pendulum within some thousand frames, by training on imagined ones.

    python recipes/mbpo_pendulum.py --seed 1

Everything a run leaves behind lies in its directory: config.yaml, run.json, metrics.csv, the
TensorBoard files and the checkpoints. The method is model-based policy optimization (Janner et al.,
2019, arXiv:1906.08253): an ensemble of networks learns what the environment does, and Soft
Actor-Critic (Haarnoja et al., 2018, arXiv:1812.05905) trains mostly on what the ensemble imagines.
One hook, `ModelRollouts`, makes the difference to recipes/sac_pendulum.py.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from hooktrainer import (
    Evaluate,
    Every,
    LogEpisodes,
    ModelRollouts,
    ReplayBufferTrainer,
    TargetNetUpdaterHook,
    Trainer,
    VectorCollector,
)
from hooktrainer.networks import DynamicsEnsemble, TanhGaussianPolicy, ValueNetwork, mlp
from hooktrainer.objectives import SACLoss, SoftUpdate
from hooktrainer.optim import FlatAdam
from hooktrainer.replay import ReplayBuffer
from hooktrainer.run import Run, RunConfig, launch


@dataclass(frozen=True, kw_only=True)
class Args(RunConfig):
    """Options of the run."""

    log_interval: int = 400
    """frames in a log window"""
    save_interval: int = 1_000
    """frames between two checkpoints"""

    total_frames: int = 4_000
    """frames after which the run ends"""
    num_envs: int = 2
    """number of parallel environments"""
    steps_per_batch: int = 10
    """steps per environment in each batch"""
    optim_steps_per_batch: int = 100
    """optimizer steps after each batch"""
    init_random_frames: int = 400
    """frames collected with random actions before the first optimizer step"""

    fit_interval: int = 200
    """frames between two fits of the model"""
    fit_steps: int = 200
    """optimizer steps of each fit"""
    num_models: int = 5
    """dynamics networks in the ensemble"""
    num_rollouts: int = 4_000
    """model rollouts after each fit"""
    horizon: int = 2
    """steps of a model rollout"""
    real_ratio: float = 0.1
    """fraction of each batch that is real, not from model rollouts"""

    batch_size: int = 256
    """transitions per optimizer step"""
    lr: float = 1e-3
    """learning rate of the actor, the Q-functions, the temperature and the model"""
    num_cells: int = 128
    """units in each of the two hidden layers"""
    gamma: float = 0.99
    """discount factor"""
    tau: float = 0.01
    """rate of the soft updates of the target networks, one per optimizer step"""

    eval_interval: int = 400
    """frames between two evaluations"""
    eval_episodes: int = 20
    """episodes per evaluation, played by the deterministic policy"""


def main(args: Args) -> None:
    torch.manual_seed(args.seed)
    run = Run(args, "mbpo_pendulum")

    cells = (args.num_cells, args.num_cells)
    actor = TanhGaussianPolicy(mlp(3, 2, cells, nn.ReLU), action_features=1, low=-2.0, high=2.0)
    qvalue = ValueNetwork(mlp(3 + 1, 1, cells, nn.ReLU), in_keys=["observation", "action"])
    loss_module = SACLoss(actor, qvalue, gamma=args.gamma, loss_function="l2").to(run.device)
    kept = {"keys": loss_module.in_keys, "device": run.device}
    real = round(args.real_ratio * args.batch_size)
    replay_buffer = ReplayBuffer(args.total_frames, batch_size=real, **kept)
    model_buffer = ReplayBuffer(
        4 * args.num_rollouts * args.horizon, batch_size=args.batch_size - real, **kept
    )

    trainer = Trainer(
        collector=VectorCollector(
            "Pendulum-v1",
            actor,
            num_envs=args.num_envs,
            frames_per_batch=args.num_envs * args.steps_per_batch,
            init_random_frames=args.init_random_frames,
        ),
        total_frames=args.total_frames,
        optim_steps_per_batch=args.optim_steps_per_batch,
        loss_module=loss_module,
        optimizer=FlatAdam(loss_module.parameters(), lr=args.lr),
        **run.trainer_options,
    )
    LogEpisodes().register(trainer)
    ReplayBufferTrainer(replay_buffer).register(trainer)
    ModelRollouts(
        DynamicsEnsemble(3, 1, args.num_models).to(run.device),
        actor,
        replay_buffer,
        model_buffer,
        every=Every(frames=args.fit_interval),
        fit_steps=args.fit_steps,
        lr=args.lr,
        num_rollouts=args.num_rollouts,
        horizon=args.horizon,
    ).register(trainer)
    TargetNetUpdaterHook(SoftUpdate(loss_module, tau=args.tau)).register(trainer)
    Evaluate(
        "Pendulum-v1", actor, every=Every(frames=args.eval_interval), episodes=args.eval_episodes
    ).register(trainer)
    run.train(trainer)


if __name__ == "__main__":
    launch(main)
