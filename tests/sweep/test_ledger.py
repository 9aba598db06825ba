"""The trials of a sweep among processes, some of which are gone; files that are damaged."""

from __future__ import annotations

import json
import math
import multiprocessing
import os
from concurrent.futures import ThreadPoolExecutor

import pytest
from small_sweep import make, results, small, swept

from hooktrainer import ConfigError
from hooktrainer.sweep import SearchSpace, SweepOptions, ledger

FORK = multiprocessing.get_context("fork")


@pytest.fixture
def opened(tmp_path):
    """Opens ledgers of one sweep, as processes of their own would."""
    made = []

    def open_one(trials=3):
        options = SweepOptions(run_dir=tmp_path, trials=trials, sampler="random")
        space = SearchSpace.of(small())
        made.append(ledger.Ledger(options, tmp_path, {"seeds": 2}, space, (32, 128)))
        return made[-1]

    yield open_one
    for one in made:
        one.close()


def test_there_are_as_many_as_asked_for_and_the_first_has_the_defaults(opened):
    one = opened()
    trials = [one.take() for _ in range(4)]
    assert trials.pop() is None
    assert [trial.number for trial in trials] == [0, 1, 2]
    assert trials[0].params == SearchSpace.of(small()).defaults()
    one.finish(trials[0], 1.0)
    one.finish(trials[1], None)
    trials[2].reports[32] = 0.5
    one._pruner.prune = lambda study, trial: trial.last_step == 32
    one.prune(trials[2])
    assert opened().elsewhere[0].state == "pruned"  # until its runs have ended
    one.finish(trials[2], None)
    found = [(t.state, t.value) for t in opened().trials]
    assert found == [("complete", 1.0), ("fail", None), ("pruned", 0.5)]
    assert one.take() is None


def test_what_another_is_working_on_is_left_to_it_until_it_lets_go(opened):
    one, other = opened(), opened()
    mine, theirs = one.take(), other.take()
    assert (mine.number, theirs.number) == (0, 1)
    assert [t.number for t in one.elsewhere] == [1]
    assert one.take().number == 2
    assert one.take() is None
    other.close()
    taken = one.take()
    assert (taken.number, taken.params) == (1, theirs.params)
    assert one.elsewhere == []


def test_a_process_that_dies_leaves_its_trial_to_the_next(opened):
    def die():
        one = opened()
        trial = one.take()
        trial.reports[32] = 1.0
        one.save(trial)
        os._exit(9)

    process = FORK.Process(target=die)
    process.start()
    process.join()
    taken = opened().take()
    assert (taken.number, taken.reports) == (0, {32: 1.0})


def test_those_that_ask_at_the_same_time_get_no_more_than_there_are(opened):
    ledgers = [opened(trials=5) for _ in range(4)]
    with ThreadPoolExecutor(4) as threads:
        taken = list(threads.map(lambda one: [one.take() for _ in range(2)], ledgers))
    assert sorted(t.number for own in taken for t in own if t is not None) == list(range(5))


def test_one_that_ends_while_another_process_claims_it_stays_ended(opened, monkeypatch):
    one, other = opened(), opened()
    trial = one.take()

    run_lock = ledger.RunLock

    def lock(place):
        if one._held:
            one.finish(trial, 1.0)
        return run_lock(place)

    with monkeypatch.context() as patched:
        patched.setattr(ledger, "RunLock", lock)
        assert other.take().number == 1
    assert [(t.number, t.state) for t in one.trials] == [(0, "complete"), (1, "running")]


def test_the_runs_of_a_pruned_trial_are_ended_by_the_next_process(opened):
    one, other = opened(), opened()
    trial = one.take()
    trial.reports[32] = 0.5
    one._pruner.prune = lambda study, trial: True
    one.prune(trial)
    one.close()  # as when it is killed
    taken = other.take()
    assert (taken.number, taken.state, taken.value) == (0, "pruned", None)


def test_a_pruned_trial_without_a_score_has_failed(opened):
    one = opened()
    trial = one.take()
    trial.reports |= {32: 0.5, 64: math.nan}
    one._pruner.prune = lambda study, trial: True
    one.prune(trial)
    one.finish(trial, None)
    (found,) = opened().trials
    assert (found.state, found.value, found.failure) == ("fail", None, "it has no finite score")


@pytest.fixture
def place(tmp_path):
    """A sweep of three trials that trained nothing."""
    sweep = make(tmp_path / "sweep")
    for value in (1.0, None, 3.0):
        trial = sweep.ledger.take()
        trial.reports[32] = 0.5
        sweep.ledger.finish(trial, value)
    sweep.close()
    return tmp_path / "sweep"


@pytest.mark.parametrize(
    ("name", "change"),
    [
        *(("sweep.json", {"env": one}) for one in (["x"], {"\x1b[2J": "x\ny"})),
        *(("trial0/trial.json", change) for change in (
            {"params": {}}, {"params": {"../x": 1.0}}, {"params": {"lr": 9.0}}, {"params": None},
            {"state": "done"}, {"state": "running"}, {"value": None}, {"value": "x"},
            {"value": math.nan}, {"value": math.inf}, {"reports": {"x": 1.0}},
            {"reports": {"-1": 1.0}}, {"reports": {"32": "x"}}, {"frames": "many"},
            {"other": 1}, {"failure": 1}, {"state": "pruned", "reports": {}}, {"final": math.nan},
        )),
    ],
)  # fmt: skip
def test_a_study_that_no_sweep_wrote_is_refused_in_a_line(name, change, place):
    file = place / name
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(ConfigError) as caught:
        make(place)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("text", ["[]", "{", "\0\0", "name: ppo", "[" * 9999, "{}"])
@pytest.mark.parametrize("name", ["sweep.json", "trial2/trial.json"])
def test_a_damaged_file_is_named(name, text, place):
    (place / name).write_text(text)
    with pytest.raises(
        ConfigError, match="other settings" if name[0] + text == "s{}" else name
    ) as caught:
        make(place)
    assert str(caught.value).isprintable()
    assert (place / name).read_text() == text


@pytest.mark.slow
def test_trials_whose_study_is_lost_are_taken_up(tmp_path):
    first = results(swept(tmp_path, trials=3, seeds=1))
    runs = {path: path.read_bytes() for path in tmp_path.glob("trial*/seed*/metrics.csv")}
    for file in (*tmp_path.glob("trial*/trial.json"), tmp_path / "sweep.json"):
        file.unlink()
    (tmp_path / "trial7").mkdir()  # of which nothing is known
    assert results(swept(tmp_path, trials=3, seeds=1)) == first
    assert {path: path.read_bytes() for path in runs} == runs


@pytest.mark.parametrize("name", ["sweep.json", ".sweep", "trial0", "trial0/seed1"])
def test_nothing_is_written_through_a_link(name, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "sweep" / name
    link.parent.mkdir(parents=True)
    link.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match=f"{link.name} is a link"):
        swept(tmp_path / "sweep")
    assert not list((tmp_path / "elsewhere").iterdir())
