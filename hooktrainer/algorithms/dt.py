"""Decision transformer."""

from __future__ import annotations

from typing import Annotated, ClassVar

from gymnasium import spaces
from torch import nn

from ..collect.last_step import LastReward
from ..data import DataCollector, Subsequences
from ..errors import ConfigError
from ..networks import (
    Box,
    Categorical,
    DecisionTransformer,
    DecisionTransformerPolicy,
    RunningNorm,
)
from ..objectives import DTLoss
from ..run.config import Between, Count, FreeAmongSeeds, FreeOnResume, Rate
from ..trainer import Trainer
from .algorithm import algorithm
from .check_spaces import Actions, Observations
from .config import Settings
from .offline import Offline, dataset_for
from .task import Task


@algorithm
class DT(Offline):
    """Decision transformer: imitates the data's actions, given the return that followed them.

    Chen et al., 2021, arXiv:2106.01345, for one discrete action or continuous ones. The policy is
    conditioned on a target return, from which it subtracts the reward of each step.
    """

    total_frames: FreeOnResume[Count] = 640_000
    """parts of episodes to train on, batch_size at every optimizer step"""
    batch_size: Count = 64
    """parts of episodes per optimizer step"""
    context_length: Count = 20
    """steps of each part of an episode, and of the window that the policy reads"""
    target_return: float | None = None
    """return that the policy is conditioned on; None for the greatest of the data"""
    lr: Annotated[Rate, Between(1e-4, 1e-2, log=True)] = 1e-3
    """learning rate"""
    width: Count = 64
    """features of a token"""
    depth: Count = 3
    """blocks of the transformer"""
    heads: Count = 1
    """attention heads of each"""
    num_cells: tuple[Count, ...] = ()
    """units in each hidden layer of the embedding of observations"""
    log_interval: FreeAmongSeeds[Count] = 32_000
    """parts of episodes in a log window"""
    save_interval: FreeAmongSeeds[Count] = 64_000
    """parts of episodes between two checkpoints"""
    eval_interval: Count = 32_000
    """parts of episodes between two evaluations"""

    actions: ClassVar[Actions] = "discrete or continuous"
    observations: ClassVar[Observations] = "vector"
    tuned_for: ClassVar[Settings] = {
        "Pendulum-v1": {
            "total_frames": 192_000,
            "lr": 2e-3,
            "context_length": 10,
            "width": 32,
            "depth": 2,
            "eval_interval": 64_000,
            "eval_episodes": 20,
        },
    }

    def build(self, task: Task) -> Trainer:
        """Wire the trainer."""
        if task.mask_key is not None:
            raise ConfigError(
                f"dt: {task.env_name} gives an action_mask, which its policy does not read: leave "
                "that out; iql, cql and bc take one."
            )
        dataset = dataset_for(task, self.dataset)
        parts = Subsequences(dataset, self.context_length)
        if isinstance(task.action_space, spaces.Discrete):
            size = task.num_actions
            actions: Categorical | Box = Categorical(size)
        else:
            actions = Box(*task.bounds())
            size = actions.low.numel()
        norm = RunningNorm(*parts.steps["observation"].shape[1:])
        norm.update(parts.steps["observation"])  # once: the data are all there is
        network = DecisionTransformer(
            nn.Sequential(norm, task.networks.network(self.width)),
            size,
            size,
            max_steps=int(parts.steps["step"].max()) + 1,
            width=self.width,
            depth=self.depth,
            heads=self.heads,
        )
        network.return_norm.update(parts.steps["return_to_go"])
        target = max(parts.returns) if self.target_return is None else self.target_return
        policy = DecisionTransformerPolicy(
            network,
            actions,
            norm.mean.numel(),
            context_length=self.context_length,
            target_return=target,
        ).to(task.device)
        task.evaluate_in(LastReward)
        batches = DataCollector(
            range(len(parts)), self.batch_size, replacement=True, collate=parts, device=task.device
        )
        return self._trainer(task, DTLoss(policy), policy, data=(dataset, batches))
