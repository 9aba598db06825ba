"""Deep Q-learning."""

from __future__ import annotations

from typing import Annotated, ClassVar

from gymnasium import spaces

from ..networks import EpsilonGreedy, QNetwork
from ..objectives import DQNLoss, HardUpdate
from ..objectives.sequences import ReplayLoss
from ..replay import DevicePrioritizedSampler, PrioritizedSampler
from ..run.config import Between, Count, Fraction, Number, Rate
from ..trainer import Trainer
from .algorithm import algorithm
from .check_spaces import Actions
from .config import Settings
from .off_policy import OffPolicy
from .task import Task


@algorithm
class DQN(OffPolicy):
    """Deep Q-learning, for one discrete action.

    Mnih et al., 2015; double, van Hasselt et al., 2016, arXiv:1509.06461; prioritized, Schaul et
    al., 2016, arXiv:1511.05952. The defaults solve CartPole.
    """

    num_envs: Count = 8
    steps_per_batch: Count = 8
    optim_steps_per_batch: Count = 32
    init_random_frames: Number = 1_000
    buffer_size: Count = 100_000
    batch_size: Count = 64
    prioritized: bool = False
    """whether to use prioritized replay"""
    alpha: float = 0.3
    """exponent of the priorities, which are squared TD errors; 0 for uniform sampling"""
    beta: float = 0.4
    """exponent of the importance weights, which correct the bias; 1 for all of it"""
    lr: Rate = 2.3e-3
    num_cells: tuple[Count, ...] = (256, 256)
    double: bool = True
    """whether to use double Q-learning"""
    target_interval: Annotated[Count, Between(30, 1000, log=True)] = 100
    """optimizer steps between two updates of the target network"""
    max_grad_norm: float | None = 10.0
    """the gradient is clipped to this norm; None for no clipping"""
    eps_end: Annotated[Fraction, Between(0.01, 0.2, log=True)] = 0.04
    """final epsilon, the probability of a random action"""
    annealing_frames: Count = 8_000
    """frames over which epsilon falls linearly from 1 to eps_end"""

    actions: ClassVar[Actions] = "discrete"
    tuned_for: ClassVar[Settings] = {
        "CartPole-v1": {
            "total_frames": 100_000,
            "eval_interval": 1_000,
            "eval_episodes": 100,
            "stop_at": 475.0,
        },
        "MinAtar/*": {
            "total_frames": 200_000,
            "steps_per_batch": 8,
            "optim_steps_per_batch": 16,
            "init_random_frames": 5_000,
            "lr": 5e-4,
            "num_cells": (128,),
            "double": False,  # with it, less was learned in 200k frames of Breakout
            "target_interval": 500,
            "eps_end": 0.02,
            "annealing_frames": 50_000,
            "eval_interval": 20_000,
            "eval_episodes": 20,
        },
    }

    def build(self, task: Task) -> Trainer:
        """Wire the trainer."""
        assert isinstance(task.action_space, spaces.Discrete)
        made = self._networks_of(task)
        network = made.network(int(task.action_space.n))
        q_network = QNetwork(network, made.in_keys, task.mask_key, made.shared).to(task.device)
        policy = EpsilonGreedy(
            q_network, eps_end=self.eps_end, annealing_num_steps=self.annealing_frames
        )
        loss_module = DQNLoss(
            q_network,
            loss_function="smooth_l1",
            double_dqn=self.double,
            **self._loss_options(),
        ).to(task.device)
        rows, _ = self._rows()
        sampler: PrioritizedSampler | None = None
        if self.prioritized and task.device.type == "cpu":
            sampler = PrioritizedSampler(rows, self.alpha, self.beta)
        elif self.prioritized:
            sampler = DevicePrioritizedSampler(rows, self.alpha, self.beta, device=task.device)
        buffer = self._buffer(task, loss_module, sampler)
        return task.finish(self._trainer(task, loss_module, policy, buffer=buffer), q_network)

    def _updater(self, loss_module: ReplayLoss) -> HardUpdate:
        return HardUpdate(loss_module, value_network_update_interval=self.target_interval)
