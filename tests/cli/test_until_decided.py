"""`hooktrainer report --until-decided`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from finished_runs import write_run

from hooktrainer import RunDir
from hooktrainer.statistics import decide

SCRIPT = Path(__file__).with_name("quick_run.py")


@pytest.fixture
def begun(tmp_path):
    """Makes the first seed of groups, by a script that took another directory for its own."""

    def begin(*levels, **options):
        for level in levels:
            words = [f"--{name}={value}" for name, value in options.items()]
            command = [sys.executable, SCRIPT, f"--level={level}", *words]
            place = tmp_path / f"{level:g}" / "seed0"
            subprocess.run([*command, "--run-dir", place], check=True, cwd=tmp_path)
        return tmp_path

    return begin


def asked(call, place, budget, *words):
    done = call("report", place, "--until-decided", budget, "--json", *words)
    return done, json.loads(done.out) if done.out else None


def seeds_in(place):
    return sorted(int(path.name.removeprefix("seed")) for path in place.iterdir())


@pytest.mark.usefixtures("warm_python")
def test_seeds_are_added_until_one_group_is_better(call, begun):
    place = begun(100, 10)
    done, found = asked(call, place, 30)
    assert done.code == 0, done.err
    assert found["decision"] == {
        "best": "level 100", "better": [["level 100", "level 10"]], "seeds": 5, "next_look": None,
    }  # fmt: skip
    assert seeds_in(place / "100") == seeds_in(place / "10") == list(range(5))
    (task,) = found["tasks"]
    (one,) = task["comparisons"]
    assert (one["verdict"], one["separated"]) == (
        "level 100 is better than level 10", True,
    )  # fmt: skip
    assert one["p"] is None  # a test of a set number of seeds would claim too much
    assert "adding 1-4" in done.err
    assert "at 5 seeds each: level 100 is better" in done.err


@pytest.mark.usefixtures("warm_python")
@pytest.mark.slow
def test_the_seeds_of_two_groups_in_one_directory_have_names_of_their_own(call, begun):
    place = begun(100, 10)
    (place / "runs").mkdir()
    (place / "100" / "seed0").rename(place / "runs" / "high")
    (place / "10" / "seed0").rename(place / "runs" / "low_seed0")
    done, found = asked(call, place / "runs", 5)
    assert done.code == 0, done.err
    assert found["decision"]["best"] == "level 100"
    new = range(1, 5)
    expected = {*(f"high-seed{seed}" for seed in new), *(f"low_seed{seed}" for seed in new)}
    assert {path.name for path in (place / "runs").iterdir()} == expected | {"high", "low_seed0"}


@pytest.mark.usefixtures("warm_python")
def test_existing_seeds_count_in_the_order_of_their_numbers(call, tmp_path):
    """The last are far apart: who took the best ones, or all, would decide at once."""
    random = np.random.default_rng(0)
    scores = {"a": random.normal(0, 1, 16), "b": random.normal(0, 1, 16)}
    scores["a"][9:] += 20
    for group, its in scores.items():
        for seed in reversed(range(16)):
            write_run(tmp_path / f"{group}{seed}", [its[seed]], seed=seed, options={"lr": group})
    done, found = asked(call, tmp_path, 28)
    assert "is still" not in done.err
    expected = decide({"lr a": scores["a"], "lr b": scores["b"]}, 28)
    assert expected.best == "lr a"
    assert (found["decision"]["best"], found["decision"]["seeds"]) == ("lr a", 16)
    done, found = asked(call, tmp_path, 9)
    assert (found["decision"]["best"], found["decision"]["seeds"]) == (None, 9)


@pytest.mark.slow
def test_after_a_kill_the_decision_is_the_same_and_no_seed_is_trained_twice(call, begun):
    place = begun(100, 10)
    words = [sys.executable, "-m", "hooktrainer", "report", place, "--until-decided", "30"]
    killed = subprocess.run(words, env={**os.environ, "KILL_AT": "10 2"}, capture_output=True)
    assert killed.returncode == -signal.SIGKILL
    assert RunDir(place / "10" / "seed2").read()["status"] == "running"
    before = (place / "10" / "seed1" / "run.json").read_text()
    done, found = asked(call, place, 30)
    assert done.code == 0, done.err
    assert "level 10: resuming 2 and adding 3-4" in done.err
    assert found["decision"]["best"] == "level 100"
    assert (place / "10" / "seed1" / "run.json").read_text() == before
    assert len(RunDir(place / "10" / "seed2").read()["resumed"]) == 1
    assert seeds_in(place / "10") == list(range(5))


@pytest.mark.usefixtures("warm_python")
@pytest.mark.slow
def test_a_failed_seed_is_named_and_stops_the_decision(call, begun, monkeypatch):
    place = begun(100, 10)
    monkeypatch.setenv("FAIL_AT", "10 2")
    done, found = asked(call, place, 30)
    assert (done.code, found) == (1, None)
    failed = place / "10" / "seed2"
    assert f"not decided: {failed} failed: out of luck" in done.err
    assert "level 10 would look better than it is" in done.err
    monkeypatch.delenv("FAIL_AT")  # mended
    assert asked(call, place, 30)[1]["decision"]["best"] == "level 100"


@pytest.mark.usefixtures("warm_python")
def test_commands_of_another_user_are_printed_and_not_run(call, begun):
    place = begun(100, 10)
    RunDir(place / "10" / "seed0").update(argv=["--level=7"])
    done, _ = asked(call, place, 30)
    assert done.code == 2
    assert "was not begun by you" in done.err
    assert "quick_run.py --level=7 --seed 1" in done.err
    assert seeds_in(place / "100") == [0]


@pytest.mark.usefixtures("warm_python")
def test_undecidable_reports_are_refused(call, begun):
    def refusal(*words):
        done = call("report", *words)
        assert done.code == 2, done.out
        return done.err

    place = begun(100, 10)
    assert "leave out --by-place" in refusal(place, "--until-decided", 9, "--by-place")
    assert "it takes 5 seeds" in refusal(place, "--until-decided", 4)
    assert "nothing to decide" in refusal(place / "10", "--until-decided", 9)
    begun(3, env="Other-v0")
    assert "in which task? Name runs of one of Other-v0, Toy-v0" in refusal(
        place, "--until-decided", 9
    )
