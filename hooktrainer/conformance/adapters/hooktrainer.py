"""PPO of this package."""

from __future__ import annotations

from typing import Any

import torch

from ...algorithms import PPO
from ...hooks import Evaluate
from ...loop.cadence import Every
from ...loop.hook import TrainerHookBase
from ..adapter import Adapter, Task, Trained, parameters_of, scalars_in


class _EvaluateElsewhere(TrainerHookBase):
    """Evaluates in another environment than that of the training."""

    def __init__(self, task: Task) -> None:
        self.task = task

    def register(self, trainer: Any, name: str = "evaluate_elsewhere") -> None:
        policy, every = trainer.loss_module.actor_network, Every(frames=self.task.every)
        Evaluate(policy=policy, env=self.task.eval_env, every=every, episodes=1).register(trainer)


class PPOAdapter(Adapter):
    """Trains with PPO."""

    packages = ("hooktrainer",)
    checkpoints = "run/checkpoints/step_*"

    def train(self, task: Task) -> Trained:
        """Train with four environments; resume as the command line does."""
        run = task.directory / "run"
        settings: dict[str, Any] = {"num_envs": 4, "steps_per_batch": 16, "mini_batch_size": 32}
        settings |= {"anneal_lr": False, "eval_episodes": 0, "keep_last": 100, "log_interval": 100}
        settings |= {"logger": "tensorboard", "progress_bar": False}
        trainer = PPO(
            env=task.env,
            total_frames=task.frames,
            gamma=task.gamma,
            seed=task.seed,
            hooks=[_EvaluateElsewhere(task)] if task.every else [],
            run_dir=run,
            save_interval=task.every or task.frames,
            resume="latest" if task.checkpoint else None,
            **settings,
            **task.options,
        ).trainer()
        trainer.train()
        loss: Any = trainer.loss_module
        return Trained(
            state=parameters_of(loss),
            values=lambda codes: loss.critic_network.network(torch.from_numpy(codes)).detach(),
            frames=trainer.collected_frames,
            returns=scalars_in(run / "tensorboard", "train/return", "train/length"),
        )
