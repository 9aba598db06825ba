"""Replay buffers and samplers that cost microseconds, uniform and prioritized."""

from .buffer import RandomSampler, ReplayBuffer, SamplerWithoutReplacement
from .device_prioritized import DevicePrioritizedSampler
from .prioritized import PrioritizedSampler, SumTree

__all__ = [
    "DevicePrioritizedSampler",
    "PrioritizedSampler",
    "RandomSampler",
    "ReplayBuffer",
    "SamplerWithoutReplacement",
    "SumTree",
]
