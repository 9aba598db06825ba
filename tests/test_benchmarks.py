"""The benchmarks' own arithmetic: what they report must be right."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import yaml

FOLDER = Path(__file__).parent.parent / "benchmarks"
sys.path.insert(0, str(FOLDER))

import handwritten_ppo  # noqa: E402
import measure  # noqa: E402
import peers  # noqa: E402
import picture  # noqa: E402
import sweeps  # noqa: E402
from results import Results  # noqa: E402
from suite import BENCHMARKS, Benchmark, Case, Limit, Measure, Ratio  # noqa: E402

from hooktrainer.show.results.result_rows import read_recipes  # noqa: E402


def benchmark(*measures: Measure, targets: tuple[Ratio | Limit, ...] = ()) -> Benchmark:
    cases = (Case("hooktrainer", "ours.py"), Case("peer", "theirs.py"))
    return Benchmark("test", "A test", cases, measures, targets=targets)


FRAMES = Measure("frames per CPU second", ("frames_per_cpu_second",))
SECONDS = Measure("CPU s", ("reached", "training", "cpu_seconds"), higher=False)


@pytest.mark.parametrize("name", BENCHMARKS)
def test_every_row_has_its_script_and_every_target_its_rows(name):
    case_names = [case.name for case in BENCHMARKS[name].cases]
    assert len(set(case_names)) == len(case_names)
    assert all((FOLDER / case.script).is_file() for case in BENCHMARKS[name].cases)
    if name != "loop":  # whose one script prints all rows
        for target in BENCHMARKS[name].targets:
            assert {target.ours, target.against} <= set(case_names)
        assert set(BENCHMARKS[name].compared) <= set(case_names)


def test_ratio_of_medians_where_more_is_better():
    results = Results(benchmark(FRAMES, targets=(Ratio("hooktrainer", "peer", 2.5),)))
    for ours, theirs in ((100, 50), (120, 40), (500, 45)):
        results.add("hooktrainer", {"frames_per_cpu_second": ours})
        results.add("peer", {"frames_per_cpu_second": theirs})
    assert results.median("hooktrainer") == 120
    assert results.ratio("hooktrainer", "peer") == pytest.approx(120 / 45)
    assert results.verdicts()[0].met is True


def test_ratio_where_less_is_better_counts_what_is_not_reached_as_never():
    results = Results(benchmark(SECONDS, targets=(Ratio("hooktrainer", "peer", 3.0),)))
    for ours, theirs in ((2.0, 5.0), (4.0, 7.0), (None, 9.0)):
        for row, value in (("hooktrainer", ours), ("peer", theirs)):
            reached = {} if value is None else {"training": {"cpu_seconds": value}}
            results.add(row, {"reached": reached})
    assert results.values("hooktrainer") == [2.0, 4.0, math.inf]
    assert results.ratio("hooktrainer", "peer") == pytest.approx(7 / 4)
    assert results.verdicts()[0].met is False


def test_what_could_not_be_measured_is_neither_met_nor_short():
    targets = (Ratio("hooktrainer", "peer", 1.0), Limit("peer", 1.0))
    results = Results(benchmark(FRAMES, targets=targets))
    results.add("hooktrainer", {"frames_per_cpu_second": 1.0})
    assert [verdict.met for verdict in results.verdicts()] == [None, None]


def test_results_are_saved_as_json_that_the_picture_reads(tmp_path, monkeypatch):
    shown = benchmark(FRAMES, targets=(Ratio("hooktrainer", "peer", 1.0),))
    monkeypatch.setitem(BENCHMARKS, "test", shown)
    results = Results(shown)
    results.add("hooktrainer", {"frames_per_cpu_second": 20.0, "options": {"frames": 10}})
    results.add("peer", {})
    results.missing["another"] = "ImportError"
    data = json.loads(results.save(tmp_path).read_text())
    assert data["rows"]["hooktrainer"]["rounds"] == {"frames per CPU second": [20.0]}
    assert data["rows"]["hooktrainer"]["options"] == {"frames": 10}
    assert data["targets"][0]["met"] is None
    assert data["missing"] == {"another": "ImportError"}
    assert picture.bars(data) == {"hooktrainer": 20.0}


def test_meter_times_from_the_warm_up_and_leaves_out_pauses(monkeypatch, capsys):
    clock = iter(float(second) for second in range(100))
    monkeypatch.setattr(measure.time, "process_time", lambda: next(clock))
    monkeypatch.setattr(measure, "mean_return", lambda env_id, act: act(2))
    meter = measure.Meter(measure.Run(frames=300, warmup=100), "CartPole-v1")
    meter.start()
    assert not meter.tick(100 - 1)
    assert not meter.tick(100, act=lambda x: 3.0 * x)  # the clock shows 0
    with meter.paused():  # 1 to 2
        pass
    assert not meter.tick(300 - 1)
    assert meter.tick(300, act=lambda x: 4.0 * x)  # 3, less the pause
    meter.print()
    line = json.loads(capsys.readouterr().out)
    assert (line["frames"], line["cpu_seconds"]) == (200, 2.0)
    assert line["frames_per_cpu_second"] == 100.0
    assert line["cpu_microseconds_a_frame"] == 10_000.0
    assert line["mean_return"] == 8.0  # of the last policy


def test_meter_notes_both_goals_and_then_ends_the_run(monkeypatch):
    monkeypatch.setattr(measure, "mean_return", lambda *_: 480.0)
    meter = measure.Meter(measure.Run(frames=100_000, solve=True), "CartPole-v1")
    meter.start()
    assert not meter.tick(2_400, act=lambda x: x)  # too early for an evaluation
    assert not meter.tick(3_000, act=lambda x: x)
    assert meter.reached["evaluation"]["frames"] == 3_000
    meter.returns.extend([475.0] * 100)
    assert meter.tick(3_100, act=lambda x: x)
    assert meter.reached["training"]["frames"] == 3_100


def test_the_peers_were_trained_on_the_tasks_of_the_rows_with_the_settings_of_their_file():
    settings = yaml.safe_load((FOLDER / "peers.yaml").read_text(encoding="utf-8"))
    recipes = read_recipes()
    files = [*(FOLDER / "results" / "peers").iterdir()]
    assert files
    for file in files:
        made = json.loads(file.read_text(encoding="utf-8"))
        assert made["settings"] == settings[file.stem]
        assert made["task"] == peers.task_of(recipes[file.stem])
        for seed in made["seeds"].values():
            assert seed["hooktrainer_cpu_seconds"] > 0
            at, _, seconds = zip(*seed["curve"], strict=True)
            assert at[-1] >= made["settings"]["n_timesteps"]
            assert (list(at), list(seconds)) == (sorted(at), sorted(seconds))


def test_same_step_cartpole_follows_gymnasiums_cartpole_through_resets():
    envs = handwritten_ppo.SameStepCartPole(3, 500)
    single = gym.make("CartPole-v1").unwrapped
    single.reset(seed=0)
    observation, _ = envs.reset(seed=0)
    ends = 0
    for _ in range(60):
        single.state = tuple(envs.state[:, 0])
        single.steps_beyond_terminated = None
        observation, reward, terminated, truncated, info = envs.step(np.ones(3, int))
        expected, expected_reward, expected_end, _, _ = single.step(1)
        final = info["final_obs"] if info else observation
        np.testing.assert_allclose(final[0], expected, rtol=1e-5)
        assert (reward[0], terminated[0]) == (expected_reward, expected_end)
        if terminated[0]:
            ends += 1
            assert np.abs(observation[0]).max() <= 0.05
        np.testing.assert_allclose(observation, envs.state.T, rtol=1e-6)
    assert ends > 3
    assert not truncated.any()


def test_gae_by_hand():
    # Two environments, three steps: the first terminates after its second step, the second is
    # truncated there, with a final value of 10.
    column = np.ones((3, 2))
    done = np.array([[False, False], [True, True], [False, False]])
    final = np.array([[0, 0], [0, 10.0], [0, 0]])
    advantages = handwritten_ppo.gae(
        column, 2 * column, done, final, np.array([4.0, 4.0]), gamma=0.5, lmbda=0.5
    )
    # Last step: 1 + 0.5 * 4 - 2 = 1. Second: 1 - 2 = -1, or 1 + 0.5 * 10 - 2 = 4.
    # First: 1 + 0.5 * 2 - 2 = 0, plus a quarter of the second.
    np.testing.assert_allclose(advantages, [[-0.25, 1.0], [-1.0, 4.0], [1.0, 1.0]])


def test_a_sweep_is_better_in_so_many_of_its_repeats():
    rows = [
        {"task": "A", "trials": 8, "cpu_seconds": 10.0, "random_trials": 9, "sweep": s, "random": r}
        for s, r in ((3.0, 1.0), (5.0, 9.0), (7.0, 2.0))
    ]
    rows.append({**rows[0], "trials": 16, "sweep": 1.0, "random": 1.0})
    *_, first, second = sweeps.table(rows).splitlines()
    assert first == "| A | 8 | 10 | 9 | 5 | 4 | 1 [-10, 12] | 2, 0, 1 |"
    assert second == "| A | 16 | 10 | 9 | 1 | 1 | 0 [-] | 0, 1, 0 |"
