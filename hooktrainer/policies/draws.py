"""Random numbers of a saved policy, which are inputs of its program.

A program is deterministic. Its random numbers come from the player's generator: the same seed gives
the same actions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

MOST_NUMBERS: Final = 1 << 24
"""Largest number of random numbers for one action."""
_MOST_DRAWS: Final = 1 << 10
_NORMAL, _UNIFORM, _EXPONENTIAL, _INTEGERS = "normal", "uniform", "exponential", "integers"
_KINDS: Final = {
    "aten.randn.default": _NORMAL,
    "aten.randn_like.default": _NORMAL,
    "aten.normal_.default": _NORMAL,
    "aten.normal_functional.default": _NORMAL,
    "aten.rand.default": _UNIFORM,
    "aten.rand_like.default": _UNIFORM,
    "aten.uniform.default": _UNIFORM,
    "aten.uniform_.default": _UNIFORM,
    "aten.exponential.default": _EXPONENTIAL,
    "aten.exponential_.default": _EXPONENTIAL,
    "aten.randint_like.default": _INTEGERS,
}
_STANDARD: Final = {_NORMAL: (0, 1), _UNIFORM: (0, 1), _EXPONENTIAL: (1,)}


@dataclass(frozen=True)
class Draw:
    """Random numbers drawn for one action.

    Attributes:
        kind: ``"normal"`` (mean 0, deviation 1), ``"uniform"`` (0 to 1), ``"exponential"`` (rate 1)
            or ``"integers"`` (from 0).
        shape: Shape without the batch dimension.
        high: Exclusive bound of integers; otherwise 0.
    """

    kind: str
    shape: tuple[int, ...]
    high: int = 0

    @classmethod
    def decode(cls, data: Any) -> Draw:
        """Read a program's description: the kind, the shape with the batch, the bound."""
        kind, shape, high = data
        if kind not in _KINDS.values() or not isinstance(shape, list) or not 0 < len(shape) < 16:
            raise ValueError(f"{data!r:.80} is no draw")
        if shape[0] != {"batch": 1}:
            raise ValueError(f"the draw {shape!r:.80} is not one for each observation")
        if not all(type(n) is int and 0 <= n < 1 << 40 for n in (*shape[1:], high)):
            raise ValueError(f"{data!r:.80} is no draw")
        if math.prod(shape[1:]) > MOST_NUMBERS or (kind == _INTEGERS and not high):
            raise ValueError(f"the draw {data!r:.80} is too large, or of nothing")
        return cls(kind, tuple(shape[1:]), high)

    def make(self, batch: int, generator: torch.Generator) -> Tensor:
        """Draw ``[batch, *shape]``."""
        shape = (batch, *self.shape)
        match self.kind:
            case "normal":
                return torch.randn(shape, generator=generator)
            case "uniform":
                return torch.rand(shape, generator=generator)
            case "exponential":
                return torch.empty(shape).exponential_(generator=generator)
        return torch.randint(self.high, shape, generator=generator)

    def example(self) -> Tensor:
        """An empty tensor ``[1, *shape]`` on the device ``meta``."""
        dtype = torch.int64 if self.kind == _INTEGERS else torch.float32
        return torch.empty((1, *self.shape), dtype=dtype, device="meta")


def decode_draws(data: Any) -> list[Draw]:
    """The draws of a program's description."""
    if not isinstance(data, list) or len(data) > _MOST_DRAWS:
        raise ValueError(f"{data!r:.80} is no list of draws")
    return [Draw.decode(one) for one in data]


def take_draws(graph: torch.fx.Graph) -> list[Any]:
    """Turn the random operators of a recorded graph into inputs, after those that it has.

    Returns:
        For each its kind, shape and bound. Operators that cannot become inputs stay in the graph.
    """
    nodes = list(graph.nodes)
    first = next(node for node in nodes if node.op != "placeholder")
    found: list[Any] = []
    for node in nodes:
        kind = _kind(node)
        if kind is None:
            continue
        value = node.meta["val"]
        with graph.inserting_before(first):
            new = graph.placeholder(f"draw_{len(found)}")
        node.replace_all_uses_with(new)
        graph.erase_node(node)
        high = int(node.args[1]) if kind == _INTEGERS else 0
        found.append([kind, [int(size) for size in value.shape], high])
    return found


class RecordedDraws(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Context that stores all random numbers drawn, in the order of `take_draws`.

    Other distributions are computed from standard ones, as in the recording.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.values: list[Tensor] = []

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if (calculated := FROM_STANDARD.get(func)) is not None:
            with self:
                result = calculated(*args, **(kwargs or {}))
            if result is not NotImplemented:
                return result
        result = func(*args, **(kwargs or {}))
        if str(func) in _KINDS:
            self.values.append(result.clone())
        return result


def _kind(node: torch.fx.Node) -> str | None:
    """What a node draws; ``None`` if it draws nothing that can be an input."""
    kind = _KINDS.get(str(node.target))
    value = node.meta.get("val")
    if kind is None or not isinstance(value, Tensor):
        return None
    if kind == _INTEGERS:
        return kind if value.dtype is torch.int64 else None
    makes = str(node.target).startswith("aten.rand")  # its arguments are not parameters
    given = () if makes else tuple(node.args[1:])
    standard = _STANDARD[kind]
    if value.dtype is not torch.float32 or given != standard[: len(given)]:
        return None
    return kind


# -- Random numbers of other distributions, calculated from standard ones, which a program is given.

_TRIES: Final = 8


def _log_gamma(alpha: Tensor) -> Tensor:
    """Logarithms of Gamma variates of these shapes, each above 0.

    Marsaglia and Tsang, 2000, A Simple Method for Generating Gamma Variables. Each of eight tries
    is accepted with a probability above 0.95. If all fail (probability below 4e-11) it is the mode.
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


def _standard_gamma(alpha: Tensor, generator: Any = None) -> Tensor:
    return torch.exp(_log_gamma(alpha))


def _dirichlet(concentration: Tensor, generator: Any = None) -> Tensor:
    return torch.softmax(_log_gamma(concentration), -1)


def _bernoulli(probs: Tensor, generator: Any = None) -> Tensor:
    return (torch.rand(probs.shape) < probs).to(probs.dtype)


def _multinomial(
    probs: Tensor, number: int, replacement: bool = False, generator: Any = None
) -> Tensor:
    """Exponential clocks: the first rings with a probability proportional to its rate."""
    if number != 1:
        return NotImplemented
    return (probs / torch.empty_like(probs).exponential_()).argmax(-1, keepdim=True)


_aten = torch.ops.aten
FROM_STANDARD: Final[Mapping[Any, Callable[..., Tensor]]] = {
    _aten._standard_gamma.default: _standard_gamma,
    _aten._sample_dirichlet.default: _dirichlet,
    _aten.bernoulli.default: _bernoulli,
    _aten.multinomial.default: _multinomial,
}
"""Replacements of random operators, which use standard distributions alone."""
