"""hooktrainer's MAPPO on VMAS, with CSV and TensorBoard logging."""

from __future__ import annotations

from typing import Any

import tyro
from mappo_settings import MAX_STEPS, SETTINGS, MappoRun
from measure import Meter
from ours import Tick, make_logger
from tensordict import TensorDictBase

from hooktrainer.algorithms import MAPPO


def fields(args: MappoRun) -> dict[str, Any]:
    """The fields that are not the algorithm's own defaults."""
    if args.settings == "own":
        return {}
    use = SETTINGS[args.settings]
    return {
        "tuned": False,
        "num_envs": use.num_envs,
        "steps_per_batch": MAX_STEPS,
        "num_epochs": use.num_epochs,
        "mini_batch_size": use.mini_batch_size,
        "lr": use.lr,
        "anneal_lr": False,
        "gamma": use.gamma,
        "lmbda": use.lmbda,
        "num_cells": (use.width, use.width),
        "activation": "tanh",
        "max_grad_norm": use.max_grad_norm,
        "critic_coeff": use.critic_coeff,
    }


def main(args: MappoRun) -> None:
    """Train, and print the result as one line of JSON."""
    args.prepare()
    meter = Meter(args, "vmas")
    trainer = MAPPO(
        env=f"vmas/{args.scenario}",
        env_kwargs={"max_steps": MAX_STEPS},
        total_frames=args.frames,
        seed=args.seed,
        loggers=[make_logger(args)],
        eval_episodes=0,
        progress_bar=False,
        **fields(args),
    ).trainer()
    curve = []

    def returns(batch: TensorDictBase) -> None:
        ended = batch["next", "episode_reward"][batch["next", "done"]]
        curve.append((trainer.collected_frames, round(ended.mean().item(), 2)))

    trainer.register_op("pre_steps_log", returns)
    Tick(meter, None).register(trainer)
    meter.start()
    trainer.train()
    meter.print(curve=curve, mean_return=curve[-1][1])


if __name__ == "__main__":
    main(tyro.cli(MappoRun))
