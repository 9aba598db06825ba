"""TorchRL's PPOTrainer, with its Checkpoint, GlobalRNGState and LogValidationReward."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import torch
from tensordict.nn import TensorDictModule
from torch import nn
from torchrl.checkpoint import Checkpoint, CheckpointRotation, GlobalRNGState
from torchrl.collectors import Collector
from torchrl.data import LazyTensorStorage, SamplerWithoutReplacement, TensorDictReplayBuffer
from torchrl.envs import GymWrapper, TransformedEnv
from torchrl.modules import OneHotCategorical, ProbabilisticActor, ValueOperator
from torchrl.objectives import ClipPPOLoss
from torchrl.trainers import LogValidationReward
from torchrl.trainers.algorithms import PPOTrainer

from ..adapter import Adapter, Task, Trained, parameters_of

_BATCH = 64


class TorchRLAdapter(Adapter):
    """Trains with PPOTrainer."""

    packages = ("torchrl", "tensordict")
    documented: ClassVar[Mapping[str, str]] = {
        "evaluations": "LogValidationReward, record_interval: steps between two calls; the first "
        "evaluates too",
    }
    references: ClassVar[Mapping[str, str]] = {
        "transitions": "collectors/_single.py, set_seed: resets the environment; the collector's "
        "first observation is that of the reset before",
        "checkpoints": "trainers.py, Trainer.save_trainer: frames since the last save > interval",
    }

    def train(self, task: Task) -> Trained:
        """Train with one environment."""
        return self._train(task, None)

    def resume(self, task: Task) -> Trained:
        """Load the latest checkpoint into the same objects, and train."""
        latest = CheckpointRotation(task.directory / "saved", keep_last=100).latest()
        return self._train(task, Path(latest))

    def _train(self, task: Task, latest: Path | None) -> Trained:
        torch.manual_seed(task.seed)
        env = GymWrapper(task.env())
        size = env.observation_spec["observation"].shape[-1]

        def network(outputs: int) -> nn.Module:
            return nn.Sequential(nn.Linear(size, 64), nn.Tanh(), nn.Linear(64, outputs))

        logits = TensorDictModule(network(2), ["observation"], ["logits"])
        kind = {"distribution_class": OneHotCategorical, "return_log_prob": True}
        actor = ProbabilisticActor(logits, ["logits"], spec=env.action_spec, **kind)
        critic = ValueOperator(network(1), in_keys=["observation"])
        loss = ClipPPOLoss(actor, critic)
        buffer = TensorDictReplayBuffer(
            storage=LazyTensorStorage(_BATCH), sampler=SamplerWithoutReplacement(), batch_size=32
        )
        saved = task.directory / "saved"
        trainer = PPOTrainer(
            collector=Collector(env, actor, frames_per_batch=_BATCH, total_frames=task.frames),
            total_frames=task.frames,
            frame_skip=1,
            optim_steps_per_batch=None,
            loss_module=loss,
            optimizer=torch.optim.Adam(loss.parameters(), lr=3e-3),
            replay_buffer=buffer,
            num_epochs=10,
            gamma=task.gamma,
            seed=task.seed,
            progress_bar=False,
            checkpoint=Checkpoint(rng=GlobalRNGState()),
            checkpoint_rotation=CheckpointRotation(saved, keep_last=100),
            save_trainer_interval=task.every or task.frames,
            **task.options,
        )
        if task.every:
            LogValidationReward(
                record_interval=task.every // _BATCH,
                record_frames=4,
                policy_exploration=actor,
                environment=TransformedEnv(GymWrapper(task.eval_env())),
            ).register(trainer)
        batches: list[Any] = []

        def record(batch: Any) -> Any:
            batches.append(batch["observation"].numpy())
            return batch

        trainer.register_op("post_loss", record)
        if latest is not None:
            trainer.load_from_file(latest)
        trainer.train()
        return Trained(
            state=parameters_of(loss),
            values=lambda codes: critic.module(torch.from_numpy(codes)).detach(),
            frames=trainer.collected_frames,
            saved=[_frames_in(path) for path in saved.glob("*")],
            trained_on=batches,
        )


def _frames_in(path: Path) -> int:
    return int(path.name.split("-")[-1])
