"""`Session`: the hooks, metrics and exact checkpoints of a run around a loop of your own."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NoReturn

import torch
from tensordict import TensorDictBase, is_tensor_collection
from torch import nn
from typing_extensions import Self

from ..base.checks import check_count
from ..base.endings import GRACE
from ..base.plain import to_plain
from ..base.tensordicts import not_a_tensordict
from ..base.words import listed
from ..collect.collector import Collector
from ..errors import ConfigError, HookError, SkipOptimStep
from ..hooks.optimizer import OptimizerHook
from ..loop.hook import register_all
from ..loop.hook_points import HookPoint, HookPointName
from ..loop.registry import point_named
from ..loop.stateful import Stateful, StatefulModule, has_state
from ..trainer import Trainer
from .config import Count, FreeAmongSeeds, FreeOnResume, RunConfig, Seed
from .run import Run

_OWN: Final = "the loop computes the losses and takes the steps by itself"
_AT_END: Final = ("post_steps", "post_steps_log")  # which `end_batch` calls


class _MissingError(HookError, AttributeError):
    """A hook needs what a `Trainer` has and a `Session` has not."""


class _Absent:
    """An attribute of `Trainer` that needs the trainer's own loop."""

    def __init__(self, name: str, why: str) -> None:
        self._message = f"a Session has no {name}: {why}."

    def __get__(self, session: Any, owner: type | None = None) -> NoReturn:
        raise _MissingError(self._message)

    def __set__(self, session: Session, value: Any) -> None:
        if session._is_open and value is not None:  # a hook sets it, to no effect
            self.__get__(session)

    def __call__(self, *_: Any, **__: Any) -> NoReturn:
        self.__get__(None)

    __getattr__ = __call__  # of one that stands for an object


_NO_LOSS: Final = _Absent("loss_module", "a hook uses it; pass Session(..., loss_module=...)")


class Session(Trainer):
    """A run around a training loop of your own.

    It is the `Trainer` of the hooks, but its loop is yours: you call the hook points that your loop
    has by `step`, and `end_batch` at the end of every iteration. Cadences, log windows,
    checkpoints, signals and errors are handled as by `Trainer.train`.

    The objects given by name are saved in every checkpoint and restored by ``resume``, before
    the block begins: modules, optimizers, anything with ``state_dict`` and ``load_state_dict``,
    and dicts, whose entries are replaced. The random state of Python, NumPy and torch is saved too,
    and restored when the block begins. A resumed loop is bit for bit the uninterrupted one if
    nothing else influences it: what is not given, such as environments, is not restored.

    When ``total_frames`` are reached, a hook requested a stop or a signal arrived, `end_batch` ends
    the run (hooks, last window, last checkpoint) and `going_on` becomes false. Otherwise the end of
    the block does. An exception in the block saves ``exception.pt`` next to the checkpoints.

    Args:
        directory: The run's directory, for all `hooktrainer` commands.
        total_frames: Frames at which the run ends; ``None`` to end it with the block.
        hooks: Hooks to register. `register_op` is for functions without a cadence: state that
            is registered later is missing when a resumed run is restored, which is refused.
        points: The hook points that the loop calls. Hooks at others are then refused when the block
            begins; by default a warning lists them after the first optimizer step.
        resume: ``"latest"`` to continue the run in ``directory``, or begin it if there is none;
            ``"best"`` or frames for another of its checkpoints. ``None`` for a new run.
        unit: What ``end_batch(frames=...)`` counts, such as ``"samples"``.
        name: Name of the experiment; by default that of the directory.
        config: Your options, for ``config.yaml`` and the loggers. They may not change on a resume.
        allow_change: Options that may.
        seed: Seed for Python, NumPy and torch; ``None``: they are not seeded here.
        logger: Names as for `get_logger`, or loggers; by default ``csv`` and ``tensorboard``.
        log_interval: Frames in a log window.
        save_interval: Frames between two checkpoints.
        keep_last: How many of the latest checkpoints to keep, in addition to the best one.
        grace: Seconds from a signal to the end of the process.
        progress_bar: Whether to show a progress bar.
        report: Whether to print times and results at the end.
        **given: The objects to save, by name. ``loss_module`` is also what hooks read by that name.

    Attributes:
        epoch: Epoch within the batch, for hooks such as `MiniBatches`. ``StopIteration`` at
            ``process_optim_batch`` increments it, and `end_batch` resets it; a loop that ends its
            epochs by itself sets it.

    Raises:
        ConfigError: If an argument is invalid, an object has no state, an option changed, or there
            are several processes.
        StateMismatchError: If the saved state does not fit the objects.
        TakenError: If the directory holds a run, and ``resume`` is ``None``.

    Examples:
        >>> model = torch.nn.Linear(2, 1)
        >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> given = {"model": model, "optimizer": optimizer}
        >>> with Session("out/run", total_frames=64, report=False, **given) as session:
        ...     while session.going_on:
        ...         loss = model(torch.randn(8, 2)).square().mean()
        ...         loss.backward()
        ...         optimizer.step()
        ...         optimizer.zero_grad()
        ...         session.step("post_optim")
        ...         session.log({"loss/loss": loss})
        ...         session.end_batch(frames=8)
        >>> session.optim_count
        8
    """

    train: Any = _Absent("train()", "write the loop in the block")
    run: Any = _Absent("run()", "write the loop in the block")
    compute_loss: Any = _Absent("compute_loss()", _OWN)
    compiled_loss: Any = _Absent("compiled_loss", _OWN)
    optim_steps: Any = _Absent("optim_steps()", _OWN)
    optim_steps_per_batch: Any = _Absent("optim_steps_per_batch", _OWN)
    num_epochs: Any = _Absent("num_epochs", _OWN)
    clip_grad_norm: Any = _Absent("clip_grad_norm", _OWN)
    clip_norm: Any = _Absent("clip_norm", _OWN)

    def __init__(
        self,
        directory: str | Path,
        *,
        total_frames: int | None = None,
        hooks: Sequence[Any] = (),
        points: Sequence[HookPointName] | None = None,
        resume: str | None = None,
        unit: str = "frames",
        name: str | None = None,
        config: Mapping[str, Any] | None = None,
        allow_change: Sequence[str] = (),
        seed: int | None = None,
        logger: Any = (),
        log_interval: int = 5_000,
        save_interval: int = 5_000,
        keep_last: int = 3,
        grace: float = GRACE,
        progress_bar: bool = False,
        report: bool = True,
        **given: Any,
    ) -> None:
        _check_alone()
        self._points = None if points is None else {point_named(point) for point in points}
        self._given = {key: _part(key, value) for key, value in given.items()}
        self._reached: set[str] = set()
        self._has_told = self._is_open = self._is_in_batch = False
        self._block = ExitStack()
        loggers = list(logger) if isinstance(logger, (list, tuple)) else [logger]
        name = name or Path(directory).absolute().name
        options = SessionConfig(
            total_frames=total_frames,
            seed=seed,
            logger=tuple(one for one in loggers if isinstance(one, str)),
            log_interval=log_interval,
            progress_bar=progress_bar,
            run_dir=directory,
            resume=resume,
            allow_change=allow_change,
            save_interval=save_interval,
            keep_last=keep_last,
            grace=grace,
            config=config or {},
        )
        own = [one for one in loggers if not isinstance(one, str) and one is not None]
        run = Run(options, name, loggers=own, report=report)
        try:
            super().__init__(
                collector=_SessionLoop(unit),
                total_frames=total_frames,
                optim_steps_per_batch=1,
                loss_module=given.get("loss_module", _NO_LOSS),
                nan_guard=False,
                **run.trainer_options,
            )
            register_all(hooks, self)
        except BaseException:
            run.release()
            raise
        run.attach(self, more="To continue it, raise total_frames, or change what ended it.")

    # -- the loop --------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        """Begin the run, unless the one that is resumed has ended."""
        if self._closed:
            raise ConfigError("this session is closed: to continue, make one with resume='latest'.")
        self._is_open = True
        if self.has_ended:
            self.control.is_leaving = True
            self._end_at_once()
            return self
        self._block.enter_context(self._graceful())
        try:
            self._start()
        except BaseException as error:
            self.__exit__(type(error), error, error.__traceback__)
            raise
        return self

    def __exit__(
        self, kind: object, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End the run; an exception of the block is raised after everything is closed."""
        if sys.is_finalizing():
            return  # a generator is left with the program, whose threads have ended: as if killed
        if isinstance(error, GeneratorExit):
            error = None  # the block is left, in a generator that is read no further
        with self._block:
            if self._closed or not self._is_open:
                self._is_open = False
                return
            if error is None:
                try:
                    self._end_block()
                except BaseException as failure:
                    self.__exit__(type(failure), failure, failure.__traceback__)
                    raise
                self._is_open = False
                self._close()
            else:
                raised = self._fail(_explained(error))
                self._is_open = False
                if raised is not error:
                    raise raised from error
        if error is None:
            self._exit_after_signal()

    @property
    def going_on(self) -> bool:
        """Whether another batch follows."""
        is_asked = self.control.stop_reason is not None or self.control.is_leaving
        return self._is_open and not is_asked and self.progress.frames < self.total_frames

    def step(self, point: HookPointName | HookPoint, *args: Any) -> Any:
        """Call the hooks at a point of the loop.

        ``post_optim`` counts an optimizer step: call it after every ``optimizer.step()``.

        Args:
            point: One of `HOOK_POINTS`, but for ``post_steps`` and ``post_steps_log``, which
                `end_batch` calls.
            *args: What the point passes: a TensorDict or nothing. At ``optimizer`` the losses are
                enough, and no gradient is clipped.

        Returns:
            The TensorDict as the hooks leave it; ``None`` at points without one.

        Raises:
            HookError: If the run has ended, or the block has not begun.
            ConfigError: If the arguments are not those of the point.
            StopIteration: From a hook at ``process_optim_batch`` that ends the epoch.
            SkipOptimStep: From a hook that skips the rest of this optimizer step, such as a replay
                buffer that is not full enough; see `hooktrainer.errors`.
        """
        name = point_named(point)
        self._check_open(f"step({str(name)!r})")
        if name in _AT_END:
            raise ConfigError(f"step({str(name)!r}): end_batch(frames=..., batch=...) calls it.")
        if self._points is not None and name not in self._points:
            raise ConfigError(f"step({str(name)!r}): add it to points=, which lists the others.")
        if name == "optimizer" and len(args) == 1:
            args = (*args, True, None, 0)
        self._is_in_batch = True
        made = self.progress.optim_steps
        if name in ("post_loss", "optimizer", "post_optim"):
            self.progress.optim_steps = made + 1  # the number of this step, as in `Loop`
        try:
            return self._call(name, *args)
        except StopIteration:
            if name == "process_optim_batch":
                self.epoch += 1
            raise
        finally:
            if name != "post_optim":
                self.progress.optim_steps = made

    def log(self, metrics: Mapping[str, Any]) -> None:
        """Add values to the metrics of the open log window.

        Raises:
            HookError: Outside the block, where they would be lost.
        """
        if not self._is_open:
            self._check_open("log")
        super().log(metrics)

    def end_batch(self, frames: int, batch: TensorDictBase | None = None) -> bool:
        """End one iteration of the loop: count, then log, show and save what is due.

        Call it as the last line of the loop, so that a checkpoint holds the whole iteration. A
        cadence at an earlier point counts the frames of the finished iterations.

        Args:
            frames: Frames (or samples, tokens) of this iteration.
            batch: Passed to the hooks at ``post_steps_log``, which are not called without.

        Returns:
            Whether another batch follows, as `going_on`.

        Raises:
            HookError: If the run has ended, or the block has not begun.
            ConfigError: If ``frames`` is no positive integer.
        """
        self._check_open("end_batch")
        check_count("frames", frames)
        self._count_batch(frames)
        self._call(point_named("post_steps"))
        if batch is not None:
            self._call(point_named("post_steps_log"), batch)
        going_on = self._end_batch()
        self.epoch, self._is_in_batch = 0, False
        if self.progress.optim_steps or not going_on:
            self._tell_unreached()
        if not going_on:
            self._finish()
        return going_on

    def _call(self, point: HookPoint, *args: Any) -> Any:
        takes = ", ".join(point.receives)
        if len(args) != len(point.receives):
            raise ConfigError(f"step({str(point)!r}): pass ({takes}), not {len(args)} arguments.")
        if args and not is_tensor_collection(args[0]):
            what = f"step({str(point)!r}, ...): {point.receives[0]} is"
            raise ConfigError(not_a_tensordict(what, args[0]))
        self._reached.add(point)
        return self.registry.points[point](*args)

    def _check_open(self, what: str) -> None:
        if not self._is_open:
            where = "after" if self._closed else "outside"
            raise HookError(
                f"{what} {where} the block: call it in `with Session(...) as session:`."
            )
        if self.control.is_leaving:
            why = self.control.stop_reason or f"it has all its {self.amount}"
            raise HookError(f"{what}: the run has ended ({why}): loop `while session.going_on`.")

    def _end_block(self) -> None:
        """End the run with the block, unless a batch has ended it."""
        if not self.control.is_leaving:
            if not self.progress.batches:
                raise ConfigError("the block ended, and end_batch(frames=...) was never called.")
            if self._is_in_batch:
                warnings.warn(
                    "the block ended within a batch, after step(...) and before end_batch(...): "
                    "the last checkpoint holds a part of a batch, whose frames are not counted.",
                    stacklevel=3,
                )
            if self.known_total is not None and self.progress.frames < self.known_total:
                self.control.request_stop(f"the loop ended at {self.amount}")
            self._tell_unreached()
            self._finish()
        self._write_window(flush=True)  # what the block logged after its loop

    # -- what a foreign loop lacks ---------------------------------------------------------------

    def _check_points(self) -> None:
        """Refuse hooks that this loop cannot serve."""
        for entry in self.registry.entries():
            if entry.computes_loss:
                raise ConfigError(
                    f"hook {entry.name!r} computes the loss and takes the optimizer step itself, "
                    "which the loop of a Session does: leave it out, or use a Trainer."
                )
            if self._points is not None and entry.point not in (*self._points, "post_steps"):
                raise ConfigError(
                    f"hook {entry.name!r} is at {entry.point!s}, which is not in points=: call it "
                    f"in the loop and add it there, or leave the hook out."
                )

    def _tell_unreached(self) -> None:
        """Warn once of hooks at points that were not called so far."""
        if self._has_told:
            return
        self._has_told = True
        unreached = [e for e in self.registry.entries() if e.point not in self._reached]
        if unreached:
            hooks = listed(f"{entry.name!r} at {entry.point!s}" for entry in unreached)
            warnings.warn(
                f"hooks did nothing so far, since the loop did not call their points: {hooks}. "
                "Call session.step(point, ...) there; post_steps_log is called by "
                "end_batch(frames=..., batch=...).",
                stacklevel=3,
            )

    def components(self) -> dict[str, Stateful]:
        """Return every stateful object by name, those that were given as ``given/<name>``."""
        given = {n: part for n, part in self._given.items() if n != "loss_module"}
        return super().components() | {f"given/{name}": part for name, part in given.items()}


@dataclass(frozen=True, kw_only=True)
class SessionConfig(RunConfig):
    """Run configuration of a `Session`, and the options of its loop."""

    total_frames: FreeOnResume[Count | None] = None  # type: ignore[assignment]
    """frames at which the run ends; None: with its block"""
    seed: FreeAmongSeeds[Seed | None] = None  # type: ignore[assignment]
    """seed of Python, NumPy and torch; None: not seeded"""
    config: Mapping[str, Any] = field(default_factory=dict)
    """options of the loop"""

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as plain values, those of ``config`` among them."""
        plain = super().as_dict()
        return plain | to_plain(plain.pop("config"))


# -- What takes the place of the collector and of an absent loss module; the parts of the state.


class _SessionLoop(Collector):
    """Stands for the loop, which collects by itself."""

    resumes = "exactly"  # as far as it was given: the loop's own business otherwise

    def __init__(self, unit: str) -> None:
        self.unit = unit


def _explained(error: BaseException) -> BaseException:
    """Replace the control flow of a `Loop` that this loop did not catch."""
    if not isinstance(error, SkipOptimStep):
        return error
    return HookError(
        "a hook skipped the optimizer step: catch hooktrainer.errors.SkipOptimStep around the step "
        "in your loop, and continue with the next one."
    )


class _Variables:
    """The entries of a dict, as a part of the state."""

    def __init__(self, variables: dict[str, Any]) -> None:
        self._variables = variables

    def state_dict(self) -> dict[str, Any]:
        return dict(self._variables)

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        for name, value in state_dict.items():
            own = self._variables.get(name)
            if isinstance(own, torch.Tensor) and isinstance(value, torch.Tensor):
                value = value.to(own.device)
            self._variables[name] = deepcopy(value)

    def mismatches(self, saved: Mapping[str, Any]) -> list[str]:
        lines = [f"{name!r} is not in the state" for name in self._variables if name not in saved]
        return lines + [f"{n!r} is only in the state" for n in saved if n not in self._variables]


def _part(name: str, thing: Any) -> Any:
    """Return the `Stateful` for an object that was given."""
    if isinstance(thing, nn.Module):
        return StatefulModule(thing)
    if isinstance(thing, torch.optim.Optimizer):
        return OptimizerHook(thing)  # never registered: it compares and restores the state
    if isinstance(thing, dict):
        return _Variables(thing)
    if name == "loss_module" or has_state(thing):
        return thing
    raise ConfigError(
        f"{name}={thing!r:.80} has no state_dict and load_state_dict, so it could not be resumed: "
        "add them, pass what changes as a dict, or leave it out."
    )


def _check_alone() -> None:
    """Refuse several processes, each of which would have a run of its own."""
    group = torch.distributed.is_available() and torch.distributed.is_initialized()
    number = torch.distributed.get_world_size() if group else int(os.environ.get("WORLD_SIZE", 1))
    if number > 1:
        raise ConfigError(
            f"a Session is one process, and there are {number}: use an algorithm or a Run, which "
            "average gradients under torchrun."
        )
