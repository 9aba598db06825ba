"""One checkpoint of a run of several ranks: rank 0 writes it, with what differs on the others."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from tensordict import is_tensor_collection

from ...store import CheckpointManager
from .digest import tree_digest
from .ranks import Ranks
from .sharded import whole_tree


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
        # What a rank leaves behind when it fails goes beside its own "checkpoints".
        self.directory = directory
        if ranks.rank:
            self.directory = directory.parent / "ranks" / str(ranks.rank) / directory.name

    def save(
        self,
        tree: dict[str, Any],
        *,
        frames: int,
        optim_steps: int = 0,
        metrics: Mapping[str, float] | None = None,
    ) -> None:
        """Save the state of all ranks; see `CheckpointManager.save`."""
        parts = {name: whole_tree(part) for name, part in tree["components"].items()}
        digests = {name: tree_digest(part) for name, part in parts.items()}
        first = self._ranks.broadcast("a checkpoint", digests)
        same = [name for name in parts if digests[name] == first.get(name)]
        own = {name: part for name, part in parts.items() if name not in same}
        share = {"same": same, "components": {}, "rng": tree["rng"]}
        if self._ranks.rank:
            share = on_cpu(share | {"components": own})
        shares = self._ranks.gather("a checkpoint", share)
        if self._manager is not None:
            self._manager.save(
                {**tree, "components": parts, "ranks": shares[1:]},
                frames=frames,
                optim_steps=optim_steps,
                metrics=metrics,
            )

    def go_on(self) -> None:
        """Make what was loaded the latest checkpoint of the run; see `CheckpointManager.go_on`."""
        if self._manager is not None:
            self._manager.go_on()

    def adopt(self, tree: dict[str, Any]) -> None:
        """Save what a run begins with that branches off; see `CheckpointManager.adopt`."""
        if self._manager is not None:
            self._manager.adopt(tree)

    @property
    def forked_from(self) -> Mapping[str, Any] | None:
        """Where the run branched off, as rank 0 knows."""
        return None if self._manager is None else self._manager.forked_from

    def check(self) -> None:
        """Raise what a write in the background failed with."""
        if self._manager is not None:
            self._manager.check()

    def wait(self) -> None:
        """Wait until the last save is on the disk."""
        if self._manager is not None:
            self._manager.wait()

    def close(self) -> None:
        """Wait for the last save and let go of the directory."""
        if self._manager is not None:
            self._manager.close()


def on_cpu(tree: Any) -> Any:
    """A state tree with its tensors on the CPU, to be sent to another process."""
    if isinstance(tree, torch.Tensor) or is_tensor_collection(tree):
        return tree.cpu()
    if isinstance(tree, Mapping):
        moved = {key: on_cpu(value) for key, value in tree.items()}
        return moved if type(tree) is dict else type(tree)(moved)  # type: ignore[call-arg]
    if type(tree) in (list, tuple):
        return type(tree)(on_cpu(value) for value in tree)
    return tree
