"""`hooktrainer verify-results`."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from hooktrainer.cli import main, verify_results
from hooktrainer.show import read_digest
from hooktrainer.show.results import result_rows as rows
from hooktrainer.show.results.result_rows import surroundings

WORDS = (
    "ppo --env CartPole-v1 --no-tuned --total-frames 256 --num-envs 2 --steps-per-batch 32 "
    "--num-epochs 1 --eval-interval 128 --eval-episodes 2 --log-interval 64"
)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A directory of results with one row, made on this machine, and the runs of its seeds."""
    place = tmp_path_factory.mktemp("results")
    (place / "rows.yaml").write_text(f"tiny: {{train: {WORDS}, deterministic: false}}\n")
    words = [*WORDS.split(), "--seeds", "0-1", "--run-dir", str(place / "runs")]
    main(["train", *words, "--no-progress-bar", "--threads", "1"])
    digests = {seed: read_digest(place / "runs" / f"seed{seed}") for seed in (0, 1)}
    recipe = rows.read_recipes(place)["tiny"]
    rows.write_row(rows.ResultRow(recipe, digests, surroundings(), "abc", 3.0), place)
    return place


@pytest.fixture
def results(made, tmp_path, monkeypatch):
    """That directory, to be changed."""
    copy = tmp_path / "results"
    shutil.copytree(made, copy)
    monkeypatch.setattr(rows, "DIRECTORY", copy)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    return copy


@pytest.fixture
def trained(results, monkeypatch):
    """Training, without the time that it takes: the runs that there are."""

    def train(words, place, run):
        (place / "tiny.log").touch()
        shutil.copytree(results / "runs", run)

    monkeypatch.setattr(verify_results, "_train", train)


def change(results, digest=None, **changes):
    row = rows.read_rows(results)["tiny"]
    if digest is not None:
        changes["digests"] = {**row.digests, 1: replace(row.digests[1], **digest)}
    rows.write_row(replace(row, **changes), results)


def temporary(results: Path) -> list[Path]:
    return list((results.parent / "temporary").iterdir())


@pytest.mark.usefixtures("warm_python")
def test_a_seed_trained_again_is_the_same_bit_for_bit(results, call, tmp_path, monkeypatch):
    (tmp_path / "recipes").mkdir()  # which would come first, were it run here
    (tmp_path / "recipes" / "ppo.py").write_text("raise SystemExit('another ppo')")
    monkeypatch.chdir(tmp_path)
    done = call("verify-results", "tiny", "--seed", 1)
    assert done.code == 0, done.err
    assert done.out.startswith("identical: ")
    assert "are bit for bit those of tiny, seed 1; it scores" in done.out
    assert f"$ hooktrainer train {WORDS} --seeds 1-1 --run-dir " in done.err
    assert temporary(results) == []


@pytest.mark.slow
@pytest.mark.learning  # in a new process, where kernels can still be pinned
def test_the_shipped_results_are_reproduced(call):
    """If numbers were changed on purpose, hooktrainer regress --record makes the rows again."""
    done = call("verify-results", "ppo-cartpole", "--seed", 3, "--json")
    assert done.code == 0, f"{done.out}\n{done.err}"
    told = json.loads(done.out)
    assert told["identical"] or told["elsewhere"]


def test_other_bits_on_the_same_machine_fail(results, trained, call):
    digest = rows.read_rows(results)["tiny"].digests[1]
    (at, value), *rest = digest.curve
    digests = {**digest.metrics, "eval/return": "00000000"}
    change(results, {"curve": ((at, value + 1), *rest), "metrics": digests})
    done = call("verify-results", "tiny", "--seed", 1)
    assert done.code == 1
    first, second = done.out.splitlines()
    assert first == (
        f"different: eval/return differs; eval/return at frame {at:,} is {value!r}, was "
        f"{value + 1!r}"
    )
    assert second.endswith("are those of the row: the bits should be too")
    (kept,) = temporary(results)
    assert f"the run is in {kept}" in done.err


def other_torch(results, scores):
    """The row as another version of torch computed it, with these scores of its seeds."""
    row = rows.read_rows(results)["tiny"]
    like = replace(row.digests[1], parameters="0")
    digests = {
        seed: replace(like, curve=(*like.curve[:-1], (like.frames, score)))
        for seed, score in enumerate(scores)
    }
    change(results, digests=digests, surroundings={**row.surroundings, "torch": "1.0"})
    return row.digests[1].score


@pytest.mark.parametrize(("off", "code"), [(0.0, 0), (1000.0, 1)])
def test_on_another_machine_the_score_is_compared(results, trained, call, off, code):
    score = rows.read_rows(results)["tiny"].digests[1].score + off
    other_torch(results, [score + step for step in (-2.0, -1.0, 0.0, 1.0, 2.0, 3.0)])
    done = call("verify-results", "tiny", "--seed", 1)
    assert done.code == code
    assert "different: the parameters differ" in done.out
    assert "bits cannot be expected to be the same: torch " in done.out
    assert " in place of 1.0\n" in done.out
    assert "where 95 of 100 further seeds would be" in done.out
    assert done.out.endswith("it is\n" if code == 0 else "it is not\n")


def test_compiled_steps_are_compared_by_their_score(results, trained, call):
    change(results, {"parameters": "0"})
    row = f"tiny: {{train: {WORDS} --compile step, deterministic: false}}\n"
    (results / "rows.yaml").write_text(row)
    done = call("verify-results", "tiny", "--seed", 1)
    assert done.code == 0, done.err
    assert "bits cannot be expected to be the same: its steps are compiled" in done.out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["tyny"], "row='tyny' is unknown. Did you mean tiny?"),
        (["tiny", "--seed", 7], "--seed 7: tiny has the seeds 0-1."),
    ],
)
def test_wrong_usage_is_named_in_one_line(results, call, words, message):
    done = call("verify-results", *words)
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert message in done.err


def test_the_rows_are_listed_with_what_they_cost(results, call):
    (row,) = json.loads(call("verify-results", "--json").out)
    assert (row["row"], row["seeds"], row["cpu_seconds"]) == ("tiny", [0, 1], 3.0)
    assert row["command"] == f"hooktrainer train {WORDS} --seeds 0-1 --run-dir out/tiny"
    line = next(line for line in call("verify-results").out.splitlines() if "tiny" in line)
    assert [cell.strip() for cell in line.strip("│").split("│")][-2:] == ["256", "1.5 s"]
