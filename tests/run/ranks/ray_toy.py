"""Small collectors, here and in processes of a Ray cluster."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import torch
from tensordict.nn import InteractionType

from hooktrainer import VectorCollector
from hooktrainer.networks import CategoricalPolicy, mlp
from hooktrainer.run import Place, RayCollector


def policy() -> CategoricalPolicy:
    torch.manual_seed(3)
    return CategoricalPolicy(mlp(4, 2))


def local(actor, env="CartPole-v1", num_envs=4, **options) -> VectorCollector:
    options = {"exploration_type": InteractionType.DETERMINISTIC, "seed": 5} | options
    return VectorCollector(env, actor, num_envs=num_envs, frames_per_batch=64, **options)


def remote(cluster, actor, workers=2, overlap=0, **options) -> RayCollector:
    return RayCollector(local(actor, **options), Place(count=workers), cluster, overlap=overlap)


def change(actor) -> None:
    with torch.no_grad():
        for parameter in actor.parameters():
            parameter.neg_()


def alike(one, other) -> bool:
    """Equal but for rounding, which depends on how many observations are multiplied at once."""
    one, other = one.exclude("collector"), other.exclude("collector")
    assert set(one.keys(True, True)) == set(other.keys(True, True))
    return all(
        torch.allclose(value.double(), other.get(key).double(), rtol=1e-5, atol=1e-6)
        for key, value in one.items(True, True)
    )


def processes_of(session: str) -> list[int]:
    """Ids of Ray's processes that have files of a session open."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                if b"ray" in (entry / "cmdline").read_bytes() and any(
                    session in os.readlink(file) for file in (entry / "fd").iterdir()
                ):
                    found.append(int(entry.name))
    return found
