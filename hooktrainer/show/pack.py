"""`pack_policy`: a policy, where it comes from and a card about it, in one file to hand on."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from ..base.plain import to_yaml
from ..base.untrusted import read_file, refusing
from ..base.version import __version__
from ..base.words import duration, plural, printable, shell_word
from ..errors import ConfigError
from ..policies.interface import Interface
from ..policies.packed import CARD, MANIFEST, PACKED, write_packed
from ..policies.policy_files import DIRECTORY, FACTS, MOST_POLICY, POLICY, read_content, read_facts
from ..policies.saved import SavedPolicy, find_policy
from ..statistics import interval
from ..store.run_dir import RunDir
from .html import spread_text

_GALLERY: Final = "gallery.html"
_RUN: Final = (
    *("run_id", "experiment", "seed", "status", "frames", "unit", "total_frames"),
    *("optim_steps", "seconds", "metrics", "started", "updated", "command", "versions"),
    *("git_commit", "git_dirty"),
)
"""The entries of ``run.json`` that are packed: none describes the user's machine."""
_FILES: Final = {
    FACTS: "the policy's environment, inputs, outputs and evaluation",
    POLICY: "its program, a list of PyTorch's operators, and its weights",
    "config.yaml": "the options of the run",
    "run.json": "the run's command, metrics and versions",
    "metrics.csv": "every logged metric",
    _GALLERY: "a page that shows how it was learned",
    MANIFEST: "the size and SHA-256 of each file",
}


def pack_policy(
    saved: str | os.PathLike[str],
    file: str | os.PathLike[str] | None = None,
    *,
    license: str | None = None,
) -> tuple[SavedPolicy, Path]:
    """Write a policy, its run's configuration, metrics and gallery, and a card, as one file.

    The file is a zip archive, which `load_policy` and `find_policy` take as a saved policy. The
    same run gives the same bytes. The gallery is that of `make_gallery`, if there is one.

    Args:
        saved: As for `find_policy`; of a run the best policy.
        file: The file to write; by default ``<name of the run>.hook``.
        license: The license of the policy, such as ``mit``, for the card.

    Returns:
        The policy that was packed, and the file.

    Raises:
        ConfigError: If the file's name does not end in ``.hook``.
        CheckpointError: If there is no such policy, or it is damaged.
    """
    spec = os.fspath(saved)
    is_run = Path(spec).is_dir() and not (Path(spec) / FACTS).exists()
    policy = find_policy(f"{spec}@best" if is_run else spec)
    if policy.path.is_file():
        raise ConfigError(f"{policy.path} is packed already.")
    inside = policy.path.absolute().parent
    run = RunDir(inside.parent if inside.name == DIRECTORY else policy.path)
    path = Path(file or f"{run.path.name}{PACKED}")
    if path.suffix != PACKED:
        raise ConfigError(f"{path}: choose a name that ends in {PACKED}.")
    facts, state = read_facts(policy.path), run.read()
    read_content(policy.path, facts)  # refuses what is damaged
    content = {name: read_file(policy.path / name, limit=MOST_POLICY) for name in (FACTS, POLICY)}
    for name in ("config.yaml", "metrics.csv", _GALLERY):
        with suppress(FileNotFoundError), refusing(f"{run.path} is not packed", ConfigError):
            content[name] = read_file(run.path / name, run.path, MOST_POLICY)
    told: dict[str, Any] = {name: state[name] for name in _RUN if name in state}
    if told:
        content["run.json"] = f"{json.dumps(told, indent=2)}\n".encode()
    card = policy_card(
        policy, Interface.of(policy.path, facts), told, path.name, license, [*content, MANIFEST]
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    write_packed(path, {**content, CARD: card.encode()})
    return policy, path


def policy_card(
    saved: SavedPolicy,
    interface: Interface,
    run: Mapping[str, Any],
    file: str,
    license: str | None,
    names: Sequence[str],
) -> str:
    """Return the card of a policy, in Markdown, with metadata as model hubs read them.

    Args:
        saved: The policy.
        interface: Its observations and actions.
        run: The content of the run's ``run.json``.
        file: The name of the packed file.
        license: Its license, if known.
        names: The files of the archive.
    """
    env, learner = saved.environment.name, printable(run.get("experiment") or "A policy")
    played, stem, needs = saved.evaluation, Path(file).stem, saved.environment.code
    metadata: dict[str, Any] = {"library_name": "hooktrainer"}
    metadata |= {"license": license} if license else {}
    metadata["tags"] = ["reinforcement-learning", "hooktrainer", env]
    rows: dict[str, Any] = {
        "environment": env,
        "reads": interface.reads,
        "action": interface.acts,
        "code it needs": needs and printable(needs),
        "return": "not evaluated",
        "trained": f"{plural(saved.frames, 'frame')}, {plural(saved.optim_steps, 'optimizer step')}"
        f", {duration(saved.seconds)}",
        "seed": run.get("seed"),
        "run": saved.run_id,
        "command": run.get("command") and f"`{printable(run['command'])}`",
        "commit": saved.git_commit,
        "versions": ", ".join(f"{name} {v}" for name, v in saved.versions.items() if v),
        "license": license,
    }
    if played is not None and math.isfinite(played.mean):
        rows["return"] = (
            f"{spread_text(played.mean, played.std)} (mean and standard deviation of "
            f"{plural(played.episodes, 'episode')}, seed {played.seed})"
        )
        middle = interval(played.returns)
        if middle.low is not None:
            ends = f"{middle.low:.6g} to {middle.high:.6g}"
            rows["return"] += (
                f"; interquartile mean {middle.value:.6g}, 95 % interval {ends}, of this policy's "
                "episodes"
            )
        told = f"{played.mean:.2f} +/- {played.std:.2f}"
        result = {
            "task": {"type": "reinforcement-learning", "name": "reinforcement-learning"},
            "dataset": {"type": env, "name": env},
            "metrics": [{"type": "mean_reward", "name": "mean_reward", "value": told}],
        }
        metadata["model-index"] = [{"name": stem, "results": [result]}]
    table = "\n".join(
        f"| {name} | {_cell(value)} |" for name, value in rows.items() if value is not None
    )
    inside = "\n".join(f"- `{name}`: {what}" for name, what in _FILES.items() if name in names)
    return f"""---
{to_yaml(metadata)}---
# {_cell(learner)} on {_cell(env)}

| | |
|---|---|
{table}

## Play it

```console
$ pip install hooktrainer=={__version__}
$ hooktrainer play {shell_word(file)}{saved.environment.option}
```

repeats the episodes above, with the same returns on the same kind of machine; `--seed 7` plays
others. In Python:

```python
from hooktrainer import load_policy

policy = load_policy({file!r})
action = policy(observation)
```

Nothing in the file is executed.

## What is inside

`{file}` is a zip archive.

{inside}
"""


def _cell(text: object) -> str:
    """Return text for a cell of a table, on one line."""
    return printable(text).replace("|", "\\|")
