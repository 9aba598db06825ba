"""Writes the commands of `hooktrainer` into the page with ``<!-- cli: commands -->``.

MkDocs calls `on_page_markdown` for every page.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import typing
from collections.abc import Callable
from typing import Any

from hooktrainer.cli.commands import COMMANDS, load

MARK = "<!-- cli: commands -->"


def commands() -> str:
    """A section for each command of `hooktrainer`: its docstring, as Markdown."""
    return "\n\n".join(_command(name, load(name)) for name in COMMANDS)


def _command(name: str, command: Callable[..., int]) -> str:
    text, _, arguments = (inspect.getdoc(command) or "").partition("\nArgs:\n")
    text = re.sub(r"^(?:Example: )?(hooktrainer .+)$", r"```console\n$ \1\n```", text, flags=re.M)
    rows = ["| argument | what it is |", "|---|---|"]
    arguments = re.sub(r"\n {8}", " ", arguments)  # continuation lines
    explained = dict(re.findall(r"^    (\w+): (.+)$", arguments, re.MULTILINE))
    hints = typing.get_type_hints(command, include_extras=True)
    whole = [kind for kind in map(_kind, hints.values()) if dataclasses.is_dataclass(kind)]
    for parameter in inspect.signature(command).parameters.values():
        if _kind(hints[parameter.name]) in whole:
            continue
        marks = getattr(hints[parameter.name], "__metadata__", ())
        shown = next(filter(None, (getattr(mark, "metavar", None) for mark in marks)), "")
        if parameter.kind is not parameter.POSITIONAL_ONLY:
            shown = f"--{parameter.name.replace('_', '-')} {shown}".rstrip()
        shown = (shown or parameter.name.upper()).replace("|", "\\|")
        meaning = re.sub(r"(?<!\w)(--[\w-]+)", r"`\1`", explained[parameter.name])
        rows.append(f"| `{shown}` | {meaning} |")
    for kind in whole:
        helped = re.findall(
            r'^    (\w+): .*\n    """(.+)"""$', inspect.getsource(kind), re.MULTILINE
        )
        rows += [f"| `--{field.replace('_', '-')}` | {meaning} |" for field, meaning in helped]
    return f"### `hooktrainer {name}`\n\n{text.strip()}\n\n" + "\n".join(rows)


def _kind(hint: Any) -> Any:
    return typing.get_args(hint)[0] if hasattr(hint, "__metadata__") else hint


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replace the mark of one page."""
    return markdown.replace(MARK, commands()) if MARK in markdown else markdown
