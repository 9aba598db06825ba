"""`Loss`, the base of losses; keys, coefficients and calls of networks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ClassVar, TypeAlias

import torch
from tensordict import NestedKey, TensorDict, TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torch import Tensor, nn
from torch.nn.functional import l1_loss, mse_loss, smooth_l1_loss

from ..base.tensordicts import entries_of, tensordict_of
from ..base.words import did_you_mean
from ..errors import ConfigError
from ..networks import QNetwork, ValueNetwork
from ..networks.layers import arguments

Distance: TypeAlias = Callable[..., Tensor]
Entries: TypeAlias = Mapping[NestedKey, Tensor]
Compute: TypeAlias = Callable[[TensorDictBase], dict[Any, Tensor]]
KeyOf: TypeAlias = Callable[[NestedKey], NestedKey]  # `this_key` or `next_key`

_NO_BATCH = torch.Size()
DISTANCES: dict[str, Distance] = {"l1": l1_loss, "l2": mse_loss, "smooth_l1": smooth_l1_loss}


@dataclass(frozen=True)
class Term:
    """An additional term of a `Loss`.

    Attributes:
        in_keys: Entries that it reads.
        losses: Maps entries to scalars: those named ``loss_...`` are minimized, others logged. It
            depends on the entries and the loss's networks alone.
        hint: What usually writes the entries.
    """

    in_keys: Sequence[NestedKey]
    losses: Callable[[Entries], dict[str, Tensor]]
    hint: str = ""


class KeyedModule(TensorDictModuleBase):
    """A module with configurable TensorDict keys.

    Args:
        **keys: Default keys by name; ``None`` for an entry that is only read if set.

    Attributes:
        tensor_keys: The keys, as attributes.
    """

    def __init__(self, **keys: NestedKey | None) -> None:
        super().__init__()
        self.tensor_keys = SimpleNamespace(**keys)

    def set_keys(self, **keys: NestedKey | None) -> None:
        """Change keys, as in ``set_keys(advantage="my_advantage")``.

        Raises:
            ConfigError: If a name is unknown.
        """
        known = vars(self.tensor_keys)
        for name, key in keys.items():
            if name not in known:
                raise ConfigError(
                    f"{type(self).__name__}.set_keys({name}={key!r}): there is no key {name!r}."
                    f"{did_you_mean(name, known)} The keys are: {', '.join(known)}."
                )
            setattr(self.tensor_keys, name, key)


class Loss(KeyedModule, ABC):
    """Base class of losses: reads a TensorDict, returns one whose ``loss*`` entries are minimized.

    Networks are submodules. Target networks and coefficients are buffers, so `parameters` are what
    an optimizer trains. Coefficients are set like attributes (``loss.clip_epsilon = 0.1``) and
    saved, as is the number of calls. `losses` is a function of entries, parameters and buffers
    alone, so that it can be compiled. `add_term` extends it.
    """

    hint = ""  # what usually writes the entries the loss reads
    not_in_graphs: ClassVar = frozenset({"_calls"})  # `compute` is, and reads no counter
    _batch_dims = 1  # of the batch; entries cannot tell: images have more dimensions

    def __init__(self, **keys: NestedKey | None) -> None:
        super().__init__(**keys)
        self._terms: list[Term] = []
        self._calls = 0

    @property
    @abstractmethod
    def in_keys(self) -> list[NestedKey]:
        """Entries it reads."""

    def forward(self, tensordict: TensorDictBase, compute: Compute | None = None) -> TensorDict:
        """Compute the losses of a batch ``[*batch]``; a missing entry is a `KeyError`.

        ``compute`` replaces ``compute(read(batch))``, such as by a compiled graph.
        """
        self._begin()
        out = self.compute(self.read(tensordict)) if compute is None else compute(tensordict)
        self._write(out, tensordict)
        return tensordict_of(out, _NO_BATCH)

    def add_term(self, term: Term) -> None:
        """Add a term, computed in the same graph."""
        self._terms.append(term)

    def read(self, tensordict: TensorDictBase) -> Entries:
        """Return the inputs of `compute`: the entries for `losses` and for the terms.

        Raises:
            KeyError: If an entry is missing.
        """
        self._batch_dims = tensordict.ndim
        hints = dict.fromkeys(self.in_keys, self.hint)
        for term in self._terms:
            hints = dict.fromkeys(term.in_keys, term.hint) | hints
        entries = entries_of(tensordict, hints)
        if not hints.keys() <= entries.keys():
            for key, hint in hints.items():
                require(tensordict, key, self, hint)
        return entries

    def compute(self, entries: Entries) -> dict[str, Tensor]:
        """Return `losses` and the terms."""
        out = self.losses(entries)
        for term in self._terms:
            out |= term.losses(entries)
        return out

    @abstractmethod
    def losses(self, entries: Entries) -> dict[str, Tensor]:
        """Return losses, diagnostics and values to be written into the batch."""

    @property
    def variant(self) -> Hashable:
        """The computation that this call makes; calls with equal variants can share a graph."""
        return None

    def compute_always_the_same(self) -> bool:
        """Make all calls alike if possible, for a compiler; return whether they are."""
        return True

    def get_extra_state(self) -> dict[str, int]:
        """Return the number of calls."""
        return {"calls": self._calls}

    def set_extra_state(self, state: dict[str, int]) -> None:
        """Restore the number of calls."""
        self._calls = state["calls"]

    def _begin(self) -> None:
        """Called at the start of each call."""
        self._calls += self.training  # a validation changes nothing

    def _write(self, out: dict[str, Tensor], tensordict: TensorDictBase) -> None:
        """Move values that are neither losses nor diagnostics from the result to the batch."""

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute; a number for a buffer fills the buffer."""
        if isinstance(value, (int, float)):
            buffer = self.__dict__.get("_buffers", {}).get(name)
            if buffer is None:
                object.__setattr__(self, name, value)  # ten times as fast as nn.Module's
            else:
                buffer.fill_(value)
        else:
            super().__setattr__(name, value)

    def _register_coefficients(self, **values: float | None) -> None:
        for name, value in values.items():
            self.register_buffer(name, None if value is None else torch.tensor(float(value)))


def require(tensordict: TensorDictBase, key: NestedKey, who: object, hint: str = "") -> Tensor:
    """Return the entry ``key``, or raise a `KeyError` that lists the existing entries."""
    value = tensordict.get(key, None)
    if value is None:
        present = sorted(map(str, tensordict.keys(True, True)))
        raise KeyError(f"{type(who).__name__} needs {key!r}, which is not among {present}. {hint}")
    return value


def this_key(key: NestedKey) -> NestedKey:
    """Return the key of an entry of this step: unchanged."""
    return key


def next_key(key: NestedKey) -> NestedKey:
    """Return the key of an entry of the next step."""
    return ("next", key) if isinstance(key, str) else ("next", *key)


def evaluate(
    network: Any,
    inputs: Sequence[Tensor],
    out_key: NestedKey,
    batch_dims: int = 1,
    *,
    fast: bool = False,
    **known: Tensor,
) -> Tensor:
    """Evaluate a network of `hooktrainer.networks` on tensors, or another on a TensorDict.

    Args:
        network: A TensorDict module.
        inputs: The entries ``network.in_keys``, ``[*batch, ...]`` each.
        out_key: Key of the result.
        batch_dims: Number of dimensions of ``batch``.
        fast: Whether a result without gradient, equal to rounding, is enough.
        **known: ``features`` of the network's trunk, whose inputs are left out.
    """
    if isinstance(network, (ValueNetwork, QNetwork)):
        return network.remember(*inputs)[0] if fast else network.evaluate(*inputs, **known)
    return network(as_tensordict(network.in_keys, inputs, batch_dims)).get(out_key)


def evaluate_frozen(
    network: Any, inputs: Sequence[Tensor], out_key: NestedKey, batch_dims: int = 1, **known: Tensor
) -> Tensor:
    """Evaluate with constant parameters: gradients reach the inputs alone."""
    if isinstance(network, ValueNetwork) and (network.trunk is None or known):
        args = arguments((*known.values(), *inputs), network.joins)
        return call_frozen(network.network, *args)
    return call_frozen(network, as_tensordict(network.in_keys, inputs, batch_dims)).get(out_key)


def call_frozen(network: nn.Module, *args: Any) -> Any:
    """Call a module with constant parameters."""
    constants = {name: parameter.detach() for name, parameter in network.named_parameters()}
    return torch.func.functional_call(network, constants, args)


def as_tensordict(
    keys: Sequence[NestedKey], entries: Sequence[Tensor], batch_dims: int = 1
) -> TensorDict:
    """Make a TensorDict of entries ``[*batch, ...]`` with ``batch_dims`` batch dimensions."""
    named_entries: dict[Any, Tensor] = dict(zip(keys, entries, strict=True))
    return TensorDict(named_entries, entries[0].shape[:batch_dims])
