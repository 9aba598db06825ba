"""A run as the fields of an algorithm: tuned settings, the command line, its file, the recipes."""

from __future__ import annotations

import runpy
import sys
from dataclasses import MISSING, fields, replace
from fnmatch import fnmatchcase
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from marks import slow_except

from hooktrainer import ConfigError, algorithms
from hooktrainer.algorithms import DQN, PPO, SAC
from hooktrainer.algorithms.algorithm import parse
from hooktrainer.base.plain import to_yaml
from hooktrainer.collect.make_envs import agents_of, find_spec, is_several
from hooktrainer.log import read_csv
from hooktrainer.run.config import RunConfig

ROOT = Path(__file__).parents[2]
KINDS = [algorithms.get(name) for name in algorithms.names()]
WITH_ENVIRONMENTS = [kind for kind in KINDS if issubclass(kind, algorithms.EnvAlgorithm)]
CARTPOLE, PENDULUM = "CartPole-v1", "Pendulum-v1"


def described(kind: type[algorithms.Algorithm], **given: Any) -> Any:
    """A run of an algorithm, with what is needed."""
    known = {field.name for field in fields(kind)}
    needed = {"env": "My-v0", "task": "addition", "total_frames": 9, "dataset": "data"}
    needed |= {"teacher": "runs/teacher"} | given
    return kind(**{name: needed[name] for name in known & needed.keys()})


@pytest.mark.parametrize("kind", KINDS)
def test_its_configuration_makes_it_again(kind: type[algorithms.Algorithm], tmp_path: Path) -> None:
    run = described(kind, seed=3, num_cells=(5, 6), env_kwargs={"g": 9.81}, logger="csv", workers=2)
    assert "hooks" not in run.as_dict()
    (tmp_path / "config.yaml").write_text(to_yaml(run.as_dict()))
    assert parse(kind, ["--config", str(tmp_path), "--trust"]) == run


EXAMPLES = {
    "ALE/*": "ALE/Breakout-v5",
    "*NoFrameskip-v4": "BreakoutNoFrameskip-v4",
    "MiniGrid-Memory*": "MiniGrid-MemoryS7-v0",
    "MiniGrid-RedBlueDoors*": "MiniGrid-RedBlueDoors-6x6-v0",
    "MiniGrid-FourRooms*": "MiniGrid-FourRooms-v0",
    "MiniGrid-*": "MiniGrid-Empty-6x6-v0",
    "MinAtar/*": "MinAtar/Breakout-v1",
    "*MinAtar[/-]*": "MinAtar/Breakout-v1",
    "vmas/*": "vmas/balance",
}


@pytest.mark.parametrize("kind", WITH_ENVIRONMENTS)
def test_tuned_settings_are_fields_for_environments_that_exist(
    kind: type[algorithms.Algorithm],
) -> None:
    known = {field.name: field for field in fields(kind)}
    assert kind.tuned_for
    for ids, settings in kind.tuned_for.items():
        env = EXAMPLES.get(ids, ids.replace("[45]", "5"))
        found = agents_of(env).name if is_several(env) else find_spec(env).id
        assert found == env
        assert fnmatchcase(env, ids)
        assert settings.keys() <= known.keys()
        run = described(kind, env=env)
        assert all(
            getattr(run, name) == value
            for name, value in settings.items()
            if name != "total_frames"
        )
        general = described(kind, env=env, tuned=False)
        for name in settings.keys() - {"total_frames"}:
            assert getattr(general, name) == known[name].default is not MISSING


def test_tuned_settings_give_way_to_what_is_given() -> None:
    assert SAC(env="HalfCheetah-v5").total_frames == 1_000_000
    run = parse(SAC, ["--env", "HalfCheetah-v5", "--tau", "0.5"])
    assert (run.tau, run.actor_lr) == (0.5, 3e-4)
    assert parse(SAC, ["--env=HalfCheetah-v5", "--no-tuned", "--total-frames=9"]).actor_lr is None
    assert "tau" not in run.tuned_settings()
    with pytest.raises(TypeError, match="total_frames"):
        SAC(env="HalfCheetah-v5", tuned=False)


def test_tuned_settings_are_said(capsys: pytest.CaptureFixture[str]) -> None:
    given = {"total_frames": 128, "num_envs": 2, "eval_episodes": 0, "progress_bar": False}
    PPO(env=CARTPOLE, **given).train()
    assert capsys.readouterr().out.splitlines()[0] == (
        "tuned for CartPole-v1: eval_interval=2500, stop_at=475.0; --no-tuned leaves it out"
    )
    PPO(env=CARTPOLE, **given, tuned=False).train()
    assert "tuned" not in capsys.readouterr().out


FEW: dict[str, Any] = {"log_interval": 400, "eval_interval": 800, "eval_episodes": 2, "seed": 1}


@pytest.mark.usefixtures("warm_python")
@pytest.mark.learning
@pytest.mark.parametrize(
    ("recipe", "run"),
    slow_except(
        [
            ("ppo_cartpole", PPO(env=CARTPOLE, total_frames=3072, **FEW)),
            ("dqn_cartpole", DQN(env=CARTPOLE, total_frames=1600, **FEW)),
            ("sac_pendulum", SAC(env=PENDULUM, total_frames=960, **FEW)),
        ],
        2,
    ),
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_recipe_computes_what_its_algorithm_does(
    recipe: str, run: algorithms.Algorithm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quiet: dict[str, Any] = {"progress_bar": False, "logger": ("csv",)}
    replace(run, run_dir=tmp_path / "algorithm", **quiet).train()
    script = runpy.run_path(str(ROOT / f"recipes/{recipe}.py"))
    monkeypatch.setitem(sys.modules, script["__name__"], SimpleNamespace(**script))
    options = {**FEW, "total_frames": run.total_frames, **quiet}
    script["main"](script["Args"](run_dir=tmp_path / "recipe", **options))
    theirs, own = (
        {n: v for n, v in read_csv(tmp_path / name).items() if not n.startswith("time/")}
        for name in ("recipe", "algorithm")
    )
    assert theirs == own
    assert {"eval/return", "train/return"} <= own.keys()


def test_no_algorithm_gives_an_option_of_every_run_another_meaning() -> None:
    units = {"total_frames", "log_interval", "save_interval"}  # samples, of a data set
    shared = {field.name for field in fields(RunConfig)} - units
    for kind in {one for each in KINDS for one in each.__mro__} - {*RunConfig.__mro__}:
        assert not shared & vars(kind).get("__annotations__", {}).keys(), kind


@pytest.mark.parametrize(
    ("name", "given", "missing"),
    [
        ("dqn", {"num_quantiles": 8}, "quantiles"),
        ("dqn", {"quantiles": "qr", "v_min": -3.0}, "quantiles='c51'"),
        ("dqn", {"beta": 1.0}, "prioritized"),
        ("ppo", {"memory_size": 8}, "memory"),
        ("ppo", {"memory": "gru", "memory_length": 8}, "memory='transformer'"),
        ("ppo", {"eval_episodes": 0, "stop_at": 400.0}, "eval_episodes"),
        ("sac", {"num_atoms": 51}, "critics='categorical' or critics='xqc'"),
        (
            "sac",
            {"num_critics": 3},
            " or ".join(
                f"critics={one!r}"
                for one in ("tqc", "redq", "droq", "crossq", "categorical", "xqc")
            ),
        ),
        (
            "sac",
            {"critics": "crossq", "tau": 0.02},
            " or ".join(
                f"critics={one!r}" for one in ("twin", "tqc", "redq", "droq", "categorical", "xqc")
            ),
        ),
        ("sac", {"dataset_fraction": 0.2}, "dataset"),
        ("dqn", {"noisy": True, "eps_end": 0.2}, "noisy=False"),
        ("td3", {"her_goals": 2}, "her"),
        ("sac", {"fixed_alpha": True, "target_entropy": -2.0}, "fixed_alpha=False"),
        ("dsac", {"fixed_alpha": True, "target_entropy_ratio": 0.5}, "fixed_alpha=False"),
    ],
)
def test_a_field_that_is_given_in_vain_is_refused(
    name: str, given: dict[str, Any], missing: str
) -> None:
    env = "CartPole-v1" if name in ("dqn", "dsac") else "Pendulum-v1"
    (*_, field), value = given, [*given.values()][-1]
    with pytest.raises(ConfigError) as refusal:
        algorithms.get(name)(env=env, **given).trainer()
    assert str(refusal.value) == (
        f"{name}: {field}={value!r} has no effect without {missing}: set that, or leave {field} "
        "out."
    )


def test_tuned_fields_are_not_given() -> None:
    DQN(env="CartPole-v1", eval_episodes=0, progress_bar=False).trainer().shutdown()  # has v_min
    algorithms.Rainbow(env="CartPole-v1", v_min=-2.0, progress_bar=False).trainer().shutdown()
