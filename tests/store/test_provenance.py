"""The commit and the versions that a run is recorded with."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hooktrainer import RunDir

ROOT = Path(__file__).parents[2]


def test_without_git_there_is_no_commit(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    run = RunDir.create(tmp_path / "r").read()
    assert (run["git_commit"], run["git_dirty"]) == (None, None)


PROGRAM = """
import json
from hooktrainer.store.provenance import this_process
print(json.dumps(this_process()))
"""


def recorded(*command: str, cwd: Path, **environment: str) -> dict[str, Any]:
    """What a process records of itself; it imports neither torch nor anything else that is slow."""
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        check=True,
        capture_output=True,
        text=True,
    )
    return json.loads(done.stdout)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A user's project, which is a repository of its own, and a commit in it."""
    if shutil.which("git") is None:
        pytest.skip("needs git")
    path = tmp_path / "project"
    path.mkdir()
    (path / "train.py").write_text(PROGRAM)
    for words in (["init"], ["add", "."], ["commit", "-m", "first"]):
        git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", *words]
        subprocess.run(git, cwd=path, check=True, capture_output=True)
    return path


def commit_of(path: Path) -> str:
    command = ["git", "rev-parse", "HEAD"]
    return subprocess.run(command, cwd=path, check=True, capture_output=True, text=True).stdout[:-1]


def test_the_project_is_that_of_the_script_wherever_it_is_started(project, tmp_path):
    command = (sys.executable, "-u", str(project / "train.py"), "--a", "b c")
    state = recorded(*command, cwd=tmp_path)
    assert (state["git_commit"], state["git_dirty"]) == (commit_of(project), False)
    assert state["command"] == shlex.join(command)
    assert (state["script"], state["argv"]) == (command[2], ["--a", "b c"])


def test_the_project_of_a_module_is_where_it_is_started_and_not_where_it_is_installed(
    project, tmp_path
):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "brought.py").write_text(PROGRAM)
    path = f"{tmp_path / 'elsewhere'}{os.pathsep}{ROOT}"
    state = recorded(sys.executable, "-m", "brought", cwd=project, PYTHONPATH=path)
    assert state["git_commit"] == commit_of(project)
    assert state["command"] == f"{sys.executable} -m brought"
    assert state["module"] == "brought"


def test_a_command_of_a_package_is_recorded_by_its_name(project):
    """As `hooktrainer`, whose first line gives it to Python, with the path of both."""
    scripts = project / "bin"
    scripts.mkdir()
    (scripts / "tool").write_text(
        f"#!{sys.executable}\nimport sysconfig\n"
        f"sysconfig.get_path = lambda name: {str(scripts)!r}\n{PROGRAM}"
    )
    (scripts / "tool").chmod(0o755)
    state = recorded(str(scripts / "tool"), "train", "x y", cwd=project)
    assert state["command"] == "tool train 'x y'"
    assert state["git_commit"] == commit_of(project)


def test_nothing_that_a_repository_names_is_run(project, monkeypatch):
    monkeypatch.chdir(project)
    monkeypatch.setattr(sys, "argv", ["-m"])
    trap = f"touch {project}/ran; cat"
    for name, value in (
        ("core.fsmonitor", trap),
        ("core.hooksPath", "hooks"),
        ("filter.trap.clean", trap),
        ("filter.trap.required", "true"),
        ("diff.external", trap),
    ):
        subprocess.run(["git", "config", name, value], check=True)
    (project / "hooks").mkdir()
    (project / "hooks/post-index-change").write_text(f"#!/bin/sh\n{trap}\n")
    (project / "hooks/post-index-change").chmod(0o755)
    (project / ".gitattributes").write_text("*.py filter=trap\n")
    os.utime(project / "train.py", (1, 1))  # so that its content is compared
    run = RunDir.create(project / "one").read()
    assert (run["git_commit"], run["git_dirty"]) == (commit_of(project), False)
    (project / "train.py").write_text("changed")
    assert RunDir.create(project / "other").read()["git_dirty"] is True
    assert not (project / "ran").exists()
    assert subprocess.run(["git", "status"], check=False, capture_output=True).returncode == 0
    assert (project / "ran").exists()  # the trap works
