"""The command: help, exit codes, completion, interruption."""

from __future__ import annotations

import inspect
import json
import os
import re
import shutil
import signal
import subprocess
import sys

import pytest

from hooktrainer import __version__
from hooktrainer.algorithms import PPO
from hooktrainer.cli import ckpt, main
from hooktrainer.cli.commands import COMMANDS, load


def test_help_lists_every_command_by_its_first_line(call):
    help_text = "".join(call(*group, "--help").out for group in ([], ["ckpt"], ["policies"]))
    for name in COMMANDS:
        first = inspect.getdoc(load(name)).split("\n")[0]
        assert name.split()[-1] in help_text
        assert first in re.sub(r"[│\s]+", " ", help_text)
    assert "Exit codes: 0 done; 1 a check failed" in help_text


@pytest.mark.parametrize("words", [[], ["ckpt"]])
def test_no_command_at_all_asks_for_help(call, words):
    assert call(*words) == call(*words, "--help")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_every_argument(call, name):
    done = call(*name.split(), "--help")
    assert done.code == 0
    documented = inspect.getdoc(load(name)).split("Args:")[1]
    for argument in inspect.signature(load(name)).parameters:
        explained = re.search(rf"^    {argument}: (.+)$", documented, re.MULTILINE)
        assert explained, f"{argument} is not explained"
        assert explained[1] in re.sub(r"[│\s]+", " ", done.out)


@pytest.mark.parametrize(
    ("print_help", "words"),
    [(main, ["--help"]), (main, ["runs", "--help"]), (main, ["runs", "."]), (PPO.main, ["--help"])],
)
def test_a_closed_pipe_is_no_error(monkeypatch, tmp_path, print_help, words):
    monkeypatch.chdir(tmp_path)
    reads, writes = os.pipe()
    os.close(reads)  # as head does
    with open(writes, "w") as unread:
        monkeypatch.setattr("sys.stdout", unread)
        with pytest.raises(SystemExit) as ended:
            print_help(words)
    assert ended.value.code == 0


@pytest.mark.parametrize("words", [["ckpt", "lst"], ["ckpt", "list"], ["list"]])
def test_wrong_words_exit_with_2(call, words):
    done = call(*words)
    assert (done.code, done.out) == (2, "")
    assert done.err


def test_an_interruption_exits_with_130(call, monkeypatch, tmp_path):
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ckpt.output, "print_json", interrupt)
    (tmp_path / "run.json").write_text("{}")
    assert call("ckpt", "list", tmp_path, "--json").code == 130


def test_the_version(call):
    assert call("--version").out == f"hooktrainer {__version__}\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_script_has_every_command(call, shell):
    done = call("completion", shell)
    assert done.code == 0
    assert "hooktrainer" in done.out
    assert [name for name in COMMANDS if name.split()[-1] not in done.out] == []
    assert done.out.count("completions = completions or ['__TYRO_COMPLETE_FILES__']") == 1


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


def test_help_and_lists_do_not_import_torch(tmp_path):
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


INTERRUPTING = """
import os, runpy, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # it may be ignored here
class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[1]:
            sys.meta_path.remove(self)
            try:
                os.kill(os.getpid(), signal.SIGINT)
            except BaseException:  # as an extension does that is being initialized
                pass
sys.meta_path.insert(0, Interrupting())
"""
COMMAND = "from hooktrainer.cli import main; main(['runs'])"
ALGORITHM = "from hooktrainer.cli import main; main(['train', 'ppo'])"


@pytest.mark.parametrize(
    ("program", "module", "code", "said"),
    [
        (COMMAND, "tyro", -signal.SIGINT, ""),
        (
            ALGORITHM,
            "hooktrainer.algorithms",
            128 + signal.SIGINT,
            "\nSIGINT: ended; no batch was under way.\n",
        ),
    ],
)
def test_an_interrupt_during_an_import_ends_the_process(program, module, code, said, tmp_path):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", INTERRUPTING + program, module],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert (done.returncode, done.stdout, done.stderr) == (code, "", said)
