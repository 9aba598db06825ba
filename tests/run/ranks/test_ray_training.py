"""Trainers that collect and evaluate in processes of a Ray cluster of three machines."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest
import torch
from outcomes import rows, wait_for
from ray_toy import local, policy
from tensordict.nn import InteractionType

from hooktrainer import (
    HOOK_POINTS,
    Evaluate,
    Every,
    RunDir,
    Trainer,
    TrainerHookBase,
    ValueEstimatorHook,
)
from hooktrainer.algorithms import A2C
from hooktrainer.networks import ValueNetwork, mlp
from hooktrainer.objectives import GAE, ClipPPOLoss
from hooktrainer.run import Place, Ranks, rank_state
from hooktrainer.store import flatten, unflatten
from hooktrainer.testing import CallRecorder

ray = pytest.importorskip("ray")

from hooktrainer.run import use_ray  # noqa: E402

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
    resumed, note = rank_state(several, Ranks(), alone.state_dict())
    assert "saved by one process that collects, resumed by 2 processes" in note
    several.load_state_dict(resumed)
    state = several.state_dict()
    assert rank_state(several, Ranks(), state)[1] is None
    assert (
        "saved by 2 processes that collect, resumed by one" in rank_state(alone, Ranks(), state)[1]
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
    assert at[0] >= 128  # as soon as the evaluating process is ready
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
    hook.look(None)
    hook.load_state_dict(state)
    metrics = hook.look(None)
    assert float(metrics["eval/return"]) == state["arrived"]["eval/return"] > 0
    assert hook.look(None) is None
    trainer.shutdown()


def train_seeds(place, **options):
    given = {"total_frames": 64, "log_interval": 16, "seeds": "1-3"} | options
    A2C(
        env="CartPole-v1", num_envs=2, steps_per_batch=8, eval_episodes=0, tuned=False,
        progress_bar=False, logger="csv", run_dir=place, **given,
    ).train()  # fmt: skip


def test_seeds_are_shared_out_among_machines_and_change_nothing(cluster, tmp_path):
    train_seeds(tmp_path / "here")
    train_seeds(tmp_path / "there", workers=2, engine="ray")
    for seed in (1, 2, 3):
        assert rows(tmp_path / f"here/seed{seed}") == rows(tmp_path / f"there/seed{seed}")


class Failing(TrainerHookBase):
    """Fails in one of the seeds; another is still being built when the signal comes."""

    at = "post_steps"

    def __init__(self, mark):
        self.mark = mark

    def register(self, trainer, name="failing"):
        super().register(trainer, name)
        if trainer.seed == 3:
            self.mark.touch()
            time.sleep(2)

    def __call__(self):
        if self.trainer.seed == 2:
            raise RuntimeError("out of luck")


@pytest.mark.usefixtures("free_sigterm")
def test_a_signal_reaches_seeds_elsewhere_and_one_fails_alone(cluster, tmp_path):
    def state(seed):
        return RunDir(tmp_path / f"seed{seed}").read()

    def interrupt():
        wait_for(
            lambda: state(1).get("frames") and state(2).get("status") == "failed" and mark.exists()
        )
        os.kill(os.getpid(), signal.SIGTERM)

    mark = tmp_path / "mark"
    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(SystemExit) as ended:
        train_seeds(tmp_path, total_frames=10**9, workers=3, engine="ray", hooks=[Failing(mark)])
    assert ended.value.code == 143
    assert [state(seed)["status"] for seed in (1, 2, 3)] == ["interrupted", "failed", "interrupted"]
    assert state(2)["reason"] == "RuntimeError: out of luck"
    assert state(1)["argv"] == sys.argv[1:]
    assert (tmp_path / "seed1" / "checkpoints").exists()
