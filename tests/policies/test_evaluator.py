"""The process that plays the policies of a run beside it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import gymnasium as gym
import pytest
from outcomes import is_gone, wait_for
from policy_envs import Broken, Endless, Toy

from hooktrainer import list_policies
from hooktrainer.base.child_program import ChildProgram
from hooktrainer.hooks.policy_snapshot import Evaluator
from hooktrainer.networks import CategoricalPolicy, mlp
from hooktrainer.policies.recorder import describe


def policy() -> CategoricalPolicy:
    return CategoricalPolicy(mlp(4, 3, (8,)))


def evaluator_of(run: Path) -> Evaluator:
    """The evaluator of a run whose environment is that of its policies."""
    return Evaluator(run, 3, 2, list_policies(run)[0].environment)


@pytest.mark.slow
def test_it_plays_what_was_not_played_at_the_lowest_priority(save, tmp_path, capsys):
    for frames in (0, 10):
        save(policy(), frames=frames)
    run = tmp_path / "run"
    evaluator = evaluator_of(run)
    evaluator.start()
    process = evaluator._program
    assert os.getpriority(os.PRIO_PROCESS, process.pid) == 19
    evaluator.start()
    assert evaluator._program is process, "one at a time"
    save(policy(), frames=20)
    evaluator.finish(wait=True, report=True)
    evaluations = [saved.evaluation for saved in list_policies(run)]
    assert [(e.seed, e.episodes) for e in evaluations] == [(3, 2)] * 3
    out = capsys.readouterr().out
    assert "playing" in out
    assert f"3 policies in {run}/policies · best: return" in out
    assert f"look: hooktrainer gallery {run} --trust" in out


@pytest.mark.slow
@pytest.mark.parametrize("may_raise", [True, False])
def test_the_end_of_a_run_waits_at_its_own_priority(may_raise, save, tmp_path, monkeypatch):
    save(policy())
    evaluator, found = evaluator_of(tmp_path / "run"), []
    evaluator.start()
    wait = ChildProgram.wait

    def waiting(self, seconds=None):
        if seconds is None:
            found.append(os.getpriority(os.PRIO_PROCESS, self.pid))
        return wait(self, seconds)

    def refuse(*_):
        raise PermissionError

    monkeypatch.setattr(ChildProgram, "wait", waiting)
    if not may_raise:  # as for users without privileges
        monkeypatch.setattr(os, "setpriority", refuse)
    evaluator.finish(wait=True, report=False)
    assert found[0] == os.getpriority(os.PRIO_PROCESS, 0)
    assert list_policies(tmp_path / "run")[0].evaluation is not None


@pytest.mark.usefixtures("warm_python")
def test_one_that_fails_is_said_and_does_not_hold_up_the_run(save, tmp_path, capsys):
    save(policy(), Broken)
    evaluator_of(tmp_path / "run").finish(wait=True, report=True)
    out = capsys.readouterr().out
    assert "1 policy could not be played" in out
    assert "RuntimeError: the gears are stuck" in out


def test_one_that_ends_without_playing_is_not_started_for_ever(save, capsys):
    class Idle(Evaluator):
        def start(self):
            self._log.write_text("it saw nothing to play")
            self._program = SimpleNamespace(wait=lambda: 0, close=lambda seconds: None)

    run = save(policy()).parents[1]
    Idle(run, 3, 2, list_policies(run)[0].environment).finish(wait=True, report=True)
    assert "1 policy could not be played: it saw nothing to play" in capsys.readouterr().out


@pytest.mark.usefixtures("warm_python")
def test_nobody_waits_for_it_if_the_run_did_not_end_well(save, tmp_path, capsys):
    save(policy(), Endless)
    evaluator = evaluator_of(tmp_path / "run")
    evaluator.start()
    process = evaluator._program
    evaluator.finish(wait=False, report=True)
    assert process.code is not None
    assert capsys.readouterr().out == ""


DRIVER = """
import sys, time
from pathlib import Path
from hooktrainer import list_policies
from hooktrainer.hooks.policy_snapshot import Evaluator
environment = list_policies(sys.argv[1])[0].environment
evaluator = Evaluator(Path(sys.argv[1]), 0, 1, environment)
evaluator.start()
print(evaluator._program.pid, flush=True)
time.sleep(100)
"""


@pytest.mark.usefixtures("warm_python")
@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for the process in /proc")
def test_it_ends_when_the_run_is_killed(save, tmp_path):
    save(policy(), Endless)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, tmp_path / "run"], stdout=subprocess.PIPE, env=environment
    )
    try:
        pid = int(driver.stdout.readline())
        time.sleep(0.5)
        assert not is_gone(pid)
    finally:
        driver.kill()
        driver.wait()
        driver.stdout.close()
    wait_for(lambda: is_gone(pid))


@pytest.mark.parametrize(("env", "trust"), [("CartPole-v1", ""), ("OwnToy-v0", " --trust")])
def test_the_commands_trust_a_module_that_has_registered_the_environment(
    env, trust, tmp_path, capsys, monkeypatch
):
    monkeypatch.setitem(gym.registry, "OwnToy-v0", gym.envs.registration.EnvSpec("OwnToy-v0", Toy))
    own = describe(env).environment
    Evaluator(tmp_path, 3, 2, own).finish(wait=True, report=True)
    assert capsys.readouterr().out.endswith(f"look: hooktrainer gallery {tmp_path}{trust}\n")


@pytest.mark.usefixtures("warm_python")
def test_it_trusts_no_environment_but_the_runs_own(save, tmp_path, capsys):
    """A policy of somebody else may lie in the directory of a run that goes on."""
    save(policy(), Toy, frames=10)
    save(policy(), Broken, frames=0)
    run = tmp_path / "run"
    own = next(saved.environment for saved in list_policies(run) if saved.frames == 10)
    Evaluator(run, 3, 2, own).finish(wait=True, report=True)
    assert [saved.evaluation is not None for saved in list_policies(run)] == [False, True]
    assert (
        "the environment Broken needs Broken of the module policy_envs" in capsys.readouterr().out
    )


@pytest.mark.usefixtures("warm_python")
def test_a_log_that_is_a_link_is_not_followed(save, tmp_path):
    save(policy())
    precious = tmp_path / "precious"
    precious.write_text("kept")
    (tmp_path / "run/policies/.evaluate.log").symlink_to(precious)
    evaluator = evaluator_of(tmp_path / "run")
    evaluator.start()
    evaluator.finish(wait=False, report=False)
    assert precious.read_text() == "kept"
