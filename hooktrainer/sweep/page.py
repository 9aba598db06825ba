"""The page of a sweep: trials, importances, curves. One file that opens offline."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from html import escape
from typing import Final

import numpy as np

from ..base.fs import write_atomically
from ..base.plain import to_yaml
from ..base.words import plural, shell_word
from ..run.config import NAME, TRUST, Mark, marked
from ..show.chart import figure
from ..show.curves import Band
from ..show.html import document, table
from ..show.report.analysis import SCORE_TEXTS, comparison_texts
from ..show.report.grouping import short
from ..statistics import Curve
from .confirm import KEEP, Confirmation
from .ledger import Trial
from .sweep import Sweep

_COMPARED: Final = ("IQM difference", "P(improvement)", "p")


def sweep_page(sweep: Sweep, verdict: str, found: Confirmation | None = None) -> str:
    """Return the page as HTML.

    Args:
        sweep: The sweep, finished or not.
        verdict: The verdict on the winner.
        found: Its confirmation, if there is one.
    """
    options, algorithm = sweep.options, sweep.algorithm
    title = f"Sweep: {algorithm.name()} on {algorithm.trained_on}"
    trials, best = sweep.trials, sweep.winner
    kinds = [one.state for one in trials]
    keep = verdict.startswith(KEEP)
    body = [
        f"<h1>{escape(title)}</h1>",
        f"<p>{plural(len(trials), 'trial')}: {kinds.count('complete')} finished, "
        f"{kinds.count('pruned')} ended early, {kinds.count('fail')} failed. A trial's value "
        f"is the mean over {plural(options.seeds, 'seed')} of their evaluations: "
        f"{SCORE_TEXTS[options.objective]}.</p>",
    ]
    if best is not None:
        heading = KEEP.capitalize() if keep else f"The best: trial {best.number}"
        body += [
            f"<h2>{heading}</h2>",
            f"<p>best.yaml has the settings of trial {best.number}.</p>",
        ]
    text = verdict.removeprefix(f"{KEEP}: ")
    body.append(f"<p>{escape(text[:1].upper() + text[1:])}.</p>")
    if found is not None and found.comparison is not None:
        one = found.comparison
        rows = [[*comparison_texts(one)[:3], f"{one.first} against {one.second}"]]
        body += ["<h2>On fresh seeds</h2>", table([*_COMPARED, ""], rows, numbers=_COMPARED)]
    if mattered := importances_text(sweep):
        body.append(f"<p>{escape(mattered)}</p>")
    body.append(_curves(sweep))
    heads, rows = trial_rows(sweep)
    body.append("<h2>Trials</h2>")
    body.append(table(heads, rows, numbers=[head for head in heads if head != "how it ended"]))
    return document(title, body)


def _curves(sweep: Sweep) -> str:
    best = sweep.winner
    curves = {one.number: Curve.of(one.reports.items()) for one in sweep.trials}
    drawn = {number: curve for number, curve in curves.items() if len(curve.frames)}
    if not drawn:
        return ""
    groups, bands = [], []
    if best is not None and best.number in drawn:
        winner = drawn.pop(best.number)
        name = f"trial {best.number}, the best"
        groups.append((name, [(name, winner)]))
        bands.append(Band.around(winner.frames, winner.values))
    if drawn:
        members = [(f"trial {number}", curve) for number, curve in drawn.items()]
        groups.append(("other trials", members))
        nothing = np.empty(0)
        # A count of two or more has the members drawn; of the group itself there is no mean.
        bands.append(Band(nothing, nothing, nothing, nothing, max(2, len(members))))
    return "<h2>Curves</h2>" + figure(
        groups,
        bands,
        f"{escape(sweep.options.objective)} up to the frames, mean over the seeds of a trial: what "
        "trials are compared by while they run",
    )


# -- The winner's file, importances and tables.


def best_command(sweep: Sweep) -> str | None:
    """Write the winner to ``best.yaml``; return the shell command that trains with it."""
    if sweep.winner is None:
        return None
    algorithm, file = sweep.algorithm_of(sweep.winner), sweep.place / "best.yaml"
    own = marked(type(algorithm), Mark.MEANS) | {"seed", "seeds"}
    config = {n: value for n, value in algorithm.as_dict().items() if n not in own}
    write_atomically(file, to_yaml({NAME: algorithm.name(), **config}))
    trust = f" {TRUST}" if type(algorithm).code_in(config) else ""
    return f"hooktrainer train --config {shell_word(file)}{trust}"


def importances(sweep: Sweep) -> Mapping[str, float]:
    """Return the importance of each option for the best trials, the greatest first.

    They add up to 1. By PED-ANOVA (Watanabe et al., 2023, arXiv:2304.10255), of completed trials.
    """
    from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = get_param_importances(sweep.study, evaluator=PedAnovaImportanceEvaluator())
        except (ValueError, RuntimeError):  # of too few trials, or options that had one value
            return {}
    # All alike, as of one completed trial, they tell nothing.
    return dict(found) if len({*found.values()}) > 1 else {}


def importances_text(sweep: Sweep) -> str:
    """Return the importances in a line; empty if they are not known."""
    parts = [f"{name} {value:.2f}" for name, value in importances(sweep).items()]
    return f"what mattered (PED-ANOVA): {', '.join(parts)}" if parts else ""


def trial_rows(sweep: Sweep) -> tuple[list[str], list[list[str]]]:
    """Return headings and rows of the trials, the best first."""
    names = list(sweep.space.candidates)
    heads = ["trial", sweep.options.objective, "how it ended", "frames", "CPU s", *names]
    best, trials = sweep.winner, sweep.trials
    finals = any(one.final is not None for one in trials)
    heads[2:2] = ["finals"] if finals else []
    rows = []
    for one in sorted(trials, key=_rank):
        settings = sweep.space.settings(one.params)
        how = {"complete": "", "fail": f"failed: {one.failure}"}.get(one.state, one.state)
        if best is not None and one.number == best.number:
            how = "winner"
        values = (settings[name] for name in names)
        rows.append(
            [
                str(one.number),
                _number(one.value),
                *([_number(one.final)] if finals else []),
                how,
                f"{one.frames:,}",
                f"{one.cpu_seconds:,.1f}",
                *("" if value is None else short(value) for value in values),
            ]
        )
    return heads, rows


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.5g}"


def _rank(one: Trial) -> tuple[int, float, int]:
    order = {"complete": 0, "pruned": 1}.get(one.state, 2)
    return order, -(one.value or 0.0), one.number
