"""Monotonic value mixing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from torch import nn

from ..networks import AgentsPolicy, EncodedMixer, EpsilonGreedy, MonotonicMixer, SumMixer
from ..objectives import HardUpdate, QMixLoss
from ..run.config import Between, Count, Fraction, Rate
from ..trainer import Trainer
from .agents import AgentsOffPolicy, AgentsTask, Keys
from .algorithm import algorithm
from .check_spaces import Actions
from .config import Settings

# -- What VDN and QMIX share: deep Q-learning of the value of all agents together.


@dataclass(frozen=True, kw_only=True)
class ValueMixing(AgentsOffPolicy):
    """Fields of VDN and QMIX."""

    steps_per_batch: Count = 8
    buffer_size: Count = 100_000
    lr: Annotated[Rate, Between(1e-4, 1e-2, log=True)] = 5e-4
    double: bool = True
    """whether the network chooses the next actions that its target values"""
    target_interval: Count = 200
    """optimizer steps between two updates of the target networks"""
    max_grad_norm: float | None = 10.0
    """the gradient is clipped to this norm; None for no clipping"""
    eps_end: Fraction = 0.05
    """final epsilon, the probability of a random action of each agent"""
    annealing_frames: Count = 50_000
    """frames over which epsilon falls linearly from 1 to eps_end"""

    actions: ClassVar[Actions] = "discrete"
    tuned_for: ClassVar[Settings] = {"pettingzoo/mpe/simple_spread_v3": {"total_frames": 200_000}}

    def _mixer(self, task: AgentsTask) -> tuple[nn.Module, Keys]:
        """The module that mixes the values of all agents, and the other entries that it reads."""
        raise NotImplementedError

    def build(self, task: AgentsTask) -> Trainer:
        """Wire the trainer."""
        values = {group.name: task.action_values(group) for group in task.groups}
        mixer, state_keys = self._mixer(task)
        loss = QMixLoss(
            values,
            mixer,
            state_keys,
            loss_function="smooth_l1",
            double=self.double,
            **self._loss_options(),
        )
        epsilon: dict[str, Any] = {
            "eps_end": self.eps_end,
            "annealing_num_steps": self.annealing_frames,
        }
        policy = AgentsPolicy({name: EpsilonGreedy(q, **epsilon) for name, q in values.items()})
        updater = HardUpdate(loss, value_network_update_interval=self.target_interval)
        return task.finish(self._trainer(task, loss, policy, updater), AgentsPolicy(values))


@algorithm
class QMIX(ValueMixing):
    """QMIX: the value of all agents together rises with that of each, by weights from the state.

    Rashid et al., 2018, arXiv:1803.11485. Where the environment gives no state, it is what all
    agents observe. For discrete actions, and agents that have one aim: they are trained on the mean
    of their rewards.
    """

    mixing_cells: Count = 32
    """units in the hidden layer of the mixing network"""

    def _mixer(self, task: AgentsTask) -> tuple[nn.Module, Keys]:
        encoder, features, keys = task.joint_encoder()
        agents = sum(len(group.agents) for group in task.groups)
        return EncodedMixer(encoder, MonotonicMixer(features, agents, self.mixing_cells)), keys


# -- Value decomposition.


@algorithm
class VDN(ValueMixing):
    """Value decomposition networks: the value of all agents together is the sum of theirs.

    Sunehag et al., 2018, arXiv:1706.05296. For discrete actions, and agents that have one aim: they
    are trained on the mean of their rewards.
    """

    def _mixer(self, task: AgentsTask) -> tuple[nn.Module, Keys]:
        return SumMixer(), []
