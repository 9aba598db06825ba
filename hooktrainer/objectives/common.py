"""What losses and value estimators share: configurable keys, coefficients, reading networks."""

from __future__ import annotations

import difflib
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ClassVar, TypeAlias

import torch
from tensordict import NestedKey, TensorDict, TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torch import Tensor
from torch.nn.functional import l1_loss

from ..base.tensordicts import entries_of, tensordict_of
from ..errors import ConfigError
from ..networks import QNetwork, ValueNetwork
from ..networks.inputs import arguments, check_size

Distance: TypeAlias = Callable[..., Tensor]
Entries: TypeAlias = Mapping[NestedKey, Tensor]

_NO_BATCH = torch.Size()
_NUMBERS = {"none": 0, "mean": 1, "sum": 2}  # of reductions, in torch


def _l2(value: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """``mse_loss`` of equal shapes, which need not be made equal, forward and back."""
    return torch.ops.aten.mse_loss(value, target, _NUMBERS[reduction])


def _smooth_l1(value: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """``smooth_l1_loss``, likewise."""
    return torch.ops.aten.smooth_l1_loss(value, target, _NUMBERS[reduction])


_DISTANCES: dict[str, Distance] = {"l1": l1_loss, "l2": _l2, "smooth_l1": _smooth_l1}
_REDUCTIONS: dict[str, Callable[[Tensor], Tensor]] = {"mean": torch.mean, "sum": torch.sum}


@dataclass(frozen=True)
class Term:
    """What is computed beside the losses of a `Loss`.

    Attributes:
        in_keys: Entries of the batch that it reads.
        losses: Maps the entries to scalars: those called ``loss_...`` are minimized, others logged.
            It is a function of the entries and of the networks of the loss alone.
        hint: What usually writes the entries.
    """

    in_keys: Sequence[NestedKey]
    losses: Callable[[Entries], dict[str, Tensor]]
    hint: str = ""


class KeyedModule(TensorDictModuleBase):
    """A module whose TensorDict keys have names that can be changed.

    Args:
        **keys: Name of each key in the code to the default key in a TensorDict; ``None`` for an
            entry that is not read unless it is named.

    Attributes:
        tensor_keys: The keys, as attributes.
    """

    def __init__(self, **keys: NestedKey | None) -> None:
        super().__init__()
        self.tensor_keys = SimpleNamespace(**keys)

    def set_keys(self, **keys: NestedKey | None) -> None:
        """Change keys, as in ``set_keys(advantage="my_advantage")``.

        Raises:
            ConfigError: If there is no key of that name.
        """
        known = vars(self.tensor_keys)
        for name, key in keys.items():
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1, cutoff=0.0)[0]
                raise ConfigError(
                    f"{type(self).__name__}.set_keys({name}={key!r}): there is no key {name!r}. "
                    f"Did you mean {near!r}? The keys are: {', '.join(known)}."
                )
            setattr(self.tensor_keys, name, key)


class Loss(KeyedModule, ABC):
    """A loss: reads a TensorDict, returns a TensorDict whose ``loss*`` entries are minimized.

    Its networks are ordinary submodules; target networks are buffers, so `parameters` is what an
    optimizer trains. Coefficients are buffers as well, and are set like plain attributes
    (``loss.clip_epsilon = 0.1``), so they can be annealed, and are in the state dict.

    A call reads entries, computes, and may write something back. The computation, `losses`, is a
    function of the entries, the parameters and the buffers alone, so that it can be compiled.
    Others may add terms to it, see `add_term`.
    """

    hint = ""  # what usually writes the entries the loss reads
    not_in_graphs: ClassVar = frozenset({"forward", "_calls"})  # `compute` is, and reads no counter
    _batch_dims = 1  # of the batch at hand: no entry can tell, as images have more dimensions

    def __init__(self, **keys: NestedKey | None) -> None:
        super().__init__(**keys)
        self._terms: list[Term] = []

    @property
    @abstractmethod
    def in_keys(self) -> list[NestedKey]:
        """Entries it reads."""

    def forward(self, tensordict: TensorDictBase) -> TensorDict:
        """Compute the losses of a batch.

        Args:
            tensordict: ``[*batch]``.

        Raises:
            KeyError: If an entry is missing.
        """
        return self.call(lambda batch: self.compute(self.gather(batch)), tensordict)

    def call(
        self, compute: Callable[[TensorDictBase], dict[str, Tensor]], tensordict: TensorDictBase
    ) -> TensorDict:
        """What `forward` does, with something in place of the computation.

        Args:
            compute: Maps the batch to what `compute` returns of what `gather` gives.
            tensordict: ``[*batch]``.
        """
        self._begin()
        try:
            out = compute(tensordict)
        except RuntimeError:
            self._check_sizes(tensordict)
            raise
        self._write(out, tensordict)
        return tensordict_of(out, _NO_BATCH)

    def _check_sizes(self, tensordict: TensorDictBase) -> None:
        """Refuse a batch whose entries have not the sizes that a network takes."""
        for name, module in self.named_modules():
            network: Any = getattr(module, "network", None)
            if network is None or getattr(module, "trunk", None) is not None:
                continue
            mask = getattr(module, "action_mask_key", None)
            inputs = [tensordict.get(key, None) for key in module.in_keys if key != mask]
            if all(one is not None for one in inputs):
                who = f"{type(self).__name__}: {name} ({type(module).__name__})"
                check_size(who, network, inputs)

    def add_term(self, term: Term) -> None:
        """Have every call compute something more, as a part of the same graph.

        Args:
            term: What it reads and how it is computed.
        """
        self._terms.append(term)

    def gather(self, tensordict: TensorDictBase) -> Entries:
        """What `compute` needs of a batch: what `read` gives, and what the terms read.

        Raises:
            KeyError: If an entry is missing.
        """
        entries = self.read(tensordict)
        if not self._terms:
            return entries
        more = {
            key: require(tensordict, key, self, term.hint)
            for term in self._terms
            for key in term.in_keys
        }
        return {**more, **entries}

    def compute(self, entries: Entries) -> dict[str, Tensor]:
        """The `losses`, and those of the terms."""
        out = self.losses(entries)
        for term in self._terms:
            out |= term.losses(entries)
        return out

    def read(self, tensordict: TensorDictBase) -> Entries:
        """The entries of a batch that `losses` is computed from.

        Raises:
            KeyError: If one is missing.
        """
        self._batch_dims = tensordict.ndim
        keys = self.in_keys
        entries = entries_of(tensordict, keys)
        if len(entries) < len(keys):
            for key in keys:
                require(tensordict, key, self, self.hint)
        return entries

    @abstractmethod
    def losses(self, entries: Entries) -> dict[str, Tensor]:
        """Losses, diagnostics, and what is written back, of the entries of a batch."""

    @property
    def variant(self) -> Hashable:
        """What this call computes otherwise than another: calls that agree compute the same."""
        return None

    def compute_always_the_same(self) -> bool:
        """Have every call compute the same, if that can be; return whether it does."""
        return True

    def _begin(self) -> None:
        """Take note of a call."""

    def _write(self, out: dict[str, Tensor], tensordict: TensorDictBase) -> None:
        """Take from the result what is no loss and no diagnostic, and write it into the batch."""

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute; a number given for a buffer goes into the buffer."""
        if isinstance(value, (int, float)):
            buffer = self.__dict__.get("_buffers", {}).get(name)
            if buffer is None:
                object.__setattr__(self, name, value)  # nn.Module would look ten times longer
            else:
                buffer.fill_(value)
        else:
            super().__setattr__(name, value)

    def _register_coefficient(self, name: str, value: float | None) -> None:
        self.register_buffer(name, None if value is None else torch.tensor(float(value)))


def distance(loss_function: str) -> Distance:
    """The function ``f(input, target, reduction=...)`` called ``"l1"``, ``"l2"``, ``"smooth_l1"``.

    Raises:
        ConfigError: If there is none of that name.
    """
    return _choose("loss function", loss_function, _DISTANCES)


def reduction_function(reduction: str) -> Callable[[Tensor], Tensor]:
    """The function called ``"mean"`` or ``"sum"``.

    Raises:
        ConfigError: If there is none of that name.
    """
    return _choose("reduction", reduction, _REDUCTIONS)


def _choose(what: str, name: str, choices: Mapping[str, Any]) -> Any:
    if name not in choices:
        raise ConfigError(f"{what} {name!r} is not one of {', '.join(choices)}.")
    return choices[name]


def require(tensordict: TensorDictBase, key: NestedKey, who: object, hint: str = "") -> Tensor:
    """The entry ``key``, or a `KeyError` that says who wants it and what there is."""
    value = tensordict.get(key, None)
    if value is None:
        present = sorted(map(str, tensordict.keys(True, True)))
        raise KeyError(f"{type(who).__name__} needs {key!r}, which is not among {present}. {hint}")
    return value


def this_key(key: NestedKey) -> NestedKey:
    """The key itself: of an entry at this step."""
    return key


def next_key(key: NestedKey) -> NestedKey:
    """The key of an entry one step later."""
    return ("next", key) if isinstance(key, str) else ("next", *key)


def weighted(loss: Tensor, weights: Tensor | None, reduction: str) -> Tensor:
    """Reduce the losses of a batch, weighted by a prioritized buffer's weights if there are any."""
    if weights is None:
        return _REDUCTIONS[reduction](loss)
    weights = weights.reshape(-1)
    total = torch.dot(loss, weights)
    return total if reduction == "sum" else total / weights.sum()


def evaluate(
    network: Any,
    inputs: Sequence[Tensor],
    out_key: NestedKey,
    batch_dims: int = 1,
    *,
    fast: bool = False,
    **known: Tensor,
) -> Tensor:
    """What ``network`` computes from ``inputs``, the entries ``network.in_keys``.

    The networks of `hooktrainer.networks` are called with tensors, others with a TensorDict.

    Args:
        network: A TensorDict module.
        inputs: Its inputs, ``[*batch, ...]`` each.
        out_key: The entry that is wanted.
        batch_dims: How many dimensions ``batch`` has.
        fast: Whether a result without gradient, equal to rounding, will do.
        **known: ``features`` of the network's trunk, where inputs of that are left out.
    """
    if isinstance(network, (ValueNetwork, QNetwork)):
        return network.infer(*inputs) if fast else network.evaluate(*inputs, **known)
    return network(as_tensordict(network.in_keys, inputs, batch_dims)).get(out_key)


def evaluate_frozen(
    network: Any, inputs: Sequence[Tensor], out_key: NestedKey, batch_dims: int = 1, **known: Tensor
) -> Tensor:
    """Like `evaluate`, but gradients reach the inputs alone: the parameters are constants."""
    if isinstance(network, ValueNetwork) and (network.trunk is None or known):
        inner, inputs = network.network, (*known.values(), *inputs)
        return torch.func.functional_call(
            inner, _constants(inner), tuple(arguments(inputs, network.joins))
        )
    batch = as_tensordict(network.in_keys, inputs, batch_dims)
    return torch.func.functional_call(network, _constants(network), (batch,)).get(out_key)


def _constants(network: Any) -> dict[str, Tensor]:
    return {name: parameter.detach() for name, parameter in network.named_parameters()}


def as_tensordict(
    keys: Sequence[NestedKey], entries: Sequence[Tensor], batch_dims: int = 1
) -> TensorDict:
    """A TensorDict of some entries, ``[*batch, ...]`` each, where ``batch`` has so many dimensions.

    Raises:
        ConfigError: If two entries disagree on the batch.
    """
    shape = entries[0].shape[:batch_dims]
    tensordict = TensorDict({}, batch_size=shape)
    for key, entry in zip(keys, entries, strict=True):
        if entry.shape[:batch_dims] != shape:
            raise ConfigError(
                f"the batch is {list(shape)} by {keys[0]!r}, but {key!r} is {list(entry.shape)}."
            )
        tensordict.set(key, entry)
    return tensordict
