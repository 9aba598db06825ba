"""Opening a foreign policy runs nothing that its file names, unless the user trusts it."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import gymnasium as gym
import pytest
from policy_envs import Toy
from sealed import change_facts, read_facts

from hooktrainer import ConfigError, find_policy, load_policy
from hooktrainer.cli import main
from hooktrainer.networks import CategoricalPolicy, mlp
from hooktrainer.policies import Environment, evaluate_policy, evaluate_run


def policy(actions: int = 3) -> CategoricalPolicy:
    return CategoricalPolicy(mlp(4, actions, (8,)))


def of_cartpole() -> CategoricalPolicy:
    return policy(2)


EMPTY = Environment().encode()
CLIP_REWARD = "gymnasium.wrappers.transform_reward:ClipReward"
FROZEN = {"id": "FrozenLake-v1", "kwargs": {"is_slippery": False}}


@pytest.fixture
def planted(tmp_path, monkeypatch):
    """A module that leaves a mark when it is imported, and where a command would leave one."""
    mark = tmp_path / "mark"
    (tmp_path / "planted_module.py").write_text(
        f"import os\nos.mkdir({str(mark)!r})\ndef make(): os.mkdir({str(mark)!r})\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    yield mark
    sys.modules.pop("planted_module", None)


def harmful(mark: Path) -> dict[str, dict[str, object]]:
    """Environments by what they would do, each with what the refusal names."""
    command = {"command": f"mkdir {mark}"}
    file = str(mark.parent / "planted_module.py")
    known = {"id": "CartPole-v1"}
    return {
        "system of the module os": {
            "id": "x",
            "factory": "system",
            "module": "os",
            "kwargs": command,
            "registered": {"kwargs": command},
        },
        "make of the module planted_module": {"factory": "make", "module": "planted_module"},
        f"make of the script {file}": {"factory": "make", "module": "__main__", "file": file},
        f"make of the module gone in {file}": {"factory": "make", "module": "gone", "file": file},
        "the module planted_module, which its id": {"id": "planted_module:CartPole-v1"},
        "the module planted_module": {"id": "planted_module:Unknown-v0"},
        "the wrapper planted_module:make": known | {"wrappers": [["planted_module:make", {}]]},
        "the wrapper planted_module:ClipReward": known
        | {"wrappers": [["planted_module:ClipReward", {}]]},
        "the wrapper gymnasium.wrappers.rendering:RecordVideo": known
        | {"wrappers": [["gymnasium.wrappers.rendering:RecordVideo", {"video_folder": str(mark)}]]},
    }


@pytest.mark.parametrize("number", range(9))
def test_nothing_that_the_file_names_is_run(number, copy, planted, capsys):
    named, env = list(harmful(planted).items())[number]
    path = copy(of_cartpole, "CartPole-v1")
    change_facts(path, env=EMPTY | env)
    run = path.parents[1]
    refused = rf"needs {named}.*--trust \(in Python: trust=True\)"
    with pytest.raises(ConfigError, match=refused):
        load_policy(path).make_env()
    with pytest.raises(ConfigError, match=refused):
        evaluate_policy(path, episodes=1)
    ((_, error),) = evaluate_run(run, episodes=1)
    assert named in str(error)
    film = str(run.parent / "film.webp")
    for words in (
        ["play", run],
        ["gallery", run],
        ["render", run, "-o", film],
        ["policies", "evaluate", run],
    ):
        capsys.readouterr()
        assert main(list(map(str, words))) in (1, 2)
        err = capsys.readouterr().err
        assert named in err
        assert "--trust" in err
    for words in (["policies", "list", run], ["policies", "show", run]):
        assert main(list(map(str, words))) == 0
    assert named in capsys.readouterr().out.replace("\n", "")
    assert not planted.exists()
    assert "planted_module" not in sys.modules


def test_it_is_run_for_who_trusts_it(copy, planted):
    path = copy(of_cartpole, "CartPole-v1")
    change_facts(path, env=EMPTY | {"factory": "make", "module": "planted_module"})
    with pytest.raises(ConfigError):
        load_policy(path, trust=True).make_env()
    assert planted.exists()


@pytest.mark.parametrize("option", [[], ["--trust"]])
def test_every_command_that_plays_takes_trust(option, copy, capsys, tmp_path):
    run = str(copy(policy).parents[1])
    film = str(tmp_path / "film.webp")
    codes = [
        main([*words, *option])
        for words in (
            ["policies", "evaluate", run, "--episodes", "1"],
            ["play", run, "--episodes", "1"],
            ["gallery", run, "--episodes", "1", "--size", "16"],
            ["render", run, "-o", film, "--size", "16"],
        )
    ]
    assert codes == ([0, 0, 0, 0] if option else [1, 2, 2, 2])


@pytest.mark.parametrize(
    ("argument", "is_plain"),
    [
        ({"map_name": "4x4", "is_slippery": False}, True),
        ({"desc": ["SFF", "FFG"]}, True),
        ({"sutton_barto_reward": True, "length": 0.5, "nothing": None, "sizes": [1, 2]}, True),
        ({"nested": {"a": [1, {"b": "word"}]}}, True),
        ({"xml_file": "/tmp/evil.xml"}, False),
        ({"xml_file": "evil"}, False),
        ({"model": "evil.xml"}, False),
        ({"model": "../evil"}, False),
        ({"model": "~"}, False),
        ({"model": "C:evil"}, False),
        ({"env_id": "planted_module:Env-v0"}, False),
        ({"model": "a\nb"}, False),
        ({"model_path": ["word"]}, False),
        ({"nested": {"file": "word"}}, False),
        ({"nested": {"a": [{"b": "os:system"}]}}, False),
        ({"a b": 1}, False),
        ({"max_episode_steps": 50_000, "max_steps": 50_000, "size": 1_000}, True),
        ({"size": 1_001}, False),
        ({"desc": ["F"] * 1_001}, False),
        ({"sizes": [1_000] * 200}, False),  # the product is no float
        ({"shape": [1_000, 1_000, 11]}, False),  # together
        ({"max_episode_steps": 10**12}, False),
        ({"max_episode_steps": -1}, False),  # no end
        ({"max_steps": None}, False),
        ({"render_mode": "rgb_array"}, True),
        ({"render_mode": "rgb_array_list"}, False),  # which keeps all pictures
        ({"sizes": [1, -1e9]}, False),
        ({"share": float("nan")}, False),
    ],
)
def test_arguments_that_are_plain(argument, is_plain):
    code = dataclasses.replace(Environment("FrozenLake-v1"), kwargs=argument).code
    assert (code is None) == is_plain
    assert is_plain or f"the argument {next(iter(argument))}=" in code
    wrapped = Environment("FrozenLake-v1", wrappers=((CLIP_REWARD, argument),))
    assert (wrapped.code is None) == is_plain


@pytest.mark.parametrize(
    "env",
    [
        FROZEN,
        {"id": "CartPole-v1", "kwargs": {"max_episode_steps": 3}},
        {"id": "CartPole-v1", "wrappers": [[CLIP_REWARD, {"min_reward": 0.0}]]},
        {"id": "CartPole-v1", "factory": "system", "module": "os"},  # which is not needed
    ],
)
def test_ids_of_installed_packages_need_no_trust(env):
    environment = Environment.decode(EMPTY | env)
    assert environment.code is None
    made = environment.make()
    assert made.spec.id == env["id"]
    made.close()


def test_what_this_process_has_registered_needs_no_trust(monkeypatch):
    monkeypatch.setattr(gym.envs.registration, "registry", dict(gym.registry))
    monkeypatch.setattr(gym, "registry", gym.envs.registration.registry)
    environment = Environment("Mine/Toy-v0", factory="Gone", module="gone")
    assert environment.code == "Gone of the module gone"
    gym.register("Mine/Toy-v0", Toy)
    assert environment.code is None
    assert isinstance(environment.make().unwrapped, Toy)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("id", 5),
        ("kwargs", [1]),
        ("kwargs", {"disable_env_checker": False}),
        ("kwargs", {"id": "os:x"}),
        ("wrappers", [["a"]]),
        ("wrappers", [[1, {}]]),
        ("wrappers", 3),
        ("factory", {}),
        ("registered", "x"),
    ],
)
def test_what_is_no_environment_is_damage(field, value, copy):
    path = copy(of_cartpole, "CartPole-v1")
    change_facts(path, env=read_facts(path)["env"] | {field: value})
    with pytest.raises(Exception, match=r"is damaged: policy\.json"):
        find_policy(path)


def test_names_are_shown_and_not_obeyed(copy, capsys):
    path = copy(of_cartpole, "CartPole-v1")
    change_facts(path, env=EMPTY | {"id": "\x1b[2J\x1b]0;title\x07\nfake: line\u202e"})
    assert main(["play", str(path)]) == 2
    assert main(["policies", "show", str(path)]) == 0
    assert main(["policies", "list", str(path.parents[1])]) == 0
    out, err = capsys.readouterr()
    for text in (out, err):
        assert all(c.isprintable() or c == "\n" for c in text)
        assert r"\x1b" in text
    assert len(err.splitlines()) == 1
