"""`MixDataset`: a part of every sample is of the data set; runs with it resume exactly."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from resuming import whole_and_resumed
from tensordict import TensorDict

from hooktrainer import ConfigError, MixDataset, MultiStepReplay, Trainer
from hooktrainer.algorithms import DQN, SAC
from hooktrainer.data import Dataset
from hooktrainer.replay import ReplayBuffer, SamplerWithoutReplacement


def transitions(number: int, first: float = 100.0) -> TensorDict:
    """Of Pendulum; their rewards are numbered."""
    reward = torch.arange(first, first + number).unsqueeze(-1)
    following = {"observation": torch.randn(number, 3), "reward": reward}
    following |= {"terminated": torch.zeros(number, 1, dtype=torch.bool)}
    following["truncated"] = following["terminated"]
    content = {
        "observation": torch.randn(number, 3),
        "action": torch.rand(number, 1),
        "next": TensorDict(following, batch_size=[number]),
    }
    return TensorDict(content, batch_size=[number])


def make(**options: Any) -> Trainer:
    fields = {"num_envs": 2, "steps_per_batch": 8, "optim_steps_per_batch": 2, "batch_size": 8}
    fields |= {"num_cells": (8,), "init_random_frames": 0, "buffer_size": 40, "total_frames": 64}
    fields |= {"eval_episodes": 0, "tuned": False, "progress_bar": False, "seed": 3, **options}
    torch.manual_seed(1)
    return SAC(env="Pendulum-v1", dataset=Dataset(transitions(50)), **fields).trainer()


def example_trainer() -> Trainer:
    trainer = make()
    trainer.remove_hook("mix_dataset")
    return trainer


def example(trainer: Trainer) -> MixDataset:
    loss: Any = trainer.loss_module
    return MixDataset(transitions(20).select(*loss.in_keys))


def test_data_of_an_n_step_learner_are_what_it_stores_of_the_same_episodes():
    data = transitions(12)
    ends = {5: "terminated", 8: "truncated", 11: "truncated"}
    for place, kind in ends.items():
        data["next", kind][place] = True
    steps = data.unsqueeze(0).clone()
    steps["next", "done"] = steps["next", "terminated"] | steps["next", "truncated"]
    keys = [*data.keys(True, True), "steps_to_next_obs"]
    buffer = ReplayBuffer(20, batch_size=12, sampler=SamplerWithoutReplacement(), keys=keys)
    MultiStepReplay(buffer, 3, gamma=0.5).extend(steps)
    found = Dataset(data).multi_step(3, gamma=0.5).transitions
    stored = buffer.sample()
    assert len(buffer) == len(found) == 12
    ordered = [rows[rows["next", "reward"].flatten().argsort()] for rows in (stored, found)]
    for key in keys:
        torch.testing.assert_close(ordered[0][key], ordered[1][key])
    assert found["next", "reward"][3].item() == 103 + 0.5 * 104 + 0.25 * 105
    assert found["steps_to_next_obs"].flatten().tolist() == [3, 3, 3, 3, 2, 1, 3, 2, 1, 3, 2, 1]


def test_an_n_step_learner_mixes_transitions_of_n_steps():
    trainer, sampled = make(n_steps=3), []
    trainer.register_op("post_loss", lambda batch: sampled.append(batch.clone()))
    trainer.train()
    rows = torch.cat(sampled)
    of_data = rows[rows["next", "reward"].flatten() >= 100]
    assert len(of_data) == len(rows) / 2
    assert of_data["steps_to_next_obs"].max() == 3


@pytest.mark.parametrize(("fraction", "number"), [(0.0, 0), (0.3, 3), (0.5, 5), (1.0, 10)])
def test_so_many_rows_are_of_the_data(fraction, number):
    data = transitions(4).select("observation", ("next", "reward"))
    sample = transitions(10, first=0.0).set("index", torch.arange(10))
    mixed = MixDataset(data, fraction)(sample)
    rewards = mixed["next", "reward"].flatten()
    assert mixed.shape == (10,)
    assert rewards[: 10 - number].tolist() == list(range(10 - number))
    assert ((rewards[10 - number :] >= 100) & (rewards[10 - number :] < 104)).all()
    assert set(mixed.keys(True, True)) == {"observation", ("next", "reward")}


def test_half_of_a_sample_is_of_the_data_as_in_rlpd(monkeypatch):
    """What its authors (ikostrikov/rlpd, c90fd4b) combine of these samples, in another order."""
    monkeypatch.setattr(torch, "randint", lambda *size, device: torch.tensor([3, 1, 4, 1]))
    mixed = MixDataset(transitions(5))(transitions(8, first=0.0))
    theirs = [103.0, 0.0, 101.0, 1.0, 104.0, 2.0, 101.0, 3.0]
    assert sorted(mixed["next", "reward"].flatten().tolist()) == sorted(theirs)


def test_every_transition_of_the_data_is_drawn():
    data = transitions(4).select(("next", "reward"))
    torch.manual_seed(0)
    mixed = MixDataset(data, 1.0)(transitions(200))
    assert mixed["next", "reward"].unique().tolist() == [100, 101, 102, 103]


def test_an_algorithm_goes_from_the_data_to_what_it_collects():
    trainer = make(dataset_fraction=1.0, dataset_fraction_end=0.0, scale_rewards=True)
    seen: list[float] = []
    mix: Any = trainer.registry.modules["mix_dataset"]
    trainer.register_op("post_optim_log", lambda batch: seen.append(mix.fraction))
    shares: list[float] = []
    # Rewards of Pendulum are negative, and those of the data are not; they are scaled alike.
    trainer.register_op(
        "post_optim_log",
        lambda batch: shares.append((batch["next", "reward"] > 0).float().mean().item()),
    )
    trainer.train()
    assert seen == sorted(seen, reverse=True)
    assert seen[0] > 0.7 > 0.3 > seen[-1]
    assert shares == [round(fraction * 8) / 8 for fraction in seen]


@pytest.mark.parametrize("options", [{}, {"dataset_fraction_end": 0.0}], ids=str)
def test_a_resumed_run_is_the_whole_one(options):
    whole, resumed = whole_and_resumed(lambda: make(**options))
    assert whole.optim_count == resumed.optim_count > 0
    for ours, theirs in zip(*(t.loss_module.parameters() for t in (whole, resumed)), strict=True):
        assert torch.equal(ours, theirs)


def test_what_cannot_be_is_refused():
    with pytest.raises(ConfigError, match=r"fraction=1\.5"):
        MixDataset(transitions(3), 1.5)
    with pytest.raises(ConfigError, match=r"the data are \[0\]"):
        MixDataset(transitions(3)[:0])
    with pytest.raises(ConfigError, match="and memory='gru' do not work together"):
        make(memory="gru", batch_size=32, buffer_size=64)
    data = Dataset(transitions(3).set("action", torch.zeros(3, dtype=torch.int64)))
    with pytest.raises(ConfigError, match="observations of shape"):
        DQN(env="CartPole-v1", dataset=data, total_frames=100).trainer()
    with pytest.raises(ConfigError, match="and prioritized=True do not work together"):
        DQN(env="CartPole-v1", dataset=data, prioritized=True, total_frames=100).trainer()
