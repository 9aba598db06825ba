"""The hooks that cut a batch: mini-batches, sub-batches, padding, keys."""

from __future__ import annotations

import pytest
import torch
from tensordict import TensorDict

from hooktrainer import (
    BatchSubSampler,
    ConfigError,
    MiniBatches,
    SelectKeys,
    ValueEstimatorHook,
    mask_batch,
)
from hooktrainer.testing import tiny_trainer

# -- MiniBatches -----------------------------------------------------------------------------------


def numbered(*shape: int) -> TensorDict:
    x = torch.arange(torch.Size(shape).numel()).reshape(shape)
    return TensorDict({"x": x, "y": x}, shape)


def epochs(hook: MiniBatches, batch: TensorDict, number: int = 1) -> list[list[list[int]]]:
    """The mini-batches of each epoch, as the loop sees them."""
    pieces: list[list[list[int]]] = [[] for _ in range(number)]
    trainer = tiny_trainer(
        collector=[batch], optim_steps_per_batch=None, num_epochs=number, total_frames=1
    )
    hook.register(trainer)
    trainer.register_op(
        "post_optim_log", lambda piece: pieces[trainer.epoch].append(piece["x"].tolist())
    )
    trainer.train()
    return pieces


def flat(epoch: list[list[int]]) -> list[int]:
    return [x for piece in epoch for x in piece]


def test_an_epoch_holds_every_step_once():
    (pieces,) = epochs(MiniBatches(4), numbered(2, 5))
    assert [len(p) for p in pieces] == [4, 4, 2]
    assert sorted(flat(pieces)) == list(range(10))


@pytest.mark.parametrize("gathers", [True, False])
def test_a_single_step_that_is_left_over_joins_the_mini_batch_before_it(gathers):
    hook = MiniBatches(4)
    hook.register(tiny_trainer())
    hook.gathers = gathers
    pieces = [hook(numbered(3, 3)) for _ in range(2)]
    assert [len(piece) for piece in pieces] == [4, 5]
    with pytest.raises(StopIteration):
        hook(numbered(3, 3))


def test_a_batch_size_beyond_the_batch_warns_once(caplog):
    assert [len(p) for p in flat(epochs(MiniBatches(10_000), numbered(2, 5), 2))] == [10, 10]
    (said,) = caplog.messages
    assert "batch_size=10000): the batch has 10 steps" in said


def test_mini_batches_may_hold_indices_until_they_are_filled():
    pieces = []
    for gathers in (True, False):
        torch.manual_seed(3)
        hook, trainer = MiniBatches(4), tiny_trainer()
        hook.register(trainer)
        hook.gathers = gathers
        first = hook(numbered(2, 5))
        if not gathers:
            assert set(first.keys()) == {"index"}
            assert torch.equal(hook.rows["x"][first["index"]], pieces[0]["x"])
            hook.fill(first)
        pieces += [first, hook(numbered(2, 5)), hook(numbered(2, 5))]
    for eager, filled in zip(pieces[:3], pieces[3:], strict=True):
        assert set(filled.keys()) == {"x", "y"}
        assert torch.equal(filled["x"], eager["x"])


def test_together_with_estimates_renewed_every_epoch():
    """An estimator that returns a new TensorDict: each epoch trains on its own estimates only."""
    calls, seen = [0], []

    def estimator(batch):
        calls[0] += 1
        return batch.copy().set("estimate", torch.full(batch.shape, float(calls[0])))

    trainer = tiny_trainer(optim_steps_per_batch=None, num_epochs=3, total_frames=10)
    ValueEstimatorHook(estimator, every_epoch=True).register(trainer)
    MiniBatches(5).register(trainer)

    def look(sub_batch):
        seen.append((trainer.epoch, sub_batch["estimate"].unique().tolist()))
        assert len(seen) <= 6, "too many steps"

    trainer.register_op("post_optim_log", look)
    trainer.train()
    assert seen == [(0, [1.0])] * 2 + [(1, [2.0])] * 2 + [(2, [3.0])] * 2


def test_environments_are_cut_into_shorter_sequences():
    (pieces,) = epochs(MiniBatches(4, sequences=4), numbered(2, 12))
    rows = [row for piece in pieces for row in piece]
    assert [len(piece) for piece in pieces] == [4, 2]
    assert sorted(rows) == [list(range(first, first + 4)) for first in range(0, 24, 4)]


def test_sequences_that_do_not_fit_are_refused():
    said = r"sequences=5\): the batch is \[2, 12\]; it has to be \[num_envs, time\], of a time that"
    with pytest.raises(ConfigError, match=said):
        epochs(MiniBatches(3, sequences=5), numbered(2, 12))


# -- BatchSubSampler -------------------------------------------------------------------------------


def ordered(*shape: int) -> TensorDict:
    count = torch.Size(shape).numel()
    return TensorDict({"x": torch.arange(count).reshape(shape)}, shape)


def test_one_dimension_without_replacement():
    sub = BatchSubSampler(7)(ordered(10))
    assert sub.shape == (7,)
    assert len(set(sub["x"].tolist())) == 7


def test_pieces_are_consecutive_and_stay_in_their_trajectory():
    batch = ordered(3, 10)
    for _ in range(20):
        sub = BatchSubSampler(batch_size=20, sub_traj_len=4)(batch)
        assert sub.shape == (5, 4)
        assert (sub["x"].diff(dim=1) == 1).all()
        assert (sub["x"] // 10 == sub["x"][:, :1] // 10).all()


def masked(*lengths: int, time: int = 6) -> TensorDict:
    batch = ordered(len(lengths), time)
    mask = torch.arange(time) < torch.tensor(lengths).unsqueeze(-1)
    return batch.set(("collector", "mask"), mask)


def test_padding_is_never_drawn():
    batch = masked(6, 4, 2)
    for _ in range(20):
        sub = BatchSubSampler(12, sub_traj_len=4)(batch)
        assert sub.shape == (6, 2)  # the shortest trajectory has two steps
        assert sub["collector", "mask"].all()


@pytest.mark.parametrize(
    ("arguments", "batch", "message"),
    [
        ((8, 11), ordered(2, 10), "sub_traj_len=11 is longer than the batch's 10"),
        ((20, 2, 11), ordered(2, 10), "min_sub_traj_len=11 is longer than the batch's 10"),
        ((3, 4), ordered(2, 10), "batch_size=3 holds no piece of 4"),
        ((20, 6, 5), masked(4, 2), "no trajectory of the batch has 5 valid steps"),
    ],
)
def test_pieces_that_do_not_fit(arguments, batch, message):
    with pytest.raises(ConfigError, match=message):
        BatchSubSampler(*arguments)(batch)


# -- mask_batch ------------------------------------------------------------------------------------


def test_valid_steps_are_kept():
    mask = torch.tensor([[True, True, False], [True, False, False]])
    batch = TensorDict({"x": torch.arange(6).reshape(2, 3), "collector": {"mask": mask}}, [2, 3])
    out = mask_batch(batch)
    assert out.shape == (3,)
    assert out["x"].tolist() == [0, 1, 3]


# -- SelectKeys ------------------------------------------------------------------------------------


def test_only_these_keys_remain():
    seen, trainer = [], tiny_trainer(total_frames=10)
    SelectKeys(["action", ("next", "reward")]).register(trainer)
    trainer.register_op("pre_steps_log", lambda td: seen.append(set(td.keys(True, True))))
    trainer.train()
    assert seen == [{"action", ("next", "reward")}]


EXAMPLES = {
    "MiniBatches": lambda trainer: MiniBatches(4),
    "BatchSubSampler": lambda trainer: BatchSubSampler(4, sub_traj_len=2),
    "SelectKeys": lambda trainer: SelectKeys(["observation", ("next", "reward")]),
}
