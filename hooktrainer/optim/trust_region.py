"""A step of a policy within a trust region: natural gradient and line search."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..errors import NonFiniteError


class TrustRegionStep(NamedTuple):
    """The outcome of a step.

    Attributes:
        kl: Divergence between the policies before and after it.
        improvement: By how much the surrogate loss fell.
        fraction: Length of the step, as a fraction of the natural gradient step of divergence
            ``max_kl``; 0 if the line search found none, so that the parameters are unchanged.
    """

    kl: float
    improvement: float
    fraction: float


def trust_region_step(
    parameters: Sequence[nn.Parameter],
    terms: Callable[[], tuple[Tensor, Tensor]],
    *,
    max_kl: float,
    damping: float,
    cg_steps: int,
    backtracks: int,
    shrink: float,
    average: Callable[[Sequence[Tensor]], None] | None = None,
) -> TrustRegionStep:
    """Change parameters by the step of Schulman et al., 2015, arXiv:1502.05477, appendix C.

    The direction is that of the natural gradient, found by conjugate gradient from products with
    the Hessian of the divergence. The largest step of divergence ``max_kl`` in the quadratic model
    is shrunk until the divergence is within the limit and the surrogate loss has fallen.

    Args:
        parameters: The parameters of the policy.
        terms: Returns the surrogate loss and the divergence from the present policy, as functions
            of the parameters.
        max_kl: Limit of the divergence.
        damping: Multiple of the identity added to the Hessian.
        cg_steps: Greatest number of steps of conjugate gradient.
        backtracks: Greatest number of lengths that are tried.
        shrink: Factor from one length to the next.
        average: Replaces tensors by their mean over the processes that train together.

    Raises:
        NonFiniteError: If the gradient is NaN or infinite; the parameters are unchanged.
    """

    def averaged(value: Tensor) -> Tensor:
        if average is not None:
            average([value])
        return value

    # cuDNN's recurrent layers have no second derivative.
    with torch.backends.cudnn.flags(enabled=False), torch.enable_grad():
        surrogate, kl = terms()
        gradient = averaged(_flat(_grad(surrogate, parameters, retain_graph=True)))
        if not gradient.isfinite().all():
            raise NonFiniteError(
                "the gradient of the surrogate loss is not finite; the parameters are as they "
                "were: look at the advantages and log-probabilities of the batch."
            )
        slope = _flat(_grad(kl, parameters, create_graph=True))

        def product(vector: Tensor) -> Tensor:
            twice = _flat(_grad(slope @ vector, parameters, retain_graph=True))
            return averaged(twice) + damping * vector

        direction = conjugate_gradient(product, -gradient, cg_steps)
        curvature = direction @ product(direction)
    # Where there is no gradient, there is no step.
    largest = direction * (2 * max_kl / curvature.clamp_min(1e-30)).sqrt()
    old = [parameter.detach().clone() for parameter in parameters]
    before = averaged(surrogate.detach().clone()).item()
    sizes = [parameter.numel() for parameter in parameters]
    with torch.no_grad():
        fraction = 1.0
        for _ in range(backtracks):
            changes = torch.split(fraction * largest, sizes)
            for parameter, start, change in zip(parameters, old, changes, strict=True):
                parameter.copy_(start + change.view_as(start))
            after, moved = averaged(torch.stack(terms())).tolist()
            if moved < max_kl and after < before:
                return TrustRegionStep(moved, before - after, fraction)
            fraction *= shrink
        for parameter, start in zip(parameters, old, strict=True):
            parameter.copy_(start)
    return TrustRegionStep(0.0, 0.0, 0.0)


def conjugate_gradient(
    product: Callable[[Tensor], Tensor], b: Tensor, steps: int, tolerance: float = 1e-10
) -> Tensor:
    """Solve ``A x = b`` for a positive definite A, given by its products with vectors.

    Args:
        product: Returns ``A v`` for ``v``, ``[n]``.
        b: ``[n]``.
        steps: Greatest number of products.
        tolerance: The squared norm of the residual at which the solution is good enough.
    """
    x, residual, direction = torch.zeros_like(b), b, b
    square = residual @ residual
    for _ in range(steps):
        if square < tolerance:
            break
        moved = product(direction)
        length = square / (direction @ moved)
        x = x + length * direction
        residual = residual - length * moved
        before, square = square, residual @ residual
        direction = residual + square / before * direction
    return x


def _grad(value: Tensor, parameters: Sequence[nn.Parameter], **options: Any) -> list[Tensor]:
    found = torch.autograd.grad(value, parameters, allow_unused=True, **options)
    pairs = zip(found, parameters, strict=True)
    return [torch.zeros_like(p) if grad is None else grad for grad, p in pairs]


def _flat(tensors: Sequence[Tensor]) -> Tensor:
    return torch.cat([tensor.reshape(-1) for tensor in tensors])
