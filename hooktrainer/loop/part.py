"""What a part of a trainer is: whatever has a state that checkpoints hold.

Hooks, the optimizer, the collector, the loggers, cadences, the metrics, the counters and the loss
module are parts. A checkpoint holds the state of each under a name, which whoever registers the
part gives it. When a state is loaded, the trainer *collects* in what it differs from its parts,
*decides* whether that is refused, and *applies* what is left. It asks every part the same and knows
none by its type.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from torch import nn

REGISTER = "register the same hooks under the same names and cadences"
"""What to do about a difference, if the part has no `remedy` of its own."""


class Part(Protocol):
    """A part of a trainer. These two methods are all that one needs.

    A state is made of Python scalars, strings, tensors, NumPy arrays, TensorDicts, and dicts, lists
    and tuples of them; anything else is refused when it is saved, with the part and the key named.
    """

    def state_dict(self) -> dict[str, Any]:
        """Return everything that must survive a resume, as of now."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> Any:
        """Restore what `state_dict` returned; if that cannot be done, raise."""


class ComparedPart(Part, Protocol):
    """A part that says beforehand whether a saved state is its own.

    All that follows is optional. Whatever of it a part lacks is taken to be as it is written here.

    Attributes:
        remedy: What to do about its differences, as a clause of the message: ``"build the networks
            as they were"``.
        has_parameters: Whether it holds what is trained, so that its differences are those of the
            parameters.
        needs_parameters: Whether its state means nothing without the parameters it was saved with,
            as that of an optimizer. If those differ, it begins anew.
    """

    remedy: str = REGISTER
    has_parameters: bool = False
    needs_parameters: bool = False

    def differences(self, saved: Mapping[str, Any]) -> list[str]:
        """Say why ``saved`` cannot be loaded as it is; it changes nothing.

        The trainer asks every part before it loads any, and refuses a state that differs anywhere
        with one error that lists all differences.

        Args:
            saved: What `state_dict` of such a part returned, here or elsewhere.

        Returns:
            One line for each difference, which says both sides: ``"decay is 0.9 here and 0.99 in
            the state"``. None if the state can be loaded.
        """
        return []

    def fitting(self, saved: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Return what of a state that differs can be loaded, as one for `load_state_dict`.

        It is asked for when a state is loaded with ``strict=False``.

        Args:
            saved: A state that `differences` objected to.

        Returns:
            ``None`` if nothing of it can; the part is left as it is.
        """
        return None


def has_state(thing: Any) -> bool:
    """Whether ``thing`` is a `Part`: it has both methods.

    A method that a base class leaves for others to write, an abstract one, does not count.
    """
    methods = [getattr(thing, name, None) for name in ("state_dict", "load_state_dict")]
    return all(callable(m) and not getattr(m, "__isabstractmethod__", False) for m in methods)


def differences(part: Any, saved: Any) -> list[str]:
    """In what ``saved`` differs from a part; see `ComparedPart`."""
    compare = getattr(part, "differences", None)
    return list(compare(saved)) if callable(compare) else []


def fitting(part: Any, saved: Any) -> Mapping[str, Any] | None:
    """What of a state that differs a part can load; see `ComparedPart`."""
    select = getattr(part, "fitting", None)
    return select(saved) if callable(select) else None


def as_part(thing: Any) -> Any:
    """``thing`` as a part: a `ModulePart` around a torch module, anything else as it is."""
    return ModulePart(thing) if isinstance(thing, nn.Module) else thing


class ModulePart:
    """A torch module as a part: it differs where names or shapes of its parameters do.

    Args:
        module: The module.
    """

    remedy = "build the networks as they were"
    has_parameters = True

    def __init__(self, module: nn.Module) -> None:
        self._module = module

    def state_dict(self) -> dict[str, Any]:
        """Return the module's state."""
        return self._module.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a state into the module."""
        self._module.load_state_dict(state_dict)

    def differences(self, saved: Mapping[str, Any]) -> list[str]:
        """Name the parameters and buffers that are missing on either side or of another shape."""
        live = self._module.state_dict()
        lines = [f"{key} is not in the state" for key in live if key not in saved]
        lines += [f"{key} is only in the state" for key in saved if key not in live]
        for key, value in live.items():
            shape, other = getattr(value, "shape", None), getattr(saved.get(key), "shape", None)
            if shape is not None and other is not None and shape != other:
                lines.append(f"{key} is {list(shape)} here and {list(other)} in the state")
        return lines

    def fitting(self, saved: Mapping[str, Any]) -> dict[str, Any]:
        """Return the module's state, with what is of the same name and shape in ``saved``."""
        own = self._module.state_dict()
        same = {
            key: value
            for key, value in saved.items()
            if key in own and getattr(value, "shape", None) == getattr(own[key], "shape", None)
        }
        return {**own, **same}
