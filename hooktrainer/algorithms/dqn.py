"""Deep Q-learning."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from ..networks import (
    CategoricalQNetwork,
    EpsilonGreedy,
    FractionEmbedding,
    QNetwork,
    QuantileQNetwork,
    q_head,
)
from ..networks.network_factory import ACTIVATIONS
from ..objectives import CategoricalDQNLoss, DQNLoss, HardUpdate, QuantileDQNLoss
from ..objectives.sequences import ReplayLoss
from ..replay import DevicePrioritizedSampler, PrioritizedSampler
from ..run.config import Between, Count, Fraction, Needs, Number, Rate
from ..trainer import Trainer
from .algorithm import algorithm
from .check_spaces import Actions
from .config import CARTPOLE, Settings
from .off_policy import OffPolicy
from .task import Task

_LOSSES: dict[str | None, type[DQNLoss]] = {
    None: DQNLoss,
    "c51": CategoricalDQNLoss,
    "qr": QuantileDQNLoss,
    "iqn": QuantileDQNLoss,
}
_NUMBERS: dict[str | None, int] = {"c51": 51, "qr": 51, "iqn": 8}


@algorithm
class DQN(OffPolicy):
    """Deep Q-learning, for one discrete action.

    Mnih et al., 2015; double, van Hasselt et al., 2016, arXiv:1509.06461; prioritized, Schaul et
    al., 2016, arXiv:1511.05952; dueling, Wang et al., 2016, arXiv:1511.06581; noisy, Fortunato et
    al., 2018, arXiv:1706.10295; c51, Bellemare et al., 2017, arXiv:1707.06887; qr and iqn, Dabney
    et al., 2018, arXiv:1710.10044 and arXiv:1806.06923. The defaults solve CartPole.
    """

    num_envs: Count = 8
    steps_per_batch: Count = 8
    optim_steps_per_batch: Count = 32
    init_random_frames: Number = 1_000
    buffer_size: Count = 100_000
    batch_size: Count = 64
    prioritized: bool = False
    """whether to use prioritized replay"""
    alpha: Annotated[float, Needs("prioritized")] = 0.3
    """exponent of the priorities, which are squared TD errors; 0 for uniform sampling"""
    beta: Annotated[Fraction, Needs("prioritized")] = 0.4
    """exponent of the importance weights, which correct the bias; 1 for all of it"""
    lr: Rate = 2.3e-3
    num_cells: tuple[Count, ...] = (256, 256)
    double: bool = True
    """whether to use double Q-learning"""
    quantiles: Literal["c51", "qr", "iqn"] | None = None
    """distribution of returns to learn: c51, of fixed returns; qr or iqn, its quantiles"""
    num_quantiles: Annotated[Count | None, Needs("quantiles")] = None
    """atoms of c51, quantiles of qr, fractions of iqn at a time; None for 51, 51 and 8"""
    v_min: Annotated[float, Needs("quantiles", ("c51",))] = -10.0
    """least return of c51"""
    v_max: Annotated[float, Needs("quantiles", ("c51",))] = 10.0
    """greatest return of c51"""
    dueling: bool = False
    """whether values are sums of a state's value and advantages"""
    noisy: bool = False
    """whether learned noise of the last layers explores, in place of epsilon"""
    rescale_values: bool = False
    """whether values are learned on a scale like that of a square root, for large returns"""
    target_interval: Annotated[Count, Between(30, 1000, log=True)] = 100
    """optimizer steps between two updates of the target network"""
    max_grad_norm: float | None = 10.0
    """the gradient is clipped to this norm; None for no clipping"""
    eps_end: Annotated[Fraction, Between(0.01, 0.2, log=True), Needs("noisy", (False,))] = 0.04
    """final epsilon, the probability of a random action"""
    annealing_frames: Annotated[Count, Needs("noisy", (False,))] = 8_000
    """frames over which epsilon falls linearly from 1 to eps_end"""

    actions: ClassVar[Actions] = "discrete"
    tuned_for: ClassVar[Settings] = {
        "CartPole-v1": {
            "total_frames": 100_000,
            "eval_interval": 1_000,
            **CARTPOLE,
            "v_min": 0.0,
            "v_max": 100.0,  # of 500 steps, discounted
        },
        # The learning rate and the batch size are rl-zoo's.
        "Acrobot-v1": {
            "total_frames": 100_000,
            "lr": 6.3e-4,
            "batch_size": 128,
            "eval_interval": 10_000,
            "eval_episodes": 50,
        },
        # Those of rl-zoo, with three steps: with one, a seed in four never reached the goal.
        "MountainCar-v0": {
            "total_frames": 120_000,
            "num_envs": 4,
            "steps_per_batch": 4,
            "optim_steps_per_batch": 8,
            "buffer_size": 10_000,
            "batch_size": 128,
            "lr": 4e-3,
            "gamma": 0.98,
            "n_steps": 3,
            "target_interval": 600,
            "eps_end": 0.07,
            "annealing_frames": 24_000,
            "eval_interval": 20_000,
            "eval_episodes": 50,
        },
        "MinAtar/*": {
            "total_frames": 1_000_000,
            "num_envs": 64,
            "steps_per_batch": 1,
            "optim_steps_per_batch": 8,
            "init_random_frames": 5_000,
            "batch_size": 128,
            "lr": 1e-3,
            "n_steps": 3,
            "network": "flat",
            "num_cells": (128, 64),
            "double": False,  # with it, less was learned in 200k frames of Breakout
            "target_interval": 500,
            "eps_end": 0.02,
            "annealing_frames": 100_000,
            "eval_interval": 100_000,
            "eval_episodes": 20,
            "log_interval": 20_000,
            "save_interval": 250_000,
        },
    }

    def build(self, task: Task) -> Trainer:
        """Wire the trainer."""
        q_network = self._q_network(task).to(task.device)
        epsilon = {"eps_init": 0.0, "eps_end": 0.0} if self.noisy else {"eps_end": self.eps_end}
        policy = EpsilonGreedy(q_network, annealing_num_steps=self.annealing_frames, **epsilon)
        loss_module = _LOSSES[self.quantiles](
            q_network,
            loss_function="smooth_l1",
            double_dqn=self.double,
            rescale_values=self.rescale_values,
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

    def _q_network(self, task: Task) -> QNetwork:
        """Return the network of action values, or of their distributions."""
        made = self._networks_of(task)
        number = self.num_quantiles or _NUMBERS.get(self.quantiles, 1)
        atoms = 1 if self.quantiles in (None, "iqn") else number
        options: dict[str, Any] = {"action_mask_key": task.mask_key, "trunk": made.shared}
        if self.dueling or self.noisy or self.quantiles == "iqn":
            last = self.num_cells[1:][-1:]  # the only hidden layer is before the streams
            network, features = made.trunk(left_out=len(last))
            if self.quantiles == "iqn":
                options["embedding"] = FractionEmbedding(features)
            options["head"] = q_head(
                features,
                task.num_actions,
                last,
                ACTIVATIONS[self.activation],
                atoms=atoms,
                dueling=self.dueling,
                noisy=self.noisy,
            )
        else:
            network = made.network(task.num_actions * atoms)
        if self.quantiles is None:
            return QNetwork(network, made.in_keys, **options)
        if self.quantiles == "c51":
            options |= {"v_min": self.v_min, "v_max": self.v_max}
            return CategoricalQNetwork(network, number, made.in_keys, **options)
        return QuantileQNetwork(network, number, made.in_keys, **options)

    def _updater(self, loss_module: ReplayLoss) -> HardUpdate:
        return HardUpdate(loss_module, value_network_update_interval=self.target_interval)


@algorithm
class Rainbow(DQN):
    """Rainbow: double, prioritized, dueling, noisy deep Q-learning of c51, with 3-step returns.

    Hessel et al., 2018, arXiv:1710.02298. It is `DQN` with other defaults.
    """

    n_steps: Count = 3
    prioritized: bool = True
    alpha: float = 0.5
    quantiles: Literal["c51", "qr", "iqn"] | None = "c51"
    dueling: bool = True
    noisy: bool = True
