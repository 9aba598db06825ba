"""`hooktrainer train`: recipes and algorithms by their names."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hooktrainer import algorithms
from hooktrainer.cli import main
from hooktrainer.cli import scripts as recipes
from hooktrainer.store import find_runs

ROOT = Path(__file__).parents[2]

SMALL = ["--env", "CartPole-v1", "--total-frames", "200", "--num-envs", "2"]
SMALL += ["--steps-per-batch", "50", "--mini-batch-size", "50", "--num-epochs", "1"]
SMALL += ["--num-cells", "8", "--eval-episodes", "1", "--no-progress-bar"]

WALK = """
import dataclasses, multiprocessing, pickle, sys, threading
import neighbour
@dataclasses.dataclass
class Step:
    length: int = 1
def walk(*more):
    print(__name__, sys.argv, sys.path, pickle.dumps(Step()), *more, flush=True)
def arrive():
    threading.main_thread().join()
    walk()
if __name__ == "__main__":
    print("hooktrainer.cli" in sys.modules, "torch" in sys.modules, "numpy" in sys.modules)
    walk(__file__, sys.orig_argv, dataclasses.fields(Step)[0].type)
    process = multiprocessing.get_context("spawn").Process(target=walk)
    process.start()
    process.join()
    threading.Thread(target=arrive).start()
    {}["wrong"]
"""


@pytest.fixture
def started(monkeypatch):
    """The programs that `train` would run."""
    commands = []
    monkeypatch.setattr(
        "hooktrainer.cli.train.run_program", lambda command: commands.append(command) or 0
    )
    return commands


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(recipes, "SHIPPED", ())
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes" / "walk.py").write_text('"""Walks.\n\nSlowly.\n"""\n')
    return tmp_path


def test_a_recipe_gets_all_arguments_after_its_name(call, place, started):
    call("train", "walk", "--json", "--lr", "1", "-h", "--", "x")
    script = str(Path("recipes") / "walk.py")
    assert started == [[script, "--json", "--lr", "1", "-h", "--", "x"]]


def test_a_recipe_runs_in_this_process_as_with_python(place):
    (place / "recipes" / "neighbour.py").touch()
    script = Path("recipes") / "walk.py"
    script.write_text(WALK)
    options = {"env": {**os.environ, "PYTHONPATH": str(ROOT)}, "capture_output": True, "text": True}
    recipe, ours = (
        subprocess.run([sys.executable, *words, script, "--a", "b c"], check=False, **options)
        for words in ([], ["-m", "hooktrainer", "train"])
    )
    assert ours.stdout == f"True{recipe.stdout.removeprefix('False')}"
    assert (ours.returncode, ours.stderr) == (recipe.returncode, recipe.stderr)
    assert recipe.stderr.endswith("KeyError: 'wrong'\n")


def test_an_installed_package_contains_the_recipes(tmp_path, monkeypatch):
    installed, clone, none = recipes.SHIPPED[0], recipes.SHIPPED[1], tmp_path / "none"
    assert installed == ROOT / "hooktrainer" / "_recipes"
    assert '"recipes" = "hooktrainer/_recipes"' in (ROOT / "pyproject.toml").read_text()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(recipes, "SHIPPED", (none, clone))
    assert recipes.find_trainable("ppo_cartpole").script == clone / "ppo_cartpole.py"


@pytest.mark.parametrize(
    ("name", "found"), [("ppo", "ppo.py"), ("ppo_cartpole", "ppo_cartpole.py"), ("./x.py", "x.py")]
)
def test_scripts_of_the_directory_come_first(call, place, started, monkeypatch, name, found):
    monkeypatch.setattr(recipes, "SHIPPED", (ROOT / "recipes",))
    folder = place if name.startswith(".") else place / "recipes"
    (folder / found).touch()
    call("train", name)
    assert started[0][0] == str((folder / found).relative_to(place))


def test_without_a_name_all_are_listed(call, place):
    out = call("train").out
    assert "Walks." in out
    entries = json.loads(call("train", "--json").out)
    assert next(e for e in entries if e["kind"] == "recipe") == {
        "name": "walk",
        "kind": "recipe",
        "family": "recipe",
        "script": str(Path("recipes/walk.py")),
        "summary": "Walks.",
    }
    found = {e["name"]: e["family"] for e in entries if e["kind"] == "algorithm"}
    assert sorted(found) == sorted(algorithms.names())
    assert {found[name] for name in ("ppo", "dqn", "cql", "dagger", "qmix", "sft")} == {
        *("on-policy", "replay", "data set", "teacher", "agents", "sequences")
    }
    assert found["mappo"] == "agents"  # on-policy, too
    assert list(found.values()) == sorted(found.values(), key=list(recipes.FAMILIES.values()).index)
    assert all(entry["summary"].endswith(".") for entry in entries)
    assert set(call("train", "--help").out.split()) > {"ppo", "on-policy", "walk", "recipe"}


def test_an_algorithm_trains_into_a_run_directory_of_its_own(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    main(["train", "ppo", *SMALL, "--seed", "3"])
    (run,) = find_runs("runs", "ppo")
    assert run.path.parent == Path("runs/ppo")
    assert run.path.name.endswith("_seed3")
    assert (run.read()["status"], run.read()["frames"]) == ("finished", 200)
    assert {row["hook"] for row in json.loads(run.hooks_file.read_text())} >= {"evaluate"}
    longer = ["300" if word == "200" else word for word in SMALL]
    main(["train", "ppo", *longer, "--seed", "3", "--resume", "latest"])
    assert [other.path for other in find_runs("runs", "ppo")] == [run.path]
    assert run.read()["frames"] == 300


@pytest.mark.parametrize("name", ["theirs/evil.py", "evil", "[ppo]", "..", "'a\\x1bb'"])
def test_a_configuration_file_may_only_name_shipped_recipes(
    name, tmp_path, monkeypatch, started, capsys
):
    for folder in ("theirs", "recipes"):  # a file that came along is no recipe of the user's
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "evil.py").write_text("raise SystemExit('it ran')")
    (tmp_path / "config.yaml").write_text(f"name: {name}\n")
    monkeypatch.chdir(tmp_path)
    words = ["train", "--config", "config.yaml"]
    assert main(words) == 2
    assert main([*words, "--launcher", "slurm", "--dry-run"]) == 2
    assert not started
    said = capsys.readouterr()
    assert all(line.isprintable() for line in said.err.splitlines())
    assert not said.out
    if "evil" in name:
        assert "--trust" in said.err
        main([*words, "--trust"])
        assert started[0][0].endswith("evil.py")
    (tmp_path / "config.yaml").write_text("name: ppo\nseeds: 2\n")
    monkeypatch.setattr(
        "hooktrainer.cli.train.train_algorithm", lambda *words: started.append(words) or 0
    )
    for given in (words, ["train", "--", *words[1:]]):  # --config belongs to the script
        main(given)
        assert started.pop() == ("ppo", ["--config", "config.yaml"])
