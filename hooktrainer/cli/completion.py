"""`hooktrainer completion`: a script that completes the command line in a shell."""

from __future__ import annotations

import io
from contextlib import redirect_stdout, suppress
from typing import Annotated, Final, Literal

from tyro.conf import Positional

_FILES: Final = {
    "    # Output one completion per line.\n": (
        "    # What is none of the words is a file: the directory of a run, most often.\n"
        "    completions = completions or ['__TYRO_COMPLETE_FILES__']\n"
    ),
    '    COMPREPLY=($(compgen -f -- "$cur"))\n': (  # $cur has the words before in it
        "    local IFS=$'\\n'\n"
        "    compopt -o filenames 2>/dev/null\n"
        '    COMPREPLY=($(compgen -f -- "${COMP_WORDS[COMP_CWORD]}"))\n'
    ),
}
"""What is put into tyro's scripts, which complete words only."""

Shell = Annotated[Literal["bash", "zsh", "fish"], Positional]


def completion(shell: Shell, /) -> int:
    """Print a script that completes commands, options and files in a shell.

    bash: hooktrainer completion bash > ~/.local/share/bash-completion/completions/hooktrainer

    zsh: hooktrainer completion zsh > DIR/_hooktrainer, with DIR in $fpath

    fish: hooktrainer completion fish > ~/.config/fish/completions/hooktrainer.fish

    Args:
        shell: bash, zsh or fish
    """
    from .main import print_completion

    script = io.StringIO()
    with redirect_stdout(script), suppress(SystemExit):
        print_completion(shell)
    text = script.getvalue()
    for there, instead in _FILES.items():
        text = text.replace(there, instead)
    print(text, end="")
    return 0
