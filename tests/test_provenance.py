"""The commit and the versions that a run is recorded with."""

from __future__ import annotations

import re
import subprocess

import pytest
import torch

from hooktrainer import provenance
from hooktrainer.provenance import git_state, library_versions
from hooktrainer.run_dir import RunDir


def test_without_git_there_is_no_commit(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert git_state() == {"git_commit": None, "git_dirty": None}
    assert RunDir.create(tmp_path / "r").read()["git_commit"] is None


def test_commit_and_changes_are_those_of_the_scripts_repository(tmp_path, monkeypatch):
    monkeypatch.setattr(provenance.sys, "argv", [str(tmp_path / "train.py")])
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    script = tmp_path / "train.py"
    script.write_text("1")
    assert git_state() == {"git_commit": None, "git_dirty": None}

    def git(*command: str) -> None:
        identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run(["git", *identity, *command], cwd=tmp_path, check=True, capture_output=True)

    try:
        git("init")
    except FileNotFoundError:
        pytest.skip("needs git")
    assert git_state() == {"git_commit": None, "git_dirty": None}
    git("add", ".")
    git("commit", "-m", "first")
    state = git_state()
    assert re.fullmatch("[0-9a-f]{40}", state["git_commit"])
    assert state["git_dirty"] is False
    script.write_text("2")
    assert git_state() == {**state, "git_dirty": True}


def test_versions_are_strings_or_none():
    versions = library_versions()
    assert versions["torch"] == torch.__version__
    assert all(isinstance(version, str) for version in versions.values())
