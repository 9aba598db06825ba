"""Every probe passes a trainer that is right, and fails one that is wrong in what it is about."""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path

import pytest
import torch
from torch.utils.tensorboard import SummaryWriter

sys.path.insert(0, str(Path(__file__).parent))

from tabular import (
    BeginsAgain,
    Dies,
    Hangs,
    Raises,
    SaysSo,
    Survives,
    Tabular,
    Trains,
    WrongInSilence,
)

from hooktrainer.conformance import (
    Adapter,
    Task,
    Trained,
    check,
    load_adapter,
    parameters_of,
    scalars_in,
)
from hooktrainer.conformance.adapter import ADAPTERS
from hooktrainer.conformance.probes import PROBES
from hooktrainer.errors import ConfigError


def results(adapter, *only: str, seconds: float = 60.0) -> dict[str, str]:
    return {one.probe: one.result for one in check(adapter, only, seconds)}


def test_a_right_trainer_passes_every_probe():
    assert results(Tabular()) == dict.fromkeys(PROBES, "pass")


@pytest.mark.parametrize("name", PROBES)
def test_a_probe_finds_the_trainer_that_is_wrong_in_it(name):
    (found,) = check(Tabular(name), [name])
    assert (found.probe, found.result) == (name, "fail")
    assert found.expected
    assert found.seen


@pytest.mark.slow
@pytest.mark.parametrize("name", PROBES)
def test_no_other_probe_finds_it(name):
    also = {
        # Who does not bootstrap a time limit bootstraps no final observation.
        "truncation": {"final-observation": "not applicable"},
        # Who bootstraps terminal states has another value of the final observation.
        "termination": {"final-observation": "fail"},
        # Two runs that differ by themselves differ after a kill.
        "seeds": {"resume": "fail"},
        # Who stops early does not come to what it should refuse, or to the end of the cadence.
        "frames": dict.fromkeys(
            ("nan-observation", "nan-reward", "observation-shape", "evaluations", "checkpoints"),
            "fail",
        ),
    }
    expected = dict.fromkeys(PROBES, "pass") | {name: "fail"} | also.get(name, {})
    assert results(Tabular(name)) == expected


def test_a_mistake_is_named_by_its_value():
    seen = {name: next(check(Tabular(name), [name])).seen for name in ("truncation", "termination")}
    assert seen["truncation"].endswith(": the time limit counts as the end")
    assert seen["termination"].endswith(": the terminal state is bootstrapped")
    (found,) = check(Tabular("final-observation"), ["final-observation"])
    assert found.seen.endswith(": the observation of the reset")


def test_a_window_of_the_last_episodes_is_a_true_mean_of_these_only():
    class Claims(Tabular):
        window = 3

    (found,) = check(Claims(), ["returns"])
    assert found.result == "fail"
    assert found.seen.endswith("episodes are in no mean")


def test_what_an_adapter_lacks_is_not_applicable_and_why():
    found = {one.probe: one for one in check(Trains(), ["truncation", "returns", "resume"])}
    assert {one.result for one in found.values()} == {"not applicable"}
    assert found["returns"].seen == "the adapter gives no returns."
    assert found["resume"].seen == "the adapter has no checkpoints."
    assert results(Trains(), "frames", "seeds") == {"frames": "pass", "seeds": "pass"}


def test_what_the_documentation_says_is_no_failure():
    (found,) = check(SaysSo(), ["frames"])
    assert (found.result, found.reference) == ("documented", "the manual, page 3")


def test_a_refusal_without_a_word_is_a_failure():
    (found,) = check(WrongInSilence(), ["observation-shape"])
    assert (found.result, found.reference) == ("fail", "tabular.py:1")
    assert found.seen == "ValueError"


def test_an_exception_for_another_reason_is_no_refusal():
    for found in check(Raises(), ["frames", "nan-reward"]):
        assert (found.result, found.seen) == ("fail", "crashed: RuntimeError: no licence")
    (found,) = check(Tabular("frames"), ["nan-reward"])
    assert found.seen == "crashed: it ended after 448 of 512 frames"


def test_a_crash_and_a_hang_are_results():
    for died in check(Dies(), ["frames", "nan-reward"]):  # nor is a crash a refusal
        assert died.result == "fail"
        assert "exit code 3" in died.seen
        assert died.seen.endswith("the disk is full")
    (hung,) = check(Hangs(), ["frames"], seconds=0.2)
    assert hung.result == "fail"
    assert "has not answered for 0.2 seconds" in hung.seen


def test_a_resume_that_begins_again_is_none():
    (found,) = check(BeginsAgain(), ["resume"])
    assert (found.result, found.seen) == ("fail", "it began again")


def test_a_run_that_cannot_be_killed_cannot_be_resumed():
    assert results(Survives(), "resume") == {"resume": "not applicable"}


def test_an_unknown_probe_or_adapter_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"only='returnz' is unknown\. Did you mean returns\?"):
        list(check(Tabular(), ["returnz"]))
    with pytest.raises(ConfigError, match=r"trainer='hooktrainr' .*mean hooktrainer\?.*your own"):
        load_adapter("hooktrainr")
    with pytest.raises(ConfigError, match=r"there is no file .*mine\.py"):
        load_adapter(f"{tmp_path}/mine.py:Mine")
    with pytest.raises(ConfigError, match="is no adapter"):
        load_adapter("collections:Counter")
    with pytest.raises(ConfigError, match="there is no Nothing in it"):
        load_adapter("collections:Nothing")
    with pytest.raises(ConfigError, match="no_such_module"):
        load_adapter("no_such_module:Mine")


def test_this_package_bootstraps_the_final_observation_and_uses_every_transition():
    names = ("final-observation", "transitions", "frames")
    assert results(load_adapter("hooktrainer"), *names) == dict.fromkeys(names, "pass")


def test_the_scorecard_of_the_page_is_made_of_the_results():
    docs = Path(__file__).parents[2] / "docs"
    make, text = runpy.run_path(str(docs / "make_check.py")), (docs / "check.md").read_text()
    found = make["read_results"]()
    assert make["page"](text, found) == text
    assert set(found) == set(ADAPTERS)
    own = {one["probe"]: one["result"] for one in found["hooktrainer"]["findings"]}
    assert own == dict.fromkeys(PROBES, "pass")


@pytest.mark.slow
def test_this_package_passes_every_probe():
    assert results(load_adapter("hooktrainer")) == dict.fromkeys(PROBES, "pass")


def test_training_batches_are_recorded_where_a_gradient_flows_back():
    class Torch(Adapter):
        def train(self, task: Task) -> Trained:
            model, env = torch.nn.Linear(3, 1), task.env()
            observation, _ = env.reset()
            for step in range(task.frames):
                following, *_, ends, _, _ = env.step(0)
                loss = model(torch.from_numpy(observation)).sum()
                if step != 3:
                    loss.backward()
                observation = env.reset()[0] if ends else following
            return Trained(state=parameters_of(model))

    (found,) = check(Torch(), ["transitions"])
    assert (found.result, found.seen) == ("fail", "511 of 512; those of steps 3 are in none")


def test_scalars_that_are_logged_at_one_step_are_averaged(tmp_path):
    with SummaryWriter(str(tmp_path)) as writer:
        for step, value in ((8, 1.0), (8, 2.0), (4, 5.0)):
            writer.add_scalar("return", value, step)
            writer.add_scalar("length", 2 * value, step)
    assert scalars_in(tmp_path, "return", "length") == [(4, 5.0, 10.0), (8, 1.5, 3.0)]
    assert scalars_in(tmp_path, "other") == []


def test_an_option_that_a_command_line_refuses_is_refused():
    class Script(Tabular):
        def train(self, task: Task) -> Trained:
            if task.options:
                sys.exit("no option --no-such-option")
            return super().train(task)

    (found,) = check(Script(), ["unknown-option"])
    assert (found.result, found.seen) == ("pass", "SystemExit: no option --no-such-option")


def test_cleanrl_is_a_file_that_the_user_names(tmp_path, monkeypatch):
    monkeypatch.setenv("CLEANRL_PPO", f"{tmp_path}/ppo.py")
    with pytest.raises(ConfigError, match=r"CLEANRL_PPO='.*ppo\.py' is no file: download"):
        load_adapter("cleanrl")
    monkeypatch.delenv("CLEANRL_PPO")
    with pytest.raises(ConfigError, match="CLEANRL_PPO"):
        load_adapter("cleanrl")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # theirs
@pytest.mark.parametrize("name", [name for name in ADAPTERS if name != "hooktrainer"])
def test_adapters_of_other_trainers_work(name):
    if name == "cleanrl" and "CLEANRL_PPO" not in os.environ:
        pytest.skip("CLEANRL_PPO names no script")
    if name != "cleanrl":
        pytest.importorskip(name)
    found = results(load_adapter(name), "termination", "frames")
    assert found["termination"] == "pass"
    assert found["frames"] in ("pass", "not applicable", "documented")
