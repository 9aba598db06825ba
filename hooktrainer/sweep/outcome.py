"""What a sweep leaves behind for who wants to train with its winner, and what mattered."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, Any, Final

from ..algorithms import Algorithm
from ..base.plain import to_yaml
from ..base.text_file import write_atomically
from ..base.words import shell_word
from ..run.config_file import NAME, as_words
from ..run.fields import Mark, marked
from ..show.report.grouping import short
from .storage import import_optuna
from .sweep import Sweep

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

BEST_FILE: Final = "best.yaml"


def write_best(sweep: Sweep, trial: FrozenTrial) -> None:
    """Write ``best.yaml``, with which ``hooktrainer train --config`` trains like a trial."""
    algorithm = sweep.algorithm_of(trial)
    own = _belongs_to_one_run(algorithm)
    config = {n: value for n, value in algorithm.as_dict().items() if n not in own}
    text = to_yaml({NAME: algorithm.name(), **config})
    write_atomically(sweep.place / BEST_FILE, text)


def training_command(sweep: Sweep, trial: FrozenTrial | None) -> str:
    """The command that trains with the settings of a trial, or the defaults, for a shell."""
    algorithm = sweep.algorithm if trial is None else sweep.algorithm_of(trial)
    plain, own = algorithm.as_dict(), _belongs_to_one_run(algorithm)
    needed = [f.name for f in fields(algorithm) if MISSING is f.default is f.default_factory]
    searched = sweep.space.candidates if trial is not None else ()
    named = {*needed, "total_frames", *sweep.fixed, *searched} - own
    said = {n: plain[n] for n in plain if n in named and plain[n] is not None}
    ordered = {n: said[n] for n in ("env", "total_frames")} | said
    return " ".join(map(shell_word, ["hooktrainer", "train", algorithm.name(), *as_words(ordered)]))


def importances(sweep: Sweep) -> Mapping[str, float]:
    """How much each option has to do with being among the best quarter of the finished trials.

    They add up to 1, the greatest first; none before two trials have finished. By PED-ANOVA
    (Watanabe et al., 2023, arXiv:2304.10255) over the ranks of the trials. Those that were ended
    early count, below the others: with a pruner they are most of what is known.
    """
    from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
    from optuna.trial import create_trial

    done = [one for one in sweep.trials if one.state.is_finished() and one.value is not None]
    if len({(one.state, one.value) for one in done}) < 2:
        return {}
    ranked = import_optuna().create_study(direction="maximize")
    for rank, one in enumerate(sorted(done, key=_rank)):
        ranked.add_trial(
            create_trial(value=-rank, params=one.params, distributions=one.distributions)
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            evaluator = PedAnovaImportanceEvaluator(target_quantile=0.25)
            found = get_param_importances(ranked, evaluator=evaluator)
        except (ValueError, RuntimeError):  # such as of an option that had one value
            return {}
    return {name: float(value) for name, value in found.items()}


def trial_rows(sweep: Sweep) -> tuple[list[str], list[list[str]]]:
    """The trials as a table: headings, and rows, the best first."""
    names = list(sweep.space.candidates)
    heads = ["trial", sweep.options.objective, "how it ended", "frames", "CPU s", *names]
    best, finals = sweep.winner, sweep.finals
    heads[2:2] = ["finals"] if finals else []
    rows = []
    for one in sorted(sweep.trials, key=_rank):
        known = one.user_attrs
        settings = sweep.space.settings(one.params)
        how = {"COMPLETE": "", "FAIL": "failed"}.get(one.state.name, one.state.name.lower())
        if best is not None and one.number == best.number:
            how = "winner"
        rows.append(
            [
                str(one.number),
                "" if one.value is None else f"{one.value:,.5g}",
                *([_final(finals.get(one.number))] if finals else []),
                f"{how}: {known['failure']}" if "failure" in known else how,
                f"{known['frames']:,}" if "frames" in known else "",
                f"{known['cpu_seconds']:,.1f}" if "cpu_seconds" in known else "",
                *(_shown(settings.get(name)) for name in names),
            ]
        )
    return heads, rows


def _final(value: float | None) -> str:
    return "" if value is None else f"{value:,.5g}"


def _rank(one: FrozenTrial) -> tuple[int, float, int]:
    order = {"COMPLETE": 0, "PRUNED": 1}.get(one.state.name, 2)
    return order, -(one.value or 0.0), one.number


def _shown(value: Any) -> str:
    return "" if value is None else short(value)


def _belongs_to_one_run(algorithm: Algorithm) -> frozenset[str]:
    return marked(type(algorithm), Mark.MEANS) | {"seed", "seeds"}
