"""The base of IQL, CQL, TD3BC, BC and DT: learning from a data set, without collecting."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from gymnasium import spaces
from torch import nn

from ..base.space_parts import leaves_of
from ..collect.action_format import action_format_of
from ..data import DataCollector, Dataset, load_dataset
from ..errors import ConfigError
from ..hooks import TargetNetUpdaterHook
from ..loop.cadence import Every
from ..networks import Box, DiagonalGaussian, EncodedNetwork, Policy, distribution_for
from ..objectives import SoftUpdate
from ..objectives.common import Loss
from ..optim import FlatAdam
from ..run.config import Between, Count, Fraction, FreeAmongSeeds, FreeOnResume, Rate
from ..trainer import Trainer
from .algorithm import EnvAlgorithm
from .check_spaces import Actions
from .config import Word
from .task import Task

PENDULUM = {"tau": 0.01, "eval_interval": 256_000, "eval_episodes": 20, "save_interval": 512_000}
"""Settings tuned for Pendulum."""


def dataset_for(task: Task, source: Any) -> Dataset:
    """Return a data set, loaded if need be, with the types that batches have.

    Raises:
        ConfigError: If its observations or actions are not those of the environment.
    """
    dataset = source if isinstance(source, Dataset) else load_dataset(source)
    form, space = action_format_of(task.action_space), task.action_space
    shapes = {leaf.key: leaf.shape for leaf in leaves_of(task.observation_space)}
    shapes[("action",)] = form.shape
    dataset.select(list(shapes))
    subject = f"{task.name}: the data set ({dataset.env or 'of an unnamed environment'}) has"
    for key, shape in shapes.items():
        found, expected = list(dataset.transitions[key].shape[1:]), list(shape)
        if found != expected:
            raise ConfigError(
                f"{subject} {'.'.join(key)}s of shape {found}, the environment {task.env_name} of "
                f"{expected}."
            )
    flags = dict.fromkeys([("next", "terminated"), ("next", "truncated")], torch.bool)
    like = torch.from_numpy(np.zeros((), form.dtype))
    types: dict[Any, torch.dtype] = {**flags, "action": like.dtype}

    def as_in_batches(key: Any, value: torch.Tensor) -> torch.Tensor:
        if value.ndim == 1 and (key in flags or key == ("next", "reward")):
            value = value.unsqueeze(-1)
        return value.to(types.get(key, torch.float32 if value.is_floating_point() else value.dtype))

    typed = dataset.transitions.named_apply(as_in_batches, nested_keys=True)
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        sizes = torch.as_tensor(space.n if isinstance(space, spaces.Discrete) else space.nvec)
        action = typed["action"]
        if not ((action >= 0) & (action < sizes)).all():
            raise ConfigError(
                f"{subject} actions from {action.min()} to {action.max()}, and those of "
                f"{task.env_name} are {space}: let them count from 0."
            )
    return replace(dataset, transitions=typed)


@dataclass(frozen=True, kw_only=True)
class Offline(EnvAlgorithm):
    """Fields of the algorithms that learn from a data set; the environment only evaluates."""

    dataset: Annotated[Any, Word("DATASET")]
    """a data set, its directory, or minari:<id>"""
    total_frames: FreeOnResume[Count] = 2_560_000
    """transitions to train on, batch_size at every optimizer step"""
    batch_size: Count = 256
    """transitions per optimizer step"""
    lr: Annotated[Rate, Between(1e-4, 1e-2, log=True)] = 1e-3
    """learning rate of all networks"""
    num_cells: tuple[Count, ...] = (256, 256)
    """units in each hidden layer"""
    log_interval: FreeAmongSeeds[Count] = 128_000
    """transitions in a log window"""
    save_interval: FreeAmongSeeds[Count] = 256_000
    """transitions between two checkpoints"""
    eval_interval: Count = 128_000
    """transitions between two evaluations"""

    actions: ClassVar[Actions] = "continuous"
    collects: ClassVar[bool] = False

    def _policy(self, task: Task) -> Policy:
        """A policy over the actions; the mean of continuous ones is within their bounds."""
        if not isinstance(task.action_space, spaces.Box):
            distribution = distribution_for(task.action_space)
            network = task.networks.network(distribution.parameter_features)
            policy = Policy(network, distribution, task.in_keys, action_mask_key=task.mask_key)
            return policy.to(task.device)
        shape, *bounds = task.bounds()
        features = math.prod(shape)
        box = Box(features, *(bound.reshape(features) for bound in bounds))
        bounded = EncodedNetwork(task.networks.network(features), box)
        return Policy(bounded, DiagonalGaussian(shape), task.in_keys).to(task.device)

    def _trained(self, loss_module: Any) -> Any:
        """The parameters of the optimizer, or groups of them."""
        return loss_module.parameters()

    def _trainer(
        self,
        task: Task,
        loss_module: Loss,
        policy: nn.Module,
        updater: TargetNetUpdaterHook | None = None,
        data: tuple[Dataset, DataCollector] | None = None,
    ) -> Trainer:
        """The trainer; ``data`` is the data set, and its batches if these are no transitions."""
        loss_module.to(task.device)
        if data is None:
            dataset = dataset_for(task, self.dataset)
            entries = dataset.select(loss_module.in_keys)
            batches = DataCollector(entries, self.batch_size, replacement=True, device=task.device)
        else:
            dataset, batches = data
        trainer = task.trainer(
            batches,
            loss_module,
            FlatAdam(self._trained(loss_module), lr=self.lr),
            optim_steps_per_batch=1,
        )
        if updater is not None:
            updater.register(trainer)
        every = Every(frames=self.eval_interval, at_start=True)
        trainer.register_op("post_steps_log", dataset.log, every=every)
        return task.finish(trainer, policy)


@dataclass(frozen=True, kw_only=True)
class OfflineValues(Offline):
    """Fields of the algorithms that learn values from a data set."""

    gamma: Fraction = 0.99
    """discount factor"""
    tau: Fraction = 0.005
    """rate of the soft updates of the target networks, one per optimizer step"""

    def _updater(self, loss_module: Loss, every: Every | None = None) -> TargetNetUpdaterHook:
        return TargetNetUpdaterHook(SoftUpdate(loss_module, tau=self.tau), every=every)
