"""The section of the gallery in which policies of classic control act in the browser.

``play.js`` interprets a policy's program, operator by operator, and computes the environment.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Sequence
from functools import cache
from html import escape
from pathlib import Path
from typing import Any, Final

import torch

from ...base.words import listed, plural
from ...errors import CheckpointError, ConfigError
from ...policies import load_policy
from ...policies.policy_files import PolicyContent, read_content, read_facts
from ..html import return_text
from .exhibits import Exhibit

WORLDS: Final = {
    "CartPole-v1": "Drag the pole or the cart",
    "MountainCar-v0": "Drag the car",
    "MountainCarContinuous-v0": "Drag the car",
    "Pendulum-v1": "Drag the pendulum",
    "Acrobot-v1": "Drag a link",
}
"""What can be done in each environment that the page computes."""
_HARMLESS: Final = frozenset({"max_episode_steps", "render_mode", "sutton_barto_reward"})
_PLAIN: Final = ("ClipAction", "RecordEpisodeStatistics", "TimeLimit")
_KEYWORDS: Final = frozenset({"device", "layout", "memory_format", "pin_memory"})
_MOST_WEIGHTS: Final = 500_000


@cache
def script() -> str:
    """Return the page's script."""
    return Path(__file__).with_name("play.js").read_text(encoding="utf-8")


@cache
def operators() -> frozenset[str]:
    """Return the names of the operators that the script computes."""
    table = script().partition("const OPERATORS = {")[2].partition("\n};")[0]
    return frozenset(re.findall(r"^  (\w+)[:(]", table, re.MULTILINE))


def playground(exhibits: Sequence[Exhibit]) -> tuple[str, str]:
    """Return a section of HTML with the policies that can act in the browser, and its script.

    Both are empty for environments that the page does not compute. A policy that it cannot compute
    is listed with the reason.
    """
    env = (exhibits[0].saved.env_id or "").removeprefix("torch/")
    if env not in WORLDS:
        return "", ""
    made, left_out = list[tuple[Exhibit, dict[str, Any]]](), dict[str, list[str]]()
    for exhibit in exhibits:
        try:
            made.append((exhibit, _encode(exhibit)))
        except (CheckpointError, ConfigError, KeyError, TypeError, ValueError) as error:
            which = left_out.setdefault(str(error), [])
            which.append(plural(exhibit.frames, "frame"))
    lines = "".join(
        f'<p class="small">Not played here after {escape(listed(which))}: {escape(why)}.</p>'
        for why, which in left_out.items()
    )
    if not made:
        return lines, ""
    skip = exhibits[0].saved.frame_skip
    data = {"world": env, "frame_skip": skip, "policies": [policy for _, policy in made]}
    best = max((exhibit for exhibit, _ in made), key=lambda one: (one.evaluation.mean, one.frames))
    options = "".join(
        f"<option{' selected' * (one is best)}>{plural(one.frames, 'frame')}, return "
        f"{escape(return_text(one.evaluation))}</option>"
        for one, _ in made
    )
    return (
        '<section id="play" aria-label="Play with it"><h2>Play with it</h2><figure>'
        f'<svg role="application" tabindex="0" aria-label="{escape(env)}, played live"></svg>'
        f'<div class="controls"><label>policy <select>{options}</select></label>'
        '<button type="button" data-do="left">Push left</button>'
        '<button type="button" data-do="right">Push right</button>'
        '<button type="button" data-do="stop">Pause</button>'
        '<button type="button" data-do="restart">Start again</button><output></output></div>'
        f"<figcaption>The policy acts here, in the browser. {WORLDS[env]} and let go, or use the "
        "arrow keys; space pauses, R starts again.</figcaption></figure>"
        f"{lines}</section>"
        f'<script type="application/json" id="play-data">{_json(data)}</script>'
    ), script()


def _json(data: Any) -> str:
    """Encode as JSON that does not end an HTML element."""
    return json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")


def _encode(exhibit: Exhibit) -> dict[str, Any]:
    """Return a policy as the script reads it; raise an error with the reason if it cannot."""
    saved = exhibit.saved
    strange = [name for name in saved.environment.kwargs if name not in _HARMLESS]
    for name, _ in saved.environment.wrappers:
        if not name.startswith("gymnasium.") or name.rpartition(":")[2] not in _PLAIN:
            strange.append(name)
    if strange:
        raise ValueError(f"its environment is changed by {listed(strange)}")
    interface = load_policy(saved).interface  # checks the program
    (one, *inputs), (group, *others) = interface.inputs, interface.groups
    (part, *parts) = group.action.parts
    if saved.recurrent:
        raise ValueError("it has a memory")
    if inputs or others or parts or one.path or part.path or part.sizes or one.start is not None:
        raise ValueError("it reads or does more than the environment has")
    content = read_content(saved.path, read_facts(saved.path))
    steps, output = _needed(content)
    if missing := {short for _, short, _, _ in steps} - operators():
        raise ValueError(f"the page has no {listed(sorted(missing))}")
    if more := {name for *_, kwargs in steps for name in kwargs} - _KEYWORDS:
        raise ValueError(f"the page computes no operator with {listed(sorted(more))}")
    used = set(re.findall(r'"%([^"]+)"', json.dumps([steps, output])))
    weights = {name: weight for name, weight in content.weights.items() if name in used}
    if sum(weight.numel() for weight in weights.values()) > _MOST_WEIGHTS:
        raise ValueError(f"it has more than {_MOST_WEIGHTS:,} weights")
    return {
        "program": {"input": content.program["inputs"][0], "output": output[1:], "steps": steps},
        "weights": {name: _tensor(name, weight) for name, weight in weights.items()},
        "action": {name: _number(getattr(part, name)) for name in ("start", "low", "high")},
    }


def _needed(content: PolicyContent) -> tuple[list[tuple[Any, ...]], str]:
    """Return the steps that the action depends on, with short operator names, and the output."""
    (output,) = content.program["outputs"]
    needed, steps = {output}, list[tuple[Any, ...]]()
    for name, operator, args, kwargs in reversed(content.program["steps"]):
        if f"%{name}" not in needed:
            continue
        short = operator.partition(".")[2].partition(".")[0] or operator
        needed |= set(re.findall(r'"(%[^"]+)"', json.dumps(args)))
        steps.append((name, short, args, kwargs))
    return steps[::-1], output


def _tensor(name: str, weight: torch.Tensor) -> tuple[list[int], str]:
    if weight.dtype is not torch.float32:
        raise ValueError(f"{name} is {weight.dtype}")
    return list(weight.shape), base64.b64encode(weight.contiguous().numpy().tobytes()).decode()


def _number(value: Any) -> float | None:
    """Return a bound of an action, which has one number."""
    return None if value is None else float(torch.as_tensor(value).reshape(()).item())


STYLE: Final = """
#play svg{max-height:22rem;touch-action:none;cursor:grab;border-radius:.35rem}
#play svg:active{cursor:grabbing}#play svg:focus-visible{outline:2px solid var(--c0)}
#play line,#play polyline{fill:none;stroke:var(--ink);stroke-linecap:round;stroke-width:.06}
#play .thin{stroke:var(--dim);stroke-width:.015}#play .rod{stroke:var(--c1);stroke-width:.1}
#play .body{fill:var(--c0)}#play .joint{fill:var(--ink)}
.controls{display:flex;flex-wrap:wrap;gap:.5rem;align-items:center;margin-top:.6rem}
.controls button,.controls select{font:inherit;font-size:.9rem;color:var(--ink);
background:var(--page);border:1px solid var(--line);border-radius:.35rem;padding:.2rem .7rem}
.controls output{color:var(--dim);font-size:.85rem;font-variant-numeric:tabular-nums}
"""
