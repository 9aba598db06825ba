from __future__ import annotations

import copy
import itertools
import os
import pickle
from pathlib import Path

import pytest
import torch
from tensordict import NonTensorData, TensorDict

from hooktrainer.errors import ConfigError
from hooktrainer.replay import PrioritizedSampler, ReplayBuffer, SamplerWithoutReplacement


def make_data(start, *batch):
    """Transitions numbered from ``start`` in every entry."""
    number = torch.arange(start, start + torch.Size(batch).numel()).view(batch)
    column = number.unsqueeze(-1)
    following = TensorDict(
        observation=column.expand(*batch, 2) + 0.5, done=column % 2 == 0, batch_size=batch
    )
    return TensorDict(
        observation=column.expand(*batch, 2).float(),
        action=number,
        next=following,
        batch_size=batch,
    )


def contents(buffer):
    return buffer.state_dict()["storage"]["action"].tolist()


def test_rows_stay_together_and_keep_shape_and_dtype():
    buffer = ReplayBuffer(100, batch_size=32)
    data = make_data(0, 4, 5)
    assert buffer.extend(data).tolist() == list(range(20))
    sample = buffer.sample()
    assert sample.batch_size == (32,)
    assert torch.equal(sample["index"], sample["action"])
    expected = data.reshape(-1)[sample["index"]]
    assert (sample.exclude("index") == expected).all()
    assert sample["next", "done"].dtype == torch.bool


def test_the_oldest_are_overwritten():
    buffer = ReplayBuffer(10)
    buffer.extend(make_data(0, 8))
    assert len(buffer) == 8
    assert buffer.extend(make_data(8, 4)).tolist() == [8, 9, 0, 1]
    assert len(buffer) == 10
    assert buffer.write_count == 12
    assert contents(buffer) == [10, 11, *range(2, 10)]


def test_of_more_than_fits_the_last_are_kept():
    buffer = ReplayBuffer(4)
    buffer.extend(make_data(0, 3))
    buffer.extend(make_data(3, 11))
    assert sorted(contents(buffer)) == [10, 11, 12, 13]
    assert buffer.write_count == 14
    buffer.extend(make_data(14, 1))
    assert sorted(contents(buffer)) == [11, 12, 13, 14]


def test_samples_are_copies_of_everything_with_equal_probability():
    buffer = ReplayBuffer(10)
    buffer.extend(make_data(0, 10))
    sample = buffer.sample(20_000)
    counts = torch.bincount(sample["action"], minlength=10)
    torch.testing.assert_close(counts / 20_000, torch.full((10,), 0.1), atol=0.01, rtol=0)
    sample["observation"].zero_()
    assert buffer.sample(100)["observation"].any()


def test_a_batch_of_other_entries_is_refused_before_anything_is_written():
    buffer = ReplayBuffer(6)
    buffer.extend(make_data(0, 6))
    before = buffer.state_dict()["storage"].clone()
    with pytest.raises(KeyError, match="'extra' is new"):
        buffer.extend(make_data(50, 5).set("extra", torch.zeros(5)))
    with pytest.raises(KeyError, match=r"action.*missing"):
        buffer.extend(make_data(50, 8).exclude("action"))  # more than fits
    assert (buffer.state_dict()["storage"] == before).all()
    assert buffer.write_count == 6


@pytest.mark.parametrize("memory_mapped", [False, True])
@pytest.mark.parametrize("written", [0, 6, 13])
@pytest.mark.parametrize(
    "sampler", [lambda: PrioritizedSampler(10, alpha=0.6, beta=0.4), SamplerWithoutReplacement]
)
def test_a_restored_buffer_continues_exactly(sampler, written, memory_mapped, tmp_path):
    def make(name):
        return ReplayBuffer(
            10,
            batch_size=4,
            sampler=sampler(),
            scratch_dir=tmp_path / name if memory_mapped else None,
            generator=torch.Generator().manual_seed(7),
        )

    buffer, twin = make("a"), make("b")
    if written:
        buffer.extend(make_data(0, written))
        sample = buffer.sample()
        buffer.update_tensordict_priority(sample.set("td_error", torch.rand(4, 1)))
    twin.load_state_dict(buffer.state_dict())
    if written:  # without replacement, these are the rest of a pass
        assert (twin.sample(2) == buffer.sample(2)).all()
    for each in (buffer, twin):
        each.extend(make_data(50, 3))
    assert contents(twin) == contents(buffer)
    assert (twin.sample() == buffer.sample()).all()
    assert len(twin) == len(buffer)
    assert twin.write_count == buffer.write_count


def test_a_state_of_another_size_is_refused():
    buffer = ReplayBuffer(10)
    buffer.extend(make_data(0, 12))
    for size in (8, 20):
        with pytest.raises(ConfigError, match=f"max_size={size}"):
            ReplayBuffer(size).load_state_dict(buffer.state_dict())


def test_a_pass_without_replacement_takes_everything_once():
    buffer = ReplayBuffer(10, batch_size=4, sampler=SamplerWithoutReplacement())
    buffer.extend(make_data(0, 10))
    sizes, seen = zip(*((len(b), b["action"].tolist()) for b in buffer), strict=True)
    assert sizes == (4, 4, 2)
    assert sorted(itertools.chain(*seen)) == list(range(10))


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"max_size": 0}, "max_size=0"),
        ({"max_size": 5, "scratch_dir": "x", "device": "cuda"}, "scratch_dir"),
        ({"max_size": 9, "sampler": PrioritizedSampler(5, 1.0, 1.0)}, "max_capacity=5"),
    ],
)
def test_impossible_arguments_are_refused(arguments, match):
    with pytest.raises(ConfigError, match=match):
        ReplayBuffer(**arguments)


def test_text_is_refused_where_it_would_be_lost():
    batch = TensorDict({"x": torch.zeros(3), "task": NonTensorData("walk", [3])}, [3])
    with pytest.raises(ConfigError, match=r"'task' is 'walk'.*keys="):
        ReplayBuffer(10).extend(batch)
    buffer = ReplayBuffer(10, keys=["x"])
    buffer.extend(batch)
    assert set(buffer.sample(2).keys()) == {"x", "index"}


def test_rows_take_memory_once_they_are_written():
    page, pages = os.sysconf("SC_PAGE_SIZE"), os.sysconf("SC_PHYS_PAGES")
    buffer = ReplayBuffer(page * pages // 4 // 400)  # a quarter of the machine's

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * page

    before = resident()
    buffer.extend(TensorDict({"x": torch.ones(10, 100), "y": torch.ones(10, 1).bfloat16()}, [10]))
    assert resident() - before < 50e6
    assert buffer.sample(5)["y"].tolist() == [[1.0]] * 5
    with pytest.raises(
        ConfigError, match=r"max_size=.* transitions of 8,000 bytes need .* GB, and"
    ):
        ReplayBuffer(page * pages // 4_000).extend(TensorDict({"x": torch.ones(1, 2000)}, [1]))


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it))])
def test_a_copy_saves_what_it_samples(duplicate):
    buffer = ReplayBuffer(10)
    buffer.extend(make_data(0, 5))
    twin = duplicate(buffer)
    twin.extend(make_data(5, 4))
    assert contents(twin) == list(range(9))
    assert set(twin.sample(100)["action"].tolist()) == set(range(9))
    assert contents(buffer) == list(range(5))


def test_an_entry_may_have_no_elements():
    buffer = ReplayBuffer(10)
    buffer.extend(TensorDict(nothing=torch.zeros(4, 0), action=torch.arange(4), batch_size=[4]))
    assert buffer.sample(2)["nothing"].shape == (2, 0)
