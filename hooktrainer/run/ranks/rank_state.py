"""Saves the state of all ranks in one checkpoint, and resumes with the same or another number."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from tensordict import is_tensor_collection
from torch.utils._pytree import tree_map

from ...loop.stateful import fitting, mismatches
from ...store import CheckpointManager, flatten
from ...store.single_file import checksum_of
from ...store.stored import encode_state
from .gradients import full_tensor
from .ranks import Ranks

if TYPE_CHECKING:
    from ...trainer import Trainer


def rank_state(
    trainer: Trainer, ranks: Ranks, state: dict[str, Any] | None, *, changed: bool = False
) -> tuple[dict[str, Any], str | None] | None:
    """Return the state that the trainer of this rank loads.

    With as many ranks as wrote the checkpoint, each loads its own state and the run continues as if
    uninterrupted. With another number, counters, parameters, optimizers and hooks are restored; the
    environments are divided again and begin new episodes, none of which was played before; rank
    ``r`` takes the replay buffer and the random state of the former rank ``r``, and a new rank the
    buffer of ``r`` modulo the former number and a random state of its own.

    Args:
        trainer: The trainer of this rank, with all its hooks.
        ranks: The ranks.
        state: The tree in the checkpoint, on rank 0; ``None`` elsewhere, or to resume nothing.
        changed: On rank 0, whether the run continues with other, accepted options. A
            collector that differs from the one saved then loads what fits.

    Returns:
        The argument of `Trainer.load_state_dict`, and a note on how the run will differ from an
        uninterrupted one, or ``None``; ``None`` alone if there is nothing to resume.
    """
    if not ranks.first(lambda: state is not None):
        return None
    shares = None
    if state is not None:
        shares = [_share(state, rank, ranks, changed) for rank in range(ranks.world_size)]
    return _fit(ranks.scatter("a resume", shares), trainer, ranks)


def _share(state: dict[str, Any], rank: int, ranks: Ranks, changed: bool) -> dict[str, Any]:
    others = state.get("ranks", [])
    saved_by = 1 + len(others)
    former = rank % saved_by
    first = {k: v for k, v in state.items() if k != "ranks"}
    if former:
        other = others[former - 1]
        same = {name: state["components"][name] for name in other["same"]}
        first |= {"components": same | other["components"], "rng": other["rng"]}
    if rank >= saved_by:
        first["rng"] = None  # it continues with that of `DataParallel`
    share = {"state": first, "saved_by": saved_by, "changed": changed}
    if saved_by != ranks.world_size:
        own = state["components"].get("collector")
        share["collectors"] = [own, *(o["components"].get("collector", own) for o in others)]
    return share if rank == 0 else on_cpu(share)


def _fit(
    share: dict[str, Any], trainer: Trainer, ranks: Ranks
) -> tuple[dict[str, Any], str | None]:
    state: dict[str, Any] = share["state"]
    live, source = trainer.components(), trainer.source
    saved = state["components"].get("collector")
    collectors = share.get("collectors", [saved])
    # Of a collector that has processes of its own, how many.
    divided = [len(c["workers"]) for c in collectors if isinstance(c, dict) and "workers" in c]
    own = source.processes
    if share["saved_by"] == ranks.world_size and divided == [own] * bool(own):
        lines = mismatches(source, saved) if share["changed"] and saved is not None else []
        taken = fitting(source, saved) if lines else None
        if taken is None:  # if there are differences, loading refuses them
            return state, None
        note = f"collector: {', '.join(lines)}: the environments begin new episodes"
        return {**state, "components": {**state["components"], "collector": taken}}, note
    parts = {name: part for name, part in state["components"].items() if name in live}
    parts |= {n: {} for n, part in live.items() if n not in parts and not part.state_dict()}
    if "collector" in parts:
        parts["collector"] = source.reshard(collectors)
    note = (
        f"saved by {_processes(sum(divided) or share['saved_by'])}, resumed by "
        f"{_processes(own or ranks.world_size)}: the environments are divided again and begin "
        "new episodes"
    )
    return {**state, "components": parts}, note


def _processes(number: int) -> str:
    return f"{number} processes that collect" if number > 1 else "one process that collects"


# -- One checkpoint of a run of several ranks: rank 0 writes it, with what differs on the others.


class GatheredCheckpoints:
    """Stands in for the `CheckpointManager` of a trainer that is one of several ranks.

    All ranks save at the same batch. Of each, rank 0 receives the components that differ from its
    own (the collector, replay buffers, open log windows) and the state of its random generators;
    parameters and optimizers, which are equal, are not sent. The tree that is written is rank 0's
    with an entry ``ranks`` that holds the rest.

    Args:
        ranks: The ranks.
        manager: The run's checkpoints, on rank 0.
        directory: Where they are.
    """

    def __init__(self, ranks: Ranks, manager: CheckpointManager | None, directory: Path) -> None:
        self._ranks = ranks
        self._manager = manager
        # The exception.pt of a rank goes next to its own "checkpoints".
        self.directory = directory
        if ranks.rank:
            self.directory = directory.parent / "ranks" / str(ranks.rank) / directory.name

    def save(self, tree: dict[str, Any], **about: Any) -> None:
        """Save the state of all ranks; see `CheckpointManager.save`."""
        # Full tensors, so that a checkpoint does not depend on the number of ranks.
        parts = tree_map(full_tensor, tree["components"], is_leaf=is_tensor_collection)
        digests = {name: tree_digest(part) for name, part in parts.items()}
        first = self._ranks.all_gather("a checkpoint", digests)[0]
        same = [name for name in parts if digests[name] == first.get(name)]
        own = {name: part for name, part in parts.items() if name not in same}
        share = {"same": same, "components": {}, "rng": tree["rng"]}
        if self._ranks.rank:
            share = on_cpu(share | {"components": own})
        shares = self._ranks.gather("a checkpoint", share)
        if self._manager is not None:
            tree = {**tree, "components": parts, "ranks": shares[1:]}
            self._manager.save(tree, **about)

    def __getattr__(self, name: str) -> Any:
        """Return the manager's attribute on rank 0; elsewhere a method that does nothing."""
        return getattr(self._manager, name) if self._manager is not None else lambda *_: None


def on_cpu(tree: Any) -> Any:
    """Return a state tree with its tensors on the CPU, to be sent to another process."""

    def moved(leaf: Any) -> Any:
        is_tensor = isinstance(leaf, torch.Tensor) or is_tensor_collection(leaf)
        return leaf.cpu() if is_tensor else leaf

    return tree_map(moved, tree, is_leaf=is_tensor_collection)


def tree_digest(tree: Any) -> str:
    """Return the xxh3-128 hash of a state tree."""
    skeleton, tensors = flatten(tree)
    return checksum_of(encode_state(skeleton, tensors).decode(), tensors)
