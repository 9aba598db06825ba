"""`hooktrainer policies` and `hooktrainer play`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from sealed import change_facts, read_facts

from hooktrainer import list_policies
from hooktrainer.loop import Progress
from hooktrainer.networks import CategoricalPolicy, mlp
from hooktrainer.policies import PolicyRecorder, evaluate_policy, evaluate_run
from hooktrainer.show.html import return_text


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run with policies at 0, 100 and 1000 frames, the first two played."""
    path = tmp_path / "run"
    recorder = PolicyRecorder(path / "policies", CategoricalPolicy(mlp(4, 2, (8,))), "CartPole-v1")
    for frames in (0, 100, 1000):
        if frames == 1000:
            assert len(list(evaluate_run(path, seed=3, episodes=4))) == 2
        recorder.save(Progress(frames=frames, seconds=frames / 10))
    return path


def rows(out: str) -> list[list[str]]:
    return [
        [cell.strip() for cell in line.split("│")[1:-1]] for line in out.splitlines() if "│" in line
    ]


def test_list_shows_the_return_of_each_policy(call, run):
    done = call("policies", "list", run)
    assert done.code == 0
    table = rows(done.out)
    assert [(row[0], row[1]) for row in table] == [
        ("0", "0.0 s"),
        ("100", "10 s"),
        ("1,000", "1 min 40 s"),
    ]
    assert table[0][2] == return_text(list_policies(run)[0].evaluation)
    assert [row[2] == "not played" for row in table] == [False, False, True]
    assert [row[-1] for row in table] == ["", "best", "latest"]
    assert f"3 policies of CartPole-v1 in {run}" in done.out
    assert f"1 not played yet; hooktrainer policies evaluate {run} plays the rest\n" in done.out
    evaluate_policy(run)
    assert "not played" not in call("policies", "list", run).out


def test_list_shows_what_is_damaged(call, run):
    (run / "policies/step_000000000100/policy.json").write_text("{")
    done = call("policies", "list", run)
    assert "policy.json" in rows(done.out)[-1][-1]
    assert json.loads(call("policies", "list", run, "--json").out)[-1]["state"] == "damaged"


def test_a_damaged_latest_one_is_not_passed_over_in_silence(call, run, caplog):
    (run / "policies/step_000000001000/policy.json").write_text("{")
    assert "seed 3" in call("policies", "show", run).out
    (message,) = caplog.messages
    assert message.startswith(f"left out: {run}/policies/step_000000001000 is damaged: ")


def test_show_prints_interface_and_evaluation(call, run):
    done = call("policies", "show", f"{run}@100")
    shown = dict(row for row in rows(done.out) if len(row) == 2)
    assert shown["reads"] == "observation: float32[4]"
    assert shown["environment"] == "CartPole-v1"
    assert "seed 3" in done.out
    facts = json.loads(call("policies", "show", f"{run}@100", "--json").out)
    assert facts["frames"] == 100
    assert "not played yet" in call("policies", "show", run).out


def test_evaluate_plays_policies_without_evaluation(call, run):
    done = call("policies", "evaluate", run, "--episodes", 2, "--json")
    assert done.code == 0
    (entry,) = json.loads(done.out)
    assert (entry["frames"], entry["evaluation"]["episodes"]) == (1000, 2)
    assert json.loads(call("policies", "evaluate", run, "--json").out) == []
    again = call("policies", "evaluate", run, "--again", "--seed", 9, "--episodes", 1, "--json")
    assert [entry["evaluation"]["seed"] for entry in json.loads(again.out)] == [9, 9, 9]


def test_prune_keeps_policies_by_rule(call, run):
    assert call("policies", "prune", run).code == 2
    assert call("policies", "prune", run, "--spread", 2).err.startswith(
        "error: this is not a terminal"
    )
    looked = call("policies", "prune", run, "--spread", 2, "--dry-run")
    assert [row[-1] for row in rows(looked.out)] == ["kept", "deleted", "kept"]
    assert len(list_policies(run)) == 3
    done = call("policies", "prune", run, "--keep-best", 1, "--yes")
    assert (done.code, [saved.frames for saved in list_policies(run)]) == (0, [100, 1000])
    assert "nothing to delete" in call("policies", "prune", run, "--every-frames", 50).out


def test_prune_by_return_keeps_policies_without_evaluation(call, run):
    unplayed = run / "policies/step_000000000000"
    change_facts(unplayed, evaluation=None)
    words = ("policies", "prune", run, "--dry-run")
    assert rows(call(*words, "--keep-last", 1).out)[0][-1] == "deleted"
    assert "nothing to delete" in call(*words, "--keep-best", 1).out


def test_play_repeats_the_recorded_episodes(call, run):
    done = call("play", f"{run}@100")
    assert done.code == 0
    evaluation = list_policies(run)[1].evaluation
    assert [float(row[1]) for row in rows(done.out)] == list(evaluation.returns)
    assert [int(row[2]) for row in rows(done.out)] == list(evaluation.lengths)
    assert "seed 3" in done.out
    assert "the same as recorded" in done.out
    assert call("play", f"{run}@best").out == done.out


def test_play_reports_other_returns_than_recorded(call, run):
    path = run / "policies/step_000000000100"
    facts = read_facts(path)["evaluation"]
    change_facts(path, evaluation=facts | {"returns": [1.0, *facts["returns"][1:]]})
    done = call("play", path)
    assert done.code == 1
    assert "NOT the same as recorded" in done.out
