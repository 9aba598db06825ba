"""Random numbers that a loss draws, taken out of it: drawn before, and given to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch.overrides import TorchFunctionMode

from .compiling import CannotCompileError

# What draws numbers that depend on nothing but a shape: the first argument's, or the arguments'.
_LIKE = {torch.randn_like, torch.rand_like, torch.randint_like}
_NEW = {torch.randn, torch.rand, torch.randint}
_IN_PLACE = {
    torch.Tensor.normal_,
    torch.Tensor.uniform_,
    torch.Tensor.exponential_,
    torch.Tensor.random_,
}
_TANH = {torch.tanh, torch.Tensor.tanh}
# What draws numbers that depend on others.
_OTHERS = {
    torch.normal,
    torch.bernoulli,
    torch.multinomial,
    torch.poisson,
    torch._standard_gamma,
    torch.nn.functional.dropout,
    torch.Tensor.bernoulli_,
    torch.Tensor.multinomial,
}


class RandomCall(NamedTuple):
    """One drawing of random numbers.

    Attributes:
        function: What draws.
        like: Shape, dtype and device of its first argument, if that is a tensor.
        args: The other arguments.
        kwargs: The arguments by name.
    """

    function: Callable[..., torch.Tensor]
    like: tuple[torch.Size, torch.dtype, torch.device] | None
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    def __call__(self) -> torch.Tensor:
        """RandomCall again, other numbers."""
        first = []
        if self.like is not None:
            shape, dtype, device = self.like
            first = [torch.empty(shape, dtype=dtype, device=device)]
        return self.function(*first, *self.args, **self.kwargs)

    def into(self, out: torch.Tensor) -> None:
        """Write other numbers to a contiguous tensor of their shape."""
        if self.function in _IN_PLACE:
            self.function(out, *self.args, **self.kwargs)
        else:
            out.copy_(self())


class NotedDraws(TorchFunctionMode):
    """Notes in the block what is drawn.

    Attributes:
        draws: In order.
    """

    def __init__(self) -> None:
        super().__init__()
        self.draws: list[RandomCall] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call the function, and note it if it draws.

        Raises:
            CannotCompileError: If what it draws depends on other numbers.
        """
        kwargs = kwargs or {}
        if func in _OTHERS and kwargs.get("training", True):
            name = getattr(func, "__name__", str(func))
            raise CannotCompileError(f"{name} draws random numbers that depend on others")
        if func in _NEW:
            self.draws.append(RandomCall(func, None, args, kwargs))
        elif func in _LIKE or func in _IN_PLACE:
            first = args[0]
            like = (first.shape, first.dtype, first.device)
            self.draws.append(RandomCall(func, like, args[1:], kwargs))
        return func(*args, **kwargs)


class GivenDraws(TorchFunctionMode):
    """In the block what is drawn are given numbers.

    Args:
        numbers: In the order of the draws that `NotedDraws` noted.
    """

    def __init__(self, numbers: Sequence[torch.Tensor]) -> None:
        super().__init__()
        self._numbers = iter(numbers)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call the function, or give the next numbers in its place."""
        if func in _LIKE or func in _NEW:
            return next(self._numbers)
        if func in _IN_PLACE:
            return args[0].copy_(next(self._numbers))
        if func in _TANH and not torch.compiler.is_compiling():
            return torch.sigmoid(2 * args[0]) * 2 - 1  # to 2e-7, in a quarter of the time
        return func(*args, **(kwargs or {}))
