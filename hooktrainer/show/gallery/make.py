"""`make_gallery`: from the saved policies of a run to the page and TensorBoard."""

from __future__ import annotations

import base64
import errno
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from ...base.fs import write_atomically
from ...base.plain import flatten_config
from ...base.words import duration, listed, plural, shell_word
from ...errors import CheckpointError, NotFoundError
from ...log.tensorboard import TensorBoardSink
from ...loop.timing import time_rows
from ...policies.saved import EPISODES, SEED
from ...store.run_dir import RunDir
from ..chart import Marker, chart, figure
from ..curves import Band, Curve, read_curves
from ..html import document, number_text, return_text, table
from ..report.summary import RunSummary, summarize
from .exhibits import Exhibit, make_exhibits
from .film import columns_of, decode
from .play import STYLE as PLAY_STYLE
from .play import playground
from .recording import View


class Gallery(NamedTuple):
    """The result of `make_gallery`.

    Attributes:
        file: The page.
        exhibits: The policies on it.
    """

    file: Path
    exhibits: Sequence[Exhibit]


def make_gallery(
    run: str | os.PathLike[str],
    file: str | os.PathLike[str] | None = None,
    *,
    seed: int = SEED,
    episodes: int = EPISODES,
    view: View | None = None,
    trust: bool = False,
    progress: Callable[[str], None] = lambda text: None,
    before: Gallery | None = None,
) -> Gallery:
    """Play the saved policies of a run and show them on one page.

    The run may be training. Each policy is evaluated once; films are made again by each call.

    Args:
        run: The run's directory.
        file: The page; by default ``gallery.html`` in the run's directory.
        seed: Seed of the evaluation, for policies that have none yet.
        episodes: Episodes of the evaluation, for policies that have none yet.
        view: How the pictures are made.
        trust: As for `load_policy`.
        progress: Called with lines about progress and about policies that are left out.
        before: What an earlier call has returned; its films are reused.

    Raises:
        NotFoundError: If there is no such run.
        CheckpointError: If it has no saved policies that can be loaded.
        ConfigError: If the environment cannot be made, or needs trust.
    """
    place = RunDir(run)
    if not place.path.is_dir():
        raise NotFoundError(f"there is no run {place.path}.")
    exhibits = make_exhibits(
        run,
        seed=seed,
        episodes=episodes,
        view=view,
        trust=trust,
        progress=progress,
        before=before.exhibits if before else (),
    )
    if not exhibits:
        raise CheckpointError(
            f"{place.path} has no saved policies to show: train with --snapshots 6, or with the "
            "hook PolicySnapshot."
        )
    page = gallery_page(summarize(place), exhibits, read_curves(place), place.read())
    path = place.path / "gallery.html" if file is None else Path(file)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, page, durable=False)
    if place.logs.is_dir():
        try:
            write_board(place.logs, exhibits)
        except (OSError, ValueError) as error:  # the run may be another user's
            progress(f"the pictures cannot be added to TensorBoard: {error}")
    return Gallery(path, exhibits)


# -- The pictures in TensorBoard.

_NAMES: Final = re.compile(r"events\.out\.tfevents\.[0-9]{12,}\.\w+\.gallery")
_FPS: Final = 12.5  # a GIF is several times as large as a WebP


def write_board(logs: Path, exhibits: Sequence[Exhibit]) -> int:
    """Write the pictures to TensorBoard as animated GIFs, at the frames of their policies.

    Each is a file of its own, so that a running TensorBoard shows it; files of other pictures are
    deleted. Policies without a film are left out. Returns the number of pictures added.
    """
    wanted = {
        f"events.out.tfevents.{one.frames:012d}.{one.key}.gallery": one
        for one in exhibits
        if one.picture.film is not None
    }
    directory = logs / "gallery"
    if logs.is_symlink() or directory.is_symlink():  # would write outside of the run
        raise OSError(errno.ELOOP, "it is a link", str(directory))
    for path in directory.iterdir() if directory.is_dir() else ():
        if _NAMES.fullmatch(path.name):
            if path.name not in wanted or path.lstat().st_size == 0:
                path.unlink(missing_ok=True)
            else:
                del wanted[path.name]
    for name, one in wanted.items():
        film = decode(one.picture.film or b"").with_caption(
            plural(one.frames, "frame"), f"return {return_text(one.evaluation)}"
        )
        stride = max(1, round(film.fps / _FPS))
        sink = TensorBoardSink(directory, file=name)
        frames = np.stack(film.frames[::stride])
        sink.write_video("gallery/episode", frames, one.frames, film.fps / stride)
        sink.close()
    return len(wanted)


# -- The gallery page: what a run has learned, from the first snapshot to the last.


_MOST_HOOKS = 6


def gallery_page(
    run: RunSummary,
    exhibits: Sequence[Exhibit],
    curves: Mapping[str, Curve],
    facts: Mapping[str, Any] | None = None,
) -> str:
    """Return the gallery as HTML, of at least one exhibit, by frames.

    ``facts`` is the content of the run's `run.json`: versions, commit and command are shown.
    """
    env = exhibits[0].saved.environment.name
    reasons = dict.fromkeys(exhibit.picture.reason for exhibit in exhibits)
    seeds = sorted({exhibit.evaluation.seed for exhibit in exhibits})
    line = [
        env,
        "" if run.seed is None else f"seed {run.seed}",
        plural(run.frames, "frame"),
        f"{duration(run.seconds)} of training" if run.seconds else "",
        run.reason or run.status,
    ]
    played, script = playground(exhibits)
    style = _STYLE + PLAY_STYLE * bool(script)
    body = [
        f"<header><h1>{escape(run.experiment or run.path.name)}</h1>",
        f"<p>{escape(' · '.join(filter(None, line)))}</p></header><main>",
        _figure(exhibits, curves),
        played,
        *(f'<p class="small">No film: {escape(reason)}.</p>' for reason in reasons if reason),
        f'<section class="cards n{columns_of(len(exhibits))}" aria-label="Snapshots">',
        *(_card(exhibit, env) for exhibit in exhibits),
        "</section>",
        '<p class="small">Returns are means ± standard deviations over the episodes, of which the '
        f"first is shown. Seed of the episodes: {listed(seeds)}.</p>",
        f'<div class="columns">{_times(curves)}{_configuration(run)}</div>',
        _origin(run, facts or {}),
        "</main>",
    ]
    return document(run.experiment or run.path.name, body, style, script)


def _figure(exhibits: Sequence[Exhibit], curves: Mapping[str, Curve]) -> str:
    """Draw the return over frames, with a linked point at each snapshot."""
    snapshots = Curve.of((exhibit.frames, exhibit.evaluation.mean) for exhibit in exhibits)
    known = {"return": snapshots, **curves}
    named = ("eval/return", "train/return", "return")
    name = next(n for n in named if n == "return" or (n in known and len(known[n].frames) > 1))
    marks = [
        Marker(
            exhibit.frames,
            exhibit.evaluation.mean,
            f"{plural(exhibit.frames, 'frame')}: return {return_text(exhibit.evaluation)}",
            f"#{exhibit.saved.path.name}",
        )
        for exhibit in exhibits
    ]
    return figure(
        [(name, [])],
        [Band.around(known[name].frames, known[name].values)],
        f"<b>{name}</b> over environment frames. Each ring is a snapshot, played again below.",
        marks,
        wide=(1100, 320),
    )


def _card(exhibit: Exhibit, env: str) -> str:
    picture, played = exhibit.picture, exhibit.evaluation
    text = (
        f"{plural(played.episodes, 'episode')} of {played.mean_length:,.1f} steps, after "
        f"{duration(exhibit.saved.seconds)} of training. This one: return "
        f"{number_text(picture.total)} in {picture.length:,} steps"
    )
    if picture.film is not None and picture.seconds_shown < picture.seconds - 0.5:
        text += f"; shown are {duration(picture.seconds_shown)} of {duration(picture.seconds)}"
    return (
        f'<article class="card" id="{exhibit.saved.path.name}">{_shown(exhibit, env)}'
        f'<h3>{plural(exhibit.frames, "frame")}</h3><p class="return">return '
        f'<b>{return_text(played)}</b></p><p class="small">{text}.</p></article>'
    )


def _shown(exhibit: Exhibit, env: str) -> str:
    picture = exhibit.picture
    if picture.film is not None:
        data = base64.b64encode(picture.film).decode()
        width, height = picture.size
        alt = f"{env} played by the policy after {plural(exhibit.frames, 'frame')}"
        return (
            f'<img src="data:image/webp;base64,{data}" width="{width}" height="{height}" '
            f'alt="{escape(alt)}">'
        )
    drawn = []
    for name, lines in (("observation", picture.observations), ("action", picture.actions)):
        curves = [Curve.of(enumerate(column.tolist())) for column in lines.T]
        shown = {f"{name}[{n}]": c for n, c in enumerate(curves) if len(c.frames)}  # finite values
        if shown:
            bands = [Band.around(c.frames, c.values) for c in shown.values()]
            picture_of = chart([(label, []) for label in shown], bands, width=360, height=130)
            drawn.append(f"<figcaption>{name}</figcaption>{picture_of}")
    return f'<div class="traces">{"".join(drawn)}</div>'


def _times(curves: Mapping[str, Curve]) -> str:
    """Return a table of the time of each phase of a batch, averaged over the run."""
    steps = curves.get("time/step")
    if steps is None:
        return ""
    means = {  # over the log windows; one in which a hook did not run counts as 0
        name.removeprefix("time/"): float(curve.values.sum()) / len(steps.values)
        for name, curve in curves.items()
        if name.startswith("time/") and name != "time/fps"
    }
    whole = means["step"] or math.inf
    rows = [
        (f"{kind}{'· ' * bool(row.depth)}{row.label}", row.seconds)
        for kind, group, most in (("", "", None), ("hook ", "hook", _MOST_HOOKS))
        for row in time_rows(means, group=group)[:most]
    ]
    cells = [[name, f"{1000 * s:,.2f}", f"{s / whole:.1%}"] for name, s in rows]
    heads = ["phase", "ms a batch", "share"]
    return f"<section><h2>Time</h2>{table(heads, cells, numbers=heads[1:])}</section>"


def _configuration(run: RunSummary) -> str:
    options = flatten_config(run.options)
    rows = [[name, str(value)] for name, value in options.items() if value is not None]
    made = table(["option", "value"], rows)
    return f'<section class="options"><h2>Configuration</h2>{made}</section>' if rows else ""


def _origin(run: RunSummary, facts: Mapping[str, Any]) -> str:
    known = facts.get("versions")
    versions = [f"{n} {v}" for n, v in known.items() if v] if isinstance(known, Mapping) else []
    commit = str(facts.get("git_commit") or "")[:12]
    parts = [
        f"<code>{escape(str(facts['command']))}</code>" if facts.get("command") else "",
        escape(f"commit {commit}{' and changes' * bool(facts.get('git_dirty'))}" if commit else ""),
        escape(", ".join(versions)),
        f"made by <code>hooktrainer gallery {escape(shell_word(run.path))}</code>",
    ]
    return f"<footer>{'<br>'.join(filter(None, parts))}</footer>"


_STYLE = """
header{margin-bottom:1.5rem}h1{font-size:1.75rem}h3{font-size:1rem;margin:.6rem 0 0}
.small,footer{color:var(--dim);font-size:.85rem}
figcaption b{color:var(--ink);font-weight:600}
.mark{fill:var(--page);stroke:var(--c0);stroke-width:2.25;cursor:pointer}
a:hover .mark,a:focus .mark{fill:var(--c0);r:7px}a:focus{outline:none}
.cards{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(17rem,100%),1fr));
gap:1.25rem;margin-top:1.5rem}
@media (min-width:60rem){.n1{grid-template-columns:minmax(0,32rem)}
.n2{grid-template-columns:1fr 1fr}
.n3{grid-template-columns:repeat(3,1fr)}.n4{grid-template-columns:repeat(4,1fr)}}
.card{background:var(--card);border:1px solid var(--line);border-radius:.5rem;
padding:0 0 .85rem;overflow:hidden;scroll-margin:1rem;break-inside:avoid}
.card:target{outline:2px solid var(--c0)}
.card img{display:block;width:100%;height:auto;background:#fff}
.card>h3,.card>p{margin-left:1rem;margin-right:1rem}
.return{color:var(--ink)}.traces{padding:.6rem .75rem 0}
.columns{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(26rem,100%),1fr));
gap:0 3rem}
.columns section{min-width:0}
footer{margin-top:3rem;padding-top:1rem;border-top:1px solid var(--line);overflow-wrap:anywhere}
code{font:.95em ui-monospace,monospace}
"""
