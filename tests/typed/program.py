"""What a type checker makes of a user's program; `make lint` checks it strictly, nothing runs it.

A ``type: ignore`` stands where an error is wanted: strict checking complains of one too many.
"""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDictBase

import hooktrainer
from hooktrainer import (
    HOOK_POINTS,
    CountFramesLog,
    Every,
    HookPointName,
    Latest,
    LogEpisodes,
    MiniBatches,
    Trainer,
    TrainerHookBase,
    ValueEstimatorHook,
    VectorCollector,
    algorithms,
    get_logger,
    load_policy,
)
from hooktrainer.networks import CategoricalPolicy, ValueNetwork, mlp
from hooktrainer.objectives import GAE, ClipPPOLoss
from hooktrainer.store import Best, CheckpointManager, Last


class EveryTenth(TrainerHookBase):
    """Logs the mean value of every tenth sub-batch."""

    def __init__(self) -> None:
        self.counter = 0

    def register(self, trainer: Trainer, name: str = "every_tenth") -> None:
        trainer.register_module(name, self)
        trainer.register_op("post_optim_log", self, every=Every(optim_steps=2))

    def state_dict(self) -> dict[str, Any]:
        return {"counter": self.counter}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.counter = state_dict["counter"]

    def __call__(self, batch: TensorDictBase) -> dict[str, Any] | None:
        self.counter += 1
        if self.counter % 10 == 0:
            return {"value": batch["value"].mean(), "n": Latest(3), "log_pbar": False}
        return None


def by_hand() -> Trainer:
    """The program of the README, and more hooks in a list."""
    policy, critic = CategoricalPolicy(mlp(4, 2)), ValueNetwork(mlp(4, 1))
    loss = ClipPPOLoss(policy, critic, normalize_advantage=True)
    trainer = Trainer(
        collector=VectorCollector("CartPole-v1", policy, num_envs=16, frames_per_batch=1024),
        total_frames=20_000,
        num_epochs=10,
        optim_steps_per_batch=None,
        loss_module=loss,
        optimizer=torch.optim.Adam(loss.parameters(), lr=1e-3),
        logger=get_logger(["csv", "tensorboard"], "runs", "first"),
        checkpoints=CheckpointManager("runs/first", keep=Last(2) | Best(1, "eval/return")),
        log_interval=1_000,
    )
    hooks: list[TrainerHookBase] = [
        ValueEstimatorHook(GAE(gamma=0.99, lmbda=0.95, value_network=critic)),
        *(MiniBatches(batch_size=256), LogEpisodes(), CountFramesLog(1), EveryTenth()),
    ]
    for hook in hooks:
        hook.register(trainer)
    for point in HOOK_POINTS:
        if point.kind == "action":
            trainer.register_op(point, lambda: None).remove()
    name: HookPointName = "post_steps"
    trainer.register_op(name, lambda: None)
    trainer.register_op("post_step", lambda: None)  # type: ignore[arg-type]
    return trainer


def in_one_line() -> None:
    """An algorithm, and its policy."""
    hooks = [EveryTenth(), LogEpisodes()]
    run = algorithms.PPO(env="CartPole-v1", total_frames=20_000, seed=1, hooks=hooks)
    print(run.train().no_such_name)  # type: ignore[attr-defined]
    several: list[algorithms.SeedResult] = run.train_seeds()
    print(several)
    algorithms.PPO(env="CartPole-v1", total_frames=9, logger="csv", run_dir="runs/a", workers=2)
    hooktrainer.algorithms.SAC(env="Pendulum-v1", total_frames=9, lrr=1)  # type: ignore[call-arg]
    print(load_policy("runs/first@best"), hooktrainer.__version__)
