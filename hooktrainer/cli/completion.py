"""The scripts that complete the command line in a shell, with files added to them."""

from __future__ import annotations

from typing import Final

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


def completing_files(script: str) -> str:
    """A script of tyro's that completes files where it has no word."""
    for there, instead in _FILES.items():
        script = script.replace(there, instead)
    return script
