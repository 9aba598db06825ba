"""Taking up a checkpoint with the ranks that wrote it, or with another number of them."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ...loop.part import differences, fitting
from ...loop.state import components
from ...store.rng import rng_state, set_rng_state
from .checkpoints import on_cpu
from .ranks import Ranks

if TYPE_CHECKING:
    from ...collect.collector import Collector
    from ...trainer import Trainer


@dataclass
class RankState:
    """What one rank takes up of a checkpoint.

    Attributes:
        state: What its `Trainer.load_state_dict` is given.
        note: In what the run will differ from one that was not interrupted; ``None`` for nothing.
    """

    state: dict[str, Any]
    note: str | None = None


def rank_state(
    trainer: Trainer, ranks: Ranks, state: dict[str, Any] | None, *, changed: bool = False
) -> RankState | None:
    """The state that this rank's trainer takes up.

    With as many ranks as wrote the checkpoint, each takes up its own state and the run goes on as
    if it had not been interrupted. With another number, counters, parameters, optimizers and hooks
    go on; the environments are shared out anew and begin new episodes, none of which was played
    before; rank ``r`` takes the replay buffer and the random state of the former rank ``r``, and
    one that is new those of ``r`` modulo the former number and a random state of its own.

    Args:
        trainer: The trainer of this rank, with all its hooks.
        ranks: The ranks.
        state: The tree in the checkpoint, on rank 0; ``None`` elsewhere, or to resume nothing.
        changed: On rank 0, whether the run goes on with other options, which were accepted. A
            collector that differs from the one saved then takes up what it can.

    Returns:
        ``None`` if there is nothing to resume.
    """
    if ranks.world_size > 1:
        if not ranks.broadcast("a resume", state is not None):
            return None
        sent = None
        if state is not None:
            sent = [_share(state, r, ranks, changed) for r in range(ranks.world_size)]
        share = ranks.scatter("a resume", sent)
    elif state is None:
        return None
    else:
        share = _share(state, 0, ranks, changed)
    return _fit(share, trainer, ranks)


def seed_rank(seed: int | None, rank: int) -> None:
    """Give a rank random numbers of its own. Rank 0 keeps those that a run alone would draw."""
    if rank:
        own = np.random.SeedSequence([seed or 0, rank]).generate_state(1, np.uint32)[0]
        random.seed(int(own))
        np.random.seed(int(own))
        torch.manual_seed(int(own))


def _share(state: dict[str, Any], rank: int, ranks: Ranks, changed: bool) -> dict[str, Any]:
    """What rank 0 sends to a rank."""
    others = state.get("ranks", [])
    saved_by = 1 + len(others)
    former = rank % saved_by
    first = {k: v for k, v in state.items() if k != "ranks"}
    if former:
        other = others[former - 1]
        same = {name: state["components"][name] for name in other["same"]}
        first |= {"components": same | other["components"], "rng": other["rng"]}
    share = {"state": first, "saved_by": saved_by, "is_new": rank >= saved_by, "changed": changed}
    if saved_by != ranks.world_size:
        own = state["components"].get("collector")
        share["collectors"] = [own, *(o["components"].get("collector", own) for o in others)]
    return share if rank == 0 else on_cpu(share)


def _fit(share: dict[str, Any], trainer: Trainer, ranks: Ranks) -> RankState:
    """Make a share fit this rank."""
    state: dict[str, Any] = share["state"]
    live = components(trainer)
    saved = state["components"].get("collector")
    collectors = share.get("collectors", [saved])
    # Of a collector that has processes of its own, how many.
    divided = [len(c["workers"]) for c in collectors if isinstance(c, dict) and "workers" in c]
    own = trainer.source.processes
    if share["saved_by"] == ranks.world_size and divided == [own] * bool(own):
        return _changed(state, trainer.source) if share["changed"] else RankState(state)
    parts = {name: part for name, part in state["components"].items() if name in live}
    parts |= {n: {} for n, part in live.items() if n not in parts and not part.state_dict()}
    if "collector" in parts:
        parts["collector"] = trainer.source.reshard(collectors)
    state = {**state, "components": parts}
    if share["is_new"]:
        before = rng_state()
        seed_rank(parts["progress"]["frames"], ranks.rank)
        state["rng"] = rng_state()
        set_rng_state(before)
    return RankState(
        state,
        f"saved by {_processes(sum(divided) or share['saved_by'])}, resumed by "
        f"{_processes(own or ranks.world_size)}: the environments are shared out anew and begin "
        "new episodes",
    )


def _changed(state: dict[str, Any], source: Collector) -> RankState:
    """The state with that of the collector as the one that there is now can take it up."""
    saved = state["components"].get("collector")
    lines = [] if saved is None else differences(source, saved)
    taken = fitting(source, saved) if lines else None
    if taken is None:  # if there are differences, loading refuses them
        return RankState(state)
    note = f"collector: {', '.join(lines)}: the environments begin new episodes"
    return RankState({**state, "components": {**state["components"], "collector": taken}}, note)


def _processes(number: int) -> str:
    return f"{number} processes that collect" if number > 1 else "one process that collects"
