"""PPO of this package."""

from __future__ import annotations

from typing import Any

import torch

from ...algorithms import PPO
from ...hooks import Evaluate
from ...loop.cadence import Every
from ...loop.hook import TrainerHookBase
from ...store import list_checkpoints
from ..adapter import Adapter, Task, Trained, parameters_of


class _EvaluateElsewhere(TrainerHookBase):
    """Evaluates in another environment than that of the training."""

    def __init__(self, task: Task) -> None:
        self.task = task

    def register(self, trainer: Any, name: str = "evaluate_elsewhere") -> None:
        policy, every = trainer.loss_module.actor_network, Every(frames=self.task.every)
        Evaluate(policy=policy, env=self.task.eval_env, every=every, episodes=1).register(trainer)


class HooktrainerAdapter(Adapter):
    """Trains with PPO."""

    packages = ("hooktrainer",)

    def train(self, task: Task) -> Trained:
        """Train with four environments."""
        return self._run(task)

    def resume(self, task: Task) -> Trained:
        """Continue as the command line does with ``--resume latest``."""
        return self._run(task, resume="latest")

    def _run(self, task: Task, **given: Any) -> Trained:
        trainer = PPO(
            env=task.env,
            total_frames=task.frames,
            num_envs=4,
            steps_per_batch=16,
            mini_batch_size=32,
            anneal_lr=False,
            gamma=task.gamma,
            seed=task.seed,
            eval_episodes=0,
            hooks=[_EvaluateElsewhere(task)] if task.every else [],
            save_interval=task.every or task.frames,
            keep_last=100,
            log_interval=100,
            run_dir=task.directory / "run",
            logger="csv",
            progress_bar=False,
            **given,
            **task.options,
        ).trainer()
        batches = []

        def record(batch: Any) -> None:
            batches.append(batch["observation"].reshape(-1, batch["observation"].shape[-1]).numpy())

        trainer.register_op("post_loss", record)
        trainer.train()
        run = task.directory / "run"
        rows: dict[str, dict[int, float]] = {}
        for line in (run / "metrics.csv").read_text().splitlines()[1:]:
            step, name, value = line.split(",")
            rows.setdefault(name, {})[int(step)] = float(value)
        loss: Any = trainer.loss_module
        critic, lengths = loss.critic_network, rows["train/length"]
        saved = list_checkpoints(run / "checkpoints").checkpoints
        return Trained(
            state=parameters_of(loss),
            values=lambda codes: critic.network(torch.from_numpy(codes)).detach(),
            frames=trainer.collected_frames,
            returns=[(at, mean, lengths[at]) for at, mean in rows["train/return"].items()],
            saved=[one.manifest.frames for one in saved],
            trained_on=batches,
        )
