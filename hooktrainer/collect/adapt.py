"""`adapt` makes a `Collector` of anything that yields batches.

This is the only place that inspects an object for methods or attributes of a collector;
everything else uses the contract.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from tensordict import TensorDictBase, is_tensor_collection

from ..base.tensordicts import count_valid, not_a_tensordict
from ..errors import ConfigError, StateMismatchError
from ..loop.stateful import has_state
from .collector import Collector, Resumes, lost_at_resume, no_shard


def adapt(collector: Any) -> Collector:
    """Make a `Collector` of anything that yields batches.

    A `Collector` is returned unchanged. A sequence is iterated once, and a resumed run continues
    where it stopped. Anything else, such as a collector of TorchRL, a generator or a simulator,
    needs ``__iter__`` or ``collect``; other missing attributes have the defaults of `Collector`.

    Args:
        collector: A collector, an iterable of TensorDicts, or an object with ``collect()``.

    Raises:
        ConfigError: If it is nothing of the kind, or a sequence holds something else.
    """
    if isinstance(collector, Collector):
        return collector
    if isinstance(collector, Sequence) and not has_state(collector):
        return SequenceCollector(collector)
    if isinstance(collector, Iterable) or callable(getattr(collector, "collect", None)):
        return AdaptedCollector(collector)
    raise ConfigError(
        f"collector={collector!r:.80} is not iterable; pass an iterable of TensorDicts, such as a "
        "VectorCollector, a torchrl collector or a list."
    )


def waits_for_processes(collector: Any) -> bool:
    """Whether a collector may wait forever for processes that a signal to all has ended.

    TorchRL's multi-process collectors do.
    """
    own = collector.wrapped if isinstance(collector, AdaptedCollector) else collector
    return bool(getattr(own, "procs", None)) and hasattr(own, "pipes")


def is_of_torchrl(collector: Any) -> bool:
    """Whether a collector is one of TorchRL's, or derives from one."""
    return any(base.__module__.startswith("torchrl.") for base in type(collector).__mro__)


def weight_schemes(collector: Any) -> Mapping[str, Any]:
    """The weight senders of a collector of TorchRL, by the network's name."""
    return getattr(collector, "_weight_sync_schemes", None) or {}


_FACTS = (
    *("policy", "num_envs", "init_random_frames", "frame_skip", "seed", "processes"),
    *("replay_buffer", "device", "frames_per_batch", "total_frames", "unit"),
)


class AdaptedCollector(Collector):
    """Something that yields batches, as a `Collector`; made by `adapt`."""

    def __init__(self, wrapped: Any) -> None:
        self.wrapped = wrapped
        self.resumes: Resumes = "restarts"
        self._has_state = has_state(wrapped)
        if self._has_state:
            claim: Resumes = "partly" if is_of_torchrl(wrapped) else "exactly"
            self.resumes = getattr(wrapped, "resumes", claim)
        if any(base.__name__ == "MultiAsyncCollector" for base in type(wrapped).__mro__):
            # Its state_dict() can make a process forget a batch that it then waits for (0.14.1).
            self._has_state = False
        self._iterator: Iterator[Any] | None = None
        self.steps_exploration = not isinstance(wrapped, Iterable)
        self._written = 0
        # An attribute that it lacks has the default of `Collector`.
        facts = {name: getattr(self.wrapped, name, None) for name in _FACTS}
        if (requested := getattr(self.wrapped, "requested_frames_per_batch", None)) is not None:
            facts["frames_per_batch"] = requested  # TorchRL's other one is of one environment
        if facts["device"] is not None:
            facts["device"] = torch.device(facts["device"])
        if facts["total_frames"] == math.inf:
            facts["total_frames"] = -1
        vars(self).update({name: fact for name, fact in facts.items() if fact is not None})

    @property
    def unsaved(self) -> str | None:
        default = lost_at_resume(type(self.wrapped), self.resumes)
        return getattr(self.wrapped, "unsaved", default)

    # -- collecting ------------------------------------------------------------------------------

    def register(self, trainer: Any) -> None:
        self._call("register", trainer)

    def start(self) -> None:
        """Start it, unless it is TorchRL's, whose ``start`` makes it collect without end."""
        if not is_of_torchrl(self.wrapped):
            self._call("start")

    def collect(self) -> TensorDictBase:
        """Return the next batch: by iterating over it, or by its ``collect`` if that is all it has.

        If it yields ``None``, having written to a replay buffer, return the entries it wrote.
        """
        self._check_open()
        buffer = self.replay_buffer
        if self._iterator is None and buffer is not None:
            self._written = int(buffer.write_count)
        batch = self._next()
        if buffer is not None:
            before, self._written = self._written, int(buffer.write_count)
            if batch is None:
                batch = last(buffer, self._written - before)
        if isinstance(batch, TensorDictBase):
            self.frames += count_valid(batch)
        return batch

    def _next(self) -> Any:
        if not isinstance(self.wrapped, Iterable):
            return self.wrapped.collect()
        if self._iterator is None:
            self._iterator = iter(self.wrapped)
        try:
            return next(self._iterator)
        except StopIteration:
            raise
        except BaseException:
            self._iterator = None  # one that failed would raise StopIteration the next time
            raise

    def set_seed(self, seed: int, static_seed: bool = False) -> Any:
        self._call("set_seed", seed)
        self._call("reset")

    def reset(self) -> None:
        self._call("reset")

    def _close(self) -> None:
        close = getattr(self.wrapped, "shutdown", None) or getattr(self.wrapped, "close", None)
        if callable(close):
            close()
        # One of shared memory that is left open starts a thread when Python ends, which hangs it.
        for scheme in weight_schemes(self.wrapped).values():
            scheme.shutdown()

    def update_policy_weights_(self, *args: Any, **kwargs: Any) -> None:
        method = getattr(self.wrapped, "update_policy_weights_", super().update_policy_weights_)
        method(*args, **kwargs)

    def state_dict(self) -> dict[str, Any]:
        if self._closed and is_of_torchrl(self.wrapped):
            raise ConfigError(
                "a collector of TorchRL has no state once it is closed, as after train(): pass "
                "save_trainer_file= or checkpoints= to the trainer, which save the end of the run."
            )
        return dict(self.wrapped.state_dict()) if self._has_state else {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if self._has_state:
            self.wrapped.load_state_dict(state_dict)

    def check_shares(self, number: int) -> None:
        raise no_shard(type(self.wrapped).__name__, number)

    def _call(self, name: str, *args: Any) -> Any:
        method = getattr(self.wrapped, name, None)
        return method(*args) if callable(method) else None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_iterator": None}

    def __repr__(self) -> str:
        return f"adapt({self.wrapped!r:.200})"


class SequenceCollector(Collector):
    """Hands out batches one after another, once.

    Its state is where it stands.
    """

    def __init__(self, batches: Sequence[TensorDictBase]) -> None:
        for index, batch in enumerate(batches):
            if not is_tensor_collection(batch):
                raise ConfigError(not_a_tensordict(f"collector[{index}] is", batch))
        self._batches = batches
        self._place = 0

    def collect(self) -> TensorDictBase:
        self._check_open()
        if self._place >= len(self._batches):
            raise StopIteration
        batch = self._batches[self._place]
        self._place += 1
        self.frames += count_valid(batch)
        return batch

    def state_dict(self) -> dict[str, Any]:
        return {"place": self._place, "length": len(self._batches)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if state_dict.get("length") != len(self._batches):
            raise StateMismatchError(
                f"the saved run was trained on {state_dict.get('length')} batches; there are "
                f"{len(self._batches)} here."
            )
        self._place = state_dict["place"]
        self.frames = sum(count_valid(batch) for batch in self._batches[: self._place])


def last(buffer: Any, number: int) -> TensorDictBase:
    """The last ``number`` entries that were written, the oldest first: ``[number, ...]``, a copy.

    Raises:
        ConfigError: If they cannot be told from others in the buffer.
    """
    from torchrl.data import RoundRobinWriter

    writer, storage = buffer.writer, buffer.storage
    length = len(storage) if storage.ndim == 1 else int(storage.shape[0])
    if not isinstance(writer, RoundRobinWriter) or not 0 < number <= length:
        raise ConfigError(
            f"the collector wrote {number} entries into a replay buffer of {length} with a "
            f"{type(writer).__name__}: let a RoundRobinWriter write them in order and nothing else "
            "into it, and make it larger than a batch."
        )
    index = torch.arange(writer._cursor - number, writer._cursor) % length
    return buffer.storage[index].clone()
