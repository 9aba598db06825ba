"""Memories: what a network knows of an episode beside the present observation."""

from .any_memory import Memory, MemoryTrunk
from .of_name import MEMORIES, GRUMemory, LSTMMemory, TransformerMemory, memory_for

__all__ = [
    "MEMORIES",
    "GRUMemory",
    "LSTMMemory",
    "Memory",
    "MemoryTrunk",
    "TransformerMemory",
    "memory_for",
]
