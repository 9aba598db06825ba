"""Monotonic value mixing."""

from __future__ import annotations

from typing import ClassVar

from torch import nn

from ..networks import EncodedMixer, MonotonicMixer
from ..run.fields import Count
from .agents_task import AgentsTask, Keys
from .algorithm import algorithm
from .config import Settings
from .value_mixing import ValueMixing


@algorithm
class QMIX(ValueMixing):
    """QMIX: the value of all agents together rises with that of each, by weights from the state.

    Rashid et al., 2018, arXiv:1803.11485. Where the environment gives no state, it is what all
    agents observe. For discrete actions, and agents that have one aim: they are trained on the mean
    of their rewards.
    """

    mixing_cells: Count = 32
    """units in the hidden layer of the mixing network"""

    tuned_for: ClassVar[Settings] = {"pettingzoo/mpe/simple_spread_v3": {"total_frames": 200_000}}

    def _mixer(self, task: AgentsTask) -> tuple[nn.Module, Keys]:
        encoder, features, keys = task.joint_encoder()
        agents = sum(len(group.agents) for group in task.groups)
        return EncodedMixer(encoder, MonotonicMixer(features, agents, self.mixing_cells)), keys
