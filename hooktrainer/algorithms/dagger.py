"""DAgger, dataset aggregation."""

from __future__ import annotations

import os
from typing import Annotated, Any, ClassVar

import numpy as np
from gymnasium import spaces
from torch import nn

from ..collect.action_format import action_format_of
from ..errors import ConfigError
from ..hooks import Distillation, ReplayBufferTrainer, Schedule, TeacherMixture
from ..hooks.distillation import only_acts
from ..loop.hook import register_all
from ..objectives import ImitationLoss
from ..optim import FlatAdam
from ..policies import LoadedPolicy, SavedPolicy, load_policy
from ..replay import ReplayBuffer
from ..run.config import Between, Count, Fraction, FreeOnResume, Rate
from ..trainer import Trainer
from .algorithm import EnvAlgorithm, algorithm
from .check_spaces import Actions
from .config import Settings, Word
from .task import Task


@algorithm
class DAgger(EnvAlgorithm):
    """DAgger: imitates a teacher in all states that the student has visited.

    Ross, Gordon and Bagnell, 2011, arXiv:1011.0686. An iteration collects a batch, in which each
    action is the teacher's with a probability that falls, adds the teacher's actions in all of its
    states to a replay buffer, and learns from that.
    """

    teacher: Annotated[Any, Word("TEACHER")]
    """a run, such as RUN@best, or one of its saved policies; in Python also a policy"""
    total_frames: FreeOnResume[Count] = 20_000
    """frames to collect"""
    beta: Fraction = 0.5
    """in iteration i the teacher acts with probability beta^(i-1); 0: in the first one alone"""
    num_envs: Count = 4
    """number of parallel environments"""
    steps_per_batch: Count = 100
    """steps per environment in an iteration"""
    optim_steps_per_batch: Count = 100
    """optimizer steps in an iteration"""
    buffer_size: Count = 1_000_000
    """states that are kept, the latest ones"""
    batch_size: Count = 256
    """states per optimizer step"""
    lr: Annotated[Rate, Between(1e-4, 1e-2, log=True)] = 1e-3
    """learning rate"""

    actions: ClassVar[Actions] = "bounded"
    tuned_for: ClassVar[Settings] = {
        "CartPole-v1": {"total_frames": 10_000, "eval_interval": 2_000, "eval_episodes": 20},
    }

    def build(self, task: Task) -> Trainer:
        """Wire the trainer."""
        distillation = self._distillation(task)
        teacher = distillation.teacher
        student: Any
        if isinstance(task.action_space, spaces.Box):
            student = task.deterministic_policy()
            loss_module = ImitationLoss(student, "mse")
        else:
            student = task.mixed_policy(task.networks)
            loss_module = ImitationLoss(student, "kl", certain=only_acts(teacher))
        mixture = TeacherMixture(student, teacher)
        trainer = task.trainer(
            task.collector(mixture, self.num_envs, self.steps_per_batch),
            loss_module.to(task.device),
            FlatAdam(loss_module.parameters(), lr=self.lr),
            optim_steps_per_batch=self.optim_steps_per_batch,
        )
        buffer = ReplayBuffer(
            self.buffer_size,
            batch_size=self.batch_size,
            keys=loss_module.in_keys,
            device=task.device,
        )
        hooks = distillation, ReplayBufferTrainer(buffer)
        register_all([*hooks, Schedule(mixture, "beta", self._beta_at)], trainer)
        return task.finish(trainer, student)

    def _beta_at(self, progress: float) -> float:
        """The probability of the teacher's actions, by the part of the frames collected so far."""
        iterations = progress * self.total_frames / (self.num_envs * self.steps_per_batch)
        return float(self.beta ** round(iterations))

    def _distillation(self, task: Task) -> Distillation:
        """Return the hook that records the teacher's actions.

        Raises:
            ConfigError: If a saved teacher does not act in the environment.
        """
        teacher = self.teacher
        if isinstance(teacher, (str, os.PathLike, SavedPolicy)):
            teacher = load_policy(teacher)
        if isinstance(teacher, nn.Module):
            teacher = teacher.to(task.device)
        distillation = Distillation(teacher)  # which refuses one with a memory
        if isinstance(teacher, LoadedPolicy):
            problem = ""
            try:
                size = 0 if task.mask_key is None else action_format_of(task.action_space).mask_size
                mask = np.ones(size, bool) if size else None
                action = teacher(task.observation_space.sample(), mask)
                if not task.action_space.contains(action):
                    problem = f"its action {action} is none of {task.action_space}"
            except ConfigError as error:
                problem = str(error)
            if problem:
                raise ConfigError(f"dagger: {teacher} does not act in {task.env_name}: {problem}")
        return distillation
