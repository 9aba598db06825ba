"""`Ledger`: the trials of a sweep, shared by all processes that work on it.

Optuna's storage holds all lasting state. A process that works on a trial locks the trial's
directory; the system releases the lock when the process ends. It also writes a heartbeat to the
storage, for machines that cannot access the directory.
"""

from __future__ import annotations

import math
import os
import re
import socket
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict, TypeGuard

import numpy as np
from optuna.pruners import BasePruner
from optuna.study import Study
from optuna.trial import FrozenTrial

from ..base.checks import TUNING_SEEDS, check_count, check_rate
from ..base.untrusted import MalformedError, one_line, refusing, shown
from ..base.untrusted.text import check_fields
from ..base.words import listed, printable
from ..errors import CheckpointError, ConfigError, TakenError
from ..store.lock import RunLock, is_locked
from ..store.run_dir import RunDir
from .space import SearchSpace
from .storage import import_optuna, open_storage

if TYPE_CHECKING:
    from optuna.trial import Trial

BEAT: Final = 30.0
"""Seconds between two heartbeats."""
SILENCE: Final = 300.0
"""Seconds without a heartbeat after which a trial of another machine is lost."""
_CLAIMING = 10.0  # seconds, at most, from a trial's start to its first heartbeat
_SETTINGS, _BEAT, _UNCOUNTED = "settings", "beat", "uncounted"
PRUNED: Final = "pruned"
"""Attribute of a pruned trial, and the first word of its runs' reasons."""


@dataclass
class Claim:
    """A trial that this process works on.

    Attributes:
        trial: Optuna's trial.
        place: Its directory.
        lock: The lock on the directory.
    """

    trial: Trial
    place: Path
    lock: RunLock


class Ledger:
    """The trials of a sweep.

    Args:
        options: The sweep's options.
        name: The study's name, unless the options have one.
        settings: Plain values that must be equal in all processes of the sweep.
        space: The search space.
        steps: Frames of the first and of the last evaluation, for the pruner.

    Raises:
        ConfigError: If the study has other settings.
    """

    def __init__(
        self,
        options: SweepOptions,
        name: str,
        settings: Mapping[str, Any],
        space: SearchSpace,
        steps: tuple[int, int],
    ) -> None:
        self._optuna = import_optuna()
        self._options, self._space = options, space
        self._place = Path(options.run_dir)
        name = options.study or name
        storage = open_storage(options.storage, self._place)
        with refusing(f"the study {name!r} cannot be gone on with", ConfigError):
            self.study = self._optuna.create_study(
                study_name=name,
                storage=storage,
                direction="maximize",
                load_if_exists=True,
                sampler=self._optuna.samplers.RandomSampler(options.seed),
                pruner=self._pruner(*steps),
            )
            check_fields(self.study.user_attrs, _StudyNotes)
            known = self.study.user_attrs.get(_SETTINGS)
            if known is None:
                if self.study.get_trials(deepcopy=False):
                    raise MalformedError("no sweep of hooktrainer made it")
                known = dict(settings)
                self.study.set_user_attr(_SETTINGS, known)
            if known == settings:
                self._check()
        if known != settings:
            self._refuse(name, known, settings)
        if not self.study.get_trials(deepcopy=False):
            self._recover(settings)
            if not self.study.get_trials(deepcopy=False) and (first := space.defaults()):
                self.study.enqueue_trial(first)
        self._held: dict[int, Claim] = {}
        self._ended = threading.Event()
        self._beats = threading.Thread(target=self._beat, daemon=True, name="sweep-beat")
        self._beats.start()

    def close(self) -> None:
        """Release all locks; other processes continue trials that are not done."""
        self._ended.set()
        self._beats.join()
        for claim in self._held.values():
            claim.lock.release()
        self._held.clear()

    @property
    def counted(self) -> list[FrozenTrial]:
        """The trials that count, by number, without lost ones."""
        return [one for one in self.study.get_trials(deepcopy=False) if _counts(one)]

    @property
    def elsewhere(self) -> list[FrozenTrial]:
        """The running trials of other processes."""
        return [t for t in self.counted if self._is_running(t) and t.number not in self._held]

    def take(self) -> Claim | None:
        """Claim a trial whose process is gone, else a new one; ``None`` at the end."""
        for one in self.elsewhere:
            if claim := self._adopted(one):
                return claim
        while self._begun() < self._options.trials:
            trial = self.study.ask()
            if sum(one.number < trial.number for one in self.counted) >= self._options.trials:
                # Another process got the last one at the same time.
                self._drop(trial.number, "surplus")
                return None
            if claim := self._claimed(trial.number, trial):
                return claim
        return None

    def finish(self, claim: Claim, value: float | None, *, pruned: bool = False) -> None:
        """Record a trial's value, ``None`` if it failed; a pruned one keeps its last report."""
        state = self._optuna.trial.TrialState
        if pruned:
            self.study.tell(claim.trial, state=state.PRUNED)
        elif value is None:
            self.study.tell(claim.trial, state=state.FAIL)
        else:
            self.study.tell(claim.trial, value)
        self._held.pop(claim.trial.number).lock.release()

    def give_up(self, why: str) -> None:
        """Exclude the trials of this process: something other than their settings failed."""
        for number in list(self._held):
            self._drop(number, why)
            self._held.pop(number).lock.release()

    def read(self, number: int) -> FrozenTrial:
        """Return a trial by its number."""
        found = self.study.get_trials(deepcopy=False)
        return next(one for one in found if one.number == number)

    def _begun(self) -> int:
        waiting = self._optuna.trial.TrialState.WAITING
        return sum(one.state != waiting for one in self.counted)

    def _is_running(self, one: FrozenTrial) -> bool:
        return one.state == self._optuna.trial.TrialState.RUNNING

    def _adopted(self, one: FrozenTrial) -> Claim | None:
        """Claim a trial whose process is gone, if it can be continued here."""
        place = self._place / f"trial{one.number}"
        held = is_locked(place)
        if held or (held is None and not _is_silent(one)):
            return None
        if not place.is_dir() and _BEAT in one.user_attrs:
            # Its runs are on another machine, which is gone.
            if self._drop(one.number, "lost"):
                self.study.enqueue_trial(one.params)
            return None
        return self._claimed(one.number)

    def _claimed(self, number: int, trial: Trial | None = None) -> Claim | None:
        place = self._place / f"trial{number}"
        refuse_links(place, *place.glob("seed*"))
        place.mkdir(parents=True, exist_ok=True)
        try:
            lock = RunLock(place)
        except CheckpointError:  # another process was first
            return None
        one = self.read(number)
        if not self._is_running(one):  # it was finished in the meantime
            lock.release()
            return None
        if trial is None:
            trial = self._optuna.trial.Trial(self.study, one._trial_id)
        # A trial's settings depend on its number and the known trials, not on the process.
        self.study.sampler = self._make_sampler(number)
        self._space.suggest(trial)
        trial.set_user_attr("worker", f"{socket.gethostname()}:{os.getpid()}")
        trial.set_user_attr(_BEAT, time.time())
        claim = self._held[number] = Claim(trial, place, lock)
        return claim

    def _drop(self, number: int, why: str) -> bool:
        """Exclude a trial; return whether this process did it."""
        one = self.read(number)
        try:
            self.study._storage.set_trial_user_attr(one._trial_id, _UNCOUNTED, why)
            self.study.tell(number, state=self._optuna.trial.TrialState.FAIL)
        except (ValueError, RuntimeError):  # it has ended by now
            return False
        return True

    def _beat(self) -> None:
        while not self._ended.wait(BEAT):
            for claim in list(self._held.values()):
                with suppress(Exception):  # the next one may get through
                    claim.trial.set_user_attr(_BEAT, time.time())

    def _check(self) -> None:
        """Raise MalformedError if the study is damaged or was not written by this sweep."""
        if [one.name for one in self.study.directions] != ["MAXIMIZE"]:
            raise MalformedError("it does not maximize one value")
        ranges = self._space.distributions()
        for one in self.study.get_trials(deepcopy=False):
            check_fields(one.user_attrs, _TrialNotes)
            waiting = one.system_attrs.get("fixed_params", {})
            known = all(ranges.get(name) == own for name, own in one.distributions.items())
            if not (known and self._space.holds(one.params) and self._space.holds(waiting)):
                raise MalformedError(f"trial {one.number} has settings that are not searched")
            done = one.state.name == "COMPLETE" or one.value is not None
            if done and not (_is_number(one.value) and math.isfinite(one.value)):
                raise MalformedError(f"trial {one.number} has the value {shown(one.value)}")
            if done and len(one.params) < len(ranges):
                raise MalformedError(f"trial {one.number} lacks settings")
            for step, value in one.intermediate_values.items():
                if not (_is_number(value) and 0 <= step < 2**63):
                    raise MalformedError(f"trial {one.number} has {shown(value)} at {shown(step)}")
            _is_silent(one)  # raises for invalid times

    def _recover(self, settings: Mapping[str, Any]) -> None:
        """Restore a lost study's trials from the directory; mark other numbers as failed."""
        most = 2 * self._options.trials + 100
        names = (re.fullmatch(r"trial(\d{1,9})", path.name) for path in self._place.glob("trial*"))
        last = max((n for name in names if name and (n := int(name[1])) < most), default=-1)
        for number in range(last + 1):
            found = self._on_disk(self._place / f"trial{number}", settings)
            if found is None:
                lost = self._optuna.trial.create_trial(
                    state=self._optuna.trial.TrialState.FAIL, user_attrs={_UNCOUNTED: "lost"}
                )
                self.study.add_trial(lost)
            else:
                params, pruned = found
                notes = {PRUNED: True} if pruned else None
                self.study.enqueue_trial(params, user_attrs=notes)

    def _on_disk(
        self, place: Path, settings: Mapping[str, Any]
    ) -> tuple[dict[str, Any], bool] | None:
        """Return a trial's parameters from its runs, and whether it was pruned."""
        for path in sorted(place.glob("seed*")):
            with suppress(ConfigError, OSError):
                config, state = RunDir(path).read_config(), RunDir(path).read()
                own = {**config, "seed": settings.get("seed"), "seeds": settings.get("seeds")}
                alike = all(own[n] == v for n, v in settings.items() if n in own)
                params = self._space.params(config) if alike else None
                if params is not None:
                    return params, str(state.get("reason")).startswith(PRUNED)
        return None

    def _make_sampler(self, number: int) -> Any:
        samplers, options = self._optuna.samplers, self._options
        seed = (options.seed * 1_000_003 + number) % 2**32
        known = min(10, max(4, options.trials // 4))  # random trials at the start
        if options.sampler == "random":
            return samplers.RandomSampler(seed)
        kind = samplers.GPSampler if options.sampler == "gp" else samplers.TPESampler
        return kind(seed=seed, n_startup_trials=known)

    def _pruner(self, first: int, last: int) -> Any:
        pruners = self._optuna.pruners
        if self._options.pruner == "none":
            return pruners.NopPruner()
        if self._options.pruner == "hyperband":
            return pruners.HyperbandPruner(min_resource=first, max_resource=max(last, first + 1))
        return MedianPruner(last // 4)

    def _refuse(self, name: str, known: Mapping[str, Any], now: Mapping[str, Any]) -> None:
        names = sorted(n for n in {*known, *now} if known.get(n) != now.get(n))
        said = [
            f"{printable(n)}: {one_line(repr(known.get(n)), 80)} before, "
            f"{one_line(repr(now.get(n)), 80)} now"
            for n in names
        ]
        raise ConfigError(
            f"the sweep {name!r} was begun with other settings ({listed(said)}). Its trials "
            "could not be compared: give the old values, or begin another sweep with another "
            "--run-dir or --study."
        )


class _StudyNotes(TypedDict, total=False):
    """User attributes of a study."""

    settings: Mapping[str, Any]
    finals: Mapping[str, float | None]


class _TrialNotes(TypedDict, total=False):
    """User attributes of a trial."""

    worker: str
    beat: float
    uncounted: str
    pruned: bool
    frames: int
    cpu_seconds: float
    failure: str


def refuse_links(*paths: Path) -> None:
    """Raise TakenError if a directory of a sweep is a link."""
    for path in paths:
        if path.is_symlink():
            raise TakenError(f"{path} is a link: remove it, or choose another --run-dir.")


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _counts(one: FrozenTrial) -> bool:
    return not (one.state.name == "FAIL" and _UNCOUNTED in one.user_attrs)


def _is_silent(one: FrozenTrial) -> bool:
    """Whether a trial's last heartbeat is too old."""
    if _BEAT in one.user_attrs:
        return time.time() - float(one.user_attrs[_BEAT]) > SILENCE
    begun = one.datetime_start.timestamp() if one.datetime_start else 0.0
    return time.time() - begun > _CLAIMING


# -- Pruning.

OTHERS = 3
"""Least number of other trials at the same frames."""


class MedianPruner(BasePruner):
    """Prunes a trial whose best score is below the median of all others at its frames.

    Optuna's `MedianPruner` compares with completed trials only, so it prunes none of the first that
    train concurrently. Here running and pruned trials count too.

    Args:
        first: Frames before which no trial is pruned.
    """

    def __init__(self, first: int) -> None:
        self._first = first

    def prune(self, study: Study, trial: FrozenTrial) -> bool:
        """Return whether to prune a trial."""
        frames = trial.last_step
        if frames is None or frames < self._first:
            return False
        others = [
            one.intermediate_values[frames]
            for one in study.get_trials(deepcopy=False)
            if one.number != trial.number and frames in one.intermediate_values
        ]
        if len(others) < OTHERS:
            return False
        return max(trial.intermediate_values.values()) < float(np.median(others))


# -- Options.

_MOST_SEEDS = 1_000  # of a trial, finals included; seeds of two sweeps do not overlap


@dataclass(frozen=True, kw_only=True)
class SweepOptions:
    """The options of a sweep.

    Raises:
        ConfigError: If a value is out of range.
    """

    run_dir: Path
    """directory of the sweep; the runs of trial k are in trial<k>/seed<i>"""
    trials: int = 40
    """trials of the whole sweep, over all processes"""
    seeds: int = 3
    """seeds of each trial"""
    parallel: int = 4
    """trials that train at once, each seed in a process; as many compute as there are cores"""
    objective: Literal["area", "last", "tail", "best"] = "area"
    """the score of a seed; a trial's value is the mean over its seeds"""
    finalists: int | None = None
    """best trials that train from as many further seeds before one wins; 0 or 1 for none; by
    default one for every eight trials, up to three"""
    cpu_second: float = 0.0
    """subtracted from a seed's score per CPU second; trials then train one at a time"""
    sampler: Literal["tpe", "gp", "random"] = "tpe"
    """Optuna's sampler of settings"""
    pruner: Literal["median", "hyperband", "none"] = "median"
    """the pruner that ends trials early"""
    seed: int = 0
    """seed of the sampler, and of the choice of tuning seeds"""
    storage: str | None = None
    """a URL or a file; by default study.journal in run_dir"""
    study: str | None = None
    """the study's name in the storage; by default the algorithm and the environment"""

    def __post_init__(self) -> None:
        for name in ("trials", "seeds", "parallel"):
            check_count(name, getattr(self, name))
        check_rate("cpu_second", self.cpu_second)
        check_count("seed", self.seed, least=0)
        check_count("finalists", self.most_finalists, least=0)
        most = len(TUNING_SEEDS) // _MOST_SEEDS
        if self.seeds * 2 > _MOST_SEEDS or self.seed >= most:
            raise ConfigError(
                f"seeds={self.seeds}, seed={self.seed}: there are tuning seeds for at most "
                f"{_MOST_SEEDS // 2} seeds a trial, and for seeds of sweeps below {most:,}."
            )

    @property
    def most_finalists(self) -> int:
        """Most trials in the finals."""
        return min(3, self.trials // 8) if self.finalists is None else self.finalists

    def tuning_seeds(self) -> range:
        """Return the seeds of each trial."""
        first = TUNING_SEEDS.start + self.seed * _MOST_SEEDS
        return range(first, first + self.seeds)
