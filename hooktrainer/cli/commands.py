"""The table of commands, their help, and their errors as exit codes.

Commands are imported when they are used, so that `--help` is fast.
"""

from __future__ import annotations

import contextlib
import functools
import io
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from pkgutil import resolve_name
from typing import Annotated, Any, Final, Literal

from tyro.conf import Positional
from tyro.extras import SubcommandApp

from ..base.kernels import pin_kernels
from ..base.version import __version__
from ..base.words import did_you_mean
from ..errors import USER_ERRORS, ConfigError, DamagedCheckpointError
from ..run.command_line import parse, unread
from . import output
from . import sweep as sweeping
from .launcher import launch
from .train import separate_arguments

Command = Callable[..., Any]
"""Returns the exit code, or a function that returns it and handles its own errors."""

COMMANDS: Final = {
    "train": "train:train",
    "sweep": "sweep:sweep",
    "watch": "watch:watch",
    "runs": "runs:runs",
    "report": "report:report",
    "describe": "describe:describe",
    "tensorboard": "logs:tensorboard",
    "sync": "logs:sync",
    "play": "play:play",
    "gallery": "gallery:gallery",
    "render": "gallery:render",
    "export": "export:export",
    "pack": "pack:pack",
    "resume": "train:resume",
    "rewind": "rewind:rewind",
    "bisect": "rewind:bisect",
    "branch": "rewind:branch",
    "verify-resume": "verify_resume:verify_resume",
    "verify-results": "verify_results:verify_results",
    "regress": "regress:regress",
    "check": "check:check",
    "completion": "commands:completion",
    "policies list": "policies:list_",
    "policies show": "policies:show",
    "policies evaluate": "policies:evaluate",
    "policies prune": "prune:prune_policies",
    "ckpt list": "ckpt:list_",
    "ckpt show": "ckpt:show",
    "ckpt verify": "ckpt:verify",
    "ckpt diff": "ckpt:diff",
    "ckpt prune": "prune:prune_checkpoints",
    "ckpt rollback": "prune:rollback",
    "ckpt export": "ckpt:export",
}
"""File and function of each command."""
GROUPS: Final = {
    "policies": "List, show, evaluate or delete the saved policies of a run.",
    "ckpt": "List, check, compare, export or delete checkpoints, or go back to one.",
}
"""Help of the commands of two words."""
_DESCRIPTION: Final = """Trains reinforcement-learning policies; shows, compares and resumes runs.

Begin: hooktrainer train ppo --env CartPole-v1 --total-frames 50000 --snapshots 6

RUN is the directory of a run; RUN@best and RUN@FRAMES are checkpoints of it, or policies. Every
command has --help: hooktrainer ckpt prune --help. hooktrainer --version prints the version.

Exit codes: 0 done; 1 a check failed, there are differences, or nothing was changed; 2 wrong usage,
or there is no such run or checkpoint; 129, 130 and 143 interrupted by SIGHUP, SIGINT, SIGTERM."""
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
        if _computes_pinned(given):
            pin_kernels()
        with unread():
            if (code := launch(given)) is None:
                code = _read(sweeping.separate_arguments(separate_arguments(given)))()
    except DamagedCheckpointError as error:
        return _fail(error, 1)
    except (*USER_ERRORS, OSError) as error:  # OSError: files that cannot be read or written
        return _fail(error, 2)
    except KeyboardInterrupt:
        return _fail("interrupted", 130)
    return int((code() if callable(code) else code) or 0)


def load(name: str) -> Command:
    """Import a command."""
    return resolve_name(f"{__package__}.{COMMANDS[name]}")


def _computes_pinned(words: Sequence[str]) -> bool:
    """Whether a word, or a configuration that one names, asks for ``--deterministic``."""
    if "--deterministic" in words:
        return True
    for word in words:
        path = Path(word.rpartition("=")[2])
        with contextlib.suppress(OSError, ValueError):
            file = path / "config.yaml" if path.is_dir() else path
            if file.suffix == ".yaml" and "deterministic: true" in file.read_text().splitlines():
                return True
    return False


def _read(words: Sequence[str]) -> Callable[[], Any]:
    """Parse a command line into a call of its command; an unknown command is a `ConfigError`."""
    group = words[0] if words and words[0] in GROUPS else ""
    words = words if len(words) > (group != "") else [*words, "--help"]
    first, *rest = words[group != "" :]
    name = f"{group} {first}".strip()
    if name in COMMANDS:
        command = load(name)

        @functools.wraps(command)  # parsing may call it twice: it only returns the call
        def held(*args: Any, **kwargs: Any) -> Callable[[], Any]:
            return functools.partial(command, *args, **kwargs)

        try:
            return parse(held, rest, prog=f"hooktrainer {name}")
        except SystemExit:
            if name == "train" and not {"-h", "--help"}.isdisjoint(rest):
                command()  # lists what can be trained
            raise
    if not first.startswith("-"):
        named = [one.rpartition(" ") for one in COMMANDS]
        known = [own for of, _, own in named if of == group] + ([] if group else [*GROUPS])
        prog = f"hooktrainer {group}".strip()
        raise ConfigError(
            f"{prog} has no command {first!r}.{did_you_mean(first, known, most=1)} It has "
            f"{', '.join(known)}; see {prog} --help."
        )
    return lambda: _app().cli(args=words, prog="hooktrainer", description=_DESCRIPTION)


def _app() -> SubcommandApp:
    """Build all commands, for help and completion; a docstring's first line is the summary."""
    apps = {"": SubcommandApp(), **{group: SubcommandApp() for group in GROUPS}}
    for name in COMMANDS:
        group, _, own = name.rpartition(" ")
        command = load(name)
        apps[group].command(name=own, help=(command.__doc__ or "").split("\n", 1)[0])(command)
    for group, text in GROUPS.items():
        apps[""].command(apps[group], name=group, help=text)
    return apps[""]


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
