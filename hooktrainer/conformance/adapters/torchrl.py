"""TorchRL's PPOTrainer, with its Checkpoint, GlobalRNGState and LogValidationReward."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
from tensordict.nn import TensorDictModule
from torchrl.checkpoint import Checkpoint, CheckpointRotation, GlobalRNGState
from torchrl.collectors import Collector
from torchrl.data import LazyTensorStorage, SamplerWithoutReplacement, TensorDictReplayBuffer
from torchrl.envs import GymWrapper, TransformedEnv
from torchrl.modules import MLP, OneHotCategorical, ProbabilisticActor, ValueOperator
from torchrl.objectives import ClipPPOLoss
from torchrl.trainers import LogValidationReward
from torchrl.trainers.algorithms import PPOTrainer

from ..adapter import Adapter, Task, Trained, parameters_of

_BATCH = 64


class PPOAdapter(Adapter):
    """Trains with PPOTrainer."""

    packages = ("torchrl", "tensordict")
    checkpoints = "saved/*"
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
        """Train with one environment; load a checkpoint into the same objects."""
        torch.manual_seed(task.seed)
        env = GymWrapper(task.env())
        size = env.observation_spec["observation"].shape[-1]
        logits = TensorDictModule(MLP(size, 2, num_cells=[64]), ["observation"], ["logits"])
        kind = {"distribution_class": OneHotCategorical, "return_log_prob": True}
        actor = ProbabilisticActor(logits, ["logits"], spec=env.action_spec, **kind)
        critic = ValueOperator(MLP(size, 1, num_cells=[64]), in_keys=["observation"])
        loss = ClipPPOLoss(actor, critic)
        buffer = TensorDictReplayBuffer(
            storage=LazyTensorStorage(_BATCH), sampler=SamplerWithoutReplacement(), batch_size=32
        )
        settings = {"frame_skip": 1, "optim_steps_per_batch": None, "num_epochs": 10}
        trainer = PPOTrainer(
            collector=Collector(env, actor, frames_per_batch=_BATCH, total_frames=task.frames),
            total_frames=task.frames,
            loss_module=loss,
            optimizer=torch.optim.Adam(loss.parameters(), lr=3e-3),
            replay_buffer=buffer,
            gamma=task.gamma,
            seed=task.seed,
            progress_bar=False,
            checkpoint=Checkpoint(rng=GlobalRNGState()),
            checkpoint_rotation=CheckpointRotation(task.directory / "saved", keep_last=100),
            save_trainer_interval=task.every or task.frames,
            **settings,
            **task.options,
        )
        if task.every:
            LogValidationReward(
                record_interval=task.every // _BATCH,
                record_frames=4,
                policy_exploration=actor,
                environment=TransformedEnv(GymWrapper(task.eval_env())),
            ).register(trainer)
        if task.checkpoint:
            trainer.load_from_file(task.checkpoint)
        trainer.train()
        return Trained(
            state=parameters_of(loss),
            values=lambda codes: critic.module(torch.from_numpy(codes)).detach(),
            frames=trainer.collected_frames,
        )
