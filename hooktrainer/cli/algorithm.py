"""Training with an algorithm: `python -m hooktrainer.cli.algorithm ppo --env CartPole-v1 …`.

Its options are the arguments of the function in `hooktrainer.algorithms`, explained by its
docstring. `hooktrainer train ppo` runs this.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import sys
import typing
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro
from typing_extensions import TypedDict, Unpack
from tyro.conf import UseAppendAction

from ..errors import ConfigError
from ..loop.signals import ending_cleanly
from ..run import command_line

if TYPE_CHECKING:
    from ..loop.trainer import Trainer

_RUNS = "runs/<algorithm>/<timestamp>_seed<seed>"


def _parse_json(words: list[str]) -> Mapping[str, Any]:
    try:
        value = json.loads(words[0])
    except ValueError as error:
        raise ValueError(f"{words[0]} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise ValueError(f"{words[0]} is no JSON object")
    return value


_Json = Annotated[
    Mapping[str, Any],
    tyro.constructors.PrimitiveConstructorSpec(
        nargs=1,
        metavar="JSON",
        instance_from_str=_parse_json,
        is_instance=lambda value: isinstance(value, Mapping),
        str_from_instance=lambda value: [json.dumps(value)],
    ),
]

_ON_COMMAND_LINE: Mapping[str, Any] = {
    "env": str,
    "dataset": str,
    "env_kwargs": _Json,
    "run_dir": Path,
    "resume": str,
    "fork": str,
    "stop_at": float,
}
"""What arguments that can be anything in Python are on the command line."""

_REPEATED = ("allow_change", "logger")
"""Options that may be given several times; not given, they are empty."""

_ONLY_IN_PYTHON = ("hooks",)


def main(words: Sequence[str] | None = None) -> None:
    """Train with the algorithm that is named first, with the options that follow.

    Raises:
        SystemExit: With code 2 if the options cannot work, 128 + n if signal n ends it.
    """
    name, *options = sys.argv[1:] if words is None else words
    with ending_cleanly():  # while it imports, too
        from .. import algorithms
        from ..run.recipe import mistakes_in_one_line

        with mistakes_in_one_line():
            make = algorithms.get(name)
            arguments = parse(make, options)
            if arguments.get("run_dir") is None:
                arguments["run_dir"] = _run_dir(name.lower(), arguments)
            make(**arguments).train()


def parse(algorithm: Callable[..., Trainer], words: Sequence[str]) -> dict[str, Any]:
    """Return the arguments of an algorithm that a command line gives.

    Raises:
        SystemExit: With 0 after ``--help``, 2 after words that are no options of it.
    """
    fields, explained = _fields(algorithm)
    required = {name for name, (_, default) in fields.items() if default is inspect.Parameter.empty}
    made: Any = dataclasses.make_dataclass(
        "Arguments",
        [
            (name, _explained(kind, explained.get(name)))
            if name in required
            else (name, _explained(kind, explained.get(name)), default)
            for name, (kind, default) in fields.items()
        ]
        + [(name, kind, ()) for name, kind in _repeated_options().items()]
        + [("options", _options_type(), dataclasses.field(default_factory=dict))],
        kw_only=True,
    )
    parsed = command_line.parse(
        made,
        words,
        prog=f"hooktrainer train {algorithm.__name__}",
        description=inspect.getdoc(algorithm).split("\nArgs:")[0].strip(),  # type: ignore[union-attr]
    )
    return {**{name: getattr(parsed, name) for name in (*fields, *_REPEATED)}, **parsed.options}


def _fields(
    algorithm: Callable[..., Trainer],
) -> tuple[dict[str, tuple[Any, Any]], dict[str, str]]:
    """The parameters of an algorithm, with type and default, and what its docstring says of each.

    What all algorithms share, their ``**options``, is left out.
    """
    hints = typing.get_type_hints(algorithm, localns={"Unpack": Unpack})
    fields = {
        name: (_ON_COMMAND_LINE.get(name, hints[name]), parameter.default)
        for name, parameter in inspect.signature(algorithm).parameters.items()
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD
    }
    return fields, _explanations(algorithm)


def _options_type() -> Any:
    """The options of every algorithm; those that are not given are left out of the result."""
    from ..algorithms import Options

    hints, explained = typing.get_type_hints(Options), _explanations(Options)
    explained["run_dir"] = f"Directory of the run. Default: {_RUNS}."
    kinds = {
        name: _explained(_ON_COMMAND_LINE.get(name, kind), explained.get(name), hint="")
        for name, kind in hints.items()
        if name not in (*_REPEATED, *_ONLY_IN_PYTHON)
    }
    options = TypedDict("options", kinds, total=False)  # type: ignore[misc]
    return Annotated[options, tyro.conf.arg(name="")]


def _repeated_options() -> dict[str, Any]:
    from ..algorithms import Options

    explained, kind = _explanations(Options), UseAppendAction[tuple[str, ...]]
    return {name: _explained(kind, explained[name], hint="") for name in _REPEATED}


def _explained(kind: Any, text: str | None, hint: str | None = None) -> Any:
    plain = " ".join((text or "").replace("``", "").replace("`", "").split())
    return Annotated[kind, tyro.conf.arg(help=plain, help_behavior_hint=hint)]


def _explanations(documented: Any) -> dict[str, str]:
    """What a docstring says of each argument or attribute."""
    from docstring_parser import parse_from_object

    parsed = parse_from_object(documented)
    return {entry.arg_name: entry.description or "" for entry in parsed.params}


def _run_dir(name: str, arguments: Mapping[str, Any]) -> Path:
    from ..run.run_dir import find_runs, new_directory

    if arguments.get("resume") is None:
        return new_directory(Path("runs") / name, arguments.get("seed", 0))
    runs = find_runs("runs", name)
    if not runs:
        raise ConfigError(
            f"--resume {arguments['resume']}: there is no run of {name} below runs/; name one "
            "with --run-dir."
        )
    return runs[-1].path


if __name__ == "__main__":
    main()
