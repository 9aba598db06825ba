"""hooktrainer's algorithms as they are shipped, but for the settings that all peers share.

Networks, optimizer, hooks and logging (CSV and TensorBoard) are those of `PPO(...).train()`.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
import tyro
from measure import Meter, Run
from ours import Tick
from tensordict import TensorDict
from torchrl.envs.utils import ExplorationType, set_exploration_type

from hooktrainer import algorithms


@dataclass(kw_only=True)
class Args(Run):
    """Options of the hooktrainer runs."""

    algorithm: Literal["ppo", "dqn", "sac", "td3"] = "ppo"
    """what to train: PPO and DQN on CartPole-v1, SAC and TD3 on Pendulum-v1"""
    settings: Literal["matched", "tuned"] = "matched"
    """the settings that all peers share, or the algorithm's defaults for the environment"""
    num_envs: int = 4
    """number of environments (PPO)"""
    num_steps: int = 128
    """steps in each environment per rollout (PPO)"""
    epochs: int = 4
    """passes over each rollout, in four minibatches each (PPO)"""
    width: int = 64
    """units in each hidden layer of the actor and of the critic (PPO)"""
    frames_per_batch: int = 16
    """frames that are collected, and gradient steps that are made, per iteration (the others)"""
    compile: Literal["step", "all"] | None = None
    """compile the optimizer step, or with a world also collecting"""
    world: bool = False
    """train on torch/CartPole-v1, the environments as tensors"""


def settings(args: Args) -> dict[str, Any]:
    """Return the fields of the algorithm that the peers share; the others are its defaults."""
    if args.settings == "tuned":
        return {}
    if args.algorithm == "ppo":
        return {
            "num_envs": args.num_envs,
            "steps_per_batch": args.num_steps,
            "num_epochs": args.epochs,
            "mini_batch_size": args.num_steps * args.num_envs // 4,
            "lr": 2.5e-4,
            "anneal_lr": False,
            "gamma": 0.99,
            "lmbda": 0.95,
            "clip_epsilon": 0.2,
            "entropy_coeff": 0.01,
            "num_cells": (args.width, args.width),
        }
    replay = {
        "num_envs": 1,
        "steps_per_batch": args.frames_per_batch,
        "optim_steps_per_batch": args.frames_per_batch,
        "gamma": 0.99,
    }
    if args.algorithm == "dqn":
        return replay | {
            "init_random_frames": 1_000,
            "buffer_size": 10_000,
            "batch_size": 128,
            "lr": 2.5e-4,
            "num_cells": (120, 84),
            "double": False,
            "target_interval": 500,
            "max_grad_norm": None,
            "eps_end": 0.05,
            "annealing_frames": args.frames // 2,
        }
    return replay | {
        "init_random_frames": 100,
        "buffer_size": args.frames,
        "batch_size": 256,
        "lr": 1e-3,
        "num_cells": (256, 256),
        "tau": 0.005,
    }


def main(args: Args) -> None:
    """Train, and print the result as one line of JSON."""
    args.prepare()
    env = "CartPole-v1" if args.algorithm in ("ppo", "dqn") else "Pendulum-v1"

    @torch.no_grad()
    def act(observation: np.ndarray) -> np.ndarray:
        batch = TensorDict({"observation": torch.from_numpy(observation).float()}, len(observation))
        with set_exploration_type(ExplorationType.DETERMINISTIC):
            return policy(batch)["action"].numpy()

    meter = Meter(args, env)
    trainer = algorithms.get(args.algorithm)(
        env=f"torch/{env}" if args.world else env,
        total_frames=args.frames,
        seed=args.seed,
        compile=args.compile,
        **settings(args),
        hooks=[Tick(meter, act, every=1 if args.algorithm == "ppo" else 100)],
        run_dir=tempfile.mkdtemp(dir=args.log_dir),
        save_interval=args.frames,  # what is measured is training: no checkpoints, no evaluations
        eval_episodes=0,
        stop_at=None,
        progress_bar=False,
        threads=1,
    ).trainer()
    loss = trainer.loss_module
    policy = loss.value_network if args.algorithm == "dqn" else loss.actor_network
    meter.start()
    trainer.train()
    meter.print()


if __name__ == "__main__":
    main(tyro.cli(Args))
