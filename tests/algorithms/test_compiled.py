"""The compiled steps of every algorithm, at its default sizes, equal the eager ones."""

from __future__ import annotations

import sys
from functools import partial

import pytest
import torch
from marks import slow_except
from test_algorithms import (
    ALGORITHMS,
    OFFLINE,
    TEXT,
    env_for,
    make_dataset,
    make_teacher,
)

from hooktrainer import Trainer, algorithms
from hooktrainer.graphs import compiling

BATCHES = {"ppo": 1, "trpo": 1, "mappo": 1, "ippo": 1, "iql": 16, "cql": 8, "a2c": 8}
BATCHES |= {"reinforce": 8, "pqn": 1, "bc": 16, "td3bc": 16, "dt": 8}
FIELDS = {
    **{"init_random_frames": 16, "fit_steps": 2, "num_rollouts": 512, "eval_episodes": 1},
    "optim_steps_per_batch": 8,
}
CHEAPEST = "ddpg"
ADAM = partial(torch.optim.Adam, fused=True)
# One of each way to step: one group, several, several losses.
WITH_ADAM = ("ppo", "sac", "ddpg")
# Their losses and networks are others', or parts of others', which inductor compiles: mappo's,
# qmix's, sac's, td3's and ppo's. Here only how they train is compared.
TRACED = ("ippo", "vdn", "mbpo", "bc", "reinforce", "a2c", "cql", "dagger", "masac", "td3bc")


def trained(name: str, compile: str | None) -> Trainer:
    kind = algorithms.get(name)
    options = {key: value for key, value in FIELDS.items() if hasattr(kind, key)}
    if name in OFFLINE:
        options["dataset"] = make_dataset()
        options.pop("optim_steps_per_batch", None)
    if name == "dagger":
        options["teacher"] = make_teacher()
    env = env_for(name)
    frames = kind.batch_size if name in OFFLINE else kind.num_envs * kind.steps_per_batch
    trainer = kind(
        env=env,
        seed=0,
        total_frames=BATCHES.get(name, 2) * frames,
        tuned=False,
        compile=compile,
        progress_bar=False,
        **options,
    ).trainer()
    trainer.train()
    return trainer


def equal_eager_ones(name: str) -> None:
    eager, compiled = trained(name, None), trained(name, "step")
    assert compiled.optim_count == eager.optim_count > 7
    # Adam divides gradients by their size, which shows the rounding of those near zero.
    atol = 1e-4 if name == "rainbow" else 1e-5
    torch.testing.assert_close(
        compiled.loss_module.state_dict(), eager.loss_module.state_dict(), rtol=0, atol=atol
    )


@pytest.mark.parametrize(
    "name", slow_except([n for n in ALGORITHMS if n not in (*TEXT, *TRACED, "dreamer")], CHEAPEST)
)
@pytest.mark.usefixtures("inductor")
def test_compiled_steps_equal_eager_ones(name):
    """With inductor, and every operator replaced that is replaced at these sizes."""
    equal_eager_ones(name)


@pytest.mark.parametrize("name", slow_except(WITH_ADAM, CHEAPEST))
@pytest.mark.usefixtures("inductor")
def test_compiled_steps_of_torchs_adam_equal_eager_ones(name, monkeypatch):
    for module in list(sys.modules.values()):
        if module.__name__.startswith("hooktrainer.algorithms") and hasattr(module, "FlatAdam"):
            monkeypatch.setattr(module, "FlatAdam", ADAM)
    equal_eager_ones(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", TRACED)
def test_traced_steps_equal_eager_ones(name, monkeypatch):
    monkeypatch.setattr(compiling, "BACKEND", "eager")
    equal_eager_ones(name)
