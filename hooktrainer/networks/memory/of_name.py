"""Memories by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...base.words import did_you_mean
from ...errors import ConfigError
from .any_memory import Memory
from .recurrent import GRUMemory, LSTMMemory
from .transformer import TransformerMemory

MEMORIES: Mapping[str, Callable[[int, int, int], Memory]] = {
    "gru": lambda in_features, size, length: GRUMemory(in_features, size),
    "lstm": lambda in_features, size, length: LSTMMemory(in_features, size),
    "transformer": TransformerMemory,
}
"""Memories by name, each made from the number of features, its size and its length."""


def memory_for(made_by: Any, in_features: int, size: int = 64, length: int = 32) -> Memory:
    """The memory of a name, or what a function makes.

    Args:
        made_by: A key of ``MEMORIES``, or a function from the number of features to a `Memory`.
        in_features: Size of the last dimension of what the memory is given.
        size: Size of a memory that is given by its name.
        length: Steps that such a transformer looks back.

    Raises:
        ConfigError: If there is none of that name, or the function makes something else.
    """
    if isinstance(made_by, str):
        if made_by not in MEMORIES:
            raise ConfigError(
                f"memory={made_by!r} is unknown.{did_you_mean(made_by, MEMORIES)} The choices are "
                f"{', '.join(MEMORIES)}; in Python also a function from the number of features to "
                "a Memory."
            )
        return MEMORIES[made_by](in_features, size, length)
    made = made_by(in_features) if callable(made_by) else made_by
    if not isinstance(made, Memory):
        raise ConfigError(
            f"memory={made_by!r:.80} made {made!r:.80}, which is no hooktrainer.networks.Memory."
        )
    return made
