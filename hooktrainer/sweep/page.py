"""A sweep as a page: its trials, what mattered, their curves. One file that opens offline."""

from __future__ import annotations

from html import escape
from typing import Final

import numpy as np

from ..base.words import plural
from ..run.fields import OneOf
from ..show.chart import chart_for_any_screen, legend, scatter
from ..show.curves import Band
from ..show.html import document, table
from ..show.report.grouping import short
from ..show.report.interval_text import comparison_texts
from ..statistics import Curve
from .confirm import KEEP, Confirmation
from .outcome import importances, training_command, trial_rows
from .sweep import Sweep

_SCORES: Final = {
    "area": "the area under the curve of evaluations, as a mean over frames",
    "last": "the last evaluation",
    "tail": "the mean evaluation in the last tenth of the frames",
    "best": "the best evaluation",
}
_COMPARED: Final = ("IQM difference", "P(improvement)", "p")
_BAR = """
.bar{display:inline-block;height:.7em;background:var(--c0);border-radius:.15em}
.ended{fill:none;stroke:var(--c7)}.done{fill:var(--c0)}.best{fill:var(--c1);stroke:var(--ink)}
.plots{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(20rem,100%),1fr));gap:.75rem}
pre{white-space:pre-wrap;overflow-wrap:anywhere;padding:.75rem;background:var(--card);
border:1px solid var(--line);border-radius:.5rem;font-size:.9rem}
"""


def sweep_page(sweep: Sweep, verdict: str, found: Confirmation | None = None) -> str:
    """Write the page.

    Args:
        sweep: The sweep, finished or not.
        verdict: What may be said of the winner.
        found: What fresh seeds say of it, if it was confirmed.

    Returns:
        HTML.
    """
    options, algorithm = sweep.options, sweep.algorithm
    title = f"Sweep: {algorithm.name()} on {algorithm.as_dict()['env']}"
    trials, best = sweep.trials, sweep.winner
    kinds = [one.state.name for one in trials]
    keep = verdict.startswith(KEEP)
    body = [
        f"<h1>{escape(title)}</h1>",
        f"<p>{plural(len(trials), 'trial')}: {kinds.count('COMPLETE')} came to their end, "
        f"{kinds.count('PRUNED')} were ended early, {kinds.count('FAIL')} failed. A trial's value "
        f"is the mean over {plural(options.seeds, 'seed')} of {_SCORES[options.objective]}.</p>",
    ]
    if best is not None:
        heading = KEEP.capitalize() if keep else f"The best: trial {best.number}"
        command = training_command(sweep, None if keep else best)
        body += [f"<h2>{heading}</h2>", f"<pre>{escape(command)}</pre>"]
    said = verdict.removeprefix(f"{KEEP}: ")
    body.append(f"<p>{escape(said[:1].upper() + said[1:])}.</p>")
    if found is not None and found.comparison is not None:
        one = found.comparison
        rows = [[*comparison_texts(one)[:3], f"{one.first} against {one.second}"]]
        body += ["<h2>On fresh seeds</h2>", table([*_COMPARED, ""], rows, numbers=_COMPARED)]
    body.append(_options(sweep))
    body += [_importances(sweep), _curves(sweep)]
    heads, rows = trial_rows(sweep)
    body.append("<h2>Trials</h2>")
    body.append(table(heads, rows, numbers=[head for head in heads if head != "how it ended"]))
    return document(title, body, _BAR)


def _importances(sweep: Sweep) -> str:
    found = importances(sweep)
    if not found:
        return ""
    most = max(found.values()) or 1.0
    rows = "".join(
        f'<tr><td>{escape(name)}</td><td class="n">{value:.2f}</td>'
        f'<td style="width:70%"><span class="bar" style="width:{100 * value / most:.1f}%"></span>'
        "</td></tr>"
        for name, value in found.items()
    )
    return (
        f'<h2>What mattered</h2><div class="scroll"><table>{rows}</table></div><p>How much each '
        "option has to do with being among the best quarter of the trials (PED-ANOVA); of few "
        "trials it is a hint.</p>"
    )


def _options(sweep: Sweep) -> str:
    """The value of trials over that of each option that was searched."""
    best, names = sweep.winner, sweep.space.candidates
    done = [one for one in sweep.trials if one.state.is_finished() and one.value is not None]
    figures = []
    for name, candidates in names.items() if done else ():
        words = isinstance(candidates, OneOf)
        points: list[tuple[float | str, float, str, str]] = []
        for one in done:
            given = sweep.space.settings(one.params)[name]
            kind = "ended" if one.state.name == "PRUNED" else "done"
            if best is not None and one.number == best.number:
                kind = "best"
            title = f"trial {one.number}: {one.value:,.5g} with {name} {short(given)}"
            points.append((short(given) if words else given, one.value or 0.0, title, kind))
        if isinstance(candidates, OneOf):
            drawn = scatter(points, among=[short(value) for value in candidates.values])
        else:
            ends = (candidates.low, candidates.high)
            drawn = scatter(points, between=ends, log=candidates.log)
        figures.append(f"<figure>{drawn}<figcaption>{escape(name)}</figcaption></figure>")
    if not figures:
        return ""
    return (
        f'<h2>Value over options</h2><div class="plots">{"".join(figures)}</div><p>Each point is a '
        "trial; rings were ended early, and have the value that they had reached.</p>"
    )


def _curves(sweep: Sweep) -> str:
    best = sweep.winner
    drawn = {
        one.number: curve for one in sweep.trials if (curve := _curve(one.intermediate_values))
    }
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
    return (
        f"<h2>Curves</h2><figure>{legend([name for name, _ in groups])}"
        f"{chart_for_any_screen(groups, bands)}<figcaption>"
        f"{escape(sweep.options.objective)} up to the frames, mean over the seeds of a trial: what "
        "trials are compared by while they run</figcaption></figure>"
    )


def _curve(values: dict[int, float]) -> Curve | None:
    curve = Curve.of(values.items())
    return curve if len(curve.frames) else None
