"""A sweep as a page: its trials, what mattered, their curves. One file that opens offline."""

from __future__ import annotations

from html import escape
from typing import Final

import numpy as np

from ..base.words import plural
from ..show.chart import chart_for_any_screen
from ..show.curves import Band
from ..show.html import document, table
from ..show.report.interval_text import comparison_texts
from ..statistics import Curve
from .confirm import Confirmation
from .outcome import importances, training_command, trial_rows
from .sweep import Sweep

_SCORES: Final = {
    "area": "the area under the curve of evaluations, as a mean over frames",
    "last": "the last evaluation",
    "tail": "the mean evaluation in the last tenth of the frames",
    "best": "the best evaluation",
}
_COMPARED: Final = ("", "beside", "IQM difference", "P(improvement)", "p")
_BAR = """
.bar{display:inline-block;height:.7em;background:var(--c0);border-radius:.15em}
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
    body = [
        f"<h1>{escape(title)}</h1>",
        f"<p>{plural(len(trials), 'trial')}: {kinds.count('COMPLETE')} came to their end, "
        f"{kinds.count('PRUNED')} were ended early, {kinds.count('FAIL')} failed. A trial's value "
        f"is the mean over {plural(options.seeds, 'seed')} of {_SCORES[options.objective]}.</p>",
        f"<p>{escape(verdict[:1].upper() + verdict[1:])}.</p>",
    ]
    if best is not None:
        body.append(f"<h2>The winner: trial {best.number}</h2>")
        body.append(f"<pre>{escape(training_command(sweep, best))}</pre>")
    if found is not None and found.comparison is not None:
        body.append("<h2>On fresh seeds</h2>")
        body.append(table(_COMPARED, [comparison_texts(found.comparison)[:5]]))
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


def _curves(sweep: Sweep) -> str:
    best = sweep.winner
    drawn = {
        one.number: curve for one in sweep.trials if (curve := _curve(one.intermediate_values))
    }
    if not drawn:
        return ""
    groups, bands, keys = [], [], []
    if best is not None and best.number in drawn:
        winner = drawn.pop(best.number)
        groups.append((f"trial {best.number}", [("the winner", winner)]))
        bands.append(Band.around(winner.frames, winner.values))
        keys.append(f'<span class="key c0">trial {best.number}, the winner</span>')
    if drawn:
        members = [(f"trial {number}", curve) for number, curve in drawn.items()]
        groups.append(("other trials", members))
        nothing = np.empty(0)
        # A count of two or more has the members drawn; of the group itself there is no mean.
        bands.append(Band(nothing, nothing, nothing, nothing, max(2, len(members))))
        keys.append(f'<span class="key c{len(groups) - 1}">other trials</span>')
    return (
        f"<h2>Curves</h2><figure>{''.join(keys)}{chart_for_any_screen(groups, bands)}<figcaption>"
        f"{escape(sweep.options.objective)} up to the frames, mean over the seeds of a trial: what "
        "trials are compared by while they run</figcaption></figure>"
    )


def _curve(values: dict[int, float]) -> Curve | None:
    curve = Curve.of(values.items())
    return curve if len(curve.frames) else None
