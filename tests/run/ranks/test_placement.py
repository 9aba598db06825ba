"""The line that says which part goes where."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from hooktrainer.errors import ConfigError
from hooktrainer.run import Machine, Ranks, RunConfig, places_of
from hooktrainer.run.run import Layout
from hooktrainer.testing import tiny_trainer

MACHINE = Machine(cores=(0, 1, 2, 3), gpus=2)


@pytest.mark.parametrize(
    ("text", "places"),
    [
        (
            "learner: gpu:0, collectors: 4@cpu, eval: cpu",
            {"learner": "gpu:0", "collectors": "4@cpu", "eval": "cpu"},
        ),
        ("actor,rollout: 0-1", {"learner": "gpu:0-1", "collectors": "gpu:0-1"}),
        ("learner,eval : gpu", {"learner": "gpu:0", "eval": "gpu:0"}),
        ("collectors: cpu:0,2-3", {"collectors": "cpu:0,2-3"}),
        ("collectors: 8@cpu:all", {"collectors": "8@cpu:0-3"}),
        ("learner: all", {"learner": "gpu:0-1"}),
        ("env: 2@node:1-2", {"collectors": "2@node:1-2"}),
    ],
)
def test_what_is_written_is_understood(text, places):
    read = places_of(text, MACHINE)
    assert {name: str(place) for name, place in read.items()} == places


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("learner: cpu:99", "the CPU cores that this process may use are 0-3"),
        ("learner: gpu:2", "the GPUs that this process may use are 0-1"),
        ("lerner: cpu", "'lerner' is no component; there are learner, collectors, eval"),
        ("learner", "'learner' is no component and its place"),
        ("learner: cpu0", "'learner: cpu0' is no component and its place"),
        ("collectors: 0@cpu", "give at least 1"),
        ("collectors: cpu:3-1", "the range 3-1 is empty"),
        ("collectors: cpu:0-99999999999", "or more than any machine has"),
        ("env: cpu, rollout: gpu:0", "collectors is placed twice, at cpu and gpu:0"),
        ("eval: cpu:0-1", "one process evaluates"),
        ("learner: node:1", "the learner runs where it is started"),
        ("collectors: cpu, 2", "'2' is no component and its place"),
        ("collectors: cpu, ", "'collectors: cpu,' is no component and its place"),
        ("", "'' is no component and its place"),
        ("collectors: node:all", "give the machines by number"),
    ],
)
def test_a_mistake_is_explained_in_one_line(text, problem):
    with pytest.raises(ConfigError, match=problem) as error:
        places_of(text, MACHINE)
    assert "\n" not in str(error.value)
    assert repr(text) in str(error.value)


def test_all_gpus_of_a_machine_without_one_are_refused():
    with pytest.raises(ConfigError, match="this machine has no CUDA device"):
        places_of("learner: gpu:all", Machine((0, 1), 0))


def options(placement=None, engine=None, collectors=None, **more):
    given = {"placement": placement, "engine": engine, "collectors": collectors, **more}
    return RunConfig(total_frames=1, **given)


@pytest.mark.parametrize(
    ("given", "engine", "number"),
    [
        (options(), "local", 1),
        (options(engine="ray"), "ray", 1),
        (options(engine="ray", collectors=3), "ray", 3),
        (options(collectors=2), "ray", 2),
        (options("collectors: 4@cpu"), "ray", 4),
        (options("learner: cpu, eval: cpu"), "local", 1),
        (options("learner: gpu:0", collectors=1), "local", 1),
        (options("learner: gpu:0, collectors: cpu"), "ray", 1),
    ],
)
def test_the_engine_follows_from_what_is_placed(given, engine, number, monkeypatch):
    monkeypatch.setattr(Machine, "here", lambda: MACHINE)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    layout = Layout(given, Ranks())
    assert (layout.engine, layout.collectors.processes) == (engine, number)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (options(engine="local", collectors=2), "use --engine ray"),
        (options("collectors: 4@cpu", collectors=2), "contradicts"),
        (options("learner: 2@cpu"), "needs as many learners, and there are 1"),
        (options(stages=2), "add --workers 2"),
        *(
            (options(timeout=t), "--timeout .*: give more than 0 sec")
            for t in (0.0, -1.0, math.nan)
        ),
    ],
)
def test_contradictions_are_refused(given, problem):
    with pytest.raises(ConfigError, match=problem):
        Layout(given, Ranks())


def test_networks_that_are_not_on_the_learners_device_are_refused():
    trainer = tiny_trainer()
    with pytest.raises(ConfigError, match=r"networks of this recipe are on cpu: .*run\.device"):
        Layout(options(device="meta"), Ranks()).apply(trainer)
    trainer.shutdown()


@pytest.mark.parametrize(
    "given",
    [{"overlap": 1}, {"workers": 2}, {"engine": "ray"}, {"placement": "collectors: 4@cpu"}],
)
def test_a_run_on_a_data_set_has_nothing_to_collect(given):
    with pytest.raises(ConfigError, match="this recipe trains on a data set"):
        Layout(options(**given), Ranks(), collects=False)
    allowed = options("learner: cpu", engine="local", overlap=0)
    layout = Layout(allowed, Ranks(), collects=False)
    layout.apply(SimpleNamespace(collector=object()))  # which has nothing to wrap


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system cannot pin")
def test_the_learner_is_pinned_to_its_core():
    before = os.sched_getaffinity(0)
    core = min(before)
    try:
        Layout(options(f"learner: cpu:{core}"), Ranks())
        assert os.sched_getaffinity(0) == {core}
    finally:
        os.sched_setaffinity(0, before)


CROWDED = """
import os, pickle
from hooktrainer.base.worker import Worker
from hooktrainer.base.cores import pin

def answer(channel):
    channel.send_object(os.sched_getaffinity(0))

if __name__ == "__main__":
    before = os.sched_getaffinity(0)
    pin([min(before)])
    child = Worker("the process", answer)
    print(pickle.loads(child.receive()) == before, os.sched_getaffinity(0) == {min(before)})
    child.close()
"""


@pytest.mark.usefixtures("warm_python")
@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system cannot pin")
def test_what_a_pinned_learner_starts_is_not_pinned_as_well(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(CROWDED)
    ended = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)
    assert ended.stdout.split() == ["True", "True"], ended.stderr
