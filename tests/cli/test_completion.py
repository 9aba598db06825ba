"""`hooktrainer completion`, and how fast the command is there."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import pytest

from hooktrainer.cli.commands import COMMANDS


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_gets_a_script_that_knows_every_command(call, shell):
    done = call("completion", shell)
    assert done.code == 0
    assert "hooktrainer" in done.out
    assert [name for name in COMMANDS if name not in done.out] == []


BASH = """
source {script}
COMP_WORDS=({words} "{last}"); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_tyro_hooktrainer 2>/dev/null
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash on this machine")
@pytest.mark.parametrize(
    ("words", "last", "completed"),
    [
        ("hooktrainer", "pol", ["policies"]),
        ("hooktrainer policies prune", "--keep-", ["--keep-last", "--keep-best"]),
        ("hooktrainer play", "first", ["first_run"]),
        ("hooktrainer gallery -o", "first", ["first_run"]),
    ],
)
def test_bash_completes_commands_options_and_runs(words, last, completed, call, tmp_path):
    (tmp_path / "first_run").mkdir()
    script = tmp_path / "hooktrainer.bash"
    script.write_text(call("completion", "bash").out)
    code = BASH.format(script=script, words=words, last=last)
    done = subprocess.run(
        ["bash", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == completed


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_takes_files_where_there_is_no_word(shell, call):
    script = call("completion", shell).out
    assert script.count("completions = completions or ['__TYRO_COMPLETE_FILES__']") == 1


def test_an_unknown_shell_exits_with_2(call):
    assert call("completion", "tcl").code == 2


def test_help_and_lists_do_not_wait_for_torch(tmp_path):
    policy = tmp_path / "policies/step_000000000001"
    policy.mkdir(parents=True)
    facts = {"schema": 1, "frames": 1, "optim_steps": 0, "seconds": 0.0, "time": 0.0, "files": {}}
    facts |= {"env": {"id": "CartPole-v1"}, "frame_skip": 1, "recurrent": False}
    (policy / "policy.json").write_text(json.dumps(facts))
    code = (
        "import sys; from hooktrainer.cli import main\n"
        f"assert main(['runs', {str(tmp_path)!r}]) == 0\n"
        f"assert main(['policies', 'list', {str(tmp_path)!r}]) == 0\n"
        "assert 'torch' not in sys.modules and 'gymnasium' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True)
