"""`hooktrainer completion`, and how fast the command is there."""

from __future__ import annotations

import subprocess
import sys

import pytest

from hooktrainer.cli.main import COMMANDS


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_gets_a_script_that_knows_every_command(call, shell):
    done = call("completion", shell)
    assert done.code == 0
    assert "hooktrainer" in done.out
    assert [name for name in COMMANDS if name not in done.out] == []


def test_an_unknown_shell_exits_with_2(call):
    assert call("completion", "tcl").code == 2


def test_help_and_lists_do_not_wait_for_torch(tmp_path):
    code = (
        "import sys; from hooktrainer.cli import main\n"
        f"assert main(['runs', {str(tmp_path)!r}]) == 0\n"
        "assert 'torch' not in sys.modules and 'gymnasium' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True)
