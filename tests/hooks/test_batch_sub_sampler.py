from __future__ import annotations

import pytest
import torch
from tensordict import TensorDict

from hooktrainer import BatchSubSampler, ConfigError
from hooktrainer.testing import tiny_trainer


def numbered(*shape: int) -> TensorDict:
    count = torch.Size(shape).numel()
    return TensorDict({"x": torch.arange(count).reshape(shape)}, shape)


def test_one_dimension_without_replacement():
    sub = BatchSubSampler(7)(numbered(10))
    assert sub.shape == (7,)
    assert len(set(sub["x"].tolist())) == 7


def test_no_more_than_there_is():
    sub = BatchSubSampler(100)(numbered(10))
    assert sorted(sub["x"].tolist()) == list(range(10))


def test_pieces_are_consecutive_and_stay_in_their_trajectory():
    batch = numbered(3, 10)
    for _ in range(20):
        sub = BatchSubSampler(batch_size=20, sub_traj_len=4)(batch)
        assert sub.shape == (5, 4)
        assert (sub["x"].diff(dim=1) == 1).all()
        assert (sub["x"] // 10 == sub["x"][:, :1] // 10).all()


def test_every_position_is_drawn():
    starts = torch.cat(
        [BatchSubSampler(40, sub_traj_len=4)(numbered(1, 6))["x"][:, 0] for _ in range(50)]
    )
    assert starts.unique().tolist() == [0, 1, 2]


def test_whole_trajectories_by_default():
    sub = BatchSubSampler(20)(numbered(4, 10))
    assert sub.shape == (2, 10)
    assert (sub["x"][:, 0] % 10 == 0).all()


def test_leading_dimensions_are_trajectories():
    assert BatchSubSampler(6, sub_traj_len=3)(numbered(2, 2, 5)).shape == (2, 3)


def masked(*lengths: int, time: int = 6) -> TensorDict:
    batch = numbered(len(lengths), time)
    mask = torch.arange(time) < torch.tensor(lengths).unsqueeze(-1)
    return batch.set(("collector", "mask"), mask)


def test_padding_is_never_drawn():
    batch = masked(6, 4, 2)
    for _ in range(20):
        sub = BatchSubSampler(12, sub_traj_len=4)(batch)
        assert sub.shape == (6, 2)  # the shortest trajectory has two steps
        assert sub["collector", "mask"].all()


def test_short_trajectories_are_left_out_for_a_longer_piece():
    for _ in range(20):
        sub = BatchSubSampler(12, sub_traj_len=6, min_sub_traj_len=4)(masked(6, 4, 2))
        assert sub.shape == (3, 4)
        assert sub["collector", "mask"].all()
        assert (sub["x"] < 12).all()


@pytest.mark.parametrize(
    ("arguments", "batch", "message"),
    [
        ((8, 11), numbered(2, 10), "sub_traj_len=11 is longer than the batch's 10"),
        ((3, 4), numbered(2, 10), "batch_size=3 holds no piece of 4"),
        ((20, 6, 5), masked(4, 2), "no trajectory of the batch has 5 valid steps"),
    ],
)
def test_pieces_that_do_not_fit(arguments, batch, message):
    with pytest.raises(ConfigError, match=message):
        BatchSubSampler(*arguments)(batch)


def test_in_a_run():
    shapes, trainer = [], tiny_trainer(total_frames=10)
    BatchSubSampler(4, sub_traj_len=2).register(trainer)
    trainer.register_op("post_optim_log", lambda td: shapes.append(tuple(td.shape)))
    trainer.train()
    assert shapes == [(2, 2), (2, 2)]


def example(trainer):
    return BatchSubSampler(4, sub_traj_len=2)
