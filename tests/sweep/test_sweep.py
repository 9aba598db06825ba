"""Sweeps: trials side by side, ended early, killed, and made by several processes."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal

import numpy as np
import optuna
import pytest
from gymnasium.envs.classic_control import CartPoleEnv
from small_sweep import make, results, small, swept

from hooktrainer import ConfigError, TrainerHookBase
from hooktrainer.algorithms import DQN
from hooktrainer.log import read_csv
from hooktrainer.statistics import SCORES, Curve

FORK = multiprocessing.get_context("fork")


@pytest.mark.slow
def test_the_trials_are_the_same_however_many_train_at_once(tmp_path):
    # Of a random sampler, whose trials do not depend on what is known of others.
    together = swept(tmp_path / "a", sampler="random", parallel=3, trials=3)
    alone = swept(tmp_path / "b", sampler="random", parallel=1, trials=3)
    assert results(together) == results(alone)
    assert len({tuple(one.params.values()) for one in together.trials}) == 3


@pytest.mark.slow
def test_trials_of_several_shapes_are_the_same_too(tmp_path):
    space = {"num_cells": [[8], [4, 4]], "gamma": None, "lmbda": None}
    together = swept(tmp_path / "a", sampler="random", parallel=4, space=space, seeds=1)
    alone = swept(tmp_path / "b", sampler="random", parallel=1, space=space, seeds=1)
    assert {one.params["num_cells"] for one in together.trials} == {"[8]", "[4, 4]"}
    assert results(together) == results(alone)


def test_a_trial_has_run_directories_and_the_value_that_these_have(tmp_path):
    sweep = swept(tmp_path, trials=2)
    assert list(sweep.seeds) == [1_000_000_000, 1_000_000_001]
    first, second = sweep.trials
    assert first.params == sweep.space.defaults()
    for one in (first, second):
        scores = []
        for seed in sweep.seeds:
            place = tmp_path / f"trial{one.number}" / f"seed{seed}"
            state = json.loads((place / "run.json").read_text())
            assert (state["status"], state["frames"]) == ("finished", 128)
            assert state["seed"] == seed
            curve = Curve.of(read_csv(place)["eval/return"])
            assert curve.frames.tolist() == [32, 64, 96, 128]
            scores.append(SCORES["area"](curve, 128))
        assert one.value == np.mean(scores)
        assert one.reports[128] == one.value
        assert one.cpu_seconds > 0
    assert sweep.best.value == max(first.value, second.value)


def test_a_trial_is_ended_where_it_promises_nothing(tmp_path):
    sweep = make(tmp_path, trials=2)
    sweep.ledger._pruner = optuna.pruners.ThresholdPruner(lower=1e9, n_warmup_steps=60)
    sweep.run()
    sweep.close()
    for one in sweep.trials:
        assert one.state == "pruned"
        assert list(one.reports) == [32, 64]
        for seed in sweep.seeds:
            place = tmp_path / f"trial{one.number}" / f"seed{seed}" / "run.json"
            state = json.loads(place.read_text())
            assert state["status"] == "pruned"
            assert state["reason"].startswith("pruned: other trials had scored more by 64")
            assert state["frames"] == 64  # none has gone on before the others were heard
    assert sweep.best is None


def test_evaluations_count_at_the_frames_at_which_they_were_due(tmp_path):
    # Of batches of 40 frames, and of 32; both are compared at the same frames.
    space = {"steps_per_batch": [20, 16], "lr": {"low": 1e-3, "high": 2e-3}}
    sweep = swept(tmp_path, trials=3, seeds=1, space=space, sampler="random")
    assert {one.params["steps_per_batch"] for one in sweep.trials} == {20, 16}
    assert {tuple(one.reports) for one in sweep.trials} == {(32, 64, 96, 128)}


def test_settings_that_fail_are_a_trial_and_leave_the_others_alone(tmp_path):
    # Of a length of sequences, without a memory that learns from them.
    space = {"sequence_length": [None, 4], "lr": {"low": 0.01, "high": 0.02}}
    sweep = swept(tmp_path, trials=3, parallel=3, seeds=1, space=space, sampler="random")
    states = {one.params["sequence_length"]: one for one in sweep.trials}
    assert sweep.trials[0].params["sequence_length"] == 4
    assert states[None].state == "complete"
    assert states[4].state == "fail"
    assert "sequence_length=4 has no effect without memory" in states[4].failure


class Unscored(CartPoleEnv):
    """Its rewards are NaN."""

    def step(self, action):
        observation, _, terminated, truncated, info = super().step(action)
        return observation, float("nan"), terminated, truncated, info


def test_settings_without_a_finite_score_are_a_trial_too(tmp_path):
    run = DQN(
        env=Unscored,
        total_frames=64,
        num_envs=2,
        init_random_frames=100,
        eval_interval=32,
        eval_episodes=1,
        progress_bar=False,
    )
    sweep = swept(tmp_path, algorithm=run, trials=1, seeds=1)
    (one,) = sweep.trials
    assert (one.state, one.failure, one.reports) == ("fail", "it has no finite score", {})


class Killing(TrainerHookBase):
    """Kills the process that makes the sweep, once."""

    is_saved = False

    def __init__(self, marks, number):
        self.marks, self.number = marks, number

    def register(self, trainer, name="killing"):
        trainer.register_module(name, self)
        trainer.register_op("post_steps_log", self.kill)

    def kill(self, batch):
        is_counted = self.trainer.collected_frames == 96 and self.trainer.seed % 2
        if is_counted and self.count() == 3:  # in the second of two batches of trials
            os.kill(os.getppid(), self.number)

    def count(self):
        """How many came before, of processes that may count at once."""
        number = 0
        while True:
            try:
                (self.marks / f"mark{number}").touch(exist_ok=False)
            except FileExistsError:
                number += 1
            else:
                return number


def in_child(call, *args, **kwargs):
    process = FORK.Process(target=call, args=args, kwargs=kwargs)
    process.start()
    return process


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The result of an uninterrupted sweep."""
    place = tmp_path_factory.mktemp("whole")
    unharmed = small(hooks=[Killing(place, 0)])
    return results(swept(place / "sweep", algorithm=unharmed))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.slow
def test_a_sweep_that_was_killed_goes_on_as_if_it_had_not_been(tmp_path, whole, number):
    killed = small(hooks=[Killing(tmp_path, number)])
    process = in_child(swept, tmp_path / "sweep", algorithm=killed)
    process.join()
    # SIGTERM may come while its handler is not installed, between two batches.
    assert process.exitcode in ({-number} if number == signal.SIGKILL else {-number, 128 + number})
    looked = make(tmp_path / "sweep", algorithm=killed)
    states = [one.state for one in looked.trials]
    assert states == ["complete", "complete", "running", "running"]
    looked.run()
    looked.close()
    assert results(looked) == whole
    for trial, resumed in ((0, False), (1, False), (2, True), (3, True)):
        for seed in looked.seeds:
            place = tmp_path / "sweep" / f"trial{trial}" / f"seed{seed}" / "run.json"
            state = json.loads(place.read_text())
            assert ("resumed" in state) == resumed
            assert state["frames"] == 128


def test_a_sweep_killed_between_the_ends_of_two_trials_keeps_its_batches(tmp_path, monkeypatch):
    options = {"algorithm": small(total_frames=32), "seeds": 1}
    killed = make(tmp_path, **options)
    finish = killed.ledger.finish

    def die(*args):
        finish(*args)
        raise KeyboardInterrupt

    monkeypatch.setattr(killed.ledger, "finish", die)
    with pytest.raises(KeyboardInterrupt):
        killed.run()
    killed.close()
    resumed, batches = make(tmp_path, **options), []
    train = resumed._train
    monkeypatch.setattr(
        resumed,
        "_train",
        lambda batch: [batches.append([runs.trial.number for runs in batch]), train(batch)],
    )
    resumed.run()
    resumed.close()
    assert batches == [[1], [2, 3]]


@pytest.mark.slow
def test_several_processes_make_one_sweep(tmp_path):
    options = {"trials": 5, "parallel": 1, "seeds": 1}
    processes = [in_child(swept, tmp_path / "sweep", **options) for _ in range(2)]
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]
    looked = make(tmp_path / "sweep", **options)
    assert [one.number for one in looked.trials] == list(range(5))
    assert {one.state for one in looked.trials} == {"complete"}
    assert looked.ledger.elsewhere == []
    looked.run()  # which has nothing left to do
    assert len(looked.trials) == 5
    looked.close()


def test_a_sweep_goes_on_with_what_it_was_begun_with(tmp_path):
    swept(tmp_path, trials=1)
    with pytest.raises(ConfigError, match=r"begun with other settings \(num_envs: 2 before, 4"):
        make(tmp_path, algorithm=small(num_envs=4))
    with pytest.raises(ConfigError, match="seeds: 2 before, 3 now"):
        make(tmp_path, seeds=3)
    more = swept(tmp_path, trials=2, parallel=1)
    assert [one.number for one in more.trials] == [0, 1]
