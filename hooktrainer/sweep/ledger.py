"""`Ledger`: the trials of a sweep, shared by all processes that work on it.

All state is in the directory of the sweep: the settings in `sweep.json`, each trial in
`trial<k>/trial.json`. A process locks the directory of a trial that it works on; the system
releases the lock when the process ends. Optuna chooses settings from a study in memory, made of
these files.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ..base.fs import open_to_lock, write_atomically
from ..base.untrusted import MalformedError, parse_json, read_file, refusing
from ..base.untrusted.text import check_fields
from ..base.words import listed, printable
from ..errors import CheckpointError, ConfigError, TakenError
from ..store.lock import RunLock
from ..store.lookup import SWEEP_FILE
from ..store.run_dir import RunDir
from .options import SweepOptions
from .space import SearchSpace, import_optuna

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler
    from optuna.study import Study
    from optuna.trial import FrozenTrial

_NOTES, _FILE = "sweep.json", "trial.json"
_NAME = re.compile(r"trial(0|[1-9]\d{0,8})")


@dataclass(kw_only=True)
class Trial:
    """A trial of a sweep.

    Attributes:
        params: Optuna's parameters; `SearchSpace.settings` makes them values of fields.
        value: The mean score of its seeds; of a pruned trial, up to its end; ``None`` while it is
            open, and if it failed.
        reports: By frames, the mean score up to them.
        frames: Collected by all of its seeds.
        final: Of a finalist, the value over all of its seeds.
        rungs: Attributes of Optuna's Hyperband pruner.
    """

    number: int
    params: dict[str, Any]
    state: Literal["running", "complete", "pruned", "fail"] = "running"
    value: float | None = None
    reports: dict[int, float] = field(default_factory=dict)
    frames: int = 0
    cpu_seconds: float = 0.0
    failure: str | None = None
    final: float | None = None
    rungs: dict[str, float] = field(default_factory=dict)

    @property
    def is_open(self) -> bool:
        """Whether its runs have not all ended."""
        return self.state == "running" or (self.state == "pruned" and self.value is None)


class Ledger:
    """The trials of a sweep.

    Args:
        options: The sweep's options.
        place: Its directory.
        settings: Plain values that must be equal in all processes of the sweep.
        space: The search space.
        steps: Frames of the first and of the last evaluation, for the pruner.

    Raises:
        ConfigError: If the sweep was begun with other settings, or a file of it is damaged.
    """

    def __init__(
        self,
        options: SweepOptions,
        place: Path,
        settings: Mapping[str, Any],
        space: SearchSpace,
        steps: tuple[int, int],
    ) -> None:
        self._optuna = import_optuna()
        self._options, self._space = options, space
        self._pruner = self._make_pruner(*steps)
        self._place = place
        self._held: dict[int, tuple[Trial, RunLock]] = {}
        self._place.mkdir(parents=True, exist_ok=True)
        notes = self._place / _NOTES
        with file_lock(self._place / SWEEP_FILE):
            known = _load(notes)
            if known is None:
                write_atomically(notes, json.dumps(settings))
        if known is not None and known != settings:
            self._refuse(known, settings)
        _ = self.trials  # refuses damaged ones

    def close(self) -> None:
        """Release all locks; other processes continue trials that are not done."""
        for number in list(self._held):
            self._release(number)

    @property
    def trials(self) -> list[Trial]:
        """The trials, by number."""
        names = (_NAME.fullmatch(path.name) for path in self._place.glob("trial*"))
        numbers = sorted(int(name[1]) for name in names if name)
        return [one for number in numbers if (one := self._read(number)) is not None]

    @property
    def elsewhere(self) -> list[Trial]:
        """The running trials of other processes."""
        return [t for t in self.trials if t.is_open and t.number not in self._held]

    def take(self) -> Trial | None:
        """Claim a trial whose process is gone, else a new one; ``None`` if none is left."""
        with file_lock(self._place / SWEEP_FILE):
            known = {one.number: one for one in self.trials}
            for number in sorted({*known, *range(self._options.trials)}):
                trial = known.get(number)
                if number in self._held or (trial is not None and not trial.is_open):
                    continue
                place = self.place_of(number)
                refuse_links(place, *place.glob("seed*"))
                place.mkdir(exist_ok=True)
                try:
                    lock = RunLock(place)
                except CheckpointError:  # another process works on it
                    continue
                trial = self._read(number) or self._new(number, known.values())
                if not trial.is_open:  # it has ended in the meantime
                    lock.release()
                    continue
                self._held[number] = trial, lock
                self.save(trial)
                return trial
        return None

    def save(self, trial: Trial) -> None:
        """Write a trial's file."""
        fields = asdict(trial)
        text = json.dumps({name: fields[name] for name in fields if name != "number"})
        write_atomically(self.place_of(trial.number) / _FILE, text, durable=False)

    def finish(self, trial: Trial, value: float | None) -> None:
        """Record a trial's value, ``None`` if it failed; a pruned one has its last report."""
        if trial.state == "pruned":
            value = trial.reports[max(trial.reports)]
        if value is None or not math.isfinite(value):
            trial.state, trial.failure = "fail", trial.failure or "it has no finite score"
        else:
            trial.state, trial.value = "complete" if trial.state == "running" else "pruned", value
        self.save(trial)
        self._release(trial.number)

    def give_up(self) -> None:
        """Forget the trials of this process: something other than their settings failed."""
        for number in list(self._held):
            (self.place_of(number) / _FILE).unlink()
            self._release(number)

    def prune(self, trial: Trial) -> None:
        """Prune a trial by its latest report."""
        known = self.trials
        study, index = self.study(known), [one.number for one in known].index(trial.number)
        if self._pruner.prune(study, study.get_trials(deepcopy=False)[index]):
            trial.state = "pruned"
        trial.rungs = dict(study.get_trials(deepcopy=False)[index].system_attrs)
        self.save(trial)

    def place_of(self, number: int) -> Path:
        """Return the directory of a trial's runs."""
        return self._place / f"trial{number}"

    def _release(self, number: int) -> None:
        self._held.pop(number)[1].release()

    def _read(self, number: int) -> Trial | None:
        """Read a trial; raise ConfigError if its file is damaged or not of this sweep."""
        if number in self._held:
            return self._held[number][0]
        file = self.place_of(number) / _FILE
        if (found := _load(file)) is None:
            return None
        with refusing(file, ConfigError):
            reports = {int(step): value for step, value in found["reports"].items()}
            fields = {**found, "number": number, "reports": reports}
            check_fields(fields, Trial)
            one = Trial(**fields)
            has_value = one.reports if one.state == "pruned" else one.value is not None
            if not (
                self._space.holds(one.params)
                and len(one.params) == len(self._space.candidates)
                and bool(has_value) == (one.state in ("complete", "pruned"))
                and all(v is None or math.isfinite(v) for v in (one.value, one.final))
                and all(0 <= step < 2**63 for step in one.reports)
            ):
                raise MalformedError("its state, value, reports or settings cannot be a trial's")
        return one

    def study(self, trials: Iterable[Trial]) -> Study:
        """Return trials as a study of Optuna, in memory."""
        study = self._optuna.create_study(
            study_name="sweep", direction="maximize", pruner=self._pruner
        )
        ranges = self._space.distributions()
        for one in trials:
            study.add_trial(
                self._optuna.trial.create_trial(
                    state=self._optuna.trial.TrialState[one.state.upper()],
                    value=one.value,
                    params=one.params,
                    distributions=ranges,
                    intermediate_values=one.reports,
                    system_attrs=one.rungs,
                )
            )
        return study

    def _new(self, number: int, known: Iterable[Trial]) -> Trial:
        """Make a trial; its settings depend on its number and the known trials.

        A trial whose file was lost has those of its runs.
        """
        for path in sorted(self.place_of(number).glob("seed*")):
            with suppress(ConfigError, OSError):
                if params := self._space.params(RunDir(path).read_config()):
                    return Trial(number=number, params=params)
        study = self.study(known)
        study.sampler = self._sampler(number)
        first = self._space.defaults()
        if number == 0 and first is not None:
            study.enqueue_trial(first)
        return Trial(number=number, params=study.ask(self._space.distributions()).params)

    def _sampler(self, number: int) -> BaseSampler:
        samplers, options = self._optuna.samplers, self._options
        seed = (options.seed * 1_000_003 + number) % 2**32
        known = min(10, max(4, options.trials // 4))  # random trials at the start
        if options.sampler == "random":
            return samplers.RandomSampler(seed)
        kind = samplers.GPSampler if options.sampler == "gp" else samplers.TPESampler
        return kind(seed=seed, n_startup_trials=known)

    def _make_pruner(self, first: int, last: int) -> Any:
        pruners = self._optuna.pruners
        if self._options.pruner == "none":
            return pruners.NopPruner()
        if self._options.pruner == "hyperband":
            return pruners.HyperbandPruner(min_resource=first, max_resource=max(last, first + 1))
        return MedianPruner(last // 4)

    def _refuse(self, known: Mapping[str, Any], now: Mapping[str, Any]) -> None:
        names = sorted(n for n in {*known, *now} if known.get(n) != now.get(n))
        changes = [f"{n}: {known.get(n)!r:.80} before, {now.get(n)!r:.80} now" for n in names]
        raise ConfigError(
            printable(
                f"the sweep in {self._place} was begun with other settings ({listed(changes)}), so "
                "its trials could not be compared: give the old values, or begin another sweep "
                "with another --run-dir."
            )
        )


def _load(file: Path) -> dict[str, Any] | None:
    """Read a file of a sweep; ``None`` if there is none, ConfigError if it is damaged."""
    refuse_links(file)
    if not file.exists():
        return None
    with refusing(file, ConfigError):
        found = parse_json(read_file(file, file.parent), nan=True)
        if not isinstance(found, dict):
            raise MalformedError("it holds no named fields")
        return found


@contextmanager
def file_lock(file: Path) -> Iterator[None]:
    """Hold a lock on a file in the block; the file is created if it is missing."""
    fd = open_to_lock(file)
    try:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def refuse_links(*paths: Path) -> None:
    """Raise TakenError if a directory of a sweep is a link."""
    for path in paths:
        if path.is_symlink():
            raise TakenError(f"{path} is a link: remove it, or choose another --run-dir.")


# -- Pruning.

OTHERS = 3
"""Least number of other trials at the same frames."""


class MedianPruner:
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
