"""Hashing large tensors in blocks, and what relies on the hashes."""

from __future__ import annotations

import json

import pytest
import torch
import xxhash

from hooktrainer.store import TensorSpec
from hooktrainer.store.backends.native import NativeBackend
from hooktrainer.store.blocks import BLOCK_BYTES, Arena, copy_blocks
from hooktrainer.store.tensor_spec import byte_view, memory

FLOATS = BLOCK_BYTES // 4


def make_tensor(count=20):
    """Some blocks and a bit, all of them different."""
    return torch.arange(count * FLOATS + 5, dtype=torch.float32)


def by_hand(tensor):
    data = memory(byte_view(tensor))
    starts = range(0, len(data), BLOCK_BYTES)
    return [xxhash.xxh3_128_hexdigest(data[start : start + BLOCK_BYTES]) for start in starts]


def specs_of(tensors):
    return {name: TensorSpec.of(tensor) for name, tensor in tensors.items()}


def test_every_block_has_its_hash():
    tensor, digests = make_tensor(), []
    copy_blocks(tensor, torch.empty_like(tensor), digests)
    assert len(digests) == 21
    assert digests == by_hand(tensor)


def test_only_blocks_that_changed_are_copied():
    tensor, digests = make_tensor(), []
    copy = torch.zeros_like(tensor)
    copy_blocks(tensor, copy, digests)
    assert copy.equal(tensor)
    tensor[3 * FLOATS] += 1
    copy[0] = 7  # block 0 is believed to be equal, and not looked at
    copy_blocks(tensor, copy, digests)
    assert copy[0] == 7
    assert copy[1:].equal(tensor[1:])
    assert digests == by_hand(tensor)


def test_a_block_whose_copy_was_interrupted_is_copied_again(monkeypatch):
    tensor, digests = make_tensor(2), []
    copy = torch.zeros_like(tensor)
    copy_blocks(tensor, copy, digests)

    class Interrupted(BaseException):
        pass

    def interrupt(self, source):
        self.data.fill_(1)
        raise Interrupted

    tensor[0] += 1
    with monkeypatch.context() as patch:
        patch.setattr(torch.Tensor, "copy_", interrupt)
        with pytest.raises(Interrupted):
            copy_blocks(tensor, copy, digests)
    tensor[0] -= 1  # what the copy held before
    copy_blocks(tensor, copy, digests)
    assert copy.equal(tensor)


def test_the_arena_gives_the_hashes_of_what_it_copied():
    tensors = {"large": make_tensor(3), "small": torch.ones(3), "columns": make_tensor(3)[::2]}
    arena = Arena()
    for _ in range(2):
        captured = arena.capture(tensors, specs_of(tensors))
        assert captured.digests == {"large": by_hand(tensors["large"])}
        assert all(captured[name].equal(tensors[name]) for name in tensors)
        tensors["large"].add_(1)


def test_known_hashes_make_the_same_checkpoint_and_are_not_taken_again(tmp_path):
    tensors = {"large": make_tensor(3), "a": torch.ones(3), "b": torch.zeros(4)}
    captured = Arena().capture(tensors, specs_of(tensors))

    def chunks(name, given):
        (tmp_path / name).mkdir()
        NativeBackend().write(tmp_path / name, given, None)
        return json.loads((tmp_path / name / "index.json").read_bytes())["chunks"]

    assert chunks("plain", tensors) == chunks("hashed", captured)
    back = NativeBackend().read(tmp_path / "hashed", specs_of(tensors))
    assert all(back[name].equal(tensors[name]) for name in tensors)
    captured.digests["large"][1] = "believed"
    assert [digest for digest, *_ in chunks("believed", captured)][1] == "believed"
