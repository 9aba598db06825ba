"""Random numbers of other distributions, calculated from standard ones, which a program is given.

What a policy draws from a Beta, Gamma, Dirichlet or Bernoulli distribution, or by ``multinomial``,
becomes a calculation with normal, uniform and exponential numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import torch

_TRIES: Final = 8


def _log_gamma(alpha: torch.Tensor) -> torch.Tensor:
    """The logarithm of Gamma variates of these shapes, each above 0.

    By Marsaglia and Tsang, 2000, A Simple Method for Generating Gamma Variables. A try is accepted
    with a probability above 0.95, and there are eight; where none is, with a probability below
    4e-11, the mode takes its place.
    """
    boosted = torch.where(alpha < 1, alpha + 1, alpha)
    d = (boosted - 1 / 3).unsqueeze(-1)
    shape = (*alpha.shape, _TRIES)
    normal, uniform = torch.randn(shape), torch.rand(shape)
    t = normal / torch.sqrt(9 * d)
    log_v = 3 * torch.log1p(t)  # NaN where there is none, which is never accepted
    # d (1 - v + log v), where v = (1 + t)^3, without the difference of large numbers.
    ratio = 0.5 * normal.square() + d * (log_v - t * (3 + t * (3 + t)))
    accepted = torch.log(uniform) < ratio
    place = accepted.to(torch.float32).argmax(-1, keepdim=True)
    chosen = log_v.gather(-1, place).squeeze(-1)
    chosen = torch.where(accepted.any(-1), chosen, torch.zeros_like(chosen))
    log = torch.log(d.squeeze(-1)) + chosen
    less = torch.log1p(-torch.rand(alpha.shape)) / alpha
    return torch.where(alpha < 1, log + less, log).to(alpha.dtype)


def _standard_gamma(alpha: torch.Tensor, generator: Any = None) -> torch.Tensor:
    return torch.exp(_log_gamma(alpha))


def _dirichlet(concentration: torch.Tensor, generator: Any = None) -> torch.Tensor:
    return torch.softmax(_log_gamma(concentration), -1)


def _bernoulli(probs: torch.Tensor, generator: Any = None) -> torch.Tensor:
    return (torch.rand(probs.shape) < probs).to(probs.dtype)


def _multinomial(
    probs: torch.Tensor, number: int, replacement: bool = False, generator: Any = None
) -> torch.Tensor:
    """By exponential clocks: the first to ring has a probability in proportion to its rate."""
    if number != 1:
        return NotImplemented
    return (probs / torch.empty_like(probs).exponential_()).argmax(-1, keepdim=True)


_aten = torch.ops.aten
FROM_STANDARD: Final[Mapping[Any, Callable[..., torch.Tensor]]] = {
    _aten._standard_gamma.default: _standard_gamma,
    _aten._sample_dirichlet.default: _dirichlet,
    _aten.bernoulli.default: _bernoulli,
    _aten.multinomial.default: _multinomial,
}
"""By what draws, what gives numbers of the same distribution from standard ones."""
