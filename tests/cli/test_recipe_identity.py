"""Identities of runs: checkpoints of other runs are refused, or forked."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from outcomes import committed, rows
from test_recipe_resume import train, weights

from hooktrainer import RunDir
from hooktrainer.errors import CheckpointError, ConfigError
from hooktrainer.log import read_csv
from hooktrainer.store import list_checkpoints


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that is copied for every test."""
    path = tmp_path_factory.mktemp("trained") / "run"
    train(path)
    return path


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "run", symlinks=True))


def ids(path: Path) -> set[str]:
    """All ids that are in the directory of a run."""
    listing = list_checkpoints(path / "checkpoints")
    found = {c.manifest.run_id for c in [*listing.checkpoints, *listing.foreign]}
    return {*found, RunDir(path).read()["run_id"]}


def test_the_id_survives_the_loss_of_run_json(run):
    before = ids(run)
    for content in (b"", b'{"run_id": "', None):
        (run / "run.json").write_bytes(content) if content is not None else (
            run / "run.json"
        ).unlink()
        train(run, "latest", total_frames=80)
        assert ids(run) == before


@pytest.mark.parametrize(
    ("way", "options"),
    [
        *((way, {}) for way in ("by path", "by run", "copied over its own")),
        *(("copied beside its own", options) for options in ({}, {"seed": 1}, {"lr": 0.5})),
    ],
)
def test_a_checkpoint_of_another_run_is_refused(run, tmp_path, way, options):
    other = tmp_path / "other"
    train(other, total_frames=80, **options)
    spec, (theirs, ours) = "latest", (ids(other), ids(run))
    source = other / "checkpoints" / "step_000000000080"
    target = run / "checkpoints" / source.name
    if way.startswith("by"):
        spec = str(source) if way == "by path" else f"{other}@80"
    elif way == "copied beside its own":
        shutil.copytree(source, target)
    else:
        shutil.rmtree(run / "checkpoints")
        shutil.copytree(other / "checkpoints", run / "checkpoints")
    before = (run / "run.json").read_bytes()
    with pytest.raises(CheckpointError, match="belongs to run") as caught:
        train(run, spec, total_frames=120, **options)
    assert "\n" not in str(caught.value)
    assert all(run_id in str(caught.value) for run_id in theirs | ours)
    assert "--fork" in str(caught.value)
    assert (run / "run.json").read_bytes() == before
    if way == "copied beside its own":  # it is neither counted nor deleted as its own would be
        shutil.rmtree(target)
        train(run, "latest", total_frames=120, keep_last=1)
        assert ids(run) == ours


def test_a_directory_without_an_id_is_refused_in_one_line(run):
    (run / "run.json").write_text('{"status": "finished"}')
    with pytest.raises(ConfigError, match=r"run\.json holds no id of a run\.$") as caught:
        train(run, "latest")
    assert "\n" not in str(caught.value)


# --- branches ------------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", ["{run}", "{run}@60", "{run}/checkpoints/step_000000000060"])
def test_a_fork_with_the_same_options_equals_the_continued_run(run, tmp_path, spec, capsys):
    branch = tmp_path / "branch"
    spec = spec.format(run=run)
    files = {p: p.stat().st_mtime_ns for p in run.rglob("*")}
    forked = train(branch, fork=spec, total_frames=120)
    assert weights(forked) == weights(train(tmp_path / "whole", total_frames=120))
    assert {p: p.stat().st_mtime_ns for p in run.rglob("*")} == files
    assert committed(branch) == [60, 80, 100, 120]
    assert "forked from" in capsys.readouterr().out
    (own,) = ids(branch)
    parent = {
        "run_id": RunDir(run).run_id,
        "path": str(run / "checkpoints" / "step_000000000060"),
        "frames": 60,
    }
    assert own != parent["run_id"]
    assert RunDir(branch).read()["forked_from"] == parent
    listing = list_checkpoints(branch / "checkpoints")
    assert all(c.manifest.forked_from == parent for c in listing.checkpoints)
    whole = read_csv(tmp_path / "whole")["loss/loss"]
    assert read_csv(branch)["loss/loss"] == [row for row in whole if row[0] > 60]


def test_a_fork_is_resumed_and_keeps_its_parent(run, tmp_path):
    branch = tmp_path / "branch"
    train(branch, fork=str(run), total_frames=100)
    parent, own = RunDir(branch).forked_from, ids(branch)
    shutil.rmtree(run)
    (branch / "run.json").unlink()  # lost
    train(branch, "latest", total_frames=140)
    assert (RunDir(branch).forked_from, ids(branch)) == (parent, own)
    assert [step for step, _ in read_csv(branch)["loss/loss"]] == [80, 100, 120, 140]


def test_a_fork_with_another_seed_draws_other_numbers(run, tmp_path):
    def numbers(name: str, seed: int) -> list[float]:
        drawn: list[float] = []
        train(
            tmp_path / name,
            fork=str(run),
            total_frames=80,
            seed=seed,
            before_each_batch=lambda batch: drawn.append(float(torch.rand(()))),
        )
        return drawn

    assert numbers("a", 0) == numbers("b", 0) != numbers("c", 1)
    assert numbers("d", 1) != numbers("e", 2)


@pytest.mark.parametrize("seed", [0, 1])
def test_a_fork_killed_before_its_first_checkpoint_restarts(run, tmp_path, seed, caplog):
    branch = tmp_path / "branch"

    def disturb(batch):
        batch["observation"] += torch.randn_like(batch["observation"])

    def train_and_kill(**spec: str) -> None:
        batches = []

        def die(batch):
            batches.append(batch)
            if len(batches) == 2:
                raise KeyboardInterrupt
            disturb(batch)

        with pytest.raises(KeyboardInterrupt):
            train(branch, total_frames=120, seed=seed, before_each_batch=die, **spec)

    options = {"total_frames": 120, "seed": seed, "before_each_batch": disturb}
    whole = train(tmp_path / "whole", fork=str(run), **options)
    train_and_kill(fork=str(run))
    own = ids(branch)
    train_and_kill(resume="latest")
    for path in (branch / "checkpoints").glob("step_*"):  # it came to save nothing at all
        shutil.rmtree(path)
    train_and_kill(resume="latest")
    assert weights(train(branch, "latest", **options)) == weights(whole)
    assert ids(branch) == own
    assert rows(branch) == rows(tmp_path / "whole")
    assert "whose logs" not in caplog.text  # it knows its own from the first


def test_invalid_forks_are_refused(run, tmp_path):
    new = tmp_path / "new"
    with pytest.raises(ConfigError, match=r"--fork .* begins a new run, and --resume latest"):
        train(new, "latest", fork=str(run))
    with pytest.raises(CheckpointError, match="there is no run"):
        train(new, fork=str(tmp_path / "nowhere"))
    assert not new.exists()
    with pytest.raises(ConfigError, match="already holds a run"):
        train(run, fork=f"{run}@40")
    with pytest.raises(ConfigError, match=r"nothing is left to do.*--total-frames"):
        train(new, fork=str(run))
