"""Trials that are ended early, and with whom they are compared."""

from __future__ import annotations

import optuna
import pytest
from small_sweep import make, small

from hooktrainer.sweep.ledger import MedianPruner
from hooktrainer.sweep.trial_runs import Evaluations, TrialRuns

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


def evaluated(frames, value, *, ends):
    return Evaluations({frames: value}, ends, is_new=True, cpu_seconds=0.0)


def at_once(sweep, count, begun=None):
    """Trials that train at once, of which some have begun."""
    found = []
    for number in range(count):
        runs = TrialRuns(sweep._ledger.take(), small(), sweep.seeds, score="area")
        runs.is_training = begun is None or number in begun
        found.append(runs)
    for runs in found:
        runs.group = found
    return found


@pytest.mark.parametrize("values", [(5.0, 6.0, 7.0, 4.5, 1.0, 2.0, 3.0), range(7, 0, -1), range(7)])
def test_those_that_train_at_once_wait_for_each_other(tmp_path, values):
    sweep = make(tmp_path, pruner="median", trials=7, seeds=1)
    trials = at_once(sweep, 7)
    (seed,) = sweep.seeds
    for runs, value in zip(trials, values, strict=True):
        assert not any(one.pruned for one in trials)
        runs.note(seed, evaluated(32, value, ends=False))
    # The lower half but for the middle one, which is no less than the median of the other six.
    assert [one.pruned for one in trials] == [value < sorted(values)[3] for value in values]
    sweep.close()


def test_one_that_has_solved_its_task_is_what_the_others_are_compared_with(tmp_path):
    sweep = make(tmp_path, pruner="median", parallel=4, seeds=1)
    trials = at_once(sweep, 4)
    (seed,) = sweep.seeds
    trials[0].note(seed, evaluated(32, 9.0, ends=True))
    assert sorted(sweep.trials[0].intermediate_values) == [32, 64, 96, 128]
    for frames in (32, 64):
        for runs, value in zip(trials[1:], (3.0, 2.0, 1.0), strict=True):
            if not runs.pruned:
                runs.note(seed, evaluated(frames, value, ends=False))
    assert [runs.pruned for runs in trials] == [False, False, True, True]
    sweep.close()
