"""`TrainerHookBase`, the contract of hooks, and the priorities of built-in hooks."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Final

import torch
from tensordict import is_tensor_collection
from torch import nn

from ..base.words import snake_case
from ..errors import ConfigError, HookError
from .stateful import has_state

if TYPE_CHECKING:
    from .loop import Loop


class TrainerHookBase:
    """Base class of hooks: stateful plugins of the training loop.

    A hook declares ``at``, the hook point of its `__call__` or the points of several methods, or
    implements `register`. Everything else is optional.

    Examples:
        >>> class EveryTenth(TrainerHookBase):
        ...     at = "post_optim_log"
        ...     saved_attributes = ("counter",)
        ...     def __init__(self):
        ...         self.counter = 0
        ...     def __call__(self, batch):
        ...         self.counter += 1
        ...         if self.counter % 10 == 0:
        ...             return {"value": batch["value"].mean(), "log_pbar": False}

    Attributes:
        at: The hook point that `register` puts the hook at; or, for several methods, a tuple of
            ``(hook point, name of the method, priority)``.
        priority: Its priority there.
        every: Its cadence there; ``None`` for always.
        default_name: Its name; by default that of the class, such as ``"every_tenth"``.
        rank_zero_only: Whether only the first of several processes needs the hook, as for one that
            evaluates, renders or writes files.
        phase: Phase that includes the hook's time outside the inner loop, such as ``"evaluate"``;
            by default ``"hooks"``.
        is_saved: Whether checkpoints include the hook, so that resuming requires it.
        computes_loss: Whether the hook, at ``optimizer``, computes the losses itself. It receives
            the sub-batch, calls `Trainer.compute_loss` as often as needed, does backward and step,
            and returns the losses to log.
        trains: Whether the hook, at ``optimizer``, trains something; false for a guard.
        saved_attributes: Names of the attributes that are its state.
    """

    at: Any = None
    priority: float = 0.0
    every: Any = None
    default_name = ""
    rank_zero_only = False
    phase = "hooks"
    is_saved = True
    computes_loss = False
    trains = True
    # If a compiled loss calls a method of the hook.
    not_in_graphs: ClassVar = frozenset(("trainer",))
    saved_attributes: Sequence[str] = ()

    # Registering sets it, so that reading it costs no more than any attribute.
    @cached_property
    def trainer(self) -> Loop:
        """The trainer that the hook is registered with."""
        name = type(self).__name__
        raise HookError(f"{name} has no trainer: call {name}(...).register(trainer).")

    @property
    def is_registered(self) -> bool:
        """Whether the hook has a `trainer`."""
        return "trainer" in vars(self)

    def registered_with(self, trainer: Any) -> None:
        """Store the trainer; called when the hook, or one of its methods, is registered."""
        vars(self)["trainer"] = trainer  # a frozen dataclass may be a hook as well

    # The methods below take any trainer, so that a subclass may annotate its own.

    def register(self, trainer: Any, name: str = "") -> None:
        """Register the hook at its points and under a name for checkpoints.

        Args:
            trainer: The `hooktrainer.Trainer`; call its ``register_op`` and ``register_module``.
            name: Unique in the trainer; by default ``default_name``.
        """
        if self.at is None:
            raise NotImplementedError(
                f"{type(self).__name__} has no register(trainer, name): write one, or name the "
                "point: at = <hook point>."
            )
        trainer.register_module(name or self.default_name or snake_case(type(self).__name__), self)
        ops = [(self.at, "__call__", self.priority)] if isinstance(self.at, str) else self.at
        for point, method, priority in ops:
            op = self if method == "__call__" else getattr(self, method)
            trainer.register_op(point, op, priority=priority, every=self.every)

    def state_dict(self) -> dict[str, Any]:
        """Return the state that must survive a resume; empty by default.

        Values are Python scalars, strings, tensors, NumPy arrays, TensorDicts, and dicts, lists and
        tuples of them.
        """
        values = {name: getattr(self, name) for name in self.saved_attributes}
        return {name: x.state_dict() if _is_stateful(x) else x for name, x in values.items()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        for name in self.saved_attributes:
            own, value = getattr(self, name), state_dict[name]
            if _is_stateful(own):
                own.load_state_dict(value)
            elif isinstance(own, torch.Tensor) and isinstance(value, torch.Tensor):
                setattr(self, name, value.to(own.device, copy=True))
            else:
                setattr(self, name, copy.deepcopy(value))

    def mismatches(self, saved: Mapping[str, Any]) -> list[str]:
        """List why a saved state does not fit; see `hooktrainer.loop.stateful`."""
        return []

    def fitting(self, saved: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Return the loadable part of a mismatching state; ``None`` for nothing."""
        return None

    def shard(self, rank: int, world_size: int) -> None:
        """Divide quantities such as a batch size among the processes of a distributed run.

        Args:
            rank: Index of this process, from 0.
            world_size: Number of processes.

        Raises:
            ConfigError: If a quantity is not divisible.
        """

    def on_train_start(self, trainer: Any) -> None:
        """Called once, before the first batch is collected."""

    def on_train_end(self, trainer: Any) -> None:
        """Called once after the last batch, unless an exception ends the run."""

    def on_exception(self, trainer: Any, exception: BaseException) -> None:
        """Called when an exception ends the run; it is raised to the caller afterwards."""

    def close(self) -> None:
        """Release what the hook holds. Called exactly once, whatever happened."""


def register_all(hooks: Iterable[Any], trainer: Any) -> None:
    """Register hooks in this order."""
    if not isinstance(hooks, Iterable):
        raise ConfigError(f"hooks={hooks!r:.80}: pass a list, hooks=[...].")
    for hook in hooks:
        if isinstance(hook, type) or not callable(getattr(hook, "register", None)):
            raise ConfigError(
                f"hooks=[{hook!r:.80}]: pass an object with a method register(trainer)."
            )
        hook.register(trainer)


# -- The priorities of hooktrainer's own hooks: their order at a hook point.

FIRST: Final = math.inf  # before all others: recorders, barriers
EARLY: Final = 1000.0  # guards, scalers, schedules
DEFAULT: Final = 0.0
AFTER: Final = -1.0  # completes the default ones: a step when all gradients are computed
LATE: Final = -1000.0  # reads their results: samples, metrics
LAST: Final = -math.inf  # after all others: recorders, barriers


def _is_stateful(value: Any) -> bool:
    """Whether a saved attribute is an object with a state; a plain TensorDict is a value."""
    return has_state(value) and (isinstance(value, nn.Module) or not is_tensor_collection(value))
