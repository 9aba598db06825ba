"""Evaluations and cached pictures of saved policies."""

from __future__ import annotations

import shutil

import pytest
from saved_runs import BALANCES, FALLS, Silent, save_policy

from hooktrainer.policies import evaluate_policy, list_policies
from hooktrainer.show import View, make_exhibits, record_episodes

SMALL = View(size=60, seconds=0.4)


def exhibit(run, **options):
    return make_exhibits(run, episodes=2, view=SMALL, **options)


@pytest.fixture
def drawn(monkeypatch):
    """Frames of the policies that are played for a picture."""
    seen = []

    def spy(policy, **options):
        seen.append(policy.saved.frames)
        return record_episodes(policy, **options)

    monkeypatch.setattr("hooktrainer.show.gallery.exhibits.record_episodes", spy)
    return seen


def test_every_policy_is_evaluated_and_drawn(make_run):
    run = make_run()
    bad, good = exhibit(run)
    assert (bad.frames, good.frames) == (0, 1000)
    assert good.evaluation.mean > 10 * bad.evaluation.mean
    assert good.evaluation.episodes == 2
    recorded = [saved.evaluation.returns for saved in list_policies(run)]
    assert recorded == [bad.evaluation.returns, good.evaluation.returns]
    assert good.picture.film.startswith(b"RIFF")
    assert good.picture.seconds_shown == 0.4


def test_evaluations_are_recorded_and_pictures_of_before_are_not_made_again(make_run, drawn):
    run = make_run()
    first = exhibit(run)
    assert drawn == [0, 1000]
    said = []
    again = exhibit(run, seed=99, progress=said.append, before=first)
    assert (drawn, said) == ([0, 1000], [])
    assert [e.picture is old.picture for e, old in zip(again, first, strict=True)] == [True] * 2
    save_policy(run, "CartPole-v1", 500, (0.0, 0.0, -1.0, 0.1))
    shown = exhibit(run, progress=said.append, before=again)
    assert [e.frames for e in shown] == [0, 500, 1000]
    assert drawn == [0, 1000, 500]
    assert said == ["playing 2 episodes of step_000000000500", "drawing step_000000000500"]


def test_a_policy_that_is_deleted_meanwhile_is_skipped(make_run, monkeypatch):
    run = make_run()

    def thin_first(saved, **options):
        if saved.frames == 0:
            shutil.rmtree(saved.path)
        return evaluate_policy(saved, **options)

    monkeypatch.setattr("hooktrainer.show.gallery.exhibits.evaluate_policy", thin_first)
    assert [e.frames for e in exhibit(run)] == [1000]


def test_an_environment_without_pictures_is_shown_by_curves(make_run):
    run = make_run(env=Silent, policies={0: (1.0, 2.5, 0.0)})
    (shown,) = exhibit(run, trust=True)
    picture = shown.picture
    assert picture.film is None
    assert "does not draw" in picture.reason
    assert picture.observations[:, :2].T.tolist() == [[0, 1, 2, 3, 4], [-1, -1, -1, -1, -1]]
    assert picture.actions.T.tolist() == [[0, 0, 0, 1, 1]]


def test_damaged_policies_are_left_out_and_named(make_run):
    run = make_run(policies={0: FALLS, 500: FALLS, 1000: BALANCES})
    (run.path / "policies/step_000000000000/policy.json").write_text("{")
    (run.path / "policies/step_000000000500/policy.safetensors").write_bytes(b"")
    said = []
    assert [e.frames for e in exhibit(run, progress=said.append)] == [1000]
    told = [line for line in said if line.startswith("left out: ")]
    assert ["000000000000" in told[0], "000000000500" in told[1], len(told)] == [True, True, 2]
