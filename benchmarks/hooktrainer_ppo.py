"""hooktrainer's PPO on CartPole-v1, built as its recipe is, with CSV and TensorBoard logging."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
import tyro
from measure import Meter, Run
from ours import LOG_INTERVAL, Tick, make_logger, recipe

from hooktrainer import (
    CompiledStep,
    LogEpisodes,
    MiniBatches,
    Schedule,
    Trainer,
    ValueEstimatorHook,
    VectorCollector,
    WorldCollector,
)
from hooktrainer.collect import Collector
from hooktrainer.networks import CategoricalPolicy, ValueNetwork, mlp, orthogonal_init
from hooktrainer.objectives import GAE, ClipPPOLoss
from hooktrainer.optim import FlatAdam


@dataclass(kw_only=True)
class Args(Run):
    """Options of the hooktrainer PPO run."""

    settings: Literal["matched", "recipe"] = "matched"
    """the settings that all peers share, or those of recipes/ppo_cartpole.py"""
    num_envs: int = 4
    """number of environments (matched settings)"""
    num_steps: int = 128
    """steps in each environment per rollout (matched settings)"""
    epochs: int = 4
    """passes over each rollout, in four minibatches each (matched settings)"""
    width: int = 64
    """units in each hidden layer of the actor and of the critic (matched settings)"""
    compile: Literal["step", "all"] | None = None
    """compile the optimizer step, or with a world also collecting"""
    world: bool = False
    """train on torch/CartPole-v1, the environments as tensors"""


def settings(args: Args) -> dict[str, Any]:
    """Return the recipe's options, or the shared ones under the same names."""
    if args.settings == "recipe":
        return vars(recipe("ppo_cartpole").Args())
    return {
        "num_envs": args.num_envs,
        "steps_per_batch": args.num_steps,
        "num_epochs": args.epochs,
        "mini_batch_size": args.num_steps * args.num_envs // 4,
        "lr": 2.5e-4,
        "gamma": 0.99,
        "lmbda": 0.95,
        "clip_epsilon": 0.2,
        "entropy_coeff": 0.01,
        "critic_coeff": 0.5,
        "max_grad_norm": 0.5,
        "total_frames": args.frames,
    }


def main(args: Args) -> None:
    """Train, and print the result as one line of JSON."""
    args.prepare()
    use = settings(args)
    frames_per_batch = use["num_envs"] * use["steps_per_batch"]
    cells = (args.width, args.width)
    actor = CategoricalPolicy(orthogonal_init(mlp(4, 2, cells), output_gain=0.01))
    critic = ValueNetwork(orthogonal_init(mlp(4, 1, cells)))
    loss_module = ClipPPOLoss(
        actor,
        critic,
        clip_epsilon=use["clip_epsilon"],
        entropy_coeff=use["entropy_coeff"],
        critic_coeff=use["critic_coeff"],
        loss_critic_type="l2",
        normalize_advantage=True,
        diagnostics=4,
    )
    optimizer = FlatAdam(loss_module.parameters(), lr=use["lr"], eps=1e-5)
    collector: Collector
    if args.world:
        collector = WorldCollector(
            "torch/CartPole-v1",
            actor,
            num_envs=use["num_envs"],
            frames_per_batch=frames_per_batch,
            compile=args.compile == "all",
        )
    else:
        collector = VectorCollector(
            "CartPole-v1",
            actor,
            num_envs=use["num_envs"],
            frames_per_batch=frames_per_batch,
            vectorization_mode="sync" if use["num_envs"] <= 4 else None,  # the data are the same
        )
    trainer = Trainer(
        collector=collector,
        total_frames=args.frames,
        num_epochs=use["num_epochs"],
        optim_steps_per_batch=None,
        loss_module=loss_module,
        optimizer=optimizer,
        clip_norm=use["max_grad_norm"],
        logger=make_logger(args),
        log_interval=LOG_INTERVAL,
        progress_bar=False,
        seed=args.seed,
    )
    if args.compile:
        CompiledStep().register(trainer)
    LogEpisodes().register(trainer)
    gae = GAE(gamma=use["gamma"], lmbda=use["lmbda"], value_network=critic)
    ValueEstimatorHook(gae).register(trainer)
    keys = ["observation", "action", "action_log_prob", "advantage", "value_target"]
    MiniBatches(use["mini_batch_size"], keys).register(trainer)
    if args.settings == "recipe":
        Schedule.linear(optimizer, "lr", use["lr"], 0.0).register(trainer)

    @torch.no_grad()
    def act(observation: np.ndarray) -> np.ndarray:
        return actor.network(torch.from_numpy(observation)).argmax(-1).numpy()

    meter = Meter(args, "CartPole-v1")
    Tick(meter, act).register(trainer)
    meter.start()
    trainer.train()
    meter.print()


if __name__ == "__main__":
    main(tyro.cli(Args))
