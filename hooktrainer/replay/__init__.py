"""Replay buffers and samplers that cost microseconds, uniform and prioritized."""

from .buffer import ReplayBuffer
from .device_prioritized import DevicePrioritizedSampler
from .prioritized import PrioritizedSampler
from .samplers import RandomSampler, SamplerWithoutReplacement
from .sum_tree import SumTree

__all__ = [
    "DevicePrioritizedSampler",
    "PrioritizedSampler",
    "RandomSampler",
    "ReplayBuffer",
    "SamplerWithoutReplacement",
    "SumTree",
]
