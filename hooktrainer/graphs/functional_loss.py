"""`FunctionalLoss`: a loss module as a function of its parameters and of the entries of a batch."""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from tensordict import NestedKey, TensorDict, TensorDictBase
from torch import nn
from torch.overrides import TorchFunctionMode

from ..base.tensordicts import total_loss
from ..objectives.common import Entries, Loss
from .compiling import CannotCompileError

Losses = dict[Any, torch.Tensor]


class FunctionalLoss:
    """A loss module as a function of its parameters and of the entries of a batch.

    A `Loss` is taken apart: what it reads and writes stays outside the function. Of any other
    module the whole ``forward`` is inside, which must then be free of side effects; what it writes
    into the batch is found again by comparing.

    Args:
        module: Maps a TensorDict to a TensorDict of losses.
        autocast: The arguments of ``torch.autocast``, in which the module computes; ``None``: none.

    Attributes:
        names: Every parameter, and what it is called in a call.
    """

    def __init__(
        self,
        module: nn.Module,
        autocast: tuple[str, torch.dtype] | None = None,
    ) -> None:
        self.module = module
        self._autocast = autocast
        self._body = _OfLoss(module) if isinstance(module, Loss) else _OfModule(module)
        # A module that several others hold is met once, a parameter in every module that has it.
        self._places: dict[str, list[str]] = {}
        self.names: dict[nn.Parameter, str] = {}
        for prefix, owner in self._body.named_modules():
            for own, parameter in owner._parameters.items():
                if parameter is not None:
                    name = f"{prefix}.{own}"
                    first = self.names.setdefault(parameter, name)
                    self._places.setdefault(first, []).append(name)

    def __call__(self, parameters: Mapping[str, torch.Tensor], entries: Entries) -> Losses:
        """The losses, and what else the module computes, with these parameters.

        Args:
            parameters: By their names in `names`; the others are the module's own.
            entries: What `read` gave.
        """
        placed = {
            place: parameter
            for name, parameter in parameters.items()
            for place in self._places[name]
        }
        if self._autocast is None:
            return torch.func.functional_call(self._body, placed, (entries,), tie_weights=False)
        kind, dtype = self._autocast
        with torch.autocast(kind, dtype):
            out = torch.func.functional_call(self._body, placed, (entries,), tie_weights=False)
        return {key: value.float() if value.dtype is dtype else value for key, value in out.items()}

    @property
    def body(self) -> nn.Module:
        """All that a call computes with, but for its arguments."""
        return self._body

    @property
    def variant(self) -> Hashable:
        """What this call computes otherwise than another."""
        return self.module.variant if isinstance(self.module, Loss) else None

    def compute_always_the_same(self) -> bool:
        """Have every call compute the same, if that can be; return whether it does."""
        return not isinstance(self.module, Loss) or self.module.compute_always_the_same()

    def read(self, tensordict: TensorDictBase) -> Entries:
        """The entries of a batch that a call needs."""
        return self._body.read(tensordict)

    def around(
        self, compute: Callable[[TensorDictBase], Losses]
    ) -> Callable[[TensorDictBase], TensorDictBase]:
        """Return the module's ``forward`` with ``compute`` in place of reading and computing."""
        return partial(self._body.call, compute)


class _OfLoss(nn.Module):
    """The computation of a `Loss`."""

    def __init__(self, loss: Loss) -> None:
        super().__init__()
        self.loss = loss

    def forward(self, entries: Entries) -> Losses:
        return type(self.loss).compute(self.loss, entries)

    def read(self, tensordict: TensorDictBase) -> Entries:
        return self.loss.gather(tensordict)

    def call(
        self, compute: Callable[[TensorDictBase], Losses], tensordict: TensorDictBase
    ) -> TensorDictBase:
        return self.loss.call(compute, tensordict)


class _OfModule(nn.Module):
    """The ``forward`` of a module that maps TensorDicts."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        self._batch_dims = 1

    def forward(self, entries: Entries) -> Losses:
        shape = next(iter(entries.values())).shape[: self._batch_dims]
        batch = TensorDict({}, shape)
        for key, value in entries.items():
            batch.set(key, value)
        out = type(self.module).forward(self.module, batch)
        written: Losses = {
            ("written", key): value
            for key, value in _leaves(batch).items()
            if entries.get(key) is not value
        }
        return {**written, **_leaves(out)}

    def read(self, tensordict: TensorDictBase) -> Entries:
        self._batch_dims = tensordict.ndim
        wanted = getattr(self.module, "in_keys", None)
        leaves = _leaves(tensordict)
        if not wanted:
            return leaves
        return {key: leaves[key] for key in wanted if key in leaves}

    def call(
        self, compute: Callable[[TensorDictBase], Losses], tensordict: TensorDictBase
    ) -> TensorDictBase:
        out = compute(tensordict)
        for key in [key for key in out if isinstance(key, tuple) and key[0] == "written"]:
            tensordict.set(key[1], out.pop(key))
        return TensorDict(out)


def _leaves(tensordict: TensorDictBase) -> dict[NestedKey, torch.Tensor]:
    return dict(tensordict.items(include_nested=True, leaves_only=True))


# -- Random numbers that a loss draws, taken out of it: drawn before, and given to it.

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


# -- `Objective`: what an optimizer minimizes, and which of its parameters that depends on.


@dataclass(frozen=True, eq=False)
class Objective:
    """What one optimizer minimizes.

    Attributes:
        parameters: The optimizer's parameters that need a gradient.
        components: The keys of the losses whose sum is minimized; ``None`` for all that begin with
            ``"loss"``.
    """

    parameters: Sequence[nn.Parameter]
    components: Sequence[str] | None = None

    def total(self, losses: Mapping[Any, torch.Tensor]) -> torch.Tensor | None:
        """The sum that is minimized; ``None`` if a loss is missing."""
        return total_loss(losses, self.components)


@dataclass(frozen=True)
class Reached:
    """What each of several objectives depends on.

    Attributes:
        parameters: By objective, those of its own parameters.
        apart: Whether no objective depends on the parameters of another.
    """

    parameters: Sequence[Sequence[nn.Parameter]]
    apart: bool


def reached(loss: FunctionalLoss, entries: Entries, objectives: Sequence[Objective]) -> Reached:
    """Find out what objectives depend on, by computing a copy of the loss once.

    No random number is used up.

    Args:
        loss: The loss.
        entries: Of a batch.
        objectives: What the optimizers minimize.
    """
    twin = copy.deepcopy(loss)
    named = {name: parameter for parameter, name in twin.names.items()}
    pairs = {parameter: named[name] for parameter, name in loss.names.items()}
    devices = {value.get_device() for value in entries.values() if value.is_cuda}
    with torch.enable_grad(), torch.random.fork_rng(list(devices)):
        out = twin(named, entries)
        found = []
        for objective in objectives:
            total = objective.total(out)
            wanted = [parameter for each in objectives for parameter in each.parameters]
            grads: Sequence[torch.Tensor | None] = [None] * len(wanted)
            if total is not None and total.requires_grad:
                grads = torch.autograd.grad(
                    total, [pairs[p] for p in wanted], retain_graph=True, allow_unused=True
                )
            found.append({p for p, g in zip(wanted, grads, strict=True) if g is not None})
    return Reached(
        [
            [parameter for parameter in objective.parameters if parameter in depends]
            for objective, depends in zip(objectives, found, strict=True)
        ],
        all(
            depends.isdisjoint(other.parameters)
            for objective, depends in zip(objectives, found, strict=True)
            for other in objectives
            if other is not objective
        ),
    )
