"""An algorithm and the recipe of the same method have the same defaults, or it is said why not."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest

from hooktrainer import algorithms

ROOT = Path(__file__).parents[2]
RECIPES = {
    "a2c": "a2c_cartpole",
    "cql": "cql_pendulum",
    "ddpg": "ddpg_pendulum",
    "dqn": "dqn_cartpole",
    "iql": "iql_pendulum",
    "mbpo": "mbpo_pendulum",
    "ppo": "ppo_cartpole",
    "reinforce": "reinforce_cartpole",
    "sac": "sac_pendulum",
    "td3": "td3_pendulum",
}
# The reasons are in docs/algorithms.md: runs may be longer, and data sets of larger tasks.
DIFFERENT = {
    "cql": {"num_cells", "tau", "num_random"},
    "ddpg": {"buffer_size"},
    "iql": {"num_cells", "tau"},
    "sac": {"buffer_size"},
    "td3": {"buffer_size"},
}
NO_HYPERPARAMETERS = {"total_frames", "dataset"}


def recipe_defaults(recipe: str) -> dict[str, object]:
    body = ast.parse((ROOT / "recipes" / f"{recipe}.py").read_text()).body
    args = next(node for node in body if isinstance(node, ast.ClassDef) and node.name == "Args")
    return {
        node.target.id: ast.literal_eval(node.value)
        for node in args.body
        if isinstance(node, ast.AnnAssign)
    }


@pytest.mark.parametrize("name", algorithms.names())
def test_a_function_and_its_recipe_agree(name: str) -> None:
    there = recipe_defaults(RECIPES[name])
    if "num_cells" in there:
        there["num_cells"] = (there["num_cells"],) * 2
    parameters = inspect.signature(algorithms.get(name)).parameters
    here = {key: parameter.default for key, parameter in parameters.items()}
    shared = here.keys() & there.keys() - NO_HYPERPARAMETERS
    assert {"lr", "gamma"} <= shared
    differ = {key for key in shared if here[key] != there[key]}
    assert differ == DIFFERENT.get(name, set())
    documented = (ROOT / "docs" / "algorithms.md").read_text()
    assert all(f"`{key}`" in documented for key in differ)
