"""Memories: what a network knows of an episode beside the present observation."""

from .any_memory import Memory
from .of_name import MEMORIES, memory_for
from .recurrent import GRUMemory, LSTMMemory
from .transformer import TransformerMemory
from .trunk import MemoryTrunk

__all__ = [
    "MEMORIES",
    "GRUMemory",
    "LSTMMemory",
    "Memory",
    "MemoryTrunk",
    "TransformerMemory",
    "memory_for",
]
