"""Data sets: the plain files, recording one, training from one, and Minari's."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tensordict import TensorDict

from hooktrainer import VectorCollector
from hooktrainer.data import Dataset, RecordDataset, load_dataset
from hooktrainer.errors import ConfigError
from hooktrainer.testing import check_hook, tiny_trainer


def make_dataset(number: int = 20, **arguments: object) -> Dataset:
    index = torch.arange(number)
    following = {
        "observation": torch.randn(number, 3),
        "reward": index.float().unsqueeze(-1),
        "terminated": torch.zeros(number, 1, dtype=torch.bool),
        "truncated": index.remainder(10).eq(9).unsqueeze(-1),
    }
    content = {
        "observation": torch.randn(number, 3),
        "action": torch.randn(number, 1),
        "next": TensorDict(following, batch_size=[number]),
    }
    return Dataset(TensorDict(content, batch_size=[number]), **arguments)


def test_what_is_saved_is_loaded(tmp_path):
    dataset = make_dataset(returns=[1.0, 3.0], env="Pendulum-v1", description="made up")
    dataset.save(tmp_path / "deep/data")
    loaded = load_dataset(tmp_path / "deep/data")
    assert (loaded.transitions == dataset.transitions).all()
    assert (loaded.returns, loaded.env, loaded.description) == (
        [1.0, 3.0],
        "Pendulum-v1",
        "made up",
    )
    assert loaded.mean_return == 2.0
    assert loaded.log() == {"data/episodes": 2, "data/return": 2.0}
    # Readable without hooktrainer.
    reward = load_file(tmp_path / "deep/data")["next/reward"]
    assert reward[3, 0] == 3.0


def test_nothing_is_overwritten_unasked(tmp_path):
    dataset = make_dataset()
    path = dataset.save(tmp_path / "data")
    with pytest.raises(FileExistsError, match="exists already"):
        dataset.save(path)
    make_dataset(5).save(path, overwrite=True)
    assert len(load_dataset(path)) == 5
    with pytest.raises(FileExistsError):
        dataset.save(tmp_path, overwrite=True)
    assert [place.name for place in tmp_path.iterdir()] == ["data"]


def test_what_is_no_data_set_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no file.*collect_pendulum"):
        load_dataset(tmp_path)
    path = make_dataset().save(tmp_path / "data")
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(ConfigError, match=r"data holds no data set"):
        load_dataset(path)
    save_file({"action": torch.zeros(3, 1)}, path, {"format": "hooktrainer-dataset 9"})
    with pytest.raises(ConfigError, match="its format is 'hooktrainer-dataset 9'"):
        load_dataset(path)
    with pytest.raises(ConfigError, match=r"shape \[n\]"):
        Dataset(TensorDict(batch_size=[0]))


def test_the_entries_that_a_loss_reads_are_selected():
    dataset, keys = make_dataset(), ["observation", ("next", "reward")]
    assert set(dataset.select(keys).keys(True, True)) == set(keys)
    with pytest.raises(ConfigError, match="goal"):
        dataset.select(["goal"])


def test_what_is_recorded_lies_in_the_order_of_trajectories(tmp_path):
    collector = VectorCollector("Pendulum-v1", num_envs=2, frames_per_batch=100, seed=1)
    trainer = tiny_trainer(collector=collector, total_frames=500)
    hook = RecordDataset(tmp_path / "data", env="Pendulum-v1", description="random")
    hook.register(trainer)
    trainer.train()
    dataset = load_dataset(tmp_path / "data")
    assert len(dataset) == 500
    assert len(dataset.returns) == 2  # one of 200 steps in each environment, and 50 steps left
    transitions = dataset.transitions
    ends = transitions["next", "truncated"].squeeze(-1)
    assert ends.nonzero().flatten().tolist() == [199, 249, 449, 499]
    goes_on = ~ends[:-1]
    behind = transitions["next", "observation"][:-1][goes_on]
    assert torch.equal(behind, transitions["observation"][1:][goes_on])
    sums = [transitions["next", "reward"][start : start + 200].sum() for start in (0, 250)]
    assert dataset.returns == pytest.approx([s.item() for s in sums], rel=1e-4)
    assert trainer.metrics.reported["data/return"] == pytest.approx(dataset.mean_return)

    again = tiny_trainer()
    RecordDataset(tmp_path / "data").register(again)
    with pytest.raises(FileExistsError, match="exists already"):
        again.train()


def test_the_recording_hook_keeps_the_contract(tmp_path):
    def make():
        collector = VectorCollector("Pendulum-v1", num_envs=2, frames_per_batch=10)
        return tiny_trainer(collector=collector)

    check_hook(RecordDataset(tmp_path / "data"), make)


def test_a_data_set_of_minari(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    minari = pytest.importorskip("minari")
    data_collector = pytest.importorskip("minari.data_collector")
    episodes = [
        data_collector.EpisodeBuffer(
            id=number,
            observations=np.arange(3 * (steps + 1), dtype=np.float32).reshape(-1, 3),
            actions=np.zeros((steps, 1), np.float32),
            rewards=[1.0] * steps,
            terminations=[False] * steps,
            truncations=[False] * (steps - 1) + [number == 0],
        )
        for number, steps in enumerate((4, 6))
    ]
    with warnings.catch_warnings():  # about metadata that a test does not need
        warnings.simplefilter("ignore")
        minari.create_dataset_from_buffers("pendulum/test-v0", episodes, env="Pendulum-v1")
    dataset = load_dataset("minari:pendulum/test-v0")
    assert len(dataset) == 10
    assert dataset.returns == [4.0, 6.0]
    assert dataset.env == "Pendulum-v1"
    transitions = dataset.transitions
    assert transitions["next", "truncated"].flatten().nonzero().flatten().tolist() == [3, 9]
    assert torch.equal(transitions["next", "observation"][:3], transitions["observation"][1:4])
    assert transitions["next", "reward"].shape == (10, 1)
