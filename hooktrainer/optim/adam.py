"""Adam's step as a function of tensors, for compiled graphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor


class AdamState(NamedTuple):
    """Parameters, their moments, and how many steps were made.

    Attributes:
        parameters: Any shape.
        exp_avg: Average of the gradients, of the same shape.
        exp_avg_sq: Average of their squares, likewise.
        steps: A scalar, floating.
    """

    parameters: Tensor
    exp_avg: Tensor
    exp_avg_sq: Tensor
    steps: Tensor


def hyperparameters(group: Mapping[str, Any]) -> list[float]:
    """What `adam_step` reads of a parameter group of `FlatAdam`."""
    return [group["lr"], *group["betas"], group["eps"], group["weight_decay"]]


def adam_step(state: AdamState, grad: Tensor, hyper: Tensor, decoupled: bool) -> AdamState:
    """One step of Adam, or AdamW (see `FlatAdam`), with the arithmetic of torch's fused kernel.

    Args:
        state: What there is before.
        grad: The gradient, of the parameters' shape.
        hyper: `hyperparameters`, float64, since 1 minus a decay near 1 has few digits.
        decoupled: Whether the weights decay by themselves.
    """
    lr, beta1, beta2, eps, weight_decay = hyper.unbind()
    parameters = state.parameters
    if decoupled:
        parameters = parameters * (1 - lr * weight_decay)
    else:
        grad = grad + weight_decay * parameters
    steps = state.steps + 1
    exp_avg = state.exp_avg + (1 - beta1) * (grad - state.exp_avg)
    exp_avg_sq = beta2 * state.exp_avg_sq + (1 - beta2) * grad * grad
    step_size = lr / (1 - beta1**steps)
    scale = (1 - beta2**steps).sqrt()
    step_size, scale = computed_once(step_size, scale)
    parameters = parameters - step_size * exp_avg / (exp_avg_sq.sqrt() / scale + eps)
    return AdamState(parameters, exp_avg, exp_avg_sq, steps)


def computed_once(*scalars: Tensor) -> Sequence[Tensor]:
    """The same scalars, of one type, which a compiled loop on a CPU reads instead of computing.

    Inductor computes what is elementwise where it is used: in a loop over the parameters two powers
    and some divisions for every 16 of them. What was scattered lies in memory.
    """
    values = torch.stack(scalars)
    if not values.is_cpu:
        return scalars
    places = torch.arange(len(scalars), device=values.device)
    return values.scatter(0, places, values).unbind()
