"""Trials that are ended early, and with whom they are compared."""

from __future__ import annotations

import optuna
import pytest
from small_sweep import make

from hooktrainer.sweep.ledger import MedianPruner
from hooktrainer.sweep.trial_runs import prune

STATES = optuna.trial.TrialState


def study_of(*values, state=STATES.RUNNING):
    """A study whose trials have reported values at 32, 64, ... frames."""
    study = optuna.create_study(direction="maximize", pruner=MedianPruner(64))
    for own in values:
        known = {32 * n: value for n, value in enumerate(own, start=1)}
        value = {"value": own[-1]} if state == STATES.COMPLETE else {}
        one = optuna.trial.create_trial(state=state, intermediate_values=known, **value)
        study.add_trial(one)
    return study


def is_ended(study, *values):
    trial = study.ask()
    for n, value in enumerate(values, start=1):
        trial.report(value, 32 * n)
    return trial.should_prune()


@pytest.mark.parametrize("state", [STATES.RUNNING, STATES.PRUNED, STATES.COMPLETE])
def test_it_is_compared_with_the_median_of_all_that_have_come_as_far(state):
    study = study_of([0.0, 1.0], [0.0, 2.0], [0.0, 9.0], [99.0], state=state)
    assert is_ended(study, 0.0, 1.9)
    study = study_of([0.0, 1.0], [0.0, 2.0], [0.0, 9.0], [99.0], state=state)
    assert not is_ended(study, 0.0, 2.0)  # as much as the median
    study = study_of([0.0, 1.0], [0.0, 2.0], [0.0, 9.0], state=state)
    assert not is_ended(study, 2.0, 0.0)  # it has scored as much before


@pytest.fixture
def trials(tmp_path):
    """Makes trials that train at once; returns how each reports evaluations at some frames."""
    sweep = make(tmp_path, pruner="median", trials=7, seeds=1)
    (seed,) = sweep.seeds
    made = []

    def begin(count):
        made.extend(sweep._batch(count))
        return made

    def meet(frames, values, ends=False):
        for runs, value in zip(made, values, strict=True):
            if runs.trial.state != "pruned":
                runs.note(seed, {frames: value}, ends, frames / 32)
                ends = False
        for runs in made:
            runs.report()
        prune(made, sweep.ledger)

    yield begin, meet
    sweep.close()


@pytest.mark.parametrize("values", [(5.0, 6.0, 7.0, 4.5, 1.0, 2.0, 3.0), range(7, 0, -1), range(7)])
def test_those_that_train_at_once_wait_for_each_other(trials, values):
    begin, meet = trials
    made = begin(7)
    meet(32, values)
    # The lower half but for the middle one, which is no less than the median of the other six.
    ended = [one.trial.state == "pruned" for one in made]
    assert ended == [value < sorted(values)[3] for value in values]
    assert [one.trial.cpu_seconds for one in made] == [1.0] * 7  # known if they are killed now


def test_one_that_has_solved_its_task_is_what_the_others_are_compared_with(trials):
    begin, meet = trials
    made = begin(4)
    meet(32, (9.0, 3.0, 2.0, 1.0), ends=True)
    assert sorted(made[0].trial.reports) == [32, 64, 96, 128]
    meet(64, (9.0, 3.0, 2.0, 1.0))
    assert [one.trial.state for one in made] == ["running", "running", "pruned", "pruned"]
