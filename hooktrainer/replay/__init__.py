"""Replay buffers and samplers that cost microseconds, uniform and prioritized."""

from .buffer import RandomSampler, ReplayBuffer, SamplerWithoutReplacement
from .prioritized import DevicePrioritizedSampler, PrioritizedSampler, SumTree

__all__ = [
    "DevicePrioritizedSampler",
    "PrioritizedSampler",
    "RandomSampler",
    "ReplayBuffer",
    "SamplerWithoutReplacement",
    "SumTree",
]
