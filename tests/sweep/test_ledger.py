"""The trials of a sweep among processes, some of which are gone."""

from __future__ import annotations

import multiprocessing
import os
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from small_sweep import small

from hooktrainer import ConfigError
from hooktrainer.sweep import SearchSpace, SweepOptions, ledger
from hooktrainer.sweep.ledger import Ledger
from hooktrainer.sweep.storage import open_storage

FORK = multiprocessing.get_context("fork")


@pytest.fixture
def opened(tmp_path):
    """Opens ledgers of one sweep, as processes of their own would."""
    made = []

    def open_one(trials=3, place=tmp_path):
        options = SweepOptions(
            run_dir=place,
            trials=trials,
            sampler="random",
            storage=str(tmp_path / "study.journal"),
        )
        space = SearchSpace.of(small())
        made.append(Ledger(options, "a sweep", {"seeds": 2}, space, (32, 128)))
        return made[-1]

    yield open_one
    for one in made:
        one.close()


def test_there_are_as_many_as_asked_for_and_the_first_has_the_defaults(opened):
    one = opened()
    claims = [one.take() for _ in range(4)]
    assert claims.pop() is None
    assert [claim.trial.number for claim in claims] == [0, 1, 2]
    assert claims[0].trial.params == SearchSpace.of(small()).defaults()
    one.finish(claims[0], 1.0)
    one.finish(claims[1], None)
    claims[2].trial.report(0.5, 32)
    one.finish(claims[2], None, pruned=True)
    assert [(t.state.name, t.value) for t in one.counted] == [
        ("COMPLETE", 1.0),
        ("FAIL", None),
        ("PRUNED", 0.5),
    ]
    assert one.take() is None


def test_what_another_is_working_on_is_left_to_it_until_it_lets_go(opened):
    one, other = opened(), opened()
    mine, theirs = one.take(), other.take()
    assert (mine.trial.number, theirs.trial.number) == (0, 1)
    assert [t.number for t in one.elsewhere] == [1]
    assert one.take().trial.number == 2
    assert one.take() is None
    params = theirs.trial.params
    other.close()
    taken = one.take()
    assert (taken.trial.number, taken.trial.params) == (1, params)
    assert one.elsewhere == []


def test_a_process_that_dies_leaves_its_trial_to_the_next(opened):
    def die():
        claim = opened().take()
        claim.trial.report(1.0, 32)
        os._exit(9)

    process = FORK.Process(target=die)
    process.start()
    process.join()
    taken = opened().take()
    assert taken.trial.number == 0
    assert taken.trial.storage.get_trial(taken.trial._trial_id).intermediate_values == {32: 1.0}


def test_a_trial_of_a_machine_that_is_gone_is_tried_again_and_counted_once(
    opened, tmp_path, monkeypatch
):
    away = opened(place=tmp_path / "on another machine").take()
    here = opened(trials=2)
    assert here.take().trial.number == 1
    assert here.take() is None
    monkeypatch.setattr(ledger, "SILENCE", 0.0)
    time.sleep(0.01)
    again = here.take()
    assert again.trial.number == 2
    assert again.trial.params == away.trial.params
    assert [(t.number, t.state.name) for t in here.counted] == [(1, "RUNNING"), (2, "RUNNING")]
    assert here.take() is None


def test_those_that_ask_at_the_same_time_get_no_more_than_there_are(opened, monkeypatch):
    ledgers = [opened(trials=5) for _ in range(4)]
    begun = type(ledgers[0])._begun
    # What a process knows may be old by the time at which it asks.
    monkeypatch.setattr(Ledger, "_begun", lambda self: min(begun(self), 4))
    with ThreadPoolExecutor(4) as threads:
        taken = list(threads.map(lambda one: [one.take() for _ in range(2)], ledgers))
    numbers = sorted(c.trial.number for own in taken for c in own if c is not None)
    assert numbers == list(range(5))
    assert [t.number for t in ledgers[0].counted] == numbers


def test_a_line_that_was_cut_off_in_the_journal_spoils_nothing(opened, tmp_path):
    opened().take()
    journal = tmp_path / "study.journal"
    whole = journal.read_bytes()
    journal.write_bytes(whole + b'{"op_code": 5, "worker')
    assert opened().take().trial.number == 1
    assert journal.read_bytes().startswith(whole)
    assert b'"worker{' not in journal.read_bytes()


def test_what_cannot_be_opened_is_said_in_a_line(tmp_path):
    with pytest.raises(ConfigError, match=r"storage='nosuch://x' cannot be opened: .*Give a file"):
        open_storage("nosuch://x", tmp_path)
