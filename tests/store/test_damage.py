"""Every change to the files of a checkpoint is found before anything is restored."""

from __future__ import annotations

import io
import pickle
import random
from contextlib import nullcontext

import pytest
import torch
from fault_injection import BACKENDS, FULL, Planted
from forging import forge

from hooktrainer.errors import CheckpointError, DamagedCheckpointError
from hooktrainer.store import Checkpoint, CheckpointManager


@pytest.fixture(params=BACKENDS)
def checkpoint(request, tmp_path):
    tree = {"x": torch.rand(3000), "y": [torch.rand(3) for _ in range(5)], "z": ("text", 1.5)}
    with CheckpointManager(tmp_path, backend=request.param) as manager:
        manager.save(tree, frames=1, metrics={"r": 1.0})
    return tmp_path / "step_000000000001"


def files(checkpoint):
    return sorted(path for path in checkpoint.rglob("*") if path.is_file())


def assert_found(checkpoint, path):
    with pytest.raises(DamagedCheckpointError) as caught:
        Checkpoint.open(checkpoint).load()
    assert path.relative_to(checkpoint).as_posix() in str(caught.value)


def test_flipped_bits(checkpoint):
    randomness = random.Random(0)
    paths = files(checkpoint)
    weights = [path.stat().st_size + 500 for path in paths]
    for path in randomness.choices(paths, weights, k=1000 if FULL else 100):
        data = bytearray(path.read_bytes())
        bit = randomness.randrange(8 * len(data))
        data[bit // 8] ^= 1 << bit % 8
        path.write_bytes(data)
        assert_found(checkpoint, path)
        data[bit // 8] ^= 1 << bit % 8
        path.write_bytes(data)
    Checkpoint.open(checkpoint).load()


def test_truncated_and_extended_files(checkpoint):
    randomness = random.Random(0)
    paths = files(checkpoint)
    for path in paths:
        data = path.read_bytes()
        count = 200 // len(paths) if FULL else 5
        lengths = [0, len(data) - 1, *(randomness.randrange(len(data)) for _ in range(count))]
        for content in [*(data[:length] for length in lengths), data + b"\0"]:
            path.write_bytes(content)
            assert_found(checkpoint, path)
        path.write_bytes(data)


def test_missing_and_unreadable_files(checkpoint):
    for path in files(checkpoint):
        data = path.read_bytes()
        path.unlink()
        assert_found(checkpoint, path)
        path.mkdir()
        assert_found(checkpoint, path)
        path.rmdir()
        path.write_bytes(data)


@pytest.mark.parametrize("forge_hashes", [False, True])
def test_a_pickle_planted_in_any_file_does_not_run(checkpoint, forge_hashes, tmp_path):
    planted = Planted(tmp_path / "planted")
    manifest = checkpoint / "manifest.json"
    kept = manifest.read_bytes()
    for path in files(checkpoint):
        data = path.read_bytes()
        for content in (pickle.dumps(planted, 2), saved_by_torch(planted)):
            path.write_bytes(content)
            if forge_hashes and path != manifest:
                forge(checkpoint)
            unread = forge_hashes and path.name == ".snapshot_metadata"
            with nullcontext() if unread else pytest.raises(CheckpointError):
                Checkpoint.open(checkpoint).load()
            path.write_bytes(data)
            manifest.write_bytes(kept)
    assert not planted.place.exists()
    pickle.loads(pickle.dumps(planted, 2))
    assert planted.place.exists()  # it would have been


def saved_by_torch(value):
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()
