"""Trainers that collect and evaluate in processes of a Ray cluster of three machines."""

from __future__ import annotations

import os
import signal
import threading
import time
from functools import partial
from pathlib import Path

import pytest
import torch
from ray_toy import local, policy
from tensordict.nn import InteractionType

from hooktrainer import Evaluate, Every, Trainer, ValueEstimatorHook
from hooktrainer.algorithms import A2C, seed_runs
from hooktrainer.errors import ConfigError
from hooktrainer.loop.hook_points import HOOK_POINTS
from hooktrainer.networks import ValueNetwork, mlp
from hooktrainer.objectives import GAE, ClipPPOLoss
from hooktrainer.run.placement import Place
from hooktrainer.run.programs import run_programs
from hooktrainer.run.ranks import Ranks, rank_state
from hooktrainer.store.tree import flatten, unflatten
from hooktrainer.testing import CallRecorder

ray = pytest.importorskip("ray")

from hooktrainer.run.ray import RayProgram, use_ray  # noqa: E402

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]


def make_trainer(logger, actor, critic) -> Trainer:
    loss = ClipPPOLoss(actor, critic)
    trainer = Trainer(
        collector=local(actor, exploration_type=InteractionType.RANDOM),
        total_frames=320,
        optim_steps_per_batch=2,
        loss_module=loss,
        optimizer=torch.optim.Adam(loss.parameters(), lr=1e-3),
        logger=logger,
        log_interval=64,
        progress_bar=False,
        seed=1,
    )
    ValueEstimatorHook(GAE(gamma=0.99, lmbda=0.95, value_network=critic)).register(trainer)
    Evaluate("CartPole-v1", actor, every=Every(frames=128), episodes=2).register(trainer)
    return trainer


def test_a_run_that_goes_on_with_other_processes_says_so(cluster, logger):
    def trainer(number: int) -> Trainer:
        made = make_trainer(logger, policy(), ValueNetwork(mlp(4, 1)))
        if number:
            use_ray(made, Place(count=number), Place())
        return made

    alone, several = trainer(0), trainer(2)
    resumed = rank_state(several, Ranks(), alone.state_dict())
    assert "saved by one process that collects, resumed by 2 processes" in resumed.note
    several.load_state_dict(resumed.state)
    state = several.state_dict()
    assert rank_state(several, Ranks(), state).note is None
    assert "saved by 2 processes that collect, resumed by one" in str(
        rank_state(alone, Ranks(), state).note
    )
    alone.shutdown()
    several.shutdown()


def test_a_trainer_trains_and_evaluates_with_all_hook_points(cluster, logger):
    trainer = make_trainer(logger, policy(), ValueNetwork(mlp(4, 1)))
    recorder = CallRecorder()
    recorder.register(trainer)
    collector = use_ray(trainer, Place(count=2), Place())
    trainer.train()
    assert set(recorder.calls) == set(map(str, HOOK_POINTS))
    assert trainer.collected_frames == 320
    at = sorted(set(logger.column("eval/frames").values()))
    assert at[0] in (128, 192)
    assert at[-1] == 320
    assert set(logger.column("data/age").values()) == {0.0}
    beside = {name for name in trainer.timing.totals if name.startswith("worker/")}
    assert beside == {"worker/env", "worker/inference", "worker/transfer"}
    assert trainer.timing.totals["sync_weights"] > 0
    with pytest.raises(RuntimeError, match="shut down"):
        collector.collect()
    time.sleep(0.5)
    assert ray.is_initialized()  # the cluster was there before


def test_the_state_of_an_evaluation_under_way_is_its_result(cluster, logger):
    trainer = make_trainer(logger, policy(), ValueNetwork(mlp(4, 1)))
    use_ray(trainer, Place(), Place())
    hook = trainer.registry.modules["evaluate"]
    hook(None)
    state = unflatten(*flatten(hook.state_dict()))
    assert state["arrived"]["eval/frames"] == 0
    hook.load_state_dict(state)
    metrics = hook.look(None)
    assert float(metrics["eval/return"]) == state["arrived"]["eval/return"] > 0
    assert hook.look(None) is None
    trainer.shutdown()


PROGRAM = """
import pathlib, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
pathlib.Path(sys.argv[1]).touch()
if sys.argv[1] == "fails":
    sys.exit("out of luck")
while True:
    time.sleep(0.01)
"""


@pytest.mark.usefixtures("free_sigterm")
def test_programs_run_in_this_directory_and_a_signal_reaches_them(
    cluster, tmp_path, monkeypatch, capfd
):
    monkeypatch.chdir(tmp_path)
    Path("program.py").write_text(PROGRAM)

    def interrupt():
        while not all(Path(tmp_path, name).exists() for name in ("one", "other", "fails")):
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)

    programs = []

    def start(name):
        programs.append(RayProgram(cluster, ["program.py", name]))
        return programs[-1]

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(SystemExit) as ended:
        run_programs([partial(start, name) for name in ("one", "other", "fails")])
    assert ended.value.code == 143
    assert [program.code for program in programs] == [143, 143, 1]
    assert "out of luck" in capfd.readouterr().err


def test_seeds_are_shared_out_among_machines_and_change_nothing(cluster, tmp_path, monkeypatch):
    def train(place, **options):
        A2C(
            env="CartPole-v1", num_envs=2, steps_per_batch=8, total_frames=64, log_interval=16,
            eval_episodes=0, tuned=False, progress_bar=False, logger="csv",
            run_dir=tmp_path / place, seeds="1-3", **options,
        ).train()  # fmt: skip

    train("here")
    train("there", workers=2, engine="ray")
    for seed in (1, 2, 3):
        rows = [
            [line for line in file.read_text().splitlines() if "time/" not in line]
            for file in (
                tmp_path / place / f"seed{seed}/metrics.csv" for place in ("here", "there")
            )
        ]
        assert rows[0] == rows[1]
    with pytest.raises(ConfigError, match="collectors=2 with seeds"):
        train("nowhere", workers=2, engine="ray", collectors=2)
    monkeypatch.setattr(seed_runs, "run_programs", lambda starts, grace: [0, 0])  # elsewhere
    with pytest.raises(RuntimeError, match=r"seeds 1-3 have left nothing in .*nowhere"):
        train("nowhere", workers=2, engine="ray")
