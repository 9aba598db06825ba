"""Value decomposition."""

from __future__ import annotations

from typing import ClassVar

from torch import nn

from ..networks import SumMixer
from .agents_task import AgentsTask, Keys
from .algorithm import algorithm
from .config import Settings
from .value_mixing import ValueMixing


@algorithm
class VDN(ValueMixing):
    """Value decomposition networks: the value of all agents together is the sum of theirs.

    Sunehag et al., 2018, arXiv:1706.05296. For discrete actions, and agents that have one aim: they
    are trained on the mean of their rewards.
    """

    tuned_for: ClassVar[Settings] = {"pettingzoo/mpe/simple_spread_v3": {"total_frames": 200_000}}

    def _mixer(self, task: AgentsTask) -> tuple[nn.Module, Keys]:
        return SumMixer(), []
