"""What a sweep leaves behind: the winner, confirmed or not, a command, a file and a page."""

from __future__ import annotations

import json
import re
import shlex
import sys

import pytest
import yaml
from small_sweep import finish, make, small

from hooktrainer.algorithms import PPO
from hooktrainer.algorithms.algorithm import parse
from hooktrainer.cli.sweep import _run as print_outcome
from hooktrainer.sweep import confirm as confirming
from hooktrainer.sweep.confirm import KEEP, confirm, play_finals, words_of
from hooktrainer.sweep.page import best_command, importances, sweep_page, trial_rows


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """A sweep whose winner is trial 2, by what is said of it."""
    sweep = make(
        tmp_path_factory.mktemp("sweep"),
        trials=6,
        fixed=("num_envs", "lmbda"),
        space={"num_cells": [[8], [4, 4]], "lr": {"low": 1e-4, "high": 1e-2, "log": True}},
    )
    for value in (1.0, 2.0, 9.0, 4.0, None, 5.0):
        trial = sweep.ledger.take()
        trial.reports = {32: 32.0, 64: 64.0}
        if value == 5.0:
            trial.state = "pruned"
        sweep.ledger.finish(trial, value)
    yield sweep
    sweep.close()


def test_the_winner_is_the_best_that_came_to_its_end(swept):
    assert swept.best.number == 2
    heads, rows = trial_rows(swept)
    assert [row[0] for row in rows] == ["2", "3", "1", "0", "5", "4"]
    ends = ["winner", "", "", "", "pruned", "failed: it has no finite score"]
    assert [row[2] for row in rows] == ends
    assert heads[5:] == ["num_cells", "lr", "gamma", "entropy_coeff", "clip_epsilon"]


def test_the_command_makes_the_winner(swept):
    assert swept.algorithm_of(swept.best) != swept.algorithm
    program, train, *words = shlex.split(best_command(swept))
    assert (program, train) == ("hooktrainer", "train")
    file = swept.place / "best.yaml"
    assert not {"seed", "seeds", "run_dir"} & yaml.safe_load(file.read_text()).keys()
    made = parse(PPO, words)
    for name, value in swept.space.settings(swept.best.params).items():
        assert getattr(made, name) == value
    assert (made.num_envs, made.eval_interval) == (2, 32)


def test_the_command_trusts_an_environment_of_ones_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_cart.py").write_text(
        "from gymnasium.envs.classic_control import CartPoleEnv as Own\n"
    )
    monkeypatch.setattr(sys, "path", list(sys.path))
    sweep = make(tmp_path / "sweep", algorithm=small(env="own_cart.py:Own"), trials=1)
    finish(sweep, 1.0)
    assert parse(PPO, shlex.split(best_command(sweep))[2:]).env == "own_cart.py:Own"
    sweep.close()


def test_one_trial_does_not_show_what_mattered(tmp_path):
    sweep = make(tmp_path / "sweep", trials=2)
    finish(sweep, 1.0)
    assert importances(sweep) == {}
    sweep.close()


def test_the_page_has_trials_curves_and_what_mattered_and_needs_nothing_else(swept):
    page = sweep_page(swept, "the winner is <not> confirmed")
    assert "The winner is &lt;not&gt; confirmed." in page
    assert "The best: trial 2" in page
    assert page.count("<polyline") > 4
    assert set(importances(swept)) == set(swept.space.candidates)
    assert sum(importances(swept).values()) == pytest.approx(1.0)
    assert "what mattered (PED-ANOVA): " in page
    assert not re.search(r"(src|href)=|https?://|<script", page)


def test_a_sweep_in_which_every_trial_failed_has_exit_code_1(tmp_path, capsys):
    sweep = make(tmp_path, trials=1)
    finish(sweep, None)
    assert print_outcome(sweep, 0, as_json=False) == 1
    assert "no trial has finished" in capsys.readouterr().out
    sweep.close()


@pytest.mark.slow
def test_it_is_confirmed_from_fresh_seeds_and_only_if_it_is_better(tmp_path, monkeypatch):
    sweep = make(tmp_path, trials=2, seeds=1)
    finish(sweep, 0.0, 1.0)
    found = confirm(sweep, 5)
    sweep.close()
    assert found.winner == "trial 1"
    for place in ("trial1", "default"):
        for seed in range(5):
            state = json.loads((tmp_path / "confirm" / place / f"seed{seed}/run.json").read_text())
            assert state["status"] == "finished"
            assert state["seed"] == seed  # not one of those that tuned
    groups = {group.group: group for group in found.section.groups}
    assert set(groups) == {"trial 1", confirming.DEFAULTS}
    assert all(list(group.seeds) == list(range(5)) for group in groups.values())
    monkeypatch.setattr(confirming, "run_of", None)  # nothing is trained again
    again = confirm(sweep, 5)
    assert again.comparison == found.comparison


@pytest.mark.parametrize("gain", [5.0, -5.0, 0.05, -0.05])
def test_better_is_what_is_told_apart_and_on_the_right_side(tmp_path, gain):
    sweep = make(tmp_path, trials=2, seeds=1)
    finish(sweep, 0.0, 1.0)
    for place, high in (("trial1", gain), ("default", 0.0)):
        for seed in range(6):
            run = tmp_path / "confirm" / place / f"seed{seed}"
            run.mkdir(parents=True)
            config = small(lr=1e-3 if place == "default" else 1e-2).as_dict() | {
                "name": "ppo",
                "seed": seed,
            }
            (run / "config.yaml").write_text(yaml.safe_dump(config))
            state = {"run_id": f"{place}{seed}", "status": "finished", "seed": seed}
            state |= {"experiment": "ppo", "frames": 128, "seconds": 1.0, "metrics": {}}
            (run / "run.json").write_text(json.dumps(state))
            value = high + seed / 10
            (run / "metrics.csv").write_text(f"step,name,value\n128,eval/return,{value}\n")
    found = confirm(sweep, 6)
    assert found.better == (gain > 1)
    said = words_of(found, 6)
    if abs(gain) > 1:
        better = "trial 1" if gain > 0 else "default settings"
        assert f"{better} is better than" in said
    assert said.startswith("confirmed" if gain > 1 else KEEP if gain < 0 else "trial 1 is not")
    page = sweep_page(sweep, said, found)
    assert ("Keep the defaults" in page) == (gain < 0)
    assert ("The best: trial 1" in page) == (gain > 0)


def test_the_best_play_finals_from_further_seeds_and_luck_does_not_win(tmp_path):
    sweep = make(tmp_path, trials=3, seeds=1, finalists=2, sampler="random")
    sweep.run()
    lucky, honest, other = sorted(sweep.trials, key=lambda one: -one.value)
    assert sweep.best.number == sweep.winner.number == lucky.number
    first = sweep.seeds.stop
    for one, value in ((lucky, 1.0), (honest, 100.0)):
        run = tmp_path / f"trial{one.number}" / f"seed{first}"
        run.mkdir()
        (run / "run.json").write_text(json.dumps({"status": "finished"}))
        (run / "metrics.csv").write_text(f"step,name,value\n128,eval/return,{value}\n")
    play_finals(sweep)
    finals = {one.number: one.final for one in sweep.trials}
    assert finals == {
        lucky.number: (lucky.value + 1.0) / 2,
        honest.number: (honest.value + 100.0) / 2,
        other.number: None,
    }
    assert (sweep.best.number, sweep.winner.number) == (lucky.number, honest.number)
    assert not (tmp_path / f"trial{other.number}" / f"seed{first}").exists()
    heads, rows = trial_rows(sweep)
    assert heads[:3] == ["trial", "area", "finals"]
    assert [row[3] for row in rows if row[0] == str(honest.number)] == ["winner"]
    (run / "metrics.csv").write_text("step,name,value\n128,eval/return,inf\n")  # of `honest`
    play_finals(sweep)
    assert sweep.trials[honest.number].final is None
    assert sweep.winner.number == lucky.number
    sweep.close()
