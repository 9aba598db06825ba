"""A recipe with ``--snapshots``: from training to playing what was saved, and a resume."""

from __future__ import annotations

from pathlib import Path

import pytest
from warm_python import run

from hooktrainer import ConfigError, list_policies, load_policy, play_episodes
from hooktrainer.run import Run, RunConfig

ROOT = Path(__file__).parents[2]


def train(where: Path, *words: object) -> str:
    done = run(ROOT / "recipes/ppo_cartpole.py", *words, where=where)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_snapshots_of_a_recipe_are_saved_played_and_taken_up_by_a_resume(tmp_path):
    words = ("--run-dir", "g", "--no-progress-bar")
    small = ("--num-envs", 2, "--steps-per-batch", 32, "--eval-episodes", 2, "--save-interval", 128)
    out = train(tmp_path, *words, *small, "--total-frames", 512, "--snapshots", 3)
    assert "3 policies in g/policies · best: return" in out
    saved = list_policies(tmp_path / "g")
    assert [policy.frames for policy in saved] == [0, 256, 512]
    assert all(policy.evaluation.episodes == 10 for policy in saved)
    played = play_episodes(load_policy(saved[-1]))
    assert [episode.return_ for episode in played] == list(saved[-1].evaluation.returns)
    # The number of snapshots is free, and so is the end of the run.
    more = ("--total-frames", 1024, "--snapshots", 5, "--resume", "latest")
    train(tmp_path, *words, *small, *more)
    assert [policy.frames for policy in list_policies(tmp_path / "g")] == [0, 256, 512, 768, 1024]


def test_a_number_of_snapshots_that_cannot_be_leaves_no_run_behind(tmp_path):
    args = RunConfig(total_frames=1, run_dir=tmp_path / "g", snapshots=1)
    with pytest.raises(ConfigError, match="snapshots=1: pass an integer of 2"):
        Run(args, "toy")
    assert not (tmp_path / "g").exists()
