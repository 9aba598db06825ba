"""The rows of the results: their commands, their files, the machine."""

from __future__ import annotations

import pytest
from recorded import write_recorded

from hooktrainer.cli.scripts import find_trainable
from hooktrainer.show import read_digest, read_rows
from hooktrainer.show.results.result_rows import (
    ResultRow,
    RowRecipe,
    changed,
    read_recipes,
    write_row,
)

TOGETHER = RowRecipe("a", ("ppo", "--env", "CartPole-v1"))
ALONE = RowRecipe("b", ("script", "--x", "1 2"), together=False)
PREPARED = RowRecipe("c", ("iql",), prepare=("collect", "--dataset", "data"))


@pytest.mark.parametrize(
    ("recipe", "command"),
    [
        (
            TOGETHER,
            "hooktrainer train ppo --env CartPole-v1 --deterministic --seeds 0-2 --run-dir out/a",
        ),
        (
            ALONE,
            "for seed in 0 1 2; do hooktrainer train script --x '1 2' --deterministic "
            "--seed $seed --run-dir out/b/seed$seed; done",
        ),
        (
            PREPARED,
            "hooktrainer train collect --dataset data && "
            "hooktrainer train iql --deterministic --seeds 0-2 --run-dir out/c",
        ),
    ],
)
def test_one_command_makes_a_row(recipe, command):
    assert recipe.command([0, 1, 2]) == command


@pytest.fixture
def directory(tmp_path):
    (tmp_path / "rows.yaml").write_text("b: {train: ppo --env E}\nnever-made: {train: dqn}\n")
    digests = {
        seed: read_digest(write_recorded(tmp_path / f"seed{seed}", ((100, 1.5 * seed),)))
        for seed in (0, 1)
    }
    recipe = read_recipes(tmp_path)["b"]
    write_row(ResultRow(recipe, digests, {"torch": "2.0"}, "abc", 7.25), tmp_path)
    return tmp_path


def test_what_is_written_is_read(directory):
    rows = read_rows(directory)
    assert list(rows) == ["b"]
    row = rows["b"]
    assert row.digests[1] == read_digest(directory / "seed1")
    assert (row.scores, row.frames) == ([0.0, 1.5], [100, 100])
    assert (row.surroundings, row.commit, row.cpu_seconds) == ({"torch": "2.0"}, "abc", 7.2)


def test_the_rows_that_are_shipped_can_be_made_again():
    recipes, rows = read_recipes(), read_rows()
    assert rows
    for recipe in recipes.values():
        for words in filter(None, (recipe.train, recipe.prepare)):
            assert find_trainable(words[0]).name == words[0]
            # What a row begins with must not depend on the processor either.
            assert words is recipe.train or ("--deterministic" in words) == recipe.deterministic
    for row in rows.values():
        seeds = list(row.digests)
        assert seeds == list(range(seeds[0], seeds[-1] + 1))  # as its command says
        assert row.cpu_seconds > 0
        assert {*row.recipe.packages} <= {*row.surroundings}
        for digest in row.digests.values():
            assert len(digest.metrics) > 5


def test_changes_of_surroundings_are_listed():
    there = {"torch": "2.13.0", "system": "Linux", "numpy": "2"}
    assert changed(there, {**there, "mujoco": "3"}) == []
    assert changed(there, {"torch": "2.14.0", "system": "Linux"}) == [
        "torch 2.14.0 in place of 2.13.0",
        "numpy unknown in place of 2",
    ]
