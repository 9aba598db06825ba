"""`view`: what a run did, in a terminal and in a notebook."""

from __future__ import annotations

import re

import pytest
from saved_runs import Drawing, Failing

import hooktrainer
from hooktrainer import ConfigError, RunDir
from hooktrainer.algorithms import PPO
from hooktrainer.errors import NotFoundError
from hooktrainer.show import view
from hooktrainer.store import CheckpointManager
from hooktrainer.testing import tiny_trainer


def test_a_terminal_shows_status_curve_times_and_what_is_saved(make_run, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")  # as a kernel does
    text = str(view(make_run()))
    assert re.search(r"run: finished · 1,000 frames in 2.5 s$", text, re.M)
    assert re.search(r"^eval/return 100, at most 100$", text, re.M)
    assert re.search(r"^0 checkpoints, 2 policies$", text, re.M)
    assert re.search(r"^▁█$", text, re.M)
    assert re.search(r"^ collect +1\.00 +40\.0%", text, re.M)
    assert "\x1b" not in text


def test_a_notebook_also_shows_a_film_of_the_policy(make_run):
    run = make_run()
    html = view(run)._repr_html_()
    assert html.count('<polyline class="mean"') == 1
    assert '<img alt="the policy" src="data:image/webp;base64,UklGR' in html
    assert '<th>collect</th><td class="n">1.00 s</td><td class="n">40.0%</td>' in html
    assert "<img" not in view(run, film=False)._repr_html_()


def test_a_film_that_runs_code_needs_trust_and_one_that_fails_is_explained(make_run):
    run = make_run(env=Drawing, policies={0: (1.0, 0.0, 0.0)})
    html = view(run)._repr_html_()
    assert "<img" not in html
    assert "trust" in html
    assert "<img" in view(run, trust=True)._repr_html_()


def test_a_film_that_cannot_be_drawn_is_explained(make_run):
    run = make_run(env=Failing, policies={0: (1.0, 0.0, 0.0)})
    html = view(run, trust=True)._repr_html_()
    assert "<img" not in html
    assert "there is nothing to render" in html


def test_a_run_is_given_by_directory_trainer_or_algorithm(make_run):
    run = make_run()
    with CheckpointManager(run.checkpoints) as checkpoints:
        trainer = tiny_trainer(checkpoints=checkpoints)
        for given in (run.path, str(run.path), trainer, PPO(env="CartPole-v1", run_dir=run.path)):
            assert str(hooktrainer.view(given)) == str(view(run))


def test_another_metric(make_run):
    run = make_run()
    assert "\neval/return_std 2, at most 2\n" in str(view(run, "eval/return_std"))
    with pytest.raises(ConfigError, match=r"has no metric 'loss/other'\. It has eval/return, "):
        view(run, "loss/other")
    with pytest.raises(ConfigError, match="Did you mean eval/return"):
        view(run, "eval/retrun")


def test_times_are_the_seconds_of_the_run_by_phase_and_texts_are_escaped(tmp_path):
    run = RunDir.create(tmp_path / "<i>a")
    run.update(status="failed", reason="out of <b>memory</b>", frames=40, seconds=8.0)
    # Two windows, of 10 and 30 frames: 1 and 3 batches. The second alone has an evaluation.
    run.metrics.write_text(
        "step,name,value\n10,time/step,2.0\n10,time/collect,1.0\n10,time/fps,5.0\n"
        "40,time/step,2.0\n40,time/collect,1.5\n40,time/evaluate,0.5\n40,loss/<u>,0.5\n"
    )
    shown = view(run)
    assert shown.times == {"step": 8.0, "collect": 5.5, "evaluate": 1.5}
    html = shown._repr_html_()
    for text in ("<i>a: failed", "out of <b>memory</b>", "loss/<u> 0.5"):
        assert text in str(shown)
        assert text not in html
        assert text.replace("<", "&lt;").replace(">", "&gt;") in html
    assert "<u>" not in html
    assert "<img" not in html


def test_a_run_without_metrics_has_no_curve(tmp_path):
    run = RunDir.create(tmp_path / "a")
    assert str(view(run)) == f"{run.path}: running · 0 frames in 0.0 s\n0 checkpoints"
    assert "<svg" not in view(run)._repr_html_()


def test_what_has_no_run_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no run"):
        view(tmp_path / "none")
    with pytest.raises(ConfigError, match="has no directory: train it with a run_dir"):
        view(tiny_trainer())
    with pytest.raises(ConfigError, match="has no directory"):
        view(PPO(env="CartPole-v1"))


def test_a_run_of_which_only_metrics_are_left_is_shown(make_run):
    run = make_run()
    run.run_file.unlink()
    seen = view(run, film=False)
    assert "eval/return 100" in str(seen)
    assert '<polyline class="mean"' in seen._repr_html_()


def test_a_directory_that_is_no_run_is_said(make_run):
    run = make_run()
    with pytest.raises(NotFoundError, match=r"run/policies is no run: give the path of one\.$"):
        view(run.path / "policies")
