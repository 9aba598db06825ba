from __future__ import annotations

import os

import pytest
import torch

from hooktrainer.errors import CheckpointError
from hooktrainer.store import Best, CheckpointManager, find, list_checkpoints, run_of


@pytest.fixture
def run(tmp_path):
    """Checkpoints at 1, 9, 10 and 100 thousand frames; the best is at 9 thousand."""
    directory = tmp_path / "runs" / "a" / "checkpoints"
    with CheckpointManager(directory, best=Best(1, "eval/return"), background=False) as manager:
        for thousands, value in [(1, 1.0), (9, 8.0), (10, 3.0), (100, 2.0)]:
            manager.save(
                {"x": torch.ones(1)}, frames=thousands * 1000, metrics={"eval/return": value}
            )
    return tmp_path / "runs" / "a"


def frames(paths):
    return [int(path.name.removeprefix("step_")) // 1000 for path in paths]


def test_words(run):
    assert frames(find("latest", run)) == [100, 10, 9, 1]
    assert frames(find("latest", run / "checkpoints")) == [100, 10, 9, 1]
    assert frames(find("best", run)) == [9, 10, 100, 1]  # as the checkpoints say
    assert frames(find("best", run, Best(1, "eval/return", "min")))[0] == 1
    assert frames(find("10000", run)) == [10]


def test_paths_and_runs(run, monkeypatch):
    monkeypatch.chdir(run.parent.parent)
    step = run / "checkpoints" / "step_000000010000"
    assert find(step) == [step]
    assert find(os.path.relpath(step)) == [step]
    assert frames(find("runs/a")) == [100, 10, 9, 1]
    assert frames(find("runs/a@9000")) == [9]
    assert frames(find("runs/a@best"))[0] == 9
    assert frames(find(f"{run}@latest"))[0] == 100
    monkeypatch.chdir(step)
    assert find(".") == [step]
    moved = step.rename(run / "elsewhere")
    assert find(moved) == [moved]


def test_a_run_behind_symbolic_links_is_still_that_run(run, monkeypatch):
    root = run.parent.parent
    (root / "link").symlink_to(run)
    (root / "disk").mkdir()
    (run / "checkpoints").rename(root / "disk" / "of-a")
    (run / "checkpoints").symlink_to(root / "disk" / "of-a")
    monkeypatch.chdir(root)
    for spec in ("link@9000", "link/checkpoints/step_000000009000", "runs/a@9000"):
        (path,) = find(spec)
        assert frames([path]) == [9]
        assert run_of(path).resolve() == run


def test_a_checkpoint_knows_its_run_unless_it_was_moved_out(run, monkeypatch):
    step = run / "checkpoints" / "step_000000009000"
    (run / "link").symlink_to(step)
    assert run_of(step) == run_of(run / "link") == run
    monkeypatch.chdir(step.parent)
    assert run_of(step.relative_to(step.parent)) == run
    assert run_of(step.rename(run / step.name)) is None


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("5000", "no checkpoint '5000'.*frames 1000, 9000, 10000, 100000"),
        ("@5000", "no checkpoint '5000'"),
        ("latest@", "no run"),
        ("nowhere", "no run nowhere"),
        ("nowhere@latest", "no run nowhere"),
    ],
)
def test_what_is_not_there_is_said(run, spec, message):
    with pytest.raises(CheckpointError, match=message):
        find(f"{run}{spec}" if spec == "@5000" else spec, run)


def test_best_without_a_metric_lists_the_metrics(tmp_path):
    with CheckpointManager(tmp_path, background=False) as manager:
        manager.save({}, frames=1, metrics={"loss/a": 1.0, "train/return": 2.0})
    with pytest.raises(CheckpointError, match="metrics are loss/a, train/return"):
        find("best", tmp_path)
    with pytest.raises(CheckpointError, match=r"'eval/return'.*loss/a, train/return"):
        find("best", tmp_path, Best(1, "eval/return"))


def test_listing_shows_committed_checkpoints_only(run):
    directory = run / "checkpoints"
    for name in (".tmp-step_000000000001-ab", ".trash-x", "damaged-step_000000000001-ab", "notes"):
        (directory / name).mkdir()
    (directory / "step_000000010000" / "manifest.json").write_text("{}")
    listing = list_checkpoints(directory)
    assert [c.manifest.frames for c in listing.checkpoints] == [1000, 9000, 100_000]
    assert [path.name for path in listing.damaged] == ["step_000000010000"]
    assert list_checkpoints(run / "nowhere").checkpoints == []
