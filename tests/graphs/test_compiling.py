"""What CUDA graphs need of what is compiled: shapes that stay, and results that are copied."""

from __future__ import annotations

import pytest
import torch
from marks import slow_except

from hooktrainer.algorithms import DQN, PPO
from hooktrainer.graphs import compiling, inductor
from hooktrainer.graphs.inductor import copied, with_inductor


def test_results_of_a_cuda_graph_are_copies():
    buffer = torch.zeros(2)

    def graph(x: torch.Tensor) -> list[torch.Tensor | None]:
        return [buffer.copy_(x), None]

    call = copied(graph)
    first, nothing = call(torch.ones(2))
    second, _ = call(torch.full((2,), 2.0))
    assert (first.tolist(), second.tolist(), nothing) == ([1.0, 1.0], [2.0, 2.0], None)


def test_it_is_one_on_a_cuda_device_alone_and_where_it_is_asked_for(monkeypatch):
    class OnCuda(torch.Tensor):
        is_cuda, is_cpu = True, False

    given = {}
    monkeypatch.setattr(inductor, "lookup_backend", lambda _: lambda *args, **kw: given.update(kw))
    there, here = torch.ones(2).as_subclass(OnCuda), torch.ones(2)

    def settings(inputs):
        with_inductor(None, inputs)
        return given["config_patches"]

    assert "triton.cudagraphs" not in settings([there, here])
    monkeypatch.setenv("HOOKTRAINER_CUDA_GRAPHS", "1")
    assert settings([there, here])["triton.cudagraphs"] is True
    assert "cpp_wrapper" not in settings([there, here])
    assert "triton.cudagraphs" not in settings([here])
    assert settings([here])["cpp_wrapper"] is True


SMALL = {"num_cells": (8,), "progress_bar": False, "eval_episodes": 0, "tuned": False}
ON = {**SMALL, "num_envs": 4, "steps_per_batch": 20, "num_epochs": 2, "mini_batch_size": 30}
OFF = {**SMALL, "num_envs": 4, "init_random_frames": 32, "batch_size": 16}


@pytest.mark.parametrize(
    ("kind", "options"),
    slow_except(
        [
            (PPO, {**ON, "compile": "all"}),  # the last mini-batch is smaller
            (PPO, {**ON, "compile": "step", "normalize_observations": True, "scale_rewards": True}),
            (DQN, {**OFF, "compile": "step"}),
        ],
        2,
    ),
)
def test_nothing_is_compiled_anew_while_training_goes_on(kind, options, monkeypatch):
    """Shapes are static: each graph is compiled at its first call, and only then."""
    monkeypatch.setattr(compiling, "BACKEND", "eager")
    torch._dynamo.reset()
    with torch._dynamo.config.patch(error_on_recompile=True):
        kind(env="torch/CartPole-v1", **options, total_frames=1200).train()
