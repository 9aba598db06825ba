"""Hooks that change a value during the run: learning rates, coefficients, exploration."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from ..base.checks import check_choice, check_fraction, check_positive
from ..base.frames_bar import print_line
from ..collect.collector import NoiseSchedule
from ..errors import ConfigError
from ..loop.cadence import Every
from ..loop.hook import AFTER, DEFAULT, EARLY, LATE, TrainerHookBase
from ..loop.hook_points import HookPointName
from ..loop.loop import Loop
from .averaging import AveragingHook


@dataclass(eq=False, repr=False)
class Schedule(TrainerHookBase):
    """Sets a value before every batch, as a function of the run's progress.

    Progress is the fraction of ``total_frames`` collected so far, 0 for the first batch. A run
    resumed with another ``total_frames`` takes the values of a run of that length, and prints a
    line. The value is logged as ``train/<name>``, by the hook's name, by default the attribute's.

    Args:
        owner: An optimizer, for an entry of its parameter groups: of the first, to which the others
            keep their ratio. Or any object with the attribute, or the name of an attribute of the
            trainer, such as ``"loss_module"``, for a schedule in an algorithm's ``hooks=[...]``. A
            tensor is filled in place.
        attribute: Name of the value: ``"lr"``, ``"clip_epsilon"``, ``"eps"``, ….
        value: Maps the fraction, from 0 to 1, to the value.

    Raises:
        ConfigError: If there is no such value to set.

    Examples:
        >>> optimizer = torch.optim.SGD([torch.zeros(1)], lr=0.5)
        >>> Schedule.linear(optimizer, "lr", 0.5, 0.0).value(0.25)
        0.375
        >>> hooks = [Schedule.linear("loss_module", "clip_epsilon", 0.2, 0.0)]
    """

    at = (("post_steps", "__call__", EARLY), ("pre_steps_log", "log_value", DEFAULT))
    saved_attributes = ("_last",)

    owner: Any
    attribute: str
    value: Callable[[float], float]

    def __post_init__(self) -> None:
        self._last: float | None = None  # the value set last
        self._ratios: list[float] = []  # of parameter groups to the first, when it was made
        self._metric = f"train/{self.attribute}"
        if not isinstance(self.owner, str):
            self._assign(None)

    @classmethod
    def linear(
        cls, owner: Any, attribute: str, start: float, end: float, until: float = 1.0
    ) -> Schedule:
        """Make a schedule that is linear from ``start`` to ``end``.

        Args:
            owner: As for the class.
            attribute: As for the class.
            start: Value at the beginning of the run.
            end: Value at ``until`` and after.
            until: Fraction of the run at which ``end`` is reached.

        Raises:
            ConfigError: If ``until`` is not in ``(0, 1]``.
        """
        return cls(owner, attribute, partial(_line, (start, end), _checked(until)))

    @classmethod
    def cosine(
        cls, owner: Any, attribute: str, start: float, end: float, until: float = 1.0
    ) -> Schedule:
        """Make a schedule that is half a cosine period; arguments as for `linear`."""
        return cls(owner, attribute, partial(_half_cosine, (start, end), _checked(until)))

    def __call__(self) -> None:
        """Set the value for the next batch."""
        trainer = self.trainer
        total = trainer.total_for(f"Schedule({self.attribute!r})")
        self._last = float(self.value(min(trainer.progress.frames / total, 1.0)))
        self._assign(self._last)

    def log_value(self, batch: Any) -> dict[str, Any]:
        """Metric: the value."""
        return {self._metric: self._last}

    def on_train_start(self, trainer: Loop) -> None:
        """Set the value for the first batch; print a change of a resumed run's value."""
        before = self._last
        self()
        if before is not None and f"{before:.4g}" != f"{self._last:.4g}":
            total, now = trainer.resumed_total_frames, trainer.total_for("Schedule")
            cause = f"total_frames {total:,} → {now:,}: " if total not in (None, now) else ""
            print_line(f"{cause}{self._metric} {before:.4g} → {self._last:.4g}")

    def register(self, trainer: Loop, name: str | None = None) -> None:
        """Register at ``post_steps``, before weights are sent, and at ``pre_steps_log``."""
        name = name or self.attribute
        self._metric = f"train/{name}"
        super().register(trainer, name)
        self()

    def _assign(self, value: float | None) -> None:
        """Set the value; ``None`` sets the present one, to show that it can be set."""
        owner, name = self.owner, self.attribute
        try:
            if isinstance(owner, str):
                owner = getattr(self.trainer, owner)
            places, ratios = [owner], [1.0]
            if isinstance(owner, torch.optim.Optimizer):
                places = owner.param_groups  # not cached, since loading a state replaces them
                first = float(places[0][name])
                self._ratios = self._ratios or [
                    float(place[name]) / first if first else 1.0 for place in places
                ]
                ratios = self._ratios
            for place, ratio in zip(places, ratios, strict=True):
                now = place[name] if isinstance(place, dict) else getattr(place, name)
                new = float(now) if value is None else value * ratio
                if torch.is_tensor(now):
                    now.fill_(new)
                elif isinstance(place, dict):
                    place[name] = new
                else:
                    setattr(place, name, new)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            shown = repr(owner) if isinstance(owner, str) else type(owner).__name__
            raise ConfigError(
                f"Schedule({shown}, {name!r}): no such number to set: {error!r}."
            ) from error


class ExplorationSchedule(TrainerHookBase):
    """Steps the exploration schedules of a collector's policy by frames, and logs their values.

    `hooktrainer.Trainer` registers it if the policy has a schedule, such as that of
    `EpsilonGreedy`. It skips those that a `Schedule` or another registered op changes.

    Args:
        schedules: The result of `hooktrainer.collect.collector.schedules_of`.
    """

    at = (("post_steps", "__call__", AFTER), ("pre_steps_log", "log_value", DEFAULT))
    default_name = "exploration"
    saved_attributes = ("positions",)

    def __init__(self, schedules: Sequence[NoiseSchedule]) -> None:
        self.schedules = schedules
        self._frames = 0

    def __call__(self) -> None:
        """Count the frames of the batch."""
        progress = self.trainer.progress
        frames, self._frames = progress.frames - self._frames, progress.frames
        for schedule in self.schedules:
            schedule.follow(frames // self.trainer.frame_skip)

    def log_value(self, batch: Any) -> dict[str, Any]:
        """Metric: the value used for the batch."""
        return {schedule.metric: schedule.position[1] for schedule in self.schedules}

    def on_train_start(self, trainer: Loop) -> None:
        """Find the schedules that other hooks change."""
        self._frames = trainer.progress.frames
        trainer.source.steps_exploration = False
        owners = [entry.owner for entry in trainer.registry.entries()]
        owners += [owner.owner for owner in owners if isinstance(owner, Schedule)]
        for schedule in self.schedules:
            schedule.is_driven |= any(owner is schedule.module for owner in owners)

    @property
    def positions(self) -> list[Any]:
        """The frames and the value of every schedule."""
        return [list(schedule.position) for schedule in self.schedules]

    @positions.setter
    def positions(self, positions: list[Any]) -> None:
        for schedule, position in zip(self.schedules, positions, strict=True):
            schedule.position = position


def _checked(until: float) -> float:
    check_positive("Schedule: until", check_fraction("Schedule: until", until))
    return until


def _line(ends: tuple[float, float], until: float, fraction: float) -> float:
    (start, end), passed = ends, min(fraction / until, 1.0)
    return start * (1 - passed) + end * passed


def _half_cosine(ends: tuple[float, float], until: float, fraction: float) -> float:
    (start, end), passed = ends, min(fraction / until, 1.0)
    return end + (start - end) * (1 + math.cos(math.pi * passed)) / 2


# -- `LRSchedulerHook`.


class LRSchedulerHook(AveragingHook):
    """Steps a scheduler after every batch, optimizer step or epoch, and logs the learning rate.

    Logs ``train/lr``, or ``train/lr_<name>`` under another name. A batch without an optimizer step,
    as during random warm-up, does not step it. A run resumed with another learning rate continues
    with that one's schedule. The scheduler keeps its own length: if it has ended when a run
    continues with larger ``total_frames``, a warning suggests `Schedule`, which follows the run's
    length.

    Args:
        scheduler: The scheduler.
        interval: ``"batch"`` or ``"optim"``.
        every: When to step it instead, such as ``Every(epochs=1)``.
        monitor: Metric that it steps by, for `ReduceLROnPlateau`, such as ``"val/loss"``. It is
            stepped by the last value, by default every epoch, as often as `Validate`; give both
            the same ``every``.

    Raises:
        ConfigError: If the interval is unknown, or `ReduceLROnPlateau` has no ``monitor``.
    """

    saved_attributes = ("scheduler", "last_optim_count")

    def __init__(
        self,
        scheduler: LRScheduler,
        interval: Literal["batch", "optim"] = "batch",
        *,
        every: Every | None = None,
        monitor: str | None = None,
    ) -> None:
        check_choice("LRSchedulerHook: interval", interval, ("batch", "optim"))
        if (monitor is None) == isinstance(scheduler, ReduceLROnPlateau):
            raise ConfigError(
                f"LRSchedulerHook({type(scheduler).__name__}, monitor={monitor!r}): "
                'ReduceLROnPlateau takes a metric, such as monitor="val/loss", and others none.'
            )
        self.monitor = monitor
        self._every = Every(epochs=1) if every is None and monitor is not None else every
        self.scheduler = scheduler
        self.interval = interval
        self._step_at: HookPointName = (
            "post_optim" if interval == "optim" and every is None else "post_steps"
        )
        self.last_optim_count = 0
        self._name = "lr_scheduler"
        self._metric = "train/lr"

    def __call__(self) -> None:
        """Step the scheduler if an optimizer step was made since the last call.

        Without a trainer, step it at every call.
        """
        if self.is_registered:
            optim_count = self.trainer.progress.optim_steps
            if optim_count == self.last_optim_count:
                return
            self.last_optim_count = optim_count
        self.scheduler.step()

    def step_by_metric(self, batch: Any) -> None:
        """Step the scheduler by the last value of ``monitor``; warn if there is none."""
        assert self.monitor is not None
        value = self._latest(self.monitor)
        if value is None:
            logged = ", ".join(self.trainer.metrics.all_latest()) or "no metrics"
            warnings.warn(
                f"LRSchedulerHook {self._name!r} is due, but {self.monitor!r} was not logged; "
                f"logged were {logged}.",
                stacklevel=2,
            )
            return
        self.scheduler.step(value)  # type: ignore[arg-type]  # ReduceLROnPlateau's

    def log_lr(self, batch: Any) -> dict[str, float]:
        """Metric: the learning rate of the first parameter group."""
        return {self._metric: float(self.scheduler.optimizer.param_groups[0]["lr"])}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the scheduler, with the learning rates that it is constructed with."""
        parts: list[Any] = [self.scheduler, *getattr(self.scheduler, "_schedulers", ())]
        rates = [getattr(part, "base_lrs", None) for part in parts]
        super().load_state_dict(state_dict)
        for part, own in zip(parts, rates, strict=True):
            if own is not None:
                part.base_lrs = own

    def on_train_start(self, trainer: Loop) -> None:
        """Warn of a scheduler that has ended although the run continues."""
        before = trainer.resumed_total_frames
        if before is not None and before < trainer.total_frames and _is_at_its_end(self.scheduler):
            warnings.warn(
                f"LRSchedulerHook {self._name!r}: its {type(self.scheduler).__name__} is at its "
                f"end (total_frames {before:,} → {trainer.known_total}). Register a hooktrainer."
                "Schedule in its place, and resume with strict=False (--no-strict).",
                stacklevel=2,
            )

    def register(self, trainer: Loop, name: str = "lr_scheduler") -> None:
        """Register where the scheduler is stepped, and at ``pre_steps_log``."""
        self._name = name
        if name != "lr_scheduler":
            self._metric = f"train/lr_{name}"
        trainer.register_module(name, self)
        if self.monitor is None:
            trainer.register_op(self._step_at, self, every=self._every)
        else:  # after the hooks that log the metric
            trainer.register_op(
                "post_steps_log", self.step_by_metric, priority=LATE, every=self._every
            )
        trainer.register_op("pre_steps_log", self.log_lr)


def _is_at_its_end(scheduler: LRScheduler) -> bool:
    """Whether all rates are zero, or the scheduler's last step was just made."""
    if not any(scheduler.get_last_lr()):
        return True
    last: Any = getattr(scheduler, "_schedulers", [scheduler])[-1]  # of a SequentialLR
    ends = (getattr(last, name, None) for name in ("total_iters", "T_max", "total_steps"))
    return last.last_epoch in ends
