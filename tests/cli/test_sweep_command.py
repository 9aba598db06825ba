"""`hooktrainer sweep`."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

SMALL = (
    *("ppo", "--env", "CartPole-v1", "--total-frames", "64", "--num-envs", "2"),
    *("--steps-per-batch", "16", "--mini-batch-size", "16", "--num-epochs", "1"),
    *("--eval-interval", "32", "--eval-episodes", "1", "--no-progress-bar", "--lr", "0.01"),
)


def test_help_is_that_of_the_command(call):
    done = call("sweep", "ppo", "--help")
    assert done.code == 0
    assert "--trials" in done.out


def test_a_sweep_is_continued_by_the_same_command(call, tmp_path):
    words = ("sweep", *SMALL, "--trials=2", "--seeds", 1, "--run_dir", tmp_path, "--confirm", 5)
    done = call(*words, "--json")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert [one["trial"] for one in found["trials"]] == [0, 1]
    assert "lr" not in found["trials"][1]["settings"]
    assert found["command"] == f"hooktrainer train --config {tmp_path / 'best.yaml'}"
    assert "lr: 0.01\n" in (tmp_path / "best.yaml").read_text()
    again = call(*words)
    assert again.code == 0, again.err
    assert "2 of 2 trials are done" in again.err
    assert found["command"] in again.out
    assert found["verdict"] in again.out
    assert (tmp_path / "sweep.html").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--trials", 3), "name an algorithm first, one of a2c"),
        (("pppo", "--env", "CartPole-v1"), "algorithm='pppo' is unknown. Did you mean ppo"),
        ((*SMALL, "--trails", 3), "--trails"),
        ((*SMALL, "--trials", 0), "trials=0"),
        ((*SMALL, "--search", "lr"), "--search 'lr': give OPTION=VALUES"),
        ((*SMALL, "--search", "clip_epsilon={low: 2}"), "space: clip_epsilon: {'low': 2} is"),
        ((*SMALL, "--workers", 2), "workers=2 is not for a sweep"),
    ],
)
def test_mistakes_are_named(call, tmp_path, words, said):
    done = call("sweep", *words, "--run-dir", tmp_path / "sweep")
    assert done.code == 2
    assert said in done.err
    assert "Traceback" not in done.err


@pytest.mark.usefixtures("warm_python")
def test_without_optuna_it_says_what_to_install(tmp_path):
    """In a new process, where no module of sweeps was imported with Optuna."""
    code = "import sys; sys.modules['optuna'] = None; from hooktrainer.cli import main; "
    words = [sys.executable, "-c", f"{code}sys.exit(main())", "sweep", *SMALL, "--run-dir", "sweep"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: a sweep needs a package that cannot be imported")
    assert done.stderr.endswith("pip install 'hooktrainer[sweep]'\n")
    assert not (tmp_path / "sweep").exists()
