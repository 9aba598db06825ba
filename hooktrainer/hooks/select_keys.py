"""Keep only some keys of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tensordict import NestedKey, TensorDictBase

from ..errors import ConfigError
from ..loop.hook import TrainerHookBase

if TYPE_CHECKING:
    from ..loop.loop import Loop


class SelectKeys(TrainerHookBase):
    """Keeps only the given keys of every collected batch.

    Args:
        keys: Keys to keep; a nested key is a tuple of strings.

    Raises:
        ConfigError: If ``keys`` is a string instead of a sequence of keys.
    """

    def __init__(self, keys: Sequence[NestedKey]) -> None:
        if isinstance(keys, str):
            raise ConfigError(f"SelectKeys({keys!r}): pass a sequence of keys: [{keys!r}].")
        self.keys = list(keys)

    def __call__(self, batch: TensorDictBase) -> TensorDictBase:
        """Return the batch with only the selected keys; the tensors are shared."""
        return batch.select(*self.keys)

    def register(self, trainer: Loop, name: str = "select_keys") -> None:
        """Register at ``batch_process``."""
        trainer.register_module(name, self)
        trainer.register_op("batch_process", self)
