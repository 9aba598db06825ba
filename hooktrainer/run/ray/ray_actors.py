"""What runs in the processes of a Ray cluster."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from tensordict import NestedKey

from ...base.cores import pin
from ...collect.collector import Collector
from ...collect.weights import Weights, weights_of
from ...loop.timing import Timing
from ...store.rng import rng_state, set_rng_state
from ..ranks.rank_state import seed_rank

Arrays = dict[NestedKey, np.ndarray[Any, Any]]


class Share(NamedTuple):
    """A process's share of a batch, as what Ray hands over without a copy.

    Attributes:
        arrays: Its entries.
        batch_size: Its shape.
        times: Seconds that the parts of collecting took.
    """

    arrays: Arrays
    batch_size: tuple[int, ...]
    times: dict[str, float]


def arrays_of(policy: Any) -> Weights | None:
    """A policy's state as arrays, which processes of a machine share; ``None`` for no policy."""
    if not callable(getattr(policy, "state_dict", None)):
        return None
    weights = weights_of(policy) or {}
    return {k: v.numpy() if isinstance(v, torch.Tensor) else v for k, v in weights.items()}


def load_weights(policy: Any, weights: Weights | None) -> None:
    """Bring a policy up to date with what `arrays_of` returned."""
    if weights is not None:
        # Copies, since what comes from the object store cannot be written to.
        own = {
            k: torch.from_numpy(v.copy()) if isinstance(v, np.ndarray) else v
            for k, v in weights.items()
        }
        policy.load_state_dict(own)


class Collecting:
    """Collects with a share of the environments.

    Args:
        collector: The whole collector.
        share: Index of this share, and the number of shares.
        incarnation: How many processes had this share before.
        core: Number of the CPU core to run on; ``None`` for any.
        device: Where the policy acts.
        episodes: The states by which to go on when this process takes the place of one that died.
    """

    def __init__(
        self,
        collector: Collector,
        share: tuple[int, int],
        incarnation: int,
        core: int | None,
        device: str,
        episodes: Sequence[Mapping[str, Any]] | None,
    ) -> None:
        torch.set_num_threads(1)
        pin([] if core is None else [core])
        index, number = share
        if device != "cpu" and isinstance(collector.policy, torch.nn.Module):
            collector.policy.to(device)
        collector.shard(index, number)
        if episodes is not None:
            collector.load_state_dict(collector.reshard(episodes))
        collector.start()
        self._collector = collector
        seed_rank(collector.seed, 1 + index + incarnation * number)

    def collect(self, weights: Weights | None) -> tuple[Share, dict[str, Any]]:
        """Collect a batch with the given weights.

        Returns:
            The share of the batch, and as much of the collector's state as it takes to go on after
            it if this process dies.
        """
        load_weights(self._collector.policy, weights)
        self._collector.timing = timing = Timing()
        batch = self._collector.collect()
        times = {name.removeprefix("collect/"): s for name, s in timing.totals.items()}
        items = batch.items(include_nested=True, leaves_only=True)
        arrays = {key: value.cpu().numpy() for key, value in items}
        return Share(arrays, tuple(batch.batch_size), times), self._collector.position()

    def state(self) -> dict[str, Any]:
        """The collector's state and that of the random generators."""
        return {"collector": self._collector.state_dict(), "rng": rng_state()}

    def restore(self, state: Mapping[str, Any]) -> tuple[dict[str, Any], int]:
        """Take up what `state` returned; return the collector's position and its frames."""
        self._collector.load_state_dict(state["collector"])
        set_rng_state(state["rng"])
        return self._collector.position(), self._collector.frames

    def reshard(self, states: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any], int]:
        """Go on with new episodes after those of other shares; return as `restore` does."""
        self._collector.load_state_dict(self._collector.reshard(states))
        return self._collector.position(), self._collector.frames

    def pid(self) -> int:
        """Number of this process."""
        return os.getpid()


class Evaluating:
    """Plays evaluation episodes.

    Args:
        evaluate: Makes the hook that does.
        options: Its arguments.
        core: Number of the CPU core to run on; ``None`` for any.
        device: Where the policy acts.
    """

    def __init__(
        self, evaluate: Any, options: Mapping[str, Any], core: int | None, device: str
    ) -> None:
        torch.set_num_threads(1)
        pin([] if core is None else [core])
        if device != "cpu" and isinstance(options["policy"], torch.nn.Module):
            options["policy"].to(device)
        self._evaluate = evaluate(**options)

    def evaluate(self, weights: Weights | None) -> dict[str, Any]:
        """Play with the given weights, and return the metrics as numbers."""
        load_weights(self._evaluate.policy, weights)
        metrics = self._evaluate.evaluate()
        return {k: v if k == "log_pbar" else float(v) for k, v in metrics.items()}
