"""The table of commands, their help, and their errors as exit codes.

Commands are imported when they are used, so that `--help` is fast.
"""

from __future__ import annotations

import contextlib
import functools
import io
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pkgutil import resolve_name
from typing import Annotated, Any, Final, Literal

from tyro.conf import Positional
from tyro.extras import SubcommandApp

from ..base.version import __version__
from ..base.words import did_you_mean
from ..errors import USER_ERRORS, ConfigError, DamagedCheckpointError
from ..run.command_line import parse, unread
from . import output
from . import sweep as sweeping
from .launcher import launch, take_launch
from .train import separate_arguments

Command = Callable[..., Any]
"""Returns the exit code, or a function that returns it and handles its own errors."""


class Commands(Mapping[str, Command]):
    """Commands by name, each imported from its ``file:function`` when it is looked up."""

    def __init__(self, places: Mapping[str, str]) -> None:
        self._places = places

    def __getitem__(self, name: str) -> Command:
        place = self._places[name]
        found: Command = resolve_name(f"{__package__}.{place}")
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


CKPT: Final = Commands(
    {
        "list": "ckpt:list_",
        "show": "ckpt:show",
        "verify": "ckpt:verify",
        "diff": "ckpt:diff",
        "prune": "prune:prune_checkpoints",
        "rollback": "prune:rollback",
        "export": "ckpt:export",
    }
)
"""The commands of `hooktrainer ckpt`."""
POLICIES: Final = Commands(
    {
        "list": "policies:list_",
        "show": "policies:show",
        "evaluate": "policies:evaluate",
        "prune": "prune:prune_policies",
    }
)
"""The commands of `hooktrainer policies`."""
COMMANDS: Final = Commands(
    {
        "train": "train:train",
        "sweep": "sweep:sweep",
        "watch": "watch:watch",
        "runs": "runs:runs",
        "report": "report:report",
        "describe": "describe:describe",
        "tensorboard": "tensorboard:tensorboard",
        "sync": "sync:sync",
        "play": "play:play",
        "gallery": "gallery:gallery",
        "render": "render:render",
        "resume": "resume:resume",
        "verify-resume": "verify_resume:verify_resume",
        "verify-results": "verify_results:verify_results",
        "completion": "commands:completion",
    }
)
"""The commands outside of groups."""
_GROUPS: Final[Mapping[str, Mapping[str, Command]]] = {"policies": POLICIES, "ckpt": CKPT}
_DESCRIPTION: Final = """The command line of hooktrainer: trains, and looks at runs and after them.

Begin: hooktrainer train ppo --env CartPole-v1 --total-frames 50000 --snapshots 6

RUN is the directory of a run; RUN@best and RUN@FRAMES are checkpoints of it, or policies. Every
command explains itself: hooktrainer ckpt prune --help. hooktrainer --version says which this is.

Exit codes: 0 done; 1 a check failed, there are differences, or nothing was changed; 2 wrong usage,
or there is no such run or checkpoint; 130 and 143 interrupted by SIGINT and SIGTERM."""
_CKPT_DESCRIPTION: Final = (
    "Looks at the checkpoints of a run, checks them, thins them out, goes back to one, exports one."
)
_POLICIES_DESCRIPTION: Final = "Looks at the policies that a run saved, plays them, thins them out."
Shell = Annotated[Literal["bash", "zsh", "fish"], Positional]


def completion(shell: Shell, /) -> int:
    """Print a script that completes commands, options and files in a shell.

    bash: hooktrainer completion bash > ~/.local/share/bash-completion/completions/hooktrainer

    zsh: hooktrainer completion zsh > DIR/_hooktrainer, with DIR in $fpath

    fish: hooktrainer completion fish > ~/.config/fish/completions/hooktrainer.fish

    Args:
        shell: bash, zsh or fish
    """
    script = io.StringIO()
    with contextlib.redirect_stdout(script), contextlib.suppress(SystemExit):
        _app().cli(args=["--tyro-print-completion", shell], prog="hooktrainer")
    text = script.getvalue()
    for there, instead in _FILES.items():
        text = text.replace(there, instead)
    print(text, end="")
    return 0


def run(args: Sequence[str] | None = None) -> int:
    """Run the command line, as `hooktrainer.cli.main` does, and turn errors into exit codes."""
    given = sys.argv[1:] if args is None else list(args)
    if given == ["--version"]:
        print(f"hooktrainer {__version__}")
        return 0
    try:
        with unread():
            elsewhere = take_launch(given)
            if elsewhere is not None:
                code = launch(elsewhere)
            else:
                code = _read(sweeping.separate_arguments(separate_arguments(given)))()
    except DamagedCheckpointError as error:
        return _fail(error, 1)
    except (*USER_ERRORS, OSError) as error:  # OSError: files that cannot be read or written
        return _fail(error, 2)
    except KeyboardInterrupt:
        return _fail("interrupted", 130)
    return int(code() if callable(code) else code)


def _read(words: Sequence[str]) -> Callable[[], Any]:
    """Parse a command line into a call of its command; an unknown command is a `ConfigError`."""
    group = words[0] if words and words[0] in _GROUPS else None
    prog = "hooktrainer" if group is None else f"hooktrainer {group}"
    commands = COMMANDS if group is None else _GROUPS[group]
    name, *rest = words[group is not None :] or ["--help"]
    if name in commands:
        return parse(_held(commands[name]), rest, prog=f"{prog} {name}")
    if not name.startswith("-"):
        known = [*commands, *(_GROUPS if group is None else ())]
        raise ConfigError(
            f"{prog} has no command {name!r}.{did_you_mean(name, known, most=1)} It has "
            f"{', '.join(known)}; see {prog} --help."
        )
    return lambda: _app().cli(args=words, prog="hooktrainer", description=_DESCRIPTION)


def _held(command: Command) -> Callable[..., Callable[[], int]]:
    """Wrap a command so that it returns the call instead of making it."""

    @functools.wraps(command)
    def hold(*args: Any, **kwargs: Any) -> Callable[[], int]:
        return functools.partial(command, *args, **kwargs)

    return hold


def _app() -> SubcommandApp:
    """Build all commands, for help and completion."""
    app = _group(COMMANDS)
    app.command(_group(POLICIES), name="policies", help=_POLICIES_DESCRIPTION)
    app.command(_group(CKPT), name="ckpt", help=_CKPT_DESCRIPTION)
    return app


def _group(commands: Mapping[str, Command]) -> SubcommandApp:
    """Build a group of commands; the first line of each docstring is its summary."""
    app = SubcommandApp()
    for name, command in commands.items():
        app.command(name=name, help=(command.__doc__ or "").split("\n", 1)[0])(command)
    return app


def _fail(error: object, code: int) -> int:
    output.note(f"error: {error}")
    return code


# -- The scripts that complete the command line in a shell, with files added to them.

_FILES: Final = {
    "    # Output one completion per line.\n": (
        "    # What is none of the words is a file: the directory of a run, most often.\n"
        "    completions = completions or ['__TYRO_COMPLETE_FILES__']\n"
    ),
    '    COMPREPLY=($(compgen -f -- "$cur"))\n': (  # $cur includes the words before
        "    local IFS=$'\\n'\n"
        "    compopt -o filenames 2>/dev/null\n"
        '    COMPREPLY=($(compgen -f -- "${COMP_WORDS[COMP_CWORD]}"))\n'
    ),
}
"""Replacements in tyro's completion scripts, which complete words only."""
