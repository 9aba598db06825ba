"""`hooktrainer regress`."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from marks import slow_except

from hooktrainer.cli import regress
from hooktrainer.show import read_digest, read_rows
from hooktrainer.show.results.result_rows import RunDigest

WORDS = (
    "ppo --env CartPole-v1 --no-tuned --total-frames 128 --num-envs 2 --steps-per-batch 32 "
    "--num-epochs 1 --eval-interval 64 --eval-episodes 2 --log-interval 64"
)


@pytest.fixture
def results(tmp_path):
    place = tmp_path / "results"
    place.mkdir()
    (place / "rows.yaml").write_text(f"tiny: {{train: {WORDS}, deterministic: false}}\n")
    return place


@pytest.fixture
def scoring(monkeypatch):
    """Training, without the time that it takes: seeds score what the function says."""
    trained = []

    def set_scores(score):
        def train(recipe, seeds, place):
            trained.extend(seeds)
            return {
                seed: RunDigest(((64, 0.0), (128, float(score(seed)))), {"eval/return": "0"}, "0")
                for seed in seeds
            }

        monkeypatch.setattr(regress, "_trained", train)
        return trained

    return set_scores


@pytest.mark.usefixtures("warm_python")
def test_seeds_are_published_and_trained_on(results, call, tmp_path, monkeypatch):
    home = tmp_path / "home"
    home.mkdir()
    (home / "mine.py").write_text(
        "import gymnasium\n"
        "spec = gymnasium.spec('CartPole-v1')\n"
        "gymnasium.register('Mine-v0', spec.entry_point, max_episode_steps=20)\n"
    )
    (results / "rows.yaml").write_text(
        f"tiny: {{train: {WORDS.replace('CartPole-v1', 'mine:Mine-v0')}, deterministic: false}}\n"
    )
    monkeypatch.chdir(home)
    done = call(
        "regress", "tiny", "--against", results, "--record", "3-4", "--keep", tmp_path / "a"
    )
    assert done.code == 0, done.err
    row = read_rows(results)["tiny"]
    assert list(row.digests) == [3, 4]
    assert row.digests[3] == read_digest(tmp_path / "a/tiny/seed3", list(row.digests[3].metrics))
    assert f"published seeds 3-4 of tiny in {results / 'computed/tiny.json'}" in done.out


_FAILS_ONCE = """
import pathlib
from hooktrainer import TrainerHookBase

class FailsOnce(TrainerHookBase):
    at = "post_steps"
    def __call__(self):
        frames, seed = self.trainer.progress.frames, self.trainer.seed
        seen = pathlib.Path(__file__).with_name(f"seen{seed}")
        first = not seen.exists() or str(frames) not in seen.read_text().split()
        with seen.open("a") as file:
            print(frames, file=file)
        if first and (seed, frames) == (4, 128):
            raise RuntimeError("once")
"""


@pytest.mark.usefixtures("warm_python")
@pytest.mark.parametrize("together", slow_except(["true", "false"], "true"))
def test_interrupted_seeds_are_continued_by_the_same_command(results, call, tmp_path, together):
    (tmp_path / "mine.py").write_text(_FAILS_ONCE)
    words = f"{WORDS} --save-interval 64 --hook {tmp_path}/mine.py:FailsOnce"
    (results / "rows.yaml").write_text(
        f"tiny: {{train: {words}, prepare: {WORDS}, together: {together}, deterministic: false}}\n"
    )
    command = "regress", "tiny", "--against", results, "--record", "3-4", "--keep"
    failed = call(*command, tmp_path / "a")
    assert (failed.code, read_rows(results)) == (1, {})
    attempts = tmp_path / "a/attempts.json"
    spent = json.loads(attempts.read_text())["cpu_seconds"]
    prepared = (tmp_path / "a/prepared/run.json").read_bytes()
    assert call(*command, tmp_path / "a").code == 0
    found = read_rows(results)["tiny"]
    total = json.loads(attempts.read_text())["cpu_seconds"]
    assert total > spent > 0
    assert found.cpu_seconds == round(total, 1)
    assert (tmp_path / "a/prepared/run.json").read_bytes() == prepared
    seen = [(tmp_path / f"seen{seed}").read_text().split() for seed in (3, 4)]
    assert seen == [["64", "128"], ["64", "128", "128"]]
    assert call(*command, tmp_path / "b").code == 0
    straight = read_rows(results)["tiny"]
    assert {s: d.first_difference(straight.digests[s]) for s, d in found.digests.items()} == {
        3: None,
        4: None,
    }


def test_attempts_belong_to_one_command(results, call, scoring, tmp_path):
    scoring(lambda seed: 100)
    command = "regress", "tiny", "--against", results, "--keep", tmp_path / "a", "--record"
    assert call(*command, "0-1").code == 0
    file = tmp_path / "a/attempts.json"
    file.write_text(file.read_text().replace('"under_way": false', '"under_way": true'))
    again = call(*command, "0-1")
    assert again.code == 0
    assert "an attempt was killed: its CPU time is not known" in again.err
    other = call(*command, "0-2")
    assert other.code == 2
    assert "its runs were begun with command 'hooktrainer train ppo" in other.err
    refused = call("regress", "tiny", "--against", results, "--keep", tmp_path / "a")
    assert refused.code == 2
    assert "is not empty" in refused.err


def test_a_row_names_the_commit_that_trained_it(results, call, scoring):
    def git(*words):
        author = ("-c", "user.name=a", "-c", "user.email=a@b")
        command = ["git", *author, *words]
        return subprocess.run(command, cwd=results, capture_output=True, text=True, check=True)

    scoring(lambda seed: 100)
    git("init", "-q")
    git("add", ".")
    git("commit", "-q", "-m", "rows")
    commit = git("rev-parse", "--short=8", "HEAD").stdout.strip()
    call("regress", "tiny", "--against", results, "--record", "0-1")
    assert read_rows(results)["tiny"].commit == commit
    with (results / "rows.yaml").open("a") as file:
        file.write("# changed\n")
    call("regress", "tiny", "--against", results, "--record", "0-1")
    assert read_rows(results)["tiny"].commit == f"{commit}-dirty"


@pytest.mark.usefixtures("warm_python")
def test_a_run_without_a_score_is_kept_and_others_are_named(results, call, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (results / "rows.yaml").write_text(
        f"tiny: {{train: {WORDS}, deterministic: false, score: eval/goals}}\n"
    )
    done = call("regress", "tiny", "--against", results, "--record", "0-0")
    assert done.code == 1
    assert "seed0 has no score: the last eval/goals in its metrics.csv is missing" in done.err
    assert "Metrics of evaluations: eval/return, eval/return_std, " in done.err
    assert Path(done.err.split()[-1]).is_dir()


def test_runs_are_removed_unless_they_are_to_be_kept(results, call, scoring, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    scoring(lambda seed: 100)
    assert call("regress", "tiny", "--against", results, "--record", "0-9").code == 0
    assert call("regress", "tiny", "--against", results).code == 0
    assert not [*tmp_path.glob("hooktrainer-regress-*")]


def test_a_single_published_seed_is_refused_before_training(results, call, scoring):
    scoring(lambda seed: 100)
    call("regress", "tiny", "--against", results, "--record", "0-0")
    trained = scoring(lambda seed: 100)
    trained.clear()
    done = call("regress", "tiny", "--against", results)
    assert (done.code, trained) == (2, [])
    assert "1 published seed cannot show anything" in done.err


def test_a_row_that_is_as_good_ends_after_three_seeds_of_its_own(results, call, scoring):
    scoring(lambda seed: 100 + seed % 7)
    assert call("regress", "tiny", "--against", results, "--record", "0-9").code == 0
    trained = scoring(lambda seed: 100 + seed % 7)
    trained.clear()
    done = call("regress", "tiny", "--against", results)
    assert (done.code, trained) == (0, [10, 11, 12])
    assert done.out.startswith("as good: score 104 over 3 new seeds, published ")


def test_one_that_is_worse_exits_with_1(results, call, scoring):
    scoring(lambda seed: 100 + seed % 7)
    call("regress", "tiny", "--against", results, "--record", "0-9")
    scoring(lambda seed: 80 + seed % 7)
    done = call("regress", "tiny", "--against", results, "--json")
    told = json.loads(done.out)
    assert (done.code, told["verdict"], told["seeds"]) == (1, "worse", [10, 12])
    assert call("regress", "tiny", "--against", results, "--margin", "0.3").code == 1  # lower, too


def test_what_is_not_decided_after_all_looks_is_not_worse(results, call, scoring):
    scoring(lambda seed: 100 + seed % 7)
    call("regress", "tiny", "--against", results, "--record", "0-9")
    trained = scoring(lambda seed: 100 + seed % 7)
    trained.clear()
    done = call("regress", "tiny", "--against", results, "--margin", "0.0001")
    assert (done.code, trained) == (0, list(range(10, 22)))
    assert done.out.startswith("not decided: ")


def test_the_frames_until_it_stopped_are_compared_with_by(results, call, scoring):
    scoring(lambda seed: 100)
    call("regress", "tiny", "--against", results, "--record", "0-9")
    assert call("regress", "tiny", "--against", results, "--by", "frames").out.startswith(
        "as good: frames 128 over 3 new seeds"
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["tyny"], "row='tyny' is unknown. Did you mean tiny?"),
        (["tiny"], "tiny has no published seeds in "),
        (["tiny", "--record", "1,5"], "--record 1,5: give consecutive seeds, such as 0-9."),
        (["tiny", "--margin", "0"], "--margin 0: give a positive fraction, such as 0.1."),
        (["tiny", "--margin", "nan"], "--margin nan: give a positive fraction"),
        (["tiny", "--margin", "inf"], "--margin inf: give a positive fraction"),
    ],
)
def test_wrong_usage_is_named_in_one_line(results, call, words, message):
    done = call("regress", *words, "--against", results)
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert message in done.err


def test_a_directory_without_rows_is_named(call, tmp_path):
    done = call("regress", "tiny", "--against", tmp_path)
    assert done.code == 2
    assert f"--against {tmp_path}: there is no file rows.yaml" in done.err


@pytest.mark.parametrize(
    "text",
    [
        "",
        "- a",
        "tiny: x",
        "tiny: {trian: x}",
        "tiny: {train: 3}",
        "tiny: {train: x, of: y}",
        "a: [",
    ],
)
def test_a_file_that_does_not_describe_rows_is_named(results, call, text):
    (results / "rows.yaml").write_text(text)
    done = call("regress", "tiny", "--against", results)
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert f"{results / 'rows.yaml'} does not describe rows (" in done.err


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        '{"metrics": [], "seeds": {}}',
        '{"metrics": [], "seeds": {"0": 1}}',
        '{"metrics": [], "seeds": {"0": {"curve": [[1, NaN]], "metrics": [], "parameters": ""}},'
        ' "surroundings": {}, "commit": "", "cpu_seconds": 1}',
    ],
)
def test_a_damaged_row_is_named(results, call, text):
    (results / "computed").mkdir()
    (results / "computed/tiny.json").write_text(text)
    done = call("regress", "tiny", "--against", results)
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert f"{results / 'computed/tiny.json'} is damaged (" in done.err


def test_a_damaged_row_does_not_stop_another(results, call):
    (results / "computed").mkdir()
    (results / "computed/broken.json").write_text("{")
    recipes = results / "rows.yaml"
    recipes.write_text(f'{recipes.read_text()}broken: {{train: "ppo --env CartPole-v1"}}\n')
    done = call("regress", "tiny", "--against", results)
    assert "tiny has no published seeds" in done.err
