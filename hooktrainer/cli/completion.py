"""`hooktrainer completion`: a script that completes the command line in a shell."""

from __future__ import annotations

from typing import Annotated, Literal

from tyro.conf import Positional

Shell = Annotated[Literal["bash", "zsh", "fish"], Positional]


def completion(shell: Shell, /) -> int:
    """Print a script that completes commands and options in a shell.

    bash: hooktrainer completion bash > ~/.local/share/bash-completion/completions/hooktrainer

    zsh: hooktrainer completion zsh > DIR/_hooktrainer, with DIR in $fpath

    fish: hooktrainer completion fish > ~/.config/fish/completions/hooktrainer.fish

    Args:
        shell: bash, zsh or fish
    """
    from .main import print_completion

    print_completion(shell)
    return 0
