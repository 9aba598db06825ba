"""Environments by the name of a file or module of the user's: ``FILE.py:NAME``, ``MODULE:NAME``."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from hooktrainer.algorithms import IPPO, PPO
from hooktrainer.errors import ConfigError, NotFoundError

SOURCE = """
import gymnasium as gym
import numpy as np
from hooktrainer.collect.worlds import FunctionalWorld


class Walk(gym.Env):
    observation_space = gym.spaces.Box(0, 9, (1,))
    action_space = gym.spaces.Discrete(2)

    def __init__(self, steps=4):
        self.steps = steps

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.count += 1
        return np.zeros(1, np.float32), 1.0, self.count == self.steps, False, {}


def longer():
    return Walk(8)


def late():
    from neighbour import steps

    return Walk(steps)


class World(FunctionalWorld):
    name = "world"
    observation_space = gym.spaces.Box(-9.0, 9.0, (2,))
    action_space = gym.spaces.Discrete(2)
    max_episode_steps = 5
    num_uniforms = 2

    def initial(self, uniform):
        return uniform

    def transition(self, state, action):
        return state, action.float(), state[:, 0] > 9

    def observe(self, state):
        return {"observation": state}


class Pair:
    possible_agents = ["left", "right"]
    agents = []

    def observation_space(self, agent):
        return gym.spaces.Box(0, 9, (1,))

    def action_space(self, agent):
        return gym.spaces.Discrete(2)

    def close(self):
        pass

    def _all(self, value):
        return {agent: value for agent in self.possible_agents}

    def reset(self, seed=None, options=None):
        self.agents, self.count = list(self.possible_agents), 0
        return self._all(np.zeros(1, np.float32)), self._all({})

    def step(self, actions):
        self.count += 1
        ends = self.count == 7
        self.agents = [] if ends else self.agents
        observations = self._all(np.zeros(1, np.float32))
        return observations, self._all(1.0), self._all(ends), self._all(False), self._all({})


gym.register(STEM + "/Six-v0", entry_point=STEM + ":Walk", kwargs={"steps": 6})
number = 7
some = [Walk]
"""
SMALL: dict[str, Any] = {
    **{"total_frames": 64, "num_envs": 2, "steps_per_batch": 16, "num_cells": (8,)},
    **{"progress_bar": False, "eval_episodes": 2, "tuned": False},
}
_numbers = itertools.count()


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of environments, with a name of its own."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    path = tmp_path / f"walks{next(_numbers)}.py"
    path.write_text(SOURCE.replace("STEM", repr(path.stem)))
    return path


@pytest.mark.parametrize(("name", "length"), [("Walk", 4), ("longer", 8), ("{}/Six-v0", 6)])
def test_a_class_a_function_or_an_id_of_a_file(file: Path, name: str, length: int) -> None:
    trainer = PPO(env=f"{file}:{name.format(file.stem)}", **SMALL).train()
    assert trainer.metrics.reported["train/length"] == length
    assert trainer.metrics.reported["eval/length"] == length


@pytest.mark.parametrize(("kind", "name", "length"), [(PPO, "World", 5), (IPPO, "Pair", 7)])
def test_a_tensor_environment_or_one_of_several_agents(
    file: Path, kind: Any, name: str, length: int
) -> None:
    reported = kind(env=f"{file}:{name}", **SMALL).train().metrics.reported
    assert reported["train/length"] == reported["eval/length"] == length


def test_a_class_of_a_module_in_the_current_directory(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(file.parent)
    run = PPO(env=f"{file.stem}:Walk", env_kwargs={"steps": 5}, **SMALL)
    assert run.train().metrics.reported["eval/length"] == 5


def test_worker_processes_make_it_too(file: Path) -> None:
    trainer = PPO(env=f"{file}:longer", workers=2, **SMALL).train()
    assert trainer.metrics.reported["train/length"] == 8


@pytest.mark.usefixtures("warm_python")
@pytest.mark.parametrize("name", ["Walk", "late"])
def test_its_saved_policy_is_played_elsewhere(file: Path, tmp_path: Path, name: str) -> None:
    file.with_name("neighbour.py").write_text("steps = 5\n")
    run = PPO(env=f"{file}:{name}", run_dir=tmp_path / "run", snapshots=2, **SMALL)
    run.train()
    play = [sys.executable, "-m", "hooktrainer", "play", str(tmp_path / "run")]
    ended = subprocess.run([*play, "--trust"], cwd="/", capture_output=True, text=True, check=False)
    assert "the same as recorded" in ended.stdout, ended.stderr
    refused = subprocess.run(play, cwd="/", capture_output=True, text=True, check=False)
    assert "--trust" in refused.stderr


def test_a_resumed_run_makes_it_again(file: Path, tmp_path: Path) -> None:
    fields = {**SMALL, "env": f"{file}:Walk", "save_interval": 32}
    whole = PPO(**fields, run_dir=tmp_path / "whole").train()
    PPO(**fields | {"total_frames": 32}, run_dir=tmp_path / "run").train()
    again = PPO(**fields, run_dir=tmp_path / "run", resume="latest").train()
    theirs, own = whole.loss_module.state_dict(), again.loss_module.state_dict()
    torch.testing.assert_close(theirs, own, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Wolk", "there is no 'Wolk' in it. Did you mean Walk"),
        ("", "there is no '' in it"),
        ("number", ":number is 7: name a class, or a function"),
        ("some", r":some is \[<class .*\]: name a class, or a function"),
    ],
)
def test_a_name_that_is_not_there_or_makes_nothing_is_refused(
    file: Path, name: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        PPO(env=f"{file}:{name}", **SMALL).train()


def test_a_file_that_is_not_there_or_has_the_name_of_another_module_is_refused(
    file: Path, tmp_path: Path
) -> None:
    with pytest.raises(NotFoundError, match=r"there is no file /.*nowhere"):
        PPO(env="nowhere.py:Walk", **SMALL).train()
    (twin := tmp_path / "random.py").write_text(file.read_text())
    with pytest.raises(ConfigError, match="a module random is imported from"):
        PPO(env=f"{twin}:Walk", **SMALL).train()


@pytest.mark.parametrize("name", ["__init__.py", "walks.old.py"])
def test_a_file_that_python_imports_by_no_name_of_its_own_is_refused(file: Path, name: str) -> None:
    moved = file.rename(file.parent / name)
    with pytest.raises(ConfigError, match=r"Python imports no module .*: give the file another"):
        PPO(env=f"{moved}:Walk", **SMALL).train()


def test_a_file_with_relative_imports_is_named_as_a_module(file: Path) -> None:
    file.write_text("from .neighbour import Walk\n")
    with pytest.raises(ConfigError, match=f"name it as a module, such as package.{file.stem}:NAME"):
        PPO(env=f"{file}:Walk", **SMALL).train()


def test_a_link_of_another_name_is_its_file(file: Path, tmp_path: Path) -> None:
    (link := tmp_path / "latest.py").symlink_to(file)
    assert PPO(env=f"{link}:Walk", **SMALL).train().metrics.reported["train/length"] == 4


def test_what_it_raises_is_shown(file: Path) -> None:
    file.write_text("raise RuntimeError('no simulator here')\n")
    with pytest.raises(RuntimeError, match="no simulator here"):
        PPO(env=f"{file}:Walk", **SMALL).train()
