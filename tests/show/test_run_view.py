"""`view`: what a run did, in a terminal and in a notebook."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import hooktrainer
from hooktrainer import ConfigError, RunDir
from hooktrainer.algorithms import PPO
from hooktrainer.testing import tiny_trainer


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> PPO:
    """A run with policies."""
    run = PPO(
        env="CartPole-v1",
        total_frames=128,
        num_envs=2,
        steps_per_batch=16,
        mini_batch_size=32,
        num_epochs=1,
        eval_interval=64,
        eval_episodes=1,
        num_cells=(8,),
        stop_at=None,
        logger="csv",
        snapshots=2,
        seed=1,
        progress_bar=False,
        run_dir=tmp_path_factory.mktemp("runs") / "<i>a",
    )
    run.train()
    return run


def metrics_of(run: PPO) -> str:
    return (Path(run.run_dir or "") / "metrics.csv").read_text()


def test_a_terminal_shows_status_curve_times_and_what_is_saved(run):
    text = str(hooktrainer.view(run))
    assert re.search(r"<i>a: finished · 128 of 128 frames in .+ s$", text, re.M)
    assert re.search(r"^eval/return [\d.]+, at most [\d.]+$", text, re.M)
    assert re.search(r"^\d checkpoints?, the latest at 128$", text, re.M)
    assert re.search(r"^[▁-█]+$", text, re.M)
    assert re.search(r"^collect +\d+\.\d\d +\d+\.\d%", text, re.M)
    assert "\x1b" not in text


def test_a_notebook_shows_a_film_of_the_policy_and_escapes_what_a_run_holds(run):
    html = hooktrainer.view(run)._repr_html_()
    assert "&lt;i&gt;a: finished" in html
    assert "<i>" not in html
    assert html.count('<polyline class="mean"') == 1
    assert '<img alt="the policy" src="data:image/webp;base64,UklGR' in html
    assert re.search(r'<th>collect</th><td class="n">[\d.]+ s</td><td class="n">[\d.]+%</td>', html)
    assert "<img" not in hooktrainer.view(run, film=False)._repr_html_()


def test_the_same_run_by_any_name(run):
    place = Path(str(run.run_dir))
    expected = str(hooktrainer.view(run))
    for name in (place, str(place), RunDir(place)):
        assert str(hooktrainer.view(name)) == expected


def test_a_trainer_with_a_directory_is_its_run(run):
    trainer = run.resumed().trainer()
    assert str(hooktrainer.view(trainer)).startswith(str(run.run_dir))
    trainer.shutdown()


def test_another_metric(run):
    assert "\nloss/critic " in str(hooktrainer.view(run, "loss/critic"))
    with pytest.raises(ConfigError, match="has no metric 'loss/other'"):
        hooktrainer.view(run, "loss/other")


def test_times_are_the_seconds_of_the_run_by_phase(tmp_path):
    run = RunDir.create(tmp_path / "a")
    run.update(status="failed", reason="out of <b>memory</b>", frames=40, seconds=8.0)
    # Two windows, of 10 and 30 frames: 1 and 3 batches. `eval` is in the second only.
    run.metrics.write_text(
        "step,name,value\n10,time/step,2.0\n10,time/collect,1.0\n10,time/fps,5.0\n"
        "40,time/step,2.0\n40,time/collect,1.5\n40,time/evaluate,0.5\n"
    )
    view = hooktrainer.view(run)
    assert view.times == {"step": 8.0, "collect": 5.5, "evaluate": 1.5}
    assert view.metric is None
    html = view._repr_html_()
    assert "out of &lt;b&gt;memory&lt;/b&gt;" in html
    assert "<svg" not in html
    assert "<img" not in html
    assert "out of <b>memory</b>\n0 checkpoints\n" in str(view)


def test_a_film_that_would_run_code_needs_trust(run, monkeypatch):
    def refuse(*given: Any, **options: Any) -> None:
        assert options["trust"] is False
        raise ConfigError("it needs <trust>")

    monkeypatch.setattr("hooktrainer.show.gallery.film.film_policies", refuse)
    html = hooktrainer.view(run)._repr_html_()
    assert "it needs &lt;trust&gt;" in html
    assert "<img" not in html


def test_what_has_no_run_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no run"):
        hooktrainer.view(tmp_path / "none")
    with pytest.raises(ConfigError, match="has no directory: train it with a run_dir"):
        hooktrainer.view(tiny_trainer())
    with pytest.raises(ConfigError, match="has no directory"):
        hooktrainer.view(PPO(env="CartPole-v1"))
