"""Every recipe in ``recipes/`` trains, and goes on from its last checkpoint.

A new recipe is tried without a line here. Options it has that are named in `SMALL` are set to those
values; `OPTIONS` holds what one recipe alone needs.
"""

from __future__ import annotations

import ast
import csv
import json
import math
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from marks import slow_except
from warm_python import run

from hooktrainer.log import read_csv
from hooktrainer.run import mistakes_in_one_line
from hooktrainer.store import list_checkpoints

ROOT = Path(__file__).parents[2]
RECIPES = sorted((ROOT / "recipes").glob("*.py"))
TRAINED = [recipe for recipe in RECIPES if "mjlab" not in recipe.stem]  # test_mjlab_cartpole.py
QUICK = ("ppo_cartpole", "sac_pendulum", "grpo_addition")
FRAMES, MORE_FRAMES = 256, 512
SMALL = {
    "num_envs": 2,
    "steps_per_batch": 32,
    "optim_steps_per_batch": 4,
    "init_random_frames": 64,
    "batch_size": 32,
    "fit_steps": 4,
    "num_rollouts": 64,
    "eval_episodes": 1,
    "dataset": "data",  # one is there, below the directory where the recipe runs
}
# The data set must not be there yet; a longer run writes another one.
OPTIONS = {"collect_pendulum": "--allow-change dataset --dataset collected_{frames}"}


def arguments(recipe: Path) -> ast.ClassDef:
    """The class of the recipe's own options."""
    body = ast.parse(recipe.read_text()).body
    return next(node for node in body if isinstance(node, ast.ClassDef) and node.name == "Args")


def options_of(recipe: Path) -> list[str]:
    """Names of the recipe's own options."""
    return [node.target.id for node in arguments(recipe).body if isinstance(node, ast.AnnAssign)]


def train(recipe: Path, where: Path, frames: int, *more: str) -> str:
    """Train for ``frames`` frames in ``where``/run; return what was printed."""
    words = [f"--total-frames={frames}", f"--save-interval={FRAMES}", f"--log-interval={FRAMES}"]
    for option in options_of(recipe):
        if option in SMALL:
            words.append(f"--{option.replace('_', '-')}={SMALL[option]}")
    words += OPTIONS.get(recipe.stem, "").format(frames=frames).split()
    done = run(recipe, "--seed=1", "--run-dir=run", "--no-progress-bar", *words, *more, where=where)
    if done.returncode == 2 and "pip install" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr
    return done.stdout


def check(place: Path, frames: int, evaluates: bool) -> None:
    """Look at what a run of ``frames`` frames left behind."""
    summary = json.loads((place / "run.json").read_text())
    assert (summary["status"], summary["frames"]) == ("finished", frames)
    assert summary["optim_steps"] > 0
    assert ("eval/return" in summary["metrics"]) == evaluates
    losses = [value for name, value in summary["metrics"].items() if name.startswith("loss/")]
    assert losses
    assert all(math.isfinite(value) for value in losses)

    with (place / "metrics.csv").open() as file:
        rows = [(int(row["step"]), row["name"]) for row in csv.DictReader(file)]
    steps = [step for step, _ in rows]
    assert steps == sorted(steps)
    assert steps[-1] == frames
    assert len(set(rows)) == len(rows)

    listing = list_checkpoints(place / "checkpoints")
    assert not listing.damaged
    assert listing.checkpoints[-1].manifest.frames == frames


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small data set for the recipes that train offline."""
    where = tmp_path_factory.mktemp("dataset")
    recipe = ROOT / "recipes" / "collect_pendulum.py"
    size = ["--num-envs=2", "--steps-per-batch=200", "--total-frames=800"]
    words = ["--run-dir=run", "--dataset=data", "--no-progress-bar", *size]
    # In a process of its own, which shows what importing says.
    command = [sys.executable, str(recipe), *words]
    done = subprocess.run(command, cwd=where, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr
    return where / "data"


@pytest.mark.learning
@pytest.mark.parametrize(
    "recipe",
    slow_except(TRAINED, *(recipe for recipe in TRAINED if recipe.stem in QUICK)),
    ids=lambda recipe: recipe.stem,
)
def test_a_recipe_trains_and_goes_on(
    recipe: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    options = options_of(recipe)
    if "dataset" in options:
        (tmp_path / "data").symlink_to(request.getfixturevalue("dataset"))
    evaluates = "eval_episodes" in options
    train(recipe, tmp_path, FRAMES)
    check(tmp_path / "run", FRAMES, evaluates)
    printed = train(recipe, tmp_path, MORE_FRAMES, "--resume=latest")
    assert "resumed from" in printed
    check(tmp_path / "run", MORE_FRAMES, evaluates)
    anneals = "falls linearly to zero at total_frames" in recipe.read_text()
    logs_rate = anneals or "LRSchedulerHook(" in recipe.read_text()
    rates = read_csv(tmp_path / "run").get("train/lr", [])
    assert [frames for frames, _ in rates][-2:] == [FRAMES, MORE_FRAMES] * logs_rate
    assert all(rate > 0 for _, rate in rates)  # it learns on
    assert ("train/lr 0 → 0.00" in printed) == anneals


@pytest.mark.learning
@pytest.mark.parametrize(
    ("name", "package", "extra"),
    [("LunarLander-v3", "Box2D", "box2d"), ("HalfCheetah-v5", "mujoco", "mujoco")],
)
def test_a_missing_package_is_named_with_the_line_that_installs_it(
    name: str, package: str, extra: str, tmp_path: Path
) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        f"import sys; sys.modules[{package!r}] = None; from hooktrainer.cli import main; "
        f"main(['train', 'ppo', '--env', {name!r}, '--run-dir', 'run'])"
    )
    done = run(program, where=tmp_path)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert f"pip install 'hooktrainer[{extra}]'" in line


@pytest.mark.parametrize("text", ["", "a second signal (SIGTERM)"])
def test_an_interruption_is_said_in_one_line(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="130"), mistakes_in_one_line():
        raise KeyboardInterrupt(*[text] * bool(text))
    assert capsys.readouterr().err == f"aborted by {text or 'SIGINT'}; --resume latest continues.\n"


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.stem)
def test_a_recipe_is_short_and_explains_every_option(recipe: Path) -> None:
    text = recipe.read_text()
    assert len(text.splitlines()) <= 200
    assert f"python recipes/{recipe.name}" in text
    body = arguments(recipe).body
    for node, following in pairwise(body):
        if isinstance(node, ast.AnnAssign):
            assert isinstance(following, ast.Expr), f"{ast.unparse(node)} is not explained"
    assert isinstance(body[-1], ast.Expr)
