"""``--hook FILE.py:Name``: hooks of one's own, from the command line."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from warm_python import run as run_python

from hooktrainer.algorithms import PPO
from hooktrainer.errors import ConfigError

_HOOK = """
from hooktrainer import Latest, TrainerHookBase

class Counts(TrainerHookBase):
    at = "post_steps_log"
    saved_attributes = ("count",)
    count = 0
    def __call__(self, batch):
        self.count += 1
        return {"own/count": Latest(self.count)}

class Watches(TrainerHookBase):
    at = "post_optim"
    def __call__(self):
        with open("seen.txt", "a") as file:
            print(self.trainer.optim_count, file=file)

class Needs(TrainerHookBase):
    def __init__(self, number):
        pass

Nothing = 7
"""
_SMALL = {"env": "CartPole-v1", "num_envs": 2, "steps_per_batch": 16, "total_frames": 128}


def hooktrainer(*words: str):
    return run_python("-m", "hooktrainer", *words, where=Path.cwd())


@pytest.fixture
def words(tmp_path, monkeypatch) -> list[str]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    Path("mine.py").write_text(_HOOK)
    words = ["train", "ppo", "--no-tuned", "--save-interval", "32", "--log-interval", "32"]
    options = {**_SMALL, "mini_batch_size": 16, "eval_interval": 10**6}
    for name, value in options.items():
        words += ["--" + name.replace("_", "-"), str(value)]
    return [*words, "--run-dir", "run"]


def test_a_hook_of_a_file_is_registered_saved_and_resumed(words):
    assert hooktrainer(*words, "--hook", "mine.py:Counts").returncode == 0
    assert json.loads(Path("run/run.json").read_text())["metrics"]["own/count"] == 4
    again = ["--hook", "mine.py:Counts", "--resume", "latest", "--total-frames", "192"]
    assert hooktrainer(*words, *again).returncode == 0
    assert json.loads(Path("run/run.json").read_text())["metrics"]["own/count"] == 6


def test_a_resumed_run_has_the_hooks_that_it_had(words):
    assert hooktrainer(*words, "--hook", "mine.py:Watches").returncode == 0
    longer = ["--resume", "latest", "--total-frames", "192"]
    refused = hooktrainer(*words, *longer)
    assert refused.returncode == 2
    assert "hook: ['mine.py:Watches'] before, [] now" in refused.stderr
    assert hooktrainer(*words, *longer, "--allow-change", "hook").returncode == 0


def test_a_hook_watches_a_replay(words):
    assert hooktrainer(*words).returncode == 0
    extra = ["--", "--hook", "mine.py:Watches"]
    assert hooktrainer("rewind", "run@64", "--to", "50", *extra).returncode == 0
    seen = [int(line) for line in Path("seen.txt").read_text().split()]
    assert seen == list(range(41, 51))  # the checkpoint is of step 40


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("mine.py", "name an object as path/to/file.py:Name"),
        ("nowhere.py:Counts", "nowhere.py."),
        ("nowhere:Counts", "No module named 'nowhere'"),
        ("mine.py:Wrong", "mine.py:Wrong: there is no Wrong in it"),
        ("mine.py:Watch", "there is no Watch in it. Did you mean Watches"),
        ("mine.py:Nothing", "7 is no class derived from TrainerHookBase: derive one"),
        ("mine.py:Needs", "made without arguments"),
    ],
)
def test_what_is_no_hook_is_said(words, name, message):
    with pytest.raises(ConfigError, match=message):
        PPO(**_SMALL, hook=name, run_dir="run").train()


def test_a_file_with_the_name_of_another_module_is_refused(words):
    Path("json.py").write_text(_HOOK)
    with pytest.raises(ConfigError, match=r"a module json is imported from .* another name"):
        PPO(**_SMALL, hook="json.py:Watches").train(keep=False)
    assert sys.modules["json"] is json


def test_a_configuration_that_names_a_hook_needs_trust(words):
    assert hooktrainer(*words, "--hook", "mine.py:Counts").returncode == 0
    again = ["train", "ppo", "--config", "run/config.yaml", "--run-dir", "again"]
    refused = hooktrainer(*again)
    assert (refused.returncode, "needs the hooks" in refused.stderr) == (2, True)
    assert not Path("again").exists()
    assert hooktrainer(*again, "--trust").returncode == 0
