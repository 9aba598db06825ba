"""Collectors of other libraries, which are iterated over, with the methods that `Ahead` needs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tensordict import TensorDictBase

from ...errors import ConfigError
from ...loop.closing import close_methods
from ...loop.part import has_state

_METHODS = ("collect", "state_dict", "load_state_dict", "shutdown")


class Iterated:
    """An iterable of batches as a collector: what it lacks does nothing, the rest is its own.

    Args:
        batches: The iterable, such as one of TorchRL's collectors.
    """

    def __init__(self, batches: Iterable[TensorDictBase]) -> None:
        self._batches = batches
        self._iterator: Iterator[TensorDictBase] | None = None

    def collect(self) -> TensorDictBase:
        """The next batch.

        Raises:
            StopIteration: If there is none.
        """
        if self._iterator is None:
            self._iterator = iter(self._batches)
        return next(self._iterator)

    def set_seed(self, seed: int) -> None:
        """Seed the environments, if that can be done."""
        self._call("set_seed", seed)

    def reset(self) -> None:
        """Abandon the running episodes, if that can be done."""
        self._call("reset")

    def state_dict(self) -> dict[str, Any]:
        """Its state, if it has any."""
        return dict(self._call("state_dict")) if has_state(self._batches) else {}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restore its state, if it has any."""
        if has_state(self._batches):
            self._call("load_state_dict", state_dict)

    def shutdown(self) -> None:
        """Close it, if that can be done."""
        for close in close_methods(self._batches):
            close()

    def _call(self, name: str, *args: Any) -> Any:
        method = getattr(self._batches, name, None)
        return method(*args) if callable(method) else None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # while it is copied, there is nothing to ask yet
            raise AttributeError(name)
        return getattr(self._batches, name)


def with_methods(collector: Any) -> Any:
    """``collector`` itself if it has all methods that collecting ahead needs, else around it.

    Raises:
        ConfigError: If it cannot even be iterated over.
    """
    if all(callable(getattr(collector, name, None)) for name in _METHODS):
        return collector
    if isinstance(collector, Iterable):
        return Iterated(collector)
    raise ConfigError(
        f"{type(collector).__name__} is not iterable, so it cannot collect ahead: use a "
        "VectorCollector or another iterable of batches, or leave out --overlap."
    )
