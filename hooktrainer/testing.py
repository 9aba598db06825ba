"""Helpers for testing hooks and collectors: a fake collector, a scripted loss, checks."""

from __future__ import annotations

import copy
import pickle
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict, TensorDictBase

from .collect.check import check_collector as check_collector
from .errors import HookError
from .loop.hook import TrainerHookBase
from .loop.hook_points import HOOK_POINTS
from .loop.stateful import has_state
from .store.diff import compare_trees
from .store.tree import flatten, unflatten
from .trainer import Trainer

_MUTABLE = (list, dict, set, bytearray, deque, torch.Tensor, np.ndarray)


class FakeCollector:
    """A collector of random transitions in TorchRL's layout.

    Batches are ``[num_envs, time]`` with ``observation`` (float32, ``[4]``), ``action`` (int64),
    ``done``, ``terminated``, ``truncated`` and, under ``next``, those and ``reward``. An episode
    has five steps.

    Args:
        num_batches: Number of batches; ``None`` for no end.
        num_envs: Environments.
        time: Steps per environment in a batch.
        seed: Seed of the data.

    Attributes:
        closed: Number of calls of `shutdown`.
    """

    def __init__(
        self, num_batches: int | None = None, num_envs: int = 2, time: int = 5, seed: int = 0
    ) -> None:
        self.num_batches = num_batches
        self.num_envs = num_envs
        self.time = time
        self.closed = 0
        self.yielded = 0
        self._observation: torch.Tensor | None = None
        self._generator = torch.Generator().manual_seed(seed)

    def __iter__(self) -> Iterator[TensorDictBase]:
        """Yield the remaining batches."""
        while self.num_batches is None or self.yielded < self.num_batches:
            self.yielded += 1
            yield self._batch()

    def _batch(self) -> TensorDictBase:
        shape = (self.num_envs, self.time)
        steps = torch.arange(self.time) + (self.yielded - 1) * self.time
        terminated = ((steps + 1) % 5 == 0).expand(shape).unsqueeze(-1).clone()
        flags = {
            "done": terminated,
            "terminated": terminated,
            "truncated": torch.zeros_like(terminated),
        }
        after = torch.randn(*shape, 4, generator=self._generator)
        first = torch.randn(*shape, 4, generator=self._generator)  # of the next episode, if any
        following = torch.where(terminated, first, after)
        if self._observation is None:
            self._observation = torch.randn(self.num_envs, 4, generator=self._generator)
        observation = torch.cat([self._observation.unsqueeze(1), following[:, :-1]], 1)
        self._observation = following[:, -1].clone()
        return TensorDict(
            {
                "observation": observation,
                "action": torch.randint(2, shape, generator=self._generator),
                **{key: torch.zeros_like(terminated) for key in flags},
                "next": {
                    "observation": after,
                    "reward": torch.randn(*shape, 1, generator=self._generator),
                    **{key: flag.clone() for key, flag in flags.items()},
                },
            },
            batch_size=shape,
        )

    def set_seed(self, seed: int) -> None:
        """Seed the data."""
        self._generator.manual_seed(seed)
        self._observation = None

    def update_policy_weights_(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing, since there is no policy."""

    def state_dict(self) -> dict[str, Any]:
        """Return the position, the observation and the generator's state."""
        return {
            "yielded": self.yielded,
            "observation": self._observation,
            "generator": self._generator.get_state(),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self.yielded = state_dict["yielded"]
        self._observation = state_dict["observation"]
        self._generator.set_state(state_dict["generator"])

    def shutdown(self) -> None:
        """Count the call."""
        self.closed += 1


class ScriptedLoss(torch.nn.Module):
    """A loss module with predefined values and one parameter, whose gradient is 1.

    Args:
        values: Values of ``key``, one per call; the last one is repeated.
        key: Key of the loss.
    """

    def __init__(self, values: Sequence[float] = (1.0,), key: str = "loss") -> None:
        super().__init__()
        self.values = list(values)
        self.key = key
        self.calls = 0
        self.parameter = torch.nn.Parameter(torch.zeros(()))

    def forward(self, batch: TensorDictBase) -> TensorDictBase:
        """Return ``{key: the next value}``."""
        value = self.values[min(self.calls, len(self.values) - 1)]
        self.calls += 1
        return TensorDict({self.key: self.parameter - self.parameter.detach() + value}, [])


class CallRecorder(TrainerHookBase):
    """A hook at all ten points that records its calls.

    Attributes:
        calls: Name of the hook point of each call.
        arguments: Arguments of each call.
    """

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.arguments: list[tuple[Any, ...]] = []

    def register(self, trainer: Trainer, name: str = "call_recorder") -> None:
        """Register at all ten points."""
        for point in HOOK_POINTS:
            trainer.register_op(point, self._record, point=str(point))
        trainer.register_module(name, self)

    def _record(self, *arguments: Any, point: str) -> None:
        self.calls.append(point)
        self.arguments.append(arguments)


def tiny_trainer(**overrides: Any) -> Trainer:
    """Return a small trainer: `FakeCollector`, `ScriptedLoss`, SGD, 2 steps a batch, 5 batches.

    Args:
        **overrides: Arguments of `Trainer` to replace.
    """
    loss = overrides.pop("loss_module", None) or ScriptedLoss()
    arguments: dict[str, Any] = {
        "collector": FakeCollector(),
        "total_frames": 50,
        "frame_skip": 1,
        "optim_steps_per_batch": 2,
        "loss_module": loss,
        "progress_bar": False,
    }
    if "optimizer" not in overrides:
        arguments["optimizer"] = torch.optim.SGD(loss.parameters(), lr=0.1)
    return Trainer(**arguments | overrides)


def check_hook(hook: TrainerHookBase, make: Callable[[], Trainer] = tiny_trainer) -> None:
    """Check that a hook fulfils the contract.

    It registers the hook, trains a few batches, and checks that the state survives a save and load,
    that the hook pickles, and that it can be closed twice.

    Args:
        hook: A new hook.
        make: Makes the trainer, if the hook needs more than `tiny_trainer`.

    Raises:
        HookError: If it does not; names the defect.
    """
    kind = type(hook).__name__
    for owner in type(hook).__mro__:
        for name, value in vars(owner).items():
            if isinstance(value, _MUTABLE) and not name.startswith("__"):
                raise HookError(
                    f"{owner.__name__}.{name} is a mutable class attribute, shared by every "
                    "trainer in the process; make it in __init__."
                )
    fresh = _pickled(hook)
    trainer = make()
    before = len(list(trainer.registry.entries()))
    try:
        hook.register(trainer)
    except TypeError as error:
        raise HookError(f"{kind}.register(trainer) failed; give name a default: {error}") from error
    if len(list(trainer.registry.entries())) == before:
        raise HookError(f"{kind}.register registers no op; call trainer.register_op in it.")
    if not any(module is hook for module in trainer.registry.modules.values()):
        raise HookError(f"{kind}.register must call trainer.register_module(name, self).")
    if not has_state(hook):
        raise HookError(
            f"{kind} needs state_dict and load_state_dict; derive from TrainerHookBase."
        )
    trainer.train()

    skeleton, tensors = flatten({kind: hook.state_dict()})
    for other in (fresh, _pickled(hook)):
        other.load_state_dict(unflatten(skeleton, tensors)[kind])
        for difference in compare_trees(hook.state_dict(), other.state_dict()):
            raise HookError(
                f"{kind}.load_state_dict does not restore what state_dict returned: saved and "
                f"restored differ in {difference}."
            )
    hook.close()


def _pickled(hook: Any) -> Any:
    """Copy ``hook`` through pickle, without its trainer."""
    try:
        alone = copy.copy(hook)
        vars(alone).pop("trainer", None)
        return pickle.loads(pickle.dumps(alone))
    except Exception as error:
        raise HookError(
            f"{type(hook).__name__} does not pickle, so a trainer with it cannot be sent to "
            f"another process: {error}. Leave out what cannot be sent in __getstate__."
        ) from error
