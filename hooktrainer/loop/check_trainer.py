"""Checks of a trainer's arguments, made before training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from ..base.checks import check_count
from ..base.tensordicts import is_loss, laid_out_as
from ..base.words import listed
from ..errors import ConfigError, StateMismatchError


def resolve_frame_skip(frame_skip: int | None, own: int | None) -> int:
    """Return the frames per collected step: the argument, else the collector's value, else 1."""
    if frame_skip is None:
        return 1 if own is None else int(own)
    check_count("frame_skip", frame_skip)
    if own not in (None, frame_skip):
        raise ConfigError(
            f"frame_skip={frame_skip}, but the collector repeats each action {own} times."
        )
    return frame_skip


def not_a_tensordict(what: str, value: Any) -> str:
    """Return the message for a value that should have been a TensorDict."""
    of = f" of {listed(map(repr, value), 4)}" if isinstance(value, Mapping) else ""
    return (
        f"{what} a {type(value).__name__}{of}, not a TensorDict; wrap it: "
        "TensorDict({...}, batch_size=[...])."
    )


def check_loss_module(loss_module: Any) -> None:
    """Refuse a loss that is not callable, or declares no output key that begins with "loss"."""
    if not callable(loss_module):
        raise ConfigError(
            f"loss_module={loss_module!r:.80} is not callable: it maps a TensorDict to losses."
        )
    keys = getattr(loss_module, "out_keys", None)
    if keys and not any(map(is_loss, keys)):
        raise ConfigError(
            f"loss_module {type(loss_module).__name__} computes {list(keys)}, and no 'loss...'."
        )


_MOMENTS = (
    *("exp_avg", "exp_avg_sq", "max_exp_avg_sq", "exp_inf", "momentum_buffer", "sum", "step"),
    *("square_avg", "grad_avg", "acc_delta", "prev", "step_size", "ax"),
)


def check_moments(optimizer: torch.optim.Optimizer) -> None:
    """Check the shapes of an optimizer's moments, and give them their parameter's strides.

    Fused optimizers check neither. Only optimizers of torch are checked.
    """
    if not any(kind.__module__.startswith("torch.optim.") for kind in type(optimizer).__mro__[:-2]):
        return
    for parameter, state in optimizer.state.items():
        for name in _MOMENTS if isinstance(parameter, torch.Tensor) else ():
            value = state.get(name)
            if not isinstance(value, torch.Tensor):
                continue
            if value.numel() != 1 if name == "step" else value.shape != parameter.shape:
                raise StateMismatchError(
                    f"the optimizer's {name!r} is {list(value.shape)} in the state, and its "
                    f"parameter {list(parameter.shape)}."
                )
            if name != "step":
                state[name] = laid_out_as(parameter, value)


def check_optimizer(optimizer: Any, loss_module: Any) -> None:
    """Refuse an optimizer that shares no parameter with the loss."""
    if not isinstance(getattr(optimizer, "param_groups", None), list):
        raise ConfigError(f"optimizer={optimizer!r:.80} is not a torch.optim.Optimizer.")
    if not isinstance(loss_module, torch.nn.Module):
        return
    trained = {id(p) for p in loss_module.parameters()}
    if trained and not any(id(p) in trained for p in parameters_of(optimizer)):
        raise ConfigError(
            f"the optimizer ({type(optimizer).__name__}) shares no parameter with loss_module: "
            "build it from loss_module.parameters(), after the last .to(device)."
        )


def parameters_of(optimizer: torch.optim.Optimizer) -> list[torch.nn.Parameter]:
    """Return the parameters of all groups of ``optimizer``."""
    return [p for group in optimizer.param_groups for p in group["params"]]
