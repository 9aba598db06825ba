from __future__ import annotations

import math
from pathlib import Path

import pytest

import hooktrainer
from hooktrainer import PolicySnapshot
from hooktrainer.errors import ConfigError
from hooktrainer.store import (
    All,
    Best,
    Checkpoint,
    CheckpointManager,
    EveryFrames,
    EveryHours,
    FileRecord,
    Last,
    Manifest,
    MaxBytes,
    Spread,
)


def run(*frames, metric=(), hours=(), files=()):
    checkpoints = []
    for i, count in enumerate(frames):
        manifest = Manifest(
            frames=count,
            optim_steps=0,
            sequence=i,
            time=3600.0 * (hours[i] if hours else i),
            backend="native",
            run_id="a",
            metrics={"eval/return": metric[i]} if metric and metric[i] is not None else {},
            files=files[i] if files else {},
        )
        checkpoints.append(Checkpoint(Path(f"step_{count}"), manifest))
    return checkpoints


def kept(policy, checkpoints):
    return [c.manifest.frames for c in checkpoints if c.path in policy.keep(checkpoints)]


def test_spread_keeps_the_first_the_last_and_what_is_nearest_to_even_marks():
    assert kept(Spread(3), run(0, 10, 49, 60, 100)) == [0, 49, 100]
    assert kept(Spread(4), run(0, 1, 2, 3, 100)) == [0, 2, 3, 100]
    assert kept(Spread(2), run(5, 6, 7)) == [5, 7]
    assert kept(Spread(5), run(5, 6, 7)) == [5, 6, 7]


def test_best_by_a_metric():
    checkpoints = run(1, 2, 3, 4, 5, metric=(3.0, 9.0, None, math.nan, 5.0))
    assert kept(Best(1, "eval/return"), checkpoints) == [2]
    assert kept(Best(2, "eval/return"), checkpoints) == [2, 5]
    assert kept(Best(1, "eval/return", "min"), checkpoints) == [1]
    assert kept(Best(9, "eval/return"), checkpoints) == [1, 2, 5]
    assert kept(Best(1, "other"), checkpoints) == []


def test_of_equally_good_ones_the_later_is_best():
    assert kept(Best(1, "eval/return"), run(1, 2, 3, metric=(500.0, 500.0, 4.0))) == [2]
    assert kept(Best(1, "eval/return", "min"), run(1, 2, 3, metric=(4.0, 4.0, 5.0))) == [2]


def test_every_frames_stands_by_its_choice_as_the_run_goes_on():
    alive = []
    for count in range(30, 1000, 30):
        alive = [*alive, count]
        alive = kept(EveryFrames(100) | Last(1), run(*alive))
    assert alive == [30, 120, 210, 300, 420, 510, 600, 720, 810, 900, 990]


def test_every_hours():
    checkpoints = run(1, 2, 3, 4, 5, hours=(0.1, 0.9, 1.0, 2.5, 2.6))
    assert kept(EveryHours(1), checkpoints) == [1, 3, 4]
    assert kept(EveryHours(0.5), checkpoints) == [1, 2, 3, 4]


def test_max_bytes_counts_shared_files_once():
    big, small = FileRecord(100, "b"), [FileRecord(10, f"s{i}") for i in range(4)]
    files = [{"big": big, "small": record} for record in small]
    checkpoints = run(1, 2, 3, 4, files=files)
    assert kept(MaxBytes(120), checkpoints) == [3, 4]
    assert kept(MaxBytes(129), checkpoints) == [3, 4]
    assert kept(MaxBytes(130), checkpoints) == [2, 3, 4]
    assert kept(MaxBytes(50), checkpoints) == []


def test_unions_and_intersections():
    checkpoints = run(1, 2, 3, 4, 5, metric=(9.0, 1.0, 1.0, 2.0, 1.0))
    assert kept(Last(2) | Best(1, "eval/return"), checkpoints) == [1, 4, 5]
    assert kept(Last(2) & Best(2, "eval/return"), checkpoints) == [4]
    assert kept(Last(1) | EveryFrames(2) | All(), checkpoints) == [1, 2, 3, 4, 5]


def test_the_latest_and_the_best_are_never_deleted(tmp_path):
    keep, best = EveryFrames(1000), Best(1, "eval/return")
    with CheckpointManager(tmp_path, keep=keep, best=best, background=False) as manager:
        for frames, value in enumerate((1.0, 9.0, 1.0, 1.0), start=1):
            manager.save({}, frames=frames, metrics={"eval/return": value})
        assert [c.manifest.frames for c in manager.checkpoints()] == [1, 2, 4]


@pytest.mark.parametrize("kind", [Last, EveryFrames, EveryHours, MaxBytes, Spread])
@pytest.mark.parametrize("number", [0, -1, True, "5"])
def test_numbers_must_be_positive(kind, number):
    with pytest.raises(ConfigError, match="pass a"):
        kind(number)
    with pytest.raises(ConfigError, match="n=1: pass an integer of 2 or more"):
        Spread(1)


def test_the_mode_must_be_known():
    with pytest.raises(ConfigError, match="'max' or 'min'"):
        Best(1, "x", "highest")


@pytest.mark.parametrize(
    "make",
    [
        lambda path: CheckpointManager(path, keep=hooktrainer.Latest(2)),
        lambda path: CheckpointManager(path, keep=0, best=Best(1, "x")),
        lambda path: CheckpointManager(path, keep=Last(2) | hooktrainer.Latest(2)),
        lambda path: CheckpointManager(path, keep=Best(2, "x") & 3),
        lambda path: PolicySnapshot(None, "CartPole-v1", path, snapshots=2, keep=2),
    ],
)
def test_what_says_nothing_about_checkpoints_is_refused_at_once(tmp_path, make):
    with pytest.raises(ConfigError, match=r"is no retention policy: give Last\(5\)"):
        make(tmp_path)
    assert not list(tmp_path.iterdir())
