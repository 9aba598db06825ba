"""`hooktrainer verify-resume`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from outcomes import committed

pytestmark = pytest.mark.usefixtures("warm_python")

PRETEND = Path(__file__).with_name("pretend.py")
RETURNS = (1.0,) * 12


@pytest.fixture
def model(make_run) -> Path:
    """The run that the script pretends to make."""
    return make_run("model", RETURNS)


def verify(call, keep: Path, model: Path, *options: object, args: tuple[object, ...] = ()):
    command = ["verify-resume", PRETEND, "--keep", keep, "--seed", 4, *options]
    return call(*command, "--", "--model", model, *args)


def test_a_script_that_resumes_exactly_is_identical(call, model, tmp_path):
    done = verify(call, tmp_path / "both", model, "--kills", 3)
    assert done.code == 0, done.err
    assert done.out.endswith("\nidentical\n")
    parts = [row.split("│")[1].strip() for row in done.out.splitlines() if row.startswith("│")]
    assert parts == [
        *("progress", "metrics", "loss_module", "collector", "hook/optimizer"),
        *("hook/replay_buffer", "hook/count", "cadence/log"),
        *("random state", "metrics.csv", "tensorboard"),
    ]
    assert "none there" in done.out.splitlines()[-3]  # it writes no events
    assert [f"kill {number} of 3" in done.err for number in (1, 2, 3)] == [True] * 3
    log = (tmp_path / "both" / "killed.log").read_text().splitlines()
    assert log.count("started fresh") == 1
    assert log.count("started from latest") >= 3
    assert committed(tmp_path / "both" / "killed") == committed(model)


def test_a_script_that_does_not_resume_exactly_differs(call, make_run, model, tmp_path):
    other = make_run("other", RETURNS, weight=1.0)
    done = verify(
        *(call, tmp_path / "both", model, "--kills", 1, "--json"),
        args=("--resumed-model", other),
    )
    assert done.code == 1
    found = json.loads(done.out)
    assert not found["identical"]
    differing = {part["part"]: part["differences"] for part in found["parts"]}
    (parameters,) = differing["loss_module"]
    assert parameters == {
        "path": "components/loss_module/weight",
        "left": "float32[2], 1 of 2 elements differ; element 1 is 0.0",
        "right": "1.0",
    }
    assert [part for part, differences in differing.items() if differences] == [
        *("loss_module", "hook/optimizer", "hook/replay_buffer"),
    ]


def test_a_script_that_fails_shows_its_last_lines(call, model, tmp_path):
    done = verify(call, tmp_path / "both", model, args=("--fail-at", 2))
    again = verify(call, tmp_path / "other", model, "--kills", 2, args=["--fail-resumed"])
    assert "error: the script exited with 1; its last lines:\n" in again.err
    assert "it cannot be resumed\n" in again.err
    assert done.code == again.code == 1
    assert done.err.startswith("error: the script exited with 3; its last lines:\n")
    assert "started fresh\nthe whole bar\nno room for it\n" in done.err
    assert done.out == ""


def test_a_mirror_is_left_out(call, model, tmp_path):
    mirror = ("--mirror", f"file://{tmp_path}/there", "--mirror-keep=1")
    assert verify(call, tmp_path / "both", model, "--kills", 0, args=mirror).code == 0


def test_the_runs_are_removed_unless_they_differ(call, make_run, model, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    other = make_run("other", RETURNS, weight=1.0)
    command = ("verify-resume", PRETEND, "--seed", 4)
    assert call(*command, "--kills", 0, "--", "--model", model).code == 0
    assert not [*tmp_path.glob("hooktrainer-verify-resume-*")]
    words = ("--model", model, "--resumed-model", other)
    done = call(*command, "--kills", 1, "--", *words)
    (left,) = tmp_path.glob("hooktrainer-verify-resume-*")
    assert done.code == 1
    assert f"are in {left}\n" in done.err
    assert committed(left / "straight") == committed(model)
