"""Fields in which learners may differ and still be computed together."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from test_seed_runs import RUNS, parameters

from hooktrainer.loop.lockstep import Lockstep
from hooktrainer.run.fields import Mark, marked

OTHER = {
    "lr": 0.02,
    "gamma": 0.8,
    "lmbda": 0.5,
    "entropy_coeff": 0.04,
    "critic_coeff": 0.9,
    "clip_epsilon": 0.05,
    "tau": 0.3,
    "target_interval": 3,
    "eps_end": 0.5,
    "annealing_frames": 60,
    "sigma": 0.6,
}


def trained(*runs):
    trainers = [run.built(keep=False) for run in runs]
    assert Lockstep(trainers).run() == [None] * len(trainers)
    return [parameters(trainer) for trainer in trainers]


def same(one, other):
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("kind", RUNS)
def test_learners_that_differ_in_them_are_computed_together_and_change_nothing(kind):
    run = RUNS[kind](seeds="2-2", seed=2)
    fields = marked(type(run), Mark.AMONG_LEARNERS)
    assert "lr" in fields
    other = replace(run, **{name: OTHER[name] for name in fields})
    ((alone,), (other_alone,)) = trained(run), trained(other)
    assert not same(alone, other_alone)
    beside, other_beside = trained(run, other)
    assert same(beside, alone)
    assert same(other_beside, other_alone)
