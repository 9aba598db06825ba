"""The results page is generated from the shipped results."""

from __future__ import annotations

import runpy
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from recorded import write_recorded

from hooktrainer.show.results.result_rows import ResultRow, RowRecipe, read_digest, read_rows

DOCS = Path(__file__).parents[3] / "docs"


@pytest.fixture(scope="module")
def make():
    return runpy.run_path(str(DOCS / "make_results.py"))


def test_the_page_and_its_picture_are_generated_from_the_results(make):
    rows = read_rows()
    text = (DOCS / "results.md").read_text(encoding="utf-8")
    assert make["page"](text, rows) == text
    assert make["picture"](rows) == (DOCS / "assets" / "results.svg").read_text(encoding="utf-8")


@pytest.fixture
def rows(tmp_path):
    digests = {
        seed: read_digest(write_recorded(tmp_path / f"seed{seed}", ((1000, score),)))
        for seed, score in enumerate((471.0, 500.0, 488.0, 432.0, 500.0, 495.0, 312.0, 500.0))
    }
    words = ("ppo", "--env", "CartPole-v1", "--lr", "1")
    recipe = RowRecipe("a-row", words, published="SB3 500 (100k)")
    return {"a-row": ResultRow(recipe, digests, {"torch": "2"}, "abc", 16.0)}


def test_surroundings_of_rows_are_listed_once(make, rows):
    row = rows["a-row"]
    special = replace(row, recipe=replace(row.recipe, name="b-row", packages=("mujoco",)))
    special = replace(special, surroundings={"processor": "P", "torch": "2", "mujoco": "3"})
    plain = replace(row, surroundings={"processor": "P", "torch": "2"})
    assert make["made_with"]({"a-row": plain, "b-row": special}) == (
        "All were made with P, torch 2. Beside that: `b-row` (mujoco 3)."
    )
    later = replace(plain, surroundings={"processor": "P", "torch": "3"})
    later = replace(later, recipe=replace(row.recipe, name="c-row"))
    three = {"a-row": plain, "b-row": special, "c-row": later}
    assert make["made_with"](three).splitlines() == [
        "Most were made with P, torch 2. Beside that: `b-row` (mujoco 3). But:",
        "",
        "- `c-row`: torch 3.",
    ]


@pytest.fixture
def history(tmp_path):
    """A repository, with the commits of its HEAD, the one before, and a branch left behind."""
    if shutil.which("git") is None:
        pytest.skip("needs git")
    place = tmp_path / "repository"
    place.mkdir()

    def git(*words: str) -> str:
        command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", *words]
        done = subprocess.run(command, cwd=place, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    git("init")
    commits = []
    for name in ("first", "rebased"):
        git("commit", "--allow-empty", "-m", name)
        commits.append(git("rev-parse", "HEAD"))
    git("reset", "--hard", commits[0])
    git("commit", "--allow-empty", "-m", "second")
    first, rebased = commits
    return place, git("rev-parse", "HEAD"), first, rebased


def test_a_row_is_kept_with_a_commit_that_the_history_has(make, history):
    place, head, first, rebased = history
    for commit in (head, first[:7]):
        make["check_commit"](commit, place)
    with pytest.raises(ValueError, match=f"{rebased} is no ancestor of HEAD: see git log"):
        make["check_commit"](rebased, place)
    with pytest.raises(ValueError, match=r"0000000 is no ancestor of HEAD: fatal: .*0000000"):
        make["check_commit"]("0000000", place)


def test_keeping_a_row_checks_its_commit_first(make, tmp_path):
    with pytest.raises(ValueError, match="gone is no ancestor of HEAD"):
        make["keep"]("ppo-cartpole", tmp_path, "gone", 1.0)
