"""The compiled steps of every algorithm, at its default sizes, equal the eager ones."""

from __future__ import annotations

import sys
from functools import partial

import pytest
import torch
from test_algorithms import (
    ALGORITHMS,
    OFFLINE,
    TEXT,
    env_for,
    make_dataset,
)

from hooktrainer import Trainer, algorithms
from hooktrainer.optim import FlatAdam

BATCHES = {"ppo": 1, "trpo": 1, "mappo": 1, "ippo": 1, "iql": 16, "cql": 8, "a2c": 8}
BATCHES |= {"reinforce": 8, "pqn": 1, "bc": 16, "td3bc": 16}
FIELDS = {
    **{"init_random_frames": 16, "fit_steps": 2, "num_rollouts": 512, "eval_episodes": 1},
    "optim_steps_per_batch": 8,
}
CHEAPEST = "ddpg"
OPTIMIZERS = {"FlatAdam": FlatAdam, "Adam": partial(torch.optim.Adam, fused=True)}


def trained(name: str, compile: str | None) -> Trainer:
    kind = algorithms.get(name)
    options = {key: value for key, value in FIELDS.items() if hasattr(kind, key)}
    if name in OFFLINE:
        options["dataset"] = make_dataset()
        options.pop("optim_steps_per_batch", None)
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


@pytest.mark.parametrize(
    "name",
    [
        n if n == CHEAPEST else pytest.param(n, marks=pytest.mark.slow)
        for n in ALGORITHMS
        if n not in (*TEXT, "dreamer")  # whose unrolled sequences take too long
    ],
)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.usefixtures("inductor")
def test_compiled_steps_equal_eager_ones(name, optimizer, monkeypatch):
    """With inductor, and every operator replaced that is replaced at these sizes."""
    for module in list(sys.modules.values()):
        if module.__name__.startswith("hooktrainer.algorithms") and hasattr(module, "FlatAdam"):
            monkeypatch.setattr(module, "FlatAdam", OPTIMIZERS[optimizer])
    eager, compiled = trained(name, None), trained(name, "step")
    assert compiled.optim_count == eager.optim_count > 7
    # Adam divides gradients by their size, which shows the rounding of those near zero.
    atol = 1e-4 if name == "rainbow" else 1e-5
    torch.testing.assert_close(
        compiled.loss_module.state_dict(), eager.loss_module.state_dict(), rtol=0, atol=atol
    )
