"""The states of hooks that TorchRL and hooktrainer both have, where they differ in form."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from ..hooks import EarlyStopping, LogValidationReward, RewardNormalizer, UpdateWeights
from ..loop.cadence import Progress

State = Mapping[str, Any]


def to_ours(hook: Any, state: State, progress: Progress) -> dict[str, Any]:
    """The state of one of our hooks, made of that of TorchRL's hook of the same name.

    Args:
        hook: The hook here.
        state: What TorchRL's hook saved.
        progress: The counters that were saved with it.
    """
    for kind, translate in _TO_OURS.items():
        if isinstance(hook, kind):
            return translate(hook, state, progress)
    return dict(state)


def to_theirs(state: State, optim_steps: int) -> dict[str, Any]:
    """The state of TorchRL's hook, made of that of ours, which is known by its keys.

    Args:
        state: What our hook saved.
        optim_steps: Optimizer steps made by then.
    """
    translate = _TO_THEIRS.get(frozenset(state))
    return dict(state) if translate is None else translate(state, optim_steps)


def _reward_normalizer(_: Any, state: State, progress: Progress) -> dict[str, Any]:
    stats = state["_reward_stats"]
    return {
        "decay": stats["decay"],
        "sum": torch.as_tensor(stats.get("sum", 0.0)).double(),
        "sum_of_squares": torch.as_tensor(stats.get("ssq", 0.0)).double(),
        "count": float(stats.get("count", 0.0)),
    }


def _early_stopping(_: Any, state: State, progress: Progress) -> dict[str, Any]:
    return {
        "best_score": state["best_score"],
        "stop_reason": state["stop_reason"],
        "improved_at": state["_last_improvement_frame"] or 0,
    }


def _validation(_: Any, state: State, progress: Progress) -> dict[str, Any]:
    return {"count": state["_count"], "environment": state["recorder_state_dict"]}


def _update_weights(hook: Any, state: State, progress: Progress) -> dict[str, Any]:
    if hook.interval_unit == "optim_steps":
        return {"counter": progress.optim_steps - state.get("last_update_count", 0)}
    return {"counter": state["counter"]}


_TO_OURS: dict[type, Callable[[Any, State, Progress], dict[str, Any]]] = {
    RewardNormalizer: _reward_normalizer,
    EarlyStopping: _early_stopping,
    LogValidationReward: _validation,
    UpdateWeights: _update_weights,
}


def _their_reward_normalizer(state: State, optim_steps: int) -> dict[str, Any]:
    total, squares = (
        torch.as_tensor(state[key], dtype=torch.float64) for key in ("sum", "sum_of_squares")
    )
    count = torch.tensor(state["count"], dtype=torch.float64)
    stats: dict[str, Any] = {"decay": state["decay"]}
    if count:
        variance = (squares - total.square() / count) / (count - 1).clamp_min(1)
        eps = torch.finfo(torch.get_default_dtype()).eps
        spread = {"var": variance, "std": variance.clamp_min(eps).sqrt()}
        sums = {"sum": total, "ssq": squares, "count": count, "mean": total / count}
        stats |= {key: value.float() for key, value in (sums | spread).items()}
        stats["count"] = state["count"]
    return {
        "_reward_stats": stats,
        "_normalize_has_been_called": bool(count),
        "_update_has_been_called": bool(count),
    }


def _their_early_stopping(state: State, optim_steps: int) -> dict[str, Any]:
    seen = state["best_score"] is not None
    return {
        "best_score": state["best_score"],
        "stop_reason": state["stop_reason"],
        "_last_improvement_frame": state["improved_at"] if seen else None,
    }


def _their_validation(state: State, optim_steps: int) -> dict[str, Any]:
    return {"_count": state["count"], "recorder_state_dict": state["environment"]}


def _their_update_weights(state: State, optim_steps: int) -> dict[str, Any]:
    return {"counter": state["counter"], "last_update_count": optim_steps}


_TO_THEIRS: dict[frozenset[str], Callable[[State, int], dict[str, Any]]] = {
    frozenset({"decay", "sum", "sum_of_squares", "count"}): _their_reward_normalizer,
    frozenset({"best_score", "stop_reason", "improved_at"}): _their_early_stopping,
    frozenset({"count", "environment"}): _their_validation,
    frozenset({"counter"}): _their_update_weights,
}
