"""The parts of a training loop, and the methods with which hooks register and steer it."""

from __future__ import annotations

import random
import traceback
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from tensordict import TensorDictBase, is_tensor_collection

from ..base.checks import check_seed
from ..errors import ConfigError, SkipOptimStep
from .cadence import Every, Progress
from .control import Control, Saver, Stop
from .finite import FiniteChecks
from .hook_points import HookPoint, HookPointName
from .metrics import Metrics
from .registry import HookHandle, Registry, draw_hooks
from .timing import Timing

if TYPE_CHECKING:
    from ..log import Logger


class Assembly:
    """The parts of a loop, which `hooktrainer.Trainer` makes, and the methods for hooks.

    Attributes:
        collector: The collector as given; the loop itself uses ``source``.
        source: The `hooktrainer.collect.Collector` for it.
        logger: The loggers as given; the loop itself uses ``loggers``.
        compiled_loss: Replaces ``loss_module`` in the loop unless it is ``None``.
        bridge: Adapts what was written for TorchRL's trainer.
        cadences: When the log window ends and the state is saved, by name.
    """

    collector: Any
    source: Any
    loss_module: Callable[[TensorDictBase], TensorDictBase]
    logger: Any
    loggers: list[Logger]
    total_frames: int
    frame_skip: int
    optim_steps_per_batch: int | None
    num_epochs: int
    clip_grad_norm: bool
    clip_norm: float | None
    progress_bar: bool
    threads: int | None
    grace: float
    precision: Precision
    bridge: Any
    registry: Registry
    cadences: dict[str, Every]
    _saver: Saver

    def __init__(self) -> None:
        self.compiled_loss: Callable[[TensorDictBase], TensorDictBase] | None = None
        self.epoch = 0
        self.progress = Progress()
        self.control = Control()
        self.finite = FiniteChecks(self.progress)
        self.metrics = Metrics()
        self.timing = Timing()

    @property
    def collected_frames(self) -> int:
        """Environment frames collected so far."""
        return self.progress.frames

    @property
    def stop_reason(self) -> str | None:
        """Why the run was requested to stop; ``None`` if it was not."""
        return self.control.stop_reason

    @property
    def optim_count(self) -> int:
        """Optimizer steps so far."""
        return self.progress.optim_steps

    def set_seed(self, seed: int) -> None:
        """Seed Python, NumPy, torch and the collector, which resets its environments."""
        check_seed("seed", seed)
        random.seed(seed)
        np.random.seed(seed % 2**32)
        torch.manual_seed(seed)
        self.source.set_seed(seed)

    # -- hooks -----------------------------------------------------------------------------------

    def register_op(
        self,
        dest: HookPointName | HookPoint,
        op: Callable[..., Any],
        *,
        priority: float = 0,
        every: Every | None = None,
        **kwargs: Any,
    ) -> HookHandle:
        """Register ``op`` at a hook point.

        Args:
            dest: One of `HOOK_POINTS`.
            op: A callable that accepts the arguments of the point.
            priority: Ops of higher priority run first; ties run in order of registration.
            every: Call the op only when this cadence is due.
            **kwargs: Passed to ``op`` at every call.

        Returns:
            A handle; its ``remove()`` removes the op.

        Raises:
            UnknownHookPointError: If there is no such point.
            HookSignatureError: If ``op`` cannot take the arguments of the point.
        """
        return self.registry.add(dest, op, priority=priority, every=every, kwargs=kwargs)

    def register_module(self, module_name: str, module: Any) -> None:
        """Register a stateful object under the name that checkpoints use.

        Raises:
            DuplicateNameError: If the name is taken.
        """
        self.registry.add_module(module_name, module)

    def remove_hook(self, name: str) -> Any:
        """Remove the hook registered as ``name`` from all its points, and return it."""
        return self.registry.remove_module(name)

    def describe(self) -> str:
        """List every hook by point in run order, with its cadence and the state it saves."""
        head = (
            f"Trainer: {self.collected_frames:,} of {self.total_frames:,} frames, "
            f"{self.optim_count:,} optimizer steps"
        )
        return f"{head}\n{draw_hooks(self.registry.table())}"

    __str__ = describe

    # -- what hooks ask for ----------------------------------------------------------------------

    def log(self, metrics: Mapping[str, Any]) -> None:
        """Add values to the metrics of the open log window."""
        self.metrics.log(metrics)

    def request_stop(self, reason: str | None = None, *, status: Stop = "stopped") -> None:
        """End the run after the current batch.

        Args:
            reason: Why; by default where this was called. The first reason given is kept.
            status: Status of the run in ``run.json``.
        """
        if reason is None:
            by = traceback.extract_stack(limit=2)[0]
            reason = f"requested in {by.name}, {Path(by.filename).name}:{by.lineno}"
        self.control.request_stop(reason, status)

    def request_save(self) -> None:
        """Save at the end of the current batch, if the trainer has a file or checkpoints."""
        self.control.request("save")

    def request_log(self) -> None:
        """Close the log window at the end of the current batch."""
        self.control.request("log")

    def skip_optim_step(self) -> None:
        """Abandon the current optimizer step; call this from a hook in the inner loop.

        It raises an exception that the loop catches: no later hook, optimizer or metric of this
        step runs. The step is not counted unless the optimizer has run already.
        """
        raise SkipOptimStep("skip_optim_step() was called outside an optimizer step")


def register_all(hooks: Iterable[Any], trainer: Assembly) -> None:
    """Register hooks in this order."""
    for hook in hooks:
        if isinstance(hook, type):
            raise ConfigError(f"hooks=[{hook.__name__}] has a class: pass {hook.__name__}(...).")
        if not callable(getattr(hook, "register", None)):
            raise ConfigError(
                f"hooks=[...] has {hook!r:.80}, which has no method register(trainer)."
            )
        hook.register(trainer)


# -- `Precision`: in what floating-point type losses are computed.

_TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


class Precision:
    """Computes losses in half precision by ``torch.autocast``.

    Parameters, gradients, optimizers and the returned losses stay in float32.
    """

    def __init__(self, name: str | None, loss_module: Any) -> None:
        if name is not None and name not in _TYPES:
            raise ConfigError(f"precision={name!r}: pass 'bf16', 'fp16', or None for float32.")
        self.name = name
        self.scales = name == "fp16"
        self._module = loss_module

    @property
    def device_type(self) -> str:
        """The type of the loss's device."""
        tensors = self._module.parameters() if isinstance(self._module, torch.nn.Module) else ()
        return next((tensor.device.type for tensor in tensors), "cpu")

    @property
    def arguments(self) -> tuple[str, torch.dtype] | None:
        """The arguments of ``torch.autocast``; ``None`` if it is not used."""
        return None if self.name is None else (self.device_type, _TYPES[self.name])

    def no_autocast(self) -> AbstractContextManager[Any]:
        """Return a context that disables autocast inside a loss."""
        if self.name is None:
            return nullcontext()
        return torch.autocast(self.device_type, enabled=False)

    def around(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``call`` under autocast, with half-precision results converted to float32."""
        arguments = self.arguments
        if arguments is None:
            return call

        def in_precision(*args: Any) -> Any:
            with torch.autocast(*arguments):
                out = call(*args)
            return out.apply(_widened) if is_tensor_collection(out) else out

        return in_precision


def _widened(value: torch.Tensor) -> torch.Tensor:
    """Convert half precision to float32."""
    return value.float() if value.dtype in (torch.bfloat16, torch.float16) else value
