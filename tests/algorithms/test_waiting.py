"""On an accelerator nothing waits between two log windows: counted on a pretended one."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest
from marks import slow_except
from no_waiting import Waits, counting_waits
from test_algorithms import COLLECTING, FIELDS, SMALL_WORLD, make_teacher

from hooktrainer import TrainerHookBase, algorithms
from hooktrainer.graphs import compiling


class Iteration(TrainerHookBase):
    """Counts what waits in one whole iteration, the third, log windows apart."""

    is_saved = False

    def __init__(self, mode: Waits) -> None:
        self.mode = mode

    def register(self, trainer: Any, name: str = "iteration") -> None:
        trainer.register_module(name, self)
        trainer.register_op("batch_process", self._begin, priority=1e9)

    def _begin(self, batch: Any) -> None:
        batches = self.trainer.progress.batches
        self.mode.is_counting = batches == 3
        if batches == 4:
            self.trainer.request_stop("it was counted")


def iteration(name: str, **options: Any) -> Waits:
    """What waits in an iteration, from a batch that was collected to the next."""
    kind = algorithms.get(name)
    known = {field.name for field in fields(kind)}
    small = {key: value for key, value in FIELDS.items() if key in known}
    if "anneal_lr" in known:
        small |= {"steps_per_batch": 5, "mini_batch_size": 10}
    else:  # twice as many as the policy's and the targets' updates are apart
        small |= {"fit_steps": 2, "optim_steps_per_batch": 2 if name == "mbpo" else 4}
        small["init_random_frames"] = 32
    small |= SMALL_WORLD if name == "dreamer" else {}
    small |= {"teacher": make_teacher(), "steps_per_batch": 10} if name == "dagger" else {}
    small = {key: value for key, value in small.items() if key in known}
    env = "torch/CartPole-v1"
    if kind.actions in ("continuous", "bounded"):
        env = "torch/Pendulum-v1"
    given = {"env": env, **small, "num_envs": 4, "total_frames": 10_000, "log_interval": 10**6}
    given |= {"eval_episodes": 0, "device": "meta", "progress_bar": True}
    with counting_waits() as mode:
        trainer = kind(**{**given, **options}, hooks=[Iteration(mode)]).trainer()
        trainer.train()
    assert mode.operations > 500  # it was an iteration
    return mode


# The line search of TRPO has to wait, and n-step windows, whose number is not known before.
WAITING = ("trpo", "rainbow")


@pytest.mark.parametrize(
    "name", slow_except([n for n in COLLECTING if n not in WAITING], "ppo", "dqn", "sac")
)
def test_an_iteration_on_a_tensor_world_waits_nowhere(name):
    assert iteration(name).found == {}


@pytest.mark.parametrize(
    ("name", "options"),
    slow_except(
        [
            ("ppo", {"memory": "gru"}),
            ("ppo", {"scale_rewards": True}),
            ("ppo", {"normalize_observations": True}),
            ("ppo", {"desired_kl": 0.01}),
            ("ppo", {"env": "torch/Pendulum-v1", "sde": True}),
            ("dqn", {"memory": "lstm", "optim_steps_per_batch": 2}),
            ("dqn", {"prioritized": True}),
            ("sac", {"scale_rewards": True}),
            ("mbpo", {"fit_interval": 8}),
            ("sac", {"sde": True}),
        ],
        1,
        4,
    ),
)
def test_options_wait_nowhere(name, options):
    assert iteration(name, **options).found == {}


@pytest.mark.parametrize(
    ("name", "compile"),
    slow_except([("ppo", "step"), ("ppo", "all"), ("sac", "all")], 0),
)
def test_what_would_be_compiled_waits_nowhere(name, compile, monkeypatch):
    monkeypatch.setattr(compiling, "BACKEND", None)
    assert iteration(name, compile=compile).found == {}


def test_environments_of_gymnasium_are_waited_for_once_a_step():
    """Actions come to the CPU, and once a batch those that episodes replay."""
    found = iteration("ppo", env="CartPole-v1").found
    assert sorted(found.values()) == [1, 5], found  # a batch, and its steps
    assert all("collect/rollout.py" in where for where in found)
