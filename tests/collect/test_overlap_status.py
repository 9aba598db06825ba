"""What a collector reports besides batches, when a copy of it collects ahead."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset
from toy_worlds import Talker

from hooktrainer import Every, OverlappedCollector, VectorCollector
from hooktrainer.data import DataCollector
from hooktrainer.store.tree import flatten, unflatten
from hooktrainer.testing import tiny_trainer


class Stream(IterableDataset):
    """Ten numbers; its length is unknown until it ends."""

    def __iter__(self):
        return iter([{"x": torch.tensor(float(i))} for i in range(10)])


def indexed() -> DataCollector:
    return DataCollector({"x": torch.arange(10.0)}, 4, epochs=2)


def streamed() -> DataCollector:
    return DataCollector(DataLoader(Stream(), 4), epochs=2)


def history(collector) -> list[tuple[float | None, str | None]]:
    """Epoch and end before, after each batch, and at the end."""
    seen = [(collector.epoch, collector.ended)]
    for _ in collector:
        seen.append((collector.epoch, collector.ended))
    return [*seen, (collector.epoch, collector.ended)]


@pytest.mark.parametrize("depth", [0, 1, 3])
@pytest.mark.parametrize("make", [indexed, streamed])
def test_epoch_and_end_are_those_of_the_batch_that_is_handed_out(make, depth):
    alone = history(make())
    assert alone[-1] == (2.0, "the data ran out after 2 epochs")
    collector = OverlappedCollector(make(), depth, mode="thread")
    assert history(collector) == alone
    collector.shutdown()


@pytest.mark.parametrize("make", [indexed, streamed])
def test_a_state_has_the_epochs_of_the_batches_in_progress(make):
    one, alone = OverlappedCollector(make(), 3, mode="thread"), history(make())
    for _ in range(4):
        one.collect()
    state = one.state_dict()
    assert (one.epoch, one.ended) == alone[4]
    one.shutdown()
    for saved in (state, unflatten(*flatten(state))):
        again = OverlappedCollector(make(), 1, mode="thread")
        again.load_state_dict(saved)
        assert history(again) == alone[4:]
        again.load_state_dict(saved)  # now to the worker
        assert (again.epoch, again.ended) == alone[4]
        again.shutdown()


def test_a_plain_state_is_loaded_with_its_epoch():
    alone, worker = indexed(), OverlappedCollector(indexed(), 1, mode="thread")
    worker.collect()
    for _ in alone:
        pass
    for collector in (OverlappedCollector(indexed(), 1, mode="thread"), worker):
        collector.load_state_dict(alone.state_dict())
        assert (collector.epoch, collector.ended) == (2.0, "the data ran out after 2 epochs")
        collector.shutdown()


@pytest.mark.parametrize("make", [indexed, streamed])
def test_a_run_finishes_with_its_data_and_counts_epochs(make):
    def outcome(collector):
        trainer = tiny_trainer(collector=collector, total_frames=1000)
        due: list[float] = []
        trainer.register_op(
            "post_steps", lambda: due.append(collector.epoch), every=Every(epochs=1)
        )
        trainer.train()
        return due, trainer.control.status, trainer.stop_reason

    alone = outcome(make())
    assert alone[0][0] == 1.0
    assert alone[1:] == ("finished", "the data ran out after 2 epochs")
    assert outcome(OverlappedCollector(make(), 1, mode="thread")) == alone


@pytest.mark.parametrize("is_wrapped_later", [False, True])
def test_the_log_of_a_simulator_is_that_of_the_batch(is_wrapped_later):
    def logs(wrap) -> list[dict[str, float]]:
        seen: list[dict[str, float]] = []
        made = VectorCollector(Talker, num_envs=3, frames_per_batch=6)
        trainer = tiny_trainer(collector=made if is_wrapped_later else wrap(made), total_frames=24)
        if is_wrapped_later and wrap is not plain:
            trainer.collector = wrap(made)
            trainer.collector.register_alone(trainer)
        trainer.register_op("post_steps", lambda: seen.append(latest(trainer)))
        trainer.train()
        return seen

    def plain(made):
        return made

    def latest(trainer) -> dict[str, float]:
        names = ("world/height", "world/rank", "Episode/slips")
        return {name: trainer.metrics.latest(name) for name in names}

    alone = logs(plain)
    assert len({one["world/height"] for one in alone}) > 2
    for depth in (0, 2):
        assert logs(lambda made, n=depth: OverlappedCollector(made, n, mode="thread")) == alone
