"""The recipe for mjlab, with a simulator of a few lines in mjlab's place."""

from __future__ import annotations

import importlib.util
import json
import math
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch
from tensordict import TensorDict

from hooktrainer.errors import MissingPackageError
from hooktrainer.run import launch
from hooktrainer.store import list_checkpoints

RECIPE = Path(__file__).parents[2] / "recipes" / "ppo_mjlab_cartpole.py"


class Env:
    """Pushes a mass to where it should be; the policy sees it with noise."""

    def __init__(self, cfg, device):
        self.num_envs, self.device = cfg.scene.num_envs, device
        self.generator = torch.Generator().manual_seed(cfg.seed)


class Wrapper:
    num_actions, max_episode_length = 1, 20

    def __init__(self, env):
        self.env = env
        self.num_envs, self.device = env.num_envs, env.device
        self.episode_length_buf = torch.zeros(env.num_envs, dtype=torch.int64)
        self.at = torch.zeros(env.num_envs, 2)

    def seed(self, seed=-1):
        self.env.generator.manual_seed(seed)

    def get_observations(self):
        noise = 0.01 * torch.randn(self.at.shape, generator=self.env.generator)
        groups = {"actor": self.at + noise, "critic": self.at.clone()}
        return TensorDict(groups, [self.num_envs])

    def reset(self):
        self.at = torch.rand(self.num_envs, 2, generator=self.env.generator) - 0.5
        self.episode_length_buf[:] = 0
        return self.get_observations(), {}

    def step(self, actions):
        self.at[:, 1] += 0.1 * actions[:, 0].clamp(-1, 1)
        self.at[:, 0] += 0.1 * self.at[:, 1]
        self.episode_length_buf += 1
        over = self.episode_length_buf >= self.max_episode_length
        self.at[over] = 0.3
        self.episode_length_buf[over] = 0
        reward = -self.at[:, 0].square()
        return self.get_observations(), reward, over.long(), {"time_outs": over}


def load_env_cfg(task):
    assert task == "Mjlab-Cartpole-Balance"
    return SimpleNamespace(scene=SimpleNamespace(num_envs=1), seed=None)


@pytest.fixture
def recipe(monkeypatch):
    spec = importlib.util.spec_from_file_location(RECIPE.stem, RECIPE)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, RECIPE.stem, module)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def mjlab(monkeypatch):
    holds = {
        "mjlab": {},
        "mjlab.tasks": {},
        "mjlab.envs": {"ManagerBasedRlEnv": Env},
        "mjlab.rl": {"RslRlVecEnvWrapper": Wrapper},
        "mjlab.tasks.registry": {"load_env_cfg": load_env_cfg},
    }
    for name, content in holds.items():
        module = ModuleType(name)
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, name, module)


def train(recipe, monkeypatch, *words):
    small = ["--num-envs", "4", "--steps-per-batch", "16", "--run-dir", "run", "--no-progress-bar"]
    monkeypatch.setattr(sys, "argv", [str(RECIPE), *small, *words])
    with pytest.warns(UserWarning, match="cannot restore the running episodes"):
        launch(recipe.main)
    return json.loads(Path("run/run.json").read_text())


def test_it_trains_and_goes_on(recipe, mjlab, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first = train(recipe, monkeypatch, "--total-frames", "256")
    assert (first["status"], first["frames"]) == ("finished", 256)
    second = train(recipe, monkeypatch, "--total-frames", "512", "--resume", "latest")
    assert (second["status"], second["frames"]) == ("finished", 512)
    metrics = second["metrics"]
    assert all(math.isfinite(metrics[name]) for name in ("loss/objective", "train/kl", "train/lr"))
    assert metrics["train/lr"] != 1e-3  # it has followed the divergence
    assert list_checkpoints(Path("run/checkpoints")).checkpoints[-1].manifest.frames == 512


def test_without_mjlab_it_says_what_to_install(recipe, monkeypatch):
    monkeypatch.setitem(sys.modules, "mjlab", None)
    with pytest.raises(MissingPackageError, match="pip install mjlab"):
        recipe.simulator(recipe.Args())
