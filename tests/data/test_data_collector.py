"""`DataCollector`: which samples, in which order, exactly once, also after a resume."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import subprocess
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from classification import Classify, make_data, make_trainer
from marks import slow_except
from tensordict import TensorDict
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    TensorDataset,
    WeightedRandomSampler,
    get_worker_info,
)
from warm_python import executable

from hooktrainer import DataCollector, Every, Trainer
from hooktrainer.errors import ConfigError, StateMismatchError
from hooktrainer.store.rng import rng_state
from hooktrainer.testing import tiny_trainer


class Noisy(Dataset[Any]):
    """Samples with noise from the global generators, as augmentations draw it."""

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> dict[str, Any]:
        noise = torch.rand(()) + random.random() + np.random.rand()
        return {"x": torch.tensor(index), "noise": noise}


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter(range(10))


class StreamWithState(Stream):
    """Its state is its position, as that of a Hugging Face stream."""

    place = 0

    def __iter__(self) -> Any:
        while self.place < 10:
            self.place += 1
            yield self.place - 1
        self.place = 0

    def state_dict(self) -> dict[str, int]:
        return {"place": self.place}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.place = state["place"]


class Hugging(Dataset[Any]):
    """As Hugging Face's: many samples at once, and a fingerprint."""

    def __init__(self, fingerprint: str) -> None:
        self._fingerprint = fingerprint

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> Any:
        raise AssertionError("one by one")

    def __getitems__(self, indices: list[int]) -> list[dict[str, int]]:
        return [{"x": index} for index in indices]


TENSORS = torch.arange(10)
PAIRS = [(torch.tensor(index), index % 2) for index in range(10)]
MADE: dict[str, Any] = {
    "tensordict": lambda: DataCollector(TensorDict({"x": TENSORS}, [10]), 4, epochs=2),
    "tensors": lambda: DataCollector({"x": TENSORS}, 4, epochs=2),
    "TensorDataset": lambda: DataCollector(TensorDataset(TENSORS), 4, names=["x"], epochs=2),
    "dicts": lambda: DataCollector([{"x": index} for index in range(10)], 4, epochs=2),
    "tuples": lambda: DataCollector(PAIRS, 4, names=("x", "y"), epochs=2),
    "tensordicts": lambda: DataCollector([TensorDict({"x": n}) for n in TENSORS], 4, epochs=2),
    "hugging face": lambda: DataCollector(Hugging("a"), 4, epochs=2),
    "workers": lambda: DataCollector(Noisy(), 4, num_workers=2, epochs=2),
    "loader": lambda: DataCollector(DataLoader(range(10), 4, shuffle=True), names=("x",), epochs=2),
    "loader with generator and workers": lambda: DataCollector(
        DataLoader(Noisy(), 4, True, num_workers=1, generator=torch.Generator()), epochs=2
    ),
    "loader with batch sampler": lambda: DataCollector(
        DataLoader(range(10), batch_sampler=BatchSampler(torch.randperm(10).tolist(), 4, False)),
        names=("x",),
        epochs=2,
    ),
    "stream": lambda: DataCollector(Stream(), 4, names=("x",), epochs=2),
    "stream with state": lambda: DataCollector(StreamWithState(), 4, names=("x",), epochs=2),
    "loader of a stream": lambda: DataCollector(
        DataLoader(Stream(), 4, num_workers=1), names=("x",), epochs=2
    ),
}


def xs(collector: DataCollector) -> list[list[int]]:
    return [batch["x"].tolist() for batch in collector]


def flat(batches: Any) -> list[int]:
    return [x for batch in batches for x in batch]


@pytest.mark.parametrize("name", slow_except(MADE, *(MADE.keys() - {"loader of a stream"})))
def test_each_epoch_has_every_sample_once_and_a_resumed_run_has_the_rest(name):
    before = rng_state()["torch"]
    torch.manual_seed(5)
    whole = xs(MADE[name]())
    assert [len(batch) for batch in whole] == [4, 4, 2, 4, 4, 2]
    assert sorted(flat(whole[:3])) == sorted(flat(whole[3:])) == list(range(10))
    if "stream" not in name and "batch sampler" not in name:
        assert whole[:3] != whole[3:]  # each epoch has its own order
    # With worker processes: within an epoch, after it, and within the last.
    for stop in (1, 3, 5) if "worker" in name or name == "loader of a stream" else range(6):
        torch.manual_seed(5)
        first = MADE[name]()
        assert [first.collect()["x"].tolist() for _ in range(stop)] == whole[:stop]
        state, epoch = first.state_dict(), first.epoch
        first.shutdown()
        torch.manual_seed(5)
        rest = MADE[name]()
        rest.load_state_dict(state)
        assert (rest.epoch, xs(rest)) == (epoch, whole[stop:]), stop
        assert (rest.epoch, rest.frames) == (2, 20)
        assert rest.ended == "the data ran out after 2 epochs"
        rest.shutdown()
    torch.set_rng_state(before)


class Growing(BatchSampler):
    """Makes one batch more in every epoch than in the epoch before."""

    def __init__(self) -> None:
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Any:
        return iter([[self.epoch, number] for number in range(self.epoch + 1)])

    def __len__(self) -> int:
        return self.epoch + 1


def test_epochs_of_a_sampler_may_have_different_lengths():
    def made() -> DataCollector:
        return DataCollector(DataLoader(range(10), batch_sampler=Growing()), names=["x"], epochs=3)

    whole = xs(made())
    assert whole == [[0, 0], [1, 0], [1, 1], [2, 0], [2, 1], [2, 2]]
    for stop in range(6):
        first, rest = made(), made()
        for _ in range(stop):
            first.collect()
        rest.load_state_dict(first.state_dict())
        assert xs(rest) == whole[stop:]


class Pair(NamedTuple):
    x: torch.Tensor
    y: int


def test_samples_may_be_nested_named_or_text():
    def first(data: Any, **options: Any) -> Any:
        return DataCollector(data, 4, shuffle=False, **options).collect()

    nested = first([{"in": {"a": torch.ones(3), "b": torch.ones(())}, "y": n} for n in range(4)])
    assert nested.batch_size == nested["in"].batch_size == (4,)
    assert nested["in", "a"].shape == (4, 3)
    assert first([Pair(torch.ones(3), n) for n in range(4)])["y"].tolist() == [0, 1, 2, 3]
    assert list(first([{"text": str(n), "y": n} for n in range(4)])["text"]) == [*"0123"]
    assert first({"x": np.arange(8.0)})["x"].tolist() == [0, 1, 2, 3]


class Batched(IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter([{"x": torch.arange(3)}, {"x": torch.arange(2)}])


def test_a_stream_may_make_its_own_batches():
    collector = DataCollector(DataLoader(Batched(), batch_size=None), epochs=1)
    assert xs(collector) == [[0, 1, 2], [0, 1]]


def opened(worker: int) -> None:
    get_worker_info().dataset.file = 7.0


class Opened(Noisy):
    file = 0.0

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"x": torch.tensor(get_worker_info().dataset.file + self.file)}


def test_functions_of_workers_find_the_data_set_and_signals_are_for_the_trainer():
    loader = DataLoader(Opened(), 5, num_workers=1, worker_init_fn=opened)
    collector = DataCollector(loader, epochs=200)
    assert collector.collect()["x"].tolist() == [14.0] * 5
    for child in multiprocessing.active_children():
        os.kill(child.pid, signal.SIGTERM)  # as to every process of a job
    assert len(list(collector)) == 399


_LEFT_OPEN = """
import gc, multiprocessing, os, sys
from torch.utils.data import DataLoader, IterableDataset
from hooktrainer.data import DataCollector

class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(40))

if __name__ == "__main__":
    loader = DataLoader(Stream(), 4, num_workers=1, persistent_workers="persistent" in sys.argv)
    collector = DataCollector(loader, names=["x"])
    collector.collect()
    if "lost" in sys.argv:
        collector.cycle = collector
        del collector
        gc.collect()
        assert not multiprocessing.active_children()
    if "forked" in sys.argv:
        if os.fork() == 0:
            os.close(2)  # multiprocessing writes there that the workers are not its children
            sys.exit()
        os.wait()
        for _ in range(30):
            collector.collect()
"""


@pytest.mark.parametrize("how", ["open", "lost", "persistent", "forked"])
def test_workers_end_with_a_program_that_leaves_them_and_before(tmp_path, how):
    (tmp_path / "script.py").write_text(_LEFT_OPEN)
    command = [executable(), "script.py", how]
    done = subprocess.run(command, cwd=tmp_path, timeout=60, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_what_cannot_be_restored_is_said():
    assert MADE["stream"]().resumes == "partly"
    assert "loads and discards" in MADE["stream"]().unsaved
    for name in MADE.keys() - {"stream", "loader of a stream"}:
        assert (MADE[name]().resumes, MADE[name]().unsaved) == ("exactly", None)


def test_a_weighted_sampler_is_run_with_generators_of_its_own():
    def made(seed: int) -> DataCollector:
        sampler = WeightedRandomSampler([1.0] * 9 + [5.0], 10)
        return DataCollector(DataLoader(range(10), 5, sampler=sampler), names=("x",), seed=seed)

    before = rng_state()["torch"]
    batches = [[made(seed).collect()["x"].tolist() for _ in range(2)] for seed in (1, 1, 2)]
    assert batches[0] == batches[1] != batches[2]
    assert torch.equal(rng_state()["torch"], before)


def test_augmentations_in_workers_depend_neither_on_their_number_nor_on_a_resume():
    def noise(workers: int, skip: int = 0) -> torch.Tensor:
        collector = DataCollector(Noisy(), 4, num_workers=workers, epochs=2)
        taken = [collector.collect() for _ in range(skip)]
        rest = DataCollector(Noisy(), 4, num_workers=workers, epochs=2)
        rest.load_state_dict(collector.state_dict())
        return torch.cat([batch["noise"] for batch in [*taken, *rest]])

    before = rng_state()["torch"]
    one = noise(1)
    assert len(one.unique()) == 20
    assert torch.equal(one, noise(2))
    assert torch.equal(one, noise(2, skip=4))
    assert torch.equal(rng_state()["torch"], before)


@pytest.mark.parametrize("name", ["tensors", "dicts", "loader", "stream"])
def test_the_shares_together_are_the_batch(name):
    for world_size in (1, 2):
        shares = [MADE[name]() for _ in range(world_size)]
        for rank, share in enumerate(shares):
            share.shard(rank, world_size)
        assert shares[0].total_frames in (20 // world_size, -1)
        together = [flat(parts) for parts in zip(*map(xs, shares), strict=True)]
        assert together == xs(MADE[name]())
    with pytest.raises(ConfigError, match="drop_last"):
        DataCollector({"x": TENSORS[:9]}, 4).shard(0, 2)
    with pytest.raises(ConfigError, match="batch_size=4"):
        DataCollector({"x": TENSORS}, 4).shard(0, 3)


def test_options_of_the_order():
    plain = DataCollector({"x": TENSORS}, 4, shuffle=False, drop_last=True, epochs=1)
    assert xs(plain) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    drawn = DataCollector({"x": TENSORS}, 4, replacement=True, epochs=30)
    batches = xs(drawn)
    assert [len(batch) for batch in batches] == [4] * 90
    assert any(len(set(batch)) < 4 for batch in batches)
    tokens = DataCollector(
        [[1, 2, 3]] * 4,
        2,
        collate=lambda rows: TensorDict({"ids": torch.tensor(rows)}, [len(rows), 3]),
        unit="tokens",
        epochs=1,
    )
    trainer = tiny_trainer(collector=tokens, total_frames=None, optim_steps_per_batch=1)
    trainer.train()
    assert trainer.collected_frames == 12
    assert "12 tokens" in trainer.describe()


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: DataCollector([], 4), "0 samples.*fill it"),
        (lambda: DataCollector({"x": TENSORS}, 20, drop_last=True), "10 samples.*drop_last=False"),
        (lambda: DataCollector(DataLoader([1], 2, drop_last=True)), "1 sample.*batch_size"),
        (lambda: DataCollector(DataLoader(TENSORS, batch_size=None)), "batch_size=None.*data set"),
        (
            lambda: DataCollector(
                DataLoader(TENSORS, sampler=DistributedSampler(TENSORS, num_replicas=2, rank=0))
            ),
            "leave it out, the trainer divides",
        ),
        (lambda: DataCollector(DataLoader(TENSORS), 4), "batch_size= is that of the DataLoader"),
        (lambda: DataCollector(TENSORS), "batch_size=None: pass a positive"),
        (lambda: DataCollector({"x": TENSORS, "y": TENSORS[1:]}, 4), "all of one length"),
        (lambda: DataCollector(TensorDataset(TENSORS), 4), "1 parts.*names=None"),
        (lambda: DataCollector(Stream(), 4, shuffle=True), "no samples by index"),
        (lambda: DataCollector(7, 4), "data=7: pass a data set"),
        (lambda: DataCollector([{"x": 1}, {"y": 1}], 2).collect(), r"\['[xy]'\] and \['[xy]'\]"),
        (lambda: DataCollector([(1, 2)] * 4, 2, names=["x"]).collect(), "2 parts"),
        (lambda: DataCollector([(1, 2)] * 4, 2, names=("x", "x")).collect(), "2 parts"),
        (lambda: DataCollector([torch.ones(n) for n in (1, 2)], 2).collect(), "collate="),
        (lambda: DataCollector(DataLoader(Stream(), 20, drop_last=True)).collect(), "no batch"),
        (lambda: DataCollector(iter([1]), 4), "IterableDataset"),
        (lambda: DataCollector(DataLoader([1], batch_sampler=iter([[0]]))), "no length"),
        (lambda: DataCollector([{"ids": [1, 2]}] * 4, 2).collect(), "'ids'.*hold lists"),
        (lambda: DataCollector([((1, 2), 3)] * 4, 2, names="xy").collect(), "names='xy'"),
        (lambda: DataCollector([((1, 2), 3)] * 4, 2, names=("x", "y")).collect(), "hold lists"),
    ],
)
def test_bad_data_is_refused_in_one_line(make, problem):
    with pytest.raises(ConfigError, match=problem) as refused:
        make()
    assert "\n" not in str(refused.value)


def test_an_error_of_a_worker_is_one_line_too():
    samples = [{"x": 1}, {"y": 1}]
    collector = DataCollector(samples, 2, num_workers=1)
    with pytest.raises(ConfigError, match="samples have the keys") as refused:
        collector.collect()
    assert "\n" not in str(refused.value)
    with pytest.raises(ConfigError):  # again, and no end of the data
        collector.collect()


@pytest.mark.parametrize(
    ("other", "named"),
    [
        (DataCollector({"x": torch.arange(11)}, 4), "samples is 11 here and 10"),
        (DataCollector({"x": TENSORS}, 5), "batch_size is 5 here and 4"),
        (DataCollector({"x": TENSORS}, 4, shuffle=False), "order is unshuffled here and shuffled"),
        (DataCollector(Hugging("b"), 4), "fingerprint is b here and a"),
    ],
)
def test_other_data_than_before_is_refused(other, named):
    saved = DataCollector(Hugging("a"), 4)
    saved.collect()
    with pytest.raises(StateMismatchError, match=named):
        other.load_state_dict(saved.state_dict())
    state = make_trainer(saved).state_dict()
    with pytest.raises(StateMismatchError, match=f"collector: .*{named}"):
        make_trainer(other).load_state_dict(state)


# -- in a trainer ----------------------------------------------------------------------------------


def test_a_run_ends_with_its_data_and_says_so(logger):
    trainer = make_trainer(logger=logger)
    fired: dict[str, list[int]] = {"epochs": [], "samples": []}
    for unit, interval in (("epochs", 0.5), ("samples", 8)):

        def note(batch: Any, places: list[int] = fired[unit]) -> None:
            places.append(trainer.progress.samples)

        trainer.register_op("post_steps_log", note, every=Every(**{unit: interval}))
    assert trainer.total_frames == 30
    trainer.train()
    assert (trainer.stop_reason, trainer.control.status) == (
        "the data ran out after 3 epochs",
        "finished",
    )
    assert trainer.describe().startswith("Trainer: 30 of 30 samples, 9 optimizer steps")
    assert fired == {"epochs": [8, 10, 18, 20, 28, 30], "samples": [8, 18, 24]}
    assert (trainer.progress.epochs, trainer.has_ended) == (3.0, True)
    first = make_trainer()
    first.train()
    longer = make_trainer(DataCollector(make_data(), 4, epochs=4))
    longer.load_state_dict(first.state_dict())
    longer.train()
    assert longer.optim_count == 12
    endless = make_trainer(MADE["stream"](), tiny_trainer().loss_module)
    endless.train()
    assert (endless.collected_frames, endless.stop_reason) == (
        20,
        trainer.stop_reason[:-8] + "2 epochs",
    )


def test_epochs_of_a_collector_without_any_are_refused():
    trainer = tiny_trainer(total_frames=20)
    trainer.register_op("post_steps", lambda: None, every=Every(epochs=1))
    with pytest.raises(ConfigError, match="counts epochs, such as DataCollector"):
        trainer.train()


def test_a_nan_in_the_loss_is_named():
    data = make_data()
    data["x"][3] = float("nan")
    with pytest.raises(FloatingPointError, match=r"loss is nan at optimizer step .* samples"):
        make_trainer(DataCollector(data, 4, epochs=1)).train()


@pytest.mark.parametrize("workers", [0, 1])
def test_a_resumed_run_is_the_run_that_was_not_interrupted(workers):
    def made(stop: int = 99) -> Trainer:
        rows = [dict(row.items()) for row in make_data()]
        collector = DataCollector(rows, 4, epochs=3, num_workers=workers)
        trainer = make_trainer(collector, Classify(dropout=0.5))
        stopping = partial(trainer.request_stop, "now")
        trainer.register_op("post_steps", stopping, every=Every(batches=stop))
        return trainer

    whole = made()
    whole.train()
    for stop in (1, 3, 5):
        first, rest = made(stop), made()
        first.train()
        rest.load_state_dict(first.state_dict())
        rest.train()
        assert first.loss_module.seen + rest.loss_module.seen == whole.loss_module.seen
        for one, other in zip(*(t.loss_module.parameters() for t in (whole, rest)), strict=True):
            assert torch.equal(one, other)
