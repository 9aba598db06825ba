"""A sweep small enough to be made many times."""

from __future__ import annotations

from hooktrainer.algorithms import PPO
from hooktrainer.sweep import Sweep, SweepOptions


def small(**changes):
    given = {
        "env": "CartPole-v1",
        "total_frames": 128,
        "num_envs": 2,
        "steps_per_batch": 16,
        "mini_batch_size": 16,
        "num_epochs": 1,
        "num_cells": (8,),
        "eval_interval": 32,
        "eval_episodes": 1,
        "save_interval": 32,
        "stop_at": None,
        "tuned": False,
        "logger": "csv",
        "progress_bar": False,
    }
    return PPO(**given | changes)


def make(place, *, algorithm=None, fixed=(), space=None, **options):
    given = {"trials": 4, "seeds": 2, "parallel": 2, "pruner": "none"}
    return Sweep(
        algorithm or small(),
        SweepOptions(run_dir=place, **given | options),
        fixed=fixed,
        space=space,
    )


def swept(place, **options):
    """A sweep that was made to its end, by this process."""
    sweep = make(place, **options)
    try:
        sweep.run()
    finally:
        sweep.close()
    return sweep


def finish(sweep, *values):
    """End the sweep's next trials with those values, without training."""
    for value in values:
        sweep.ledger.finish(sweep.ledger.take(), value)


def results(sweep):
    return [(one.number, one.state, one.value, one.params, one.reports) for one in sweep.trials]
