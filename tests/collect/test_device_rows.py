"""Observations that cross to an accelerator once: batches are those that are put together here."""

from __future__ import annotations

from collections import Counter as Counts
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode
from tensordict.nn import TensorDictModule, TensorDictSequential
from toy_envs import Counter, Masked, Nested

from hooktrainer import VectorCollector
from hooktrainer.collect import rollout
from hooktrainer.collect.buffers import DeviceRows, to_device
from hooktrainer.networks import CategoricalPolicy, mlp


def remembering() -> TensorDictModule:
    """It is called with a TensorDict, and carries a hidden state."""
    from torchrl.modules import GRUModule

    gru = GRUModule(input_size=4, hidden_size=8, in_key="observation", out_key="features")
    head = TensorDictModule(
        lambda x: x.sum(-1).gt(0).long(), in_keys=["features"], out_keys=["action"]
    )
    return TensorDictSequential(gru, head)


def gapped() -> Any:
    return gym.make_vec(
        "CartPole-v1",
        num_envs=4,
        vectorization_mode="sync",
        vector_kwargs={"autoreset_mode": AutoresetMode.NEXT_STEP},
    )


CASES: dict[str, Any] = {
    "plain": lambda: {"env": "CartPole-v1", "policy": CategoricalPolicy(mlp(4, 2))},
    "memory": lambda: {"env": "CartPole-v1", "policy": remembering()},
    "random first": lambda: {
        **{"env": "CartPole-v1", "policy": CategoricalPolicy(mlp(4, 2))},
        "init_random_frames": 128,
    },
    "stages": lambda: {
        **{"env": "CartPole-v1", "policy": CategoricalPolicy(mlp(4, 2))},
        **{"workers": 2, "stages": 2},
    },
    "gapped": lambda: {"env": gapped(), "policy": CategoricalPolicy(mlp(4, 2))},
}


def batches(case: str) -> list[Any]:
    torch.manual_seed(3)
    arguments = {"num_envs": 4, **CASES[case]()}
    if case == "gapped":
        arguments.pop("num_envs")
    collector = VectorCollector(**arguments, frames_per_batch=128, seed=5)
    try:
        return [collector.collect() for _ in range(3)]
    finally:
        collector.shutdown()


@pytest.mark.parametrize("case", CASES)
def test_batches_are_the_same(case, monkeypatch):
    expected = batches(case)
    monkeypatch.setattr(rollout, "crosses_once", lambda policy, device: True)
    found = batches(case)
    assert sum(int(batch["next", "done"].sum()) for batch in expected) > 4
    for one, other in zip(found, expected, strict=True):
        assert list(one.keys(True, True)) == list(other.keys(True, True))
        for key, value in other.items(True, True):
            assert one[key].dtype == value.dtype, key
            assert torch.equal(one[key], value), key


def test_each_observation_crosses_once(monkeypatch):
    """But for the last of a batch, with which the next one begins."""
    sent: Counts[int] = Counts()
    send = DeviceRows.send

    def noted(self: DeviceRows, t: int, envs: slice) -> None:
        sent[t] += 1
        send(self, t, envs)

    monkeypatch.setattr(rollout, "crosses_once", lambda policy, device: True)
    monkeypatch.setattr(DeviceRows, "send", noted)
    batches("plain")
    assert sent == dict.fromkeys(range(32), 3)


@pytest.mark.parametrize("env", [Nested, Masked, Counter])
def test_observations_of_every_kind(env, monkeypatch):
    def collected() -> Any:
        def policy(observation: Any) -> Any:
            return torch.from_numpy(actions)

        def allowed(observation: Any, action_mask: torch.Tensor) -> Any:
            return action_mask.float().argmax(-1)

        chosen = allowed if env is Masked else policy
        return VectorCollector([env] * 2, chosen, frames_per_batch=16, seed=0).collect()

    space = env().action_space
    space.seed(0)
    actions = np.stack([space.sample()] * 2)
    expected = collected()
    monkeypatch.setattr(rollout, "crosses_once", lambda policy, device: True)
    found = collected()
    assert all(torch.equal(found[k], v) for k, v in expected.items(True, True))


def test_arrays_of_every_type_cross_as_one():
    arrays = {
        "flags": np.array([[True], [False], [True]]),
        "counts": np.arange(3)[:, None],
        "halves": np.linspace(0, 1, 6, dtype=np.float32).reshape(3, 2),
        "bytes": np.arange(5, dtype=np.uint8),
        "swapped": np.arange(6, dtype=np.float64).reshape(2, 3).T,
        "one": np.array(3.5),
    }
    found = to_device(arrays, torch.device("cpu"))
    assert found.keys() == arrays.keys()
    for key, array in arrays.items():
        assert torch.equal(found[key], torch.from_numpy(array)), key
    assert len({tensor.untyped_storage().data_ptr() for tensor in found.values()}) == 1
