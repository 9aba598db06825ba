"""A command that this user's programs wrote here is told from any other."""

from __future__ import annotations

import json
import os
import stat
from concurrent.futures import ThreadPoolExecutor

import pytest

from hooktrainer import RunDir
from hooktrainer.store.provenance import is_own_command, key_file, sign_command

COMMAND = {"script": "/a/train.py", "module": None, "argv": ["--lr", "1"], "cwd": "/a"}


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


def signed(**changes):
    return COMMAND | {"signature": sign_command(COMMAND)} | changes


def test_what_was_signed_here_is_own():
    assert is_own_command(signed())
    assert is_own_command(json.loads(json.dumps(signed(status="running", pid=7))))


@pytest.mark.parametrize(
    "change",
    [
        {"script": "/b/train.py"},
        {"module": "os"},
        {"argv": ["--lr", "2"]},
        {"argv": ["--lr 1"]},
        {"cwd": "/b"},
        {"signature": None},
        {"signature": ""},
        {"signature": "0" * 64},
        {"signature": "é"},
        {"signature": 5},
    ],
)
def test_nothing_else_is(change):
    assert not is_own_command(signed(**change))


def test_it_is_not_own_elsewhere(monkeypatch, tmp_path):
    here = signed()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "other"))
    assert not is_own_command(here)
    assert not key_file().exists(), "to ask makes no key"
    sign_command(COMMAND)
    assert not is_own_command(here)


def test_a_key_is_made_once_and_is_nobody_elses():
    with ThreadPoolExecutor(8) as pool:
        signatures = set(pool.map(lambda _: sign_command(COMMAND), range(32)))
    assert len(signatures) == 1
    assert stat.S_IMODE(key_file().stat().st_mode) == 0o600
    assert [path.name for path in key_file().parent.iterdir()] == ["key"]
    here = signed()
    key_file().chmod(0o644)
    assert not is_own_command(here)
    key_file().chmod(0o600)
    assert is_own_command(here)
    key_file().write_bytes(b"short")
    assert not is_own_command(here)


def test_without_a_place_for_a_key_nothing_is_own(monkeypatch, home):
    (home / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "file"))
    assert sign_command(COMMAND) is None
    assert not is_own_command(COMMAND | {"signature": None})
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    monkeypatch.setenv("HOME", str(home / "file"))
    assert sign_command(COMMAND) is None


def test_a_run_signs_the_command_that_began_it(tmp_path):
    recorded = RunDir.create(tmp_path / "run").read()
    assert is_own_command(recorded)
    assert not is_own_command(recorded | {"cwd": os.sep})
