"""The bases of algorithms that learn from a replay buffer."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import torch
from tensordict import NestedKey

from ..errors import ConfigError
from ..hooks import (
    HindsightReplay,
    MixDataset,
    MultiStepReplay,
    ReplayBufferTrainer,
    RewardScaler,
    Schedule,
    SequenceReplay,
    TargetNetUpdaterHook,
)
from ..loop.cadence import Every
from ..loop.hook import TrainerHookBase, register_all
from ..networks import NetworkFactory, ValueNetwork
from ..objectives import HardUpdate, SoftUpdate
from ..objectives.common import Loss
from ..objectives.multi_step import STEPS
from ..objectives.sequences import ReplayLoss
from ..optim import FlatAdam
from ..replay import RandomSampler, ReplayBuffer
from ..run.config import Between, Count, Fraction, Needs, Number, OneOf, Rate, Without
from ..trainer import Trainer
from .algorithm import EnvAlgorithm, WithMemory
from .check_spaces import Actions
from .config import Word
from .offline import dataset_for
from .task import RunTask, Task

_log = logging.getLogger(__name__)

PENDULUM = {
    "total_frames": 20_000,
    "buffer_size": 100_000,
    "eval_interval": 1_000,
    "eval_episodes": 20,
}
"""Settings tuned for Pendulum."""

RUNNING = {
    "total_frames": 1_000_000,
    "optim_steps_per_batch": 16,
    "init_random_frames": 10_000,
    "num_cells": (256, 256),
    "tau": 0.005,
    "eval_interval": 10_000,
    "eval_episodes": 10,
    "save_interval": 50_000,
}
"""Settings tuned for HalfCheetah, with which the papers train all robots of `LOCOMOTION`."""


@dataclass(frozen=True, kw_only=True)
class FromReplay(EnvAlgorithm):
    """Fields of the algorithms that learn from a replay buffer."""

    num_envs: Count = 4
    """number of parallel environments"""
    steps_per_batch: Count = 4
    """steps per environment in each batch"""
    optim_steps_per_batch: Count = 8
    """optimizer steps after each batch"""
    init_random_frames: Number = 800
    """frames collected with random actions before the first optimizer step"""
    buffer_size: Count = 1_000_000
    """capacity of the replay buffer, in transitions"""
    batch_size: Count = 256
    """transitions per optimizer step"""
    lr: Annotated[Rate, Between(1e-4, 1e-2, log=True)] = 1e-3
    """learning rate"""
    anneal_lr: bool = False
    """whether the learning rates fall linearly to zero at total_frames"""
    num_cells: tuple[Count, ...] = (128, 128)
    """units in each hidden layer"""
    gamma: Annotated[Fraction, OneOf((0.9, 0.95, 0.98, 0.99, 0.995))] = 0.99
    """discount factor"""

    max_grad_norm = None  # type: float | None

    def _in_sequences(self, length: int, burn_in: int = 0) -> tuple[int, int]:
        """Return the sizes of the replay buffer and of a sample in sequences of this length."""
        if self.batch_size % length or not burn_in < length <= self.buffer_size:
            raise ConfigError(
                f"{self.name()}: sequence_length={length} has to divide batch_size="
                f"{self.batch_size}, be above burn_in={burn_in}, and not above buffer_size="
                f"{self.buffer_size}."
            )
        return self.buffer_size // length, self.batch_size // length

    def _wired(
        self,
        task: RunTask,
        policy: Any,
        loss_module: Loss,
        hooks: Sequence[TrainerHookBase],
        optimizer: torch.optim.Optimizer | None = None,
    ) -> Trainer:
        """The trainer of a loss, with replay among the hooks: ``policy`` collects."""
        random = self.init_random_frames
        if random > self.total_frames:
            _log.warning(
                "init_random_frames=%s of total_frames=%s: no optimizer step is made.",
                *(random, self.total_frames),
            )
        optimizer = optimizer or FlatAdam(loss_module.parameters(), lr=self.lr)
        trainer = task.trainer(
            task.collector(policy, self.num_envs, self.steps_per_batch, init_random_frames=random),
            loss_module,
            optimizer,
            optim_steps_per_batch=self.optim_steps_per_batch,
            clip_norm=self.max_grad_norm,
        )
        register_all(hooks, trainer)
        if self.anneal_lr:
            rate = float(optimizer.param_groups[0]["lr"])
            Schedule.linear(optimizer, "lr", rate, 0.0).register(trainer)
        return trainer


@dataclass(frozen=True, kw_only=True)
class FromSequences(FromReplay, WithMemory):
    """Fields of the algorithms that learn from a replay buffer, of sequences with a memory."""

    sequence_length: Annotated[Count, Needs("memory")] = 16
    """with a memory, steps of the sequences in the replay buffer; batch_size is a multiple of it"""
    burn_in: Annotated[Number, Needs("memory")] = 4
    """with a memory, steps at the start of each that only bring its hidden state up to date"""

    def _rows(self) -> tuple[int, int]:
        """Return the sizes of the replay buffer and of a sample, in transitions or sequences."""
        if self.memory is None:
            return self.buffer_size, self.batch_size
        return self._in_sequences(self.sequence_length, self.burn_in)

    def _loss_options(self) -> dict[str, Any]:
        """Return arguments of every loss."""
        return {"gamma": self.gamma, "burn_in": 0 if self.memory is None else self.burn_in}

    def _filled(self, loss_module: ReplayLoss, buffer: ReplayBuffer) -> ReplayBufferTrainer:
        """Return the hook that fills the buffer with transitions, or with sequences."""
        if self.memory is None:
            return ReplayBufferTrainer(buffer)
        length, keys = self.sequence_length, loss_module.hidden_keys
        return SequenceReplay(buffer, length, overlap=self.burn_in, hidden_keys=keys)


@dataclass(frozen=True, kw_only=True)
class OffPolicy(FromSequences):
    """Fields of the algorithms of one agent that learn Q-functions from a replay buffer."""

    scale_rewards: bool | None = None
    """whether rewards are divided by the running standard deviation of the discounted return; None
    for yes with categorical critics of SAC and TD3, else no"""
    n_steps: Count = 1
    """rewards in each target, before the bootstrapped value"""
    dataset: Annotated[Any, Word("DATASET"), Without(memory=None, prioritized=False)] = None
    """a data set that a part of every sample is from, as in Ball et al., 2023, RLPD"""
    dataset_fraction: Annotated[Fraction, Needs("dataset")] = 0.5
    """fraction of every sample that is from the data set"""
    dataset_fraction_end: Annotated[Fraction | None, Needs("dataset")] = None
    """that fraction at total_frames, reached linearly; None for a constant one"""
    her: Annotated[
        Literal["future", "final", "episode"] | None, Without(memory=None, n_steps=1)
    ] = None
    """hindsight experience replay: which achieved goals replace the desired ones; None for none"""
    her_goals: Annotated[Count, Needs("her")] = 4
    """with her, transitions with replaced goals per collected transition"""

    actions: ClassVar[Actions] = "continuous"

    def _loss_options(self) -> dict[str, Any]:
        return super()._loss_options() | {"n_steps": 1 if self.memory is None else self.n_steps}

    def _buffer(
        self, task: Task, loss_module: ReplayLoss, sampler: RandomSampler | None = None
    ) -> ReplayBuffer:
        """Return a buffer of the entries that the loss reads."""
        rows, sample = self._rows()
        keys = self._keys(loss_module)
        return ReplayBuffer(rows, batch_size=sample, sampler=sampler, keys=keys, device=task.device)

    def _keys(self, loss_module: ReplayLoss) -> list[NestedKey]:
        """Return what the loss reads of transitions, of several steps or one, or of sequences."""
        joins = self.memory is None and self.n_steps > 1
        return [*loss_module.in_keys, STEPS] if joins else loss_module.in_keys

    def _replay(
        self, task: Task, loss_module: ReplayLoss, buffer: ReplayBuffer
    ) -> ReplayBufferTrainer:
        """Return the hook that fills the buffer."""
        if self.her is not None:
            functions = task.goal_functions()
            return HindsightReplay(buffer, *functions, strategy=self.her, goals=self.her_goals)
        if self.memory is None and self.n_steps > 1:
            return MultiStepReplay(buffer, self.n_steps, gamma=self.gamma)
        return self._filled(loss_module, buffer)

    def _scales_rewards(self) -> bool:
        return bool(self.scale_rewards)

    def _mixed(self, task: Task, loss_module: ReplayLoss) -> list[TrainerHookBase]:
        """Return the hooks that mix transitions of a data set into samples."""
        dataset = dataset_for(task, self.dataset)
        if self.n_steps > 1:
            dataset = dataset.multi_step(self.n_steps, gamma=self.gamma)
        data = dataset.select(self._keys(loss_module)).to(task.device)
        mix = MixDataset(data, self.dataset_fraction)
        if self.dataset_fraction_end is None:
            return [mix]
        change = self.dataset_fraction, self.dataset_fraction_end
        return [mix, Schedule.linear(mix, "fraction", *change)]

    def _updater(self, loss_module: ReplayLoss) -> SoftUpdate | HardUpdate | None:
        """Return the updater of the target networks; ``None`` if there are none."""
        raise NotImplementedError

    def _trainer(
        self,
        task: Task,
        loss_module: ReplayLoss,
        explores: Any,
        *,
        buffer: ReplayBuffer | None = None,
        target_every: Every | None = None,
        optimizer: torch.optim.Optimizer | None = None,
    ) -> Trainer:
        """The trainer: ``explores`` collects, the loss is of samples of a replay buffer."""
        if buffer is None:
            buffer = self._buffer(task, loss_module)
        hooks: list[TrainerHookBase] = [self._replay(task, loss_module, buffer)]
        if self.dataset is not None:
            hooks += self._mixed(task, loss_module)
        if self._scales_rewards():
            hooks.append(RewardScaler(self.gamma, replay=True))
        updater = self._updater(loss_module)
        if updater is not None:
            hooks.append(TargetNetUpdaterHook(updater, every=target_every))
        return self._wired(task, explores, loss_module, hooks, optimizer)


@dataclass(frozen=True, kw_only=True)
class ActorCriticOffPolicy(OffPolicy):
    """Fields of the algorithms with a policy and Q-functions."""

    tau: Annotated[Fraction, Between(0.001, 0.05, log=True)] = 0.01
    """rate of the soft updates of the target networks, one per optimizer step"""

    def _qvalues(self, task: Task, networks: NetworkFactory) -> ValueNetwork | list[ValueNetwork]:
        """Two Q-functions; without a memory that they share, the one that the loss copies."""
        first = task.qvalue(networks)
        return first if self.memory is None else [first, task.qvalue(networks)]

    def _optimizer(
        self, loss_module: ReplayLoss, actor_lr: float | None = None, **options: Any
    ) -> FlatAdam:
        """Return Adam with two groups: the policy's own parameters (``actor_lr``) and the rest.

        Where the policy is trained less often, what is neither its own nor the critics' is a third.
        """
        critics = set(loss_module.qvalue_network.parameters())  # a shared memory is the critics'
        actor = [p for p in loss_module.actor_network.parameters() if p not in critics]
        others = [p for p in loss_module.parameters() if all(p is not own for own in actor)]
        groups = [others]
        if not loss_module.compute_always_the_same():
            groups = [[p for p in others if (p in critics) is own] for own in (True, False)]
        rate = self.lr if actor_lr is None else actor_lr
        made = [{"params": actor, "lr": rate}, *({"params": own} for own in groups if own)]
        return FlatAdam(made, lr=self.lr, **options)

    def _updater(self, loss_module: ReplayLoss) -> SoftUpdate | None:
        return SoftUpdate(loss_module, tau=self.tau)
