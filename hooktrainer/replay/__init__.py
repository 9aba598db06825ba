"""Replay buffers and samplers, uniform and prioritized, with microseconds per call."""

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
