"""Replay buffers and samplers, uniform and prioritized, that take microseconds a call."""

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
