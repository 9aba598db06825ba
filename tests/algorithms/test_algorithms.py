"""Every algorithm builds a trainer, trains, can be taken apart, saves and resumes."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
import torch
import yaml
from any_agents import Match
from gymnasium import spaces
from marks import slow_except
from outcomes import same
from tensordict import TensorDict

from hooktrainer import Trainer, TrainerHookBase, VectorCollector, algorithms
from hooktrainer.algorithms import TextAlgorithm
from hooktrainer.algorithms.offline import Offline
from hooktrainer.data import Dataset
from hooktrainer.errors import ConfigError
from hooktrainer.log import read_csv
from hooktrainer.networks import DeterministicPolicy, mlp
from hooktrainer.sequences import text_task
from hooktrainer.store import CheckpointManager

BOX = spaces.Box(-1.0, 1.0, (1,))
CARTPOLE, PENDULUM = "CartPole-v1", "Pendulum-v1"
SMALL = {"num_cells": (8,), "progress_bar": False, "eval_episodes": 1, "tuned": False}
REPLAY = {"init_random_frames": 64, "batch_size": 16, "buffer_size": 1000}
# What makes one small, of the fields that it has.
FIELDS = {
    **{**SMALL, **REPLAY, "num_random": 2, "num_rollouts": 50, "fit_steps": 2},
    **{"mini_batch_size": 32, "num_epochs": 2, "optim_steps_per_batch": 4},
}
SMALL_WORLD = {
    **{"recurrent_size": 8, "latents": 2, "classes": 4, "num_bins": 7, "horizon": 3},
    **{"sequence_length": 8, "optim_steps_per_batch": 1},
}
ALGORITHMS = algorithms.names()
TEXT = [name for name in ALGORITHMS if issubclass(algorithms.get(name), TextAlgorithm)]
OFFLINE = [name for name in ALGORITHMS if issubclass(algorithms.get(name), Offline)]
AGENTS = [name for name in ALGORITHMS if hasattr(algorithms.get(name), "share_parameters")]
COLLECTING = [name for name in ALGORITHMS if name not in {*OFFLINE, *AGENTS, *TEXT}]
ANNEALING = [name for name in ALGORITHMS if hasattr(algorithms.get(name), "anneal_lr")]


def make_dataset(number: int = 300, observations: int = 3) -> Dataset:
    torch.manual_seed(0)
    following = {
        "observation": torch.randn(number, observations),
        "reward": torch.randn(number, 1),
        "terminated": torch.zeros(number, 1, dtype=torch.bool),
        "truncated": torch.arange(number).remainder(100).eq(99).unsqueeze(-1),
    }
    content = {
        "observation": torch.randn(number, observations),
        "action": torch.rand(number, 1) * 4 - 2,
        "next": TensorDict(following, batch_size=[number]),
    }
    return Dataset(TensorDict(content, batch_size=[number]), [-300.0, -500.0], PENDULUM)


def make_teacher() -> DeterministicPolicy:
    torch.manual_seed(1)
    return DeterministicPolicy(mlp(3, 1, (8,)), 1, -2.0, 2.0)


def is_continuous(name: str) -> bool:
    return name in OFFLINE or algorithms.get(name).actions in ("continuous", "bounded")


def ones(completions: list[str]) -> list[int]:
    return [text.count("1") for text in completions]


ONES = replace(text_task("addition"), rewards=ones)  # that a random model can learn from


def env_for(name: str) -> Any:
    """An environment with the actions of an algorithm, and as many agents."""
    continuous = is_continuous(name)
    if name in AGENTS:
        return partial(Match, continuous=True) if continuous else Match
    return PENDULUM if continuous else CARTPOLE


def make(name: str, total_frames: int = 200, **options: object) -> Trainer:
    kind = algorithms.get(name)
    small = {field.name: FIELDS[field.name] for field in fields(kind) if field.name in FIELDS}
    if name in TEXT:
        small |= {"task": ONES, "width": 8, "depth": 1, "heads": 1, "context_length": 16}
        small |= (
            {"prompts_per_batch": 5, "carry_over": 2, "num_epochs": 1} if name == "grpo" else {}
        )
        return kind(**{**small, "total_frames": total_frames, **options}).trainer()
    if name in ANNEALING:
        small |= {"num_envs": 4, "steps_per_batch": 16}
    if name == "mbpo":
        small["optim_steps_per_batch"] = 2
    if name == "dreamer":
        small |= SMALL_WORLD
    if name in OFFLINE:
        small["dataset"] = make_dataset()
        if run_dir := options.get("run_dir"):  # whose configuration would hold every number of it
            small["dataset"].save(path := Path(run_dir).parent / "data", overwrite=True)
            small["dataset"] = path
    if name == "dagger":
        small |= {"teacher": make_teacher(), "steps_per_batch": 10, "optim_steps_per_batch": 2}
    env = env_for(name)
    if env == PENDULUM and "env" not in options:
        small["env_kwargs"] = {"max_episode_steps": 50}
    return kind(**{"env": env, **small, "total_frames": total_frames, **options}).trainer()


# Of runs of other lengths, the learning rates differ: see below.
FIXED = {name: {"anneal_lr": False} for name in ANNEALING}
SAVED = {"log_interval": 1, "save_interval": 50, "logger": "csv"}
FEW = {**SAVED, "num_envs": 4, "steps_per_batch": 10, "anneal_lr": True}


@pytest.mark.parametrize(
    "name", slow_except(ALGORITHMS, "ppo", "dqn", "sac", "qmix", "td3bc", "grpo")
)
def test_a_run_that_goes_on_longer_is_the_longer_run(name, tmp_path):
    saved = {**SAVED, **FIXED.get(name, {})}
    whole = make(name, 320, run_dir=tmp_path / "whole", **saved)
    before = [parameter.clone() for parameter in whole.loss_module.parameters()]
    whole.train()
    assert not same(before, list(whole.loss_module.parameters()))
    assert "eval/return" in whole.metrics.reported
    assert name not in OFFLINE or whole.metrics.reported["data/return"] == -400.0
    make(name, 160, run_dir=tmp_path / "run", **saved).train()
    resumed = make(name, 320, run_dir=tmp_path / "run", resume="latest", **saved)
    assert 160 <= resumed.collected_frames < 320
    if name in COLLECTING:
        running = resumed.source.state_dict()["rollout"]["running"]
        assert running["step_counts"].any()  # it goes on within episodes
    resumed.train()
    assert differing(resumed, whole) == []
    run = json.loads((tmp_path / "run/run.json").read_text())
    assert run["status"] == "finished"
    assert "eval/return" in run["metrics"]
    assert (tmp_path / "run/config.yaml").read_text().count(f"name: {name}\n") == 1


class Die(TrainerHookBase):
    """Ends the process's part of a run as a kill does, after so many frames."""

    at = "pre_optim_steps"
    is_saved = False

    def __init__(self, frames: int) -> None:
        self.frames = frames

    def __call__(self) -> None:
        if self.trainer.collected_frames >= self.frames:
            raise KeyboardInterrupt


def assert_resumed_is_whole(
    make: Callable[..., Trainer], path: Path, total_frames: int, kill_at: int
) -> tuple[Trainer, Trainer]:
    """A run that is killed and resumed is the one that was not; returns whole and resumed."""
    whole = make(total_frames=total_frames, run_dir=path / "whole")
    whole.train()
    with pytest.raises(KeyboardInterrupt):
        make(total_frames=total_frames, run_dir=path / "run", hooks=[Die(kill_at)]).train()
    resumed = make(total_frames=total_frames, run_dir=path / "run", resume="latest")
    assert 0 < resumed.collected_frames < total_frames
    resumed.train()
    assert resumed.optim_count == whole.optim_count > 0
    assert differing(resumed, whole) == []
    return whole, resumed


def differing(one: Trainer, other: Trainer) -> list[str]:
    """What of two trainers' networks and collectors differs."""
    ours, theirs = (
        {**trainer.loss_module.state_dict(), "collector": trainer.source.state_dict()}
        for trainer in (one, other)
    )
    return [key for key in ours if not same(ours[key], theirs[key])]


def rates(run_dir) -> dict[int, float]:
    """The learning rate that each batch was trained with, by the frames at its end."""
    return dict(read_csv(run_dir)["train/lr"])


# The others are built as PPO is.
@pytest.mark.parametrize("name", slow_except(["ppo", "pqn", "sac"], "ppo"))
def test_an_annealed_run_that_goes_on_longer_learns_on(name, tmp_path, capsys):
    make(name, 400, run_dir=tmp_path / "whole", **FEW).train()
    first = make(name, 200, run_dir=tmp_path / "run", **FEW)
    first.train()
    annealed = rates(tmp_path / "run")
    capsys.readouterr()
    # Killed and resumed, the longer run is still one.
    with pytest.raises(KeyboardInterrupt):
        make(name, 400, run_dir=tmp_path / "run", resume="latest", **FEW, hooks=[Die(350)]).train()
    assert "total_frames 200 → 400: train/lr 0 → 0.00" in capsys.readouterr().out
    longer = make(name, 400, run_dir=tmp_path / "run", resume="latest", **FEW)
    longer.train()
    assert "train/lr" not in capsys.readouterr().out  # nothing changed this time

    of_whole = rates(tmp_path / "whole")
    after = {frames: rate for frames, rate in rates(tmp_path / "run").items() if frames > 200}
    assert after == {frames: rate for frames, rate in of_whole.items() if frames > 200}
    assert len(after) == 5
    assert min(after.values()) > 0
    assert {**annealed, **after} == rates(tmp_path / "run")
    weights = [key for key in differing(longer, first) if key.endswith("weight")]
    # Of all networks, both layers'.
    assert len(weights) == {"ppo": 4, "pqn": 3, "sac": 10}[name]


def test_a_collector_of_ones_own_is_given_what_ours_would_be(logger):
    calls, made = [], []

    def make_collector(**arguments):
        calls.append(arguments)
        made.append(VectorCollector(**arguments, vectorization_mode="sync"))
        return iter(made[0])  # anything that a trainer takes

    trainer = make("dqn", collector=make_collector, loggers=[logger])
    trainer.train()
    assert sorted(calls[0]) == [
        *["env", "env_kwargs", "frames_per_batch", "init_random_frames", "num_envs", "policy"]
    ]
    assert trainer.collector is not made[0]
    assert trainer.collected_frames == made[0].frames >= 200
    assert "eval/return" in trainer.metrics.reported


def test_a_run_of_random_actions_alone_warns(caplog):
    for random in (100, 101):
        make("dqn", total_frames=100, init_random_frames=random).shutdown()
    (said,) = caplog.messages
    assert said == "init_random_frames=101 of total_frames=100: no optimizer step is made."


def test_a_collector_where_nothing_is_collected_is_refused():
    with pytest.raises(ConfigError, match="collects nothing: leave that out"):
        make(OFFLINE[0], collector=VectorCollector)


def episodes_saved(run) -> list[int]:
    """The indices of the running episodes in the latest checkpoint."""
    with CheckpointManager(run / "checkpoints") as checkpoints:
        state = checkpoints.load("latest")[1]["components"]["collector"]
    return state.get("collector", state)["episodes"]


@pytest.mark.parametrize(
    ("name", "number", "overlap"),
    slow_except([("ppo", 2, 1), ("dqn", 6, 0), ("ppo", 6, 0), ("dqn", 2, 1)], 0, 1),
)
def test_a_run_goes_on_with_another_number_of_environments(name, number, overlap, tmp_path, capsys):
    run = {"run_dir": tmp_path / "run", "overlap": overlap, "num_envs": 4}
    make(name, total_frames=256, **run).train()
    begun = episodes_saved(tmp_path / "run")
    run |= {"resume": "latest", "num_envs": number}
    with pytest.raises(ConfigError, match="num_envs: 4 before"):
        make(name, total_frames=512, **run)
    after = make(name, total_frames=512, allow_change=["num_envs"], **run)
    said = f"num_envs is {number} here and 4 in the state: the environments begin new episodes"
    assert said in capsys.readouterr().out
    after.train()
    assert after.collected_frames >= 512
    ended = episodes_saved(tmp_path / "run")
    assert all(new > old for new, old in zip(ended, [*begun, -1, -1], strict=False))
    assert len(ended) == number
    assert "train/return" in after.metrics.reported


def test_without_a_directory_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make("sac").train()
    assert list(tmp_path.iterdir()) == []
    for option in ({"logger": "csv"}, {"resume": "latest"}):
        with pytest.raises(ConfigError, match="needs a run_dir"):
            make("sac", **option)


def test_what_an_algorithm_was_called_with_is_recorded(tmp_path):
    make("mbpo", run_dir=tmp_path / "run", real_ratio=0.25).train()
    recorded = yaml.safe_load((tmp_path / "run/config.yaml").read_text())
    of_python_alone = {"collector", "hooks", "loggers"}
    options = {field.name for field in fields(algorithms.MBPO)} - of_python_alone
    assert recorded.keys() == options | {"name"}
    assert (recorded["name"], recorded["real_ratio"], recorded["env"]) == ("mbpo", 0.25, PENDULUM)


def test_a_function_named_in_a_file_ends_the_episodes_that_a_model_imagines(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    file = tmp_path / "fallen_pendulum.py"
    file.write_text("limit = 0.0\ndef fallen(before, after):\n    return after[:, :1] < limit\n")
    trainer = make("mbpo", terminates=f"{file}:fallen", run_dir=tmp_path / "run")
    trainer.train()
    imagined = trainer.registry.modules["model_rollouts"].model_buffer.sample(500)["next"]
    assert imagined["terminated"].any()
    torch.testing.assert_close(imagined["terminated"], imagined["observation"][:, :1] < 0)
    make(
        "mbpo", 300, terminates=f"{file}:fallen", run_dir=tmp_path / "run", resume="latest"
    ).train()
    with pytest.raises(ConfigError, match=r"mbpo: terminates=0\.0 is not a function"):
        make("mbpo", terminates=f"{file}:limit")


@pytest.mark.parametrize("name", ["ppo", "a2c"])
def test_advantages_are_normalized_unless_that_is_switched_off(name):
    assert make(name).loss_module.normalize_advantage
    trainer = make(name, normalize_advantage=False)
    assert not trainer.loss_module.normalize_advantage
    trainer.train()


def test_clipped_values_and_ratios_are_options_of_ppo():
    plain, clipped = make("ppo"), make("ppo", clip_value=0.1, dual_clip=3.0)
    assert plain.loss_module.clip_value is plain.loss_module.dual_clip is None
    assert clipped.loss_module.clip_value == pytest.approx(0.1)
    assert clipped.loss_module.dual_clip == 3.0
    clipped.train()
    assert "train/value_clip_fraction" in clipped.metrics.all_latest()


def test_an_environment_that_is_built_already_is_refused():
    for env in (gym.make(PENDULUM), gym.make_vec(PENDULUM, 2)):
        with pytest.raises(ConfigError, match=r"sac: env=.* built already"):
            algorithms.SAC(env=env, total_frames=100).trainer()
        env.close()


def test_an_unknown_name_brings_the_near_ones():
    with pytest.raises(ConfigError, match="Did you mean sac"):
        algorithms.get("sca")
    with pytest.raises(ConfigError, match="Pendulum-v1"):
        algorithms.SAC(env="Pendulm-v1", total_frames=100).trainer()
    with pytest.raises(TypeError, match=r"SAC has no argument 'lrr'. Did you mean lr"):
        algorithms.SAC(env=PENDULUM, total_frames=100, lrr=1.0)
    with pytest.raises(TypeError, match=r"PPO has no argument 'n_steps'. Here it is steps_per_ba"):
        algorithms.PPO(env=CARTPOLE, total_frames=100, n_steps=1)
    with pytest.raises(TypeError, match=r"DQN has no argument 'clip_range'. It takes: "):
        algorithms.DQN(env=CARTPOLE, total_frames=100, clip_range=0.1)
    with pytest.raises(ConfigError, match="Did you mean evaluate"):
        make("sac").remove_hook("evalute")
    assert algorithms.get("sac") is algorithms.get("SAC") is algorithms.SAC


def test_a_data_set_of_another_environment_is_refused():
    with pytest.raises(ConfigError, match=r"observations of shape \[5\].*Pendulum-v1 of \[3\]"):
        algorithms.IQL(env=PENDULUM, dataset=make_dataset(observations=5)).trainer()


def test_unbounded_policies_are_clipped_by_the_environment():
    taken = []

    class Recorded(gym.Wrapper):
        def step(self, action):
            taken.append(float(action[0]))
            return super().step(action)

    def make_env():
        return Recorded(gym.make(PENDULUM))

    small = {**SMALL, "num_envs": 2, "steps_per_batch": 200}
    for env in (make_env, [make_env] * 2):
        algorithms.REINFORCE(env=env, total_frames=400, **small).train()
    assert max(taken) == 2.0
    assert min(taken) == -2.0


def test_loggers_of_ones_own_come_beside_those_of_the_run(tmp_path, make_logger):
    mine = [make_logger(), make_logger()]
    make("sac", run_dir=tmp_path / "run", loggers=mine[:1], logger=["csv", mine[1]]).train()
    assert all(logger.rows and logger.closed == 1 for logger in mine)
    assert (tmp_path / "run/metrics.csv").stat().st_size


def test_omegaconfs_lists_and_dicts_are_pythons():
    omegaconf = pytest.importorskip("omegaconf")
    given = {"env": PENDULUM, "total_frames": 9, "num_cells": [8, 4], "env_kwargs": {"g": [9.8]}}
    run = algorithms.SAC(**omegaconf.OmegaConf.create(given))
    assert run == algorithms.SAC(**given)
    assert run.num_cells == (8, 4)
    assert type(run.env_kwargs["g"]) is list


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("num_envs", 0, "ppo: num_envs=0: pass a positive integer"),
        ("total_frames", 5e4, "ppo: total_frames=50000.0: pass a positive integer"),
        ("seed", -1, "ppo: seed=-1: pass an integer of 0 or more"),
        ("eval_interval", None, "ppo: eval_interval=None: pass a value, or leave it out"),
        ("lr", float("nan"), "ppo: lr=nan: pass a finite number of 0 or more"),
        ("gamma", 1.5, "ppo: gamma=1.5: pass a number between 0 and 1"),
        ("device", "cudaa", "device='cudaa' is not available: Expected one of cpu, cuda"),
        ("device", "cuda:99", "device='cuda:99' is not available: "),
    ],
)
def test_a_number_that_cannot_work_is_named_at_once(name, value, message, tmp_path):
    arguments = {"total_frames": 100, name: value}
    with pytest.raises(ConfigError, match=message):
        algorithms.PPO(env=CARTPOLE, run_dir=tmp_path / "run", **arguments).trainer()
    assert not (tmp_path / "run").exists()
