"""The command as a whole: help, exit codes, mistakes."""

from __future__ import annotations

import inspect
import os
import re

import pytest

from hooktrainer import __version__
from hooktrainer.algorithms import PPO
from hooktrainer.cli import ckpt, main
from hooktrainer.cli.commands import CKPT, COMMANDS

ALL = [*(["ckpt", name] for name in CKPT), *([name] for name in COMMANDS)]


def test_help_lists_every_command_by_its_first_line(call):
    help_text = call("--help").out + call("ckpt", "--help").out
    for words, command in zip(ALL, [*CKPT.values(), *COMMANDS.values()], strict=True):
        first = inspect.getdoc(command).split("\n")[0]
        assert words[-1] in help_text
        assert first in re.sub(r"[│\s]+", " ", help_text)
    assert "Exit codes: 0 done; 1 a check failed" in help_text


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_every_command_explains_every_argument(call, words):
    done = call(*words, "--help")
    command = {**CKPT, **COMMANDS}[words[-1]]
    assert done.code == 0
    documented = inspect.getdoc(command).split("Args:")[1]
    for name in inspect.signature(command).parameters:
        explained = re.search(rf"^    {name}: (.+)$", documented, re.MULTILINE)
        assert explained, f"{name} is not explained"
        assert explained[1] in re.sub(r"[│\s]+", " ", done.out)


@pytest.mark.parametrize(
    ("print_help", "words"),
    [(main, ["--help"]), (main, ["runs", "--help"]), (main, ["runs", "."]), (PPO.main, ["--help"])],
)
def test_a_reader_that_has_seen_enough_is_no_error(monkeypatch, tmp_path, print_help, words):
    monkeypatch.chdir(tmp_path)
    reads, writes = os.pipe()
    os.close(reads)  # as head does
    with open(writes, "w") as unread:
        monkeypatch.setattr("sys.stdout", unread)
        with pytest.raises(SystemExit) as ended:
            print_help(words)
    assert ended.value.code == 0


@pytest.mark.parametrize("words", [[], ["ckpt"], ["ckpt", "lst"], ["ckpt", "list"], ["list"]])
def test_wrong_words_exit_with_2(call, words):
    done = call(*words)
    assert (done.code, done.out) == (2, "")
    assert done.err


@pytest.mark.parametrize(
    ("words", "nearest"),
    [(["galery"], "gallery"), (["polices", "list"], "policies"), (["ckpt", "lst"], "list")],
)
def test_a_command_that_is_not_there_is_answered_with_the_nearest(call, words, nearest):
    done = call(*words)
    assert done.code == 2
    assert f"Did you mean {nearest}?" in done.err
    assert done.err.count("\n") == 1


def test_an_interruption_exits_with_130(call, monkeypatch, tmp_path):
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ckpt.output, "print_json", interrupt)
    (tmp_path / "run.json").write_text("{}")
    assert call("ckpt", "list", tmp_path, "--json").code == 130


def test_a_full_disk_is_said_in_one_line(call, monkeypatch, tmp_path):
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(ckpt.output, "print_json", fail)
    (tmp_path / "run.json").write_text("{}")
    done = call("ckpt", "list", tmp_path, "--json")
    assert (done.code, done.err) == (2, "error: [Errno 28] No space left on device\n")


def test_the_version(call):
    assert call("--version").out == f"hooktrainer {__version__}\n"
