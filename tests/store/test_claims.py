"""A checkpoint that claims what it does not hold, its hashes right, is refused in one line."""

from __future__ import annotations

import json
import os
import resource

import pytest
import torch
from fault_injection import BACKENDS
from forging import change, forge
from sealed import seal

from hooktrainer.cli import main
from hooktrainer.errors import CheckpointError, DamagedCheckpointError
from hooktrainer.store import Checkpoint, CheckpointManager


def saved(place, backend, **tree):
    with CheckpointManager(place, backend=backend) as manager:
        manager.save(tree, frames=1)
    return place / "step_000000000001"


@pytest.fixture(params=BACKENDS)
def checkpoint(request, tmp_path):
    return saved(tmp_path, request.param, x=torch.rand(300), y=torch.rand(3), z=b"bytes")


def assert_refused(checkpoint, match=None):
    """By loading and by `ckpt verify`, alike."""
    with pytest.raises(DamagedCheckpointError, match=match) as caught:
        Checkpoint.open(checkpoint).load()
    assert "\n" not in str(caught.value)
    with pytest.raises(DamagedCheckpointError, match=match):
        Checkpoint.open(checkpoint).verify()
    assert main(["ckpt", "verify", str(checkpoint)]) == 1


@pytest.mark.parametrize(
    "claim", ["float32[400]", "float32[40000000000]", "float64[300]", "float32[299]", "float32[0]"]
)
def test_a_tensor_that_claims_other_bytes_than_there_are(checkpoint, claim):
    change(checkpoint, "state.json", lambda state: state["tensors"].update(x=claim))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert_refused(checkpoint)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # kilobytes


@pytest.mark.parametrize(
    "claim",
    ["float32[-3]", "float32[4611686018427387904, 4]", "float32[1e3]", "float32", "float32[٣]", 7],
)
def test_a_tensor_of_no_shape(checkpoint, claim):
    change(checkpoint, "state.json", lambda state: state["tensors"].update(x=claim))
    assert_refused(checkpoint)


def test_a_tensor_that_is_not_there(checkpoint):
    change(checkpoint, "state.json", lambda state: state["tensors"].update(more="float32[3]"))
    assert_refused(checkpoint)


def test_a_state_without_hash(checkpoint):
    manifest = (checkpoint / "manifest.json").read_bytes()
    opened = Checkpoint.open(checkpoint).manifest
    files = {name: record for name, record in opened.files.items() if name != "state.json"}
    vars(opened)["files"] = files
    (checkpoint / "manifest.json").write_bytes(opened.encode())
    assert_refused(checkpoint, "does not list state.json")
    (checkpoint / "manifest.json").write_bytes(manifest)
    (checkpoint / "tensors/more").touch()
    assert_refused(checkpoint, "does not list tensors/more")


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "a/../../secret", "", "a\nb"])
def test_a_file_elsewhere_is_not_opened(checkpoint, name):
    opened = Checkpoint.open(checkpoint).manifest
    record = next(iter(opened.files.values()))
    vars(opened)["files"] = {**opened.files, name: record}
    (checkpoint / "manifest.json").write_bytes(opened.encode())
    with pytest.raises(DamagedCheckpointError, match=r"name of a file|lie in its directory"):
        Checkpoint.open(checkpoint)


def test_links_and_pipes_are_not_followed(checkpoint, tmp_path):
    state = checkpoint / "state.json"
    state.rename(tmp_path / "elsewhere.json")
    state.symlink_to(tmp_path / "elsewhere.json")
    assert_refused(checkpoint, "link out of its directory")
    state.unlink()
    os.mkfifo(state)
    assert_refused(checkpoint, "not a regular file")


@pytest.mark.parametrize(
    "field", [{"frames": "1"}, {"sequence": None}, {"files": []}, {"metrics": {"r": []}}, {"x": 1}]
)
def test_a_manifest_of_other_types(checkpoint, field):
    opened = Checkpoint.open(checkpoint).manifest
    forged = json.loads(opened.encode().split(b'"manifest": ', 1)[1][:-2])
    (checkpoint / "manifest.json").write_bytes(seal("manifest", {**forged, **field}))
    with pytest.raises(DamagedCheckpointError, match=r"manifest.json: "):
        Checkpoint.open(checkpoint)


@pytest.mark.parametrize(
    "edit",
    [
        {"chunks": ["../../../../secret"]},
        {"chunks": [None]},
        {"chunks": ["0" * 32]},
        {"chunks": []},
        {"chunks": 7},
        {"chunk_bytes": 0},
        {"chunk_bytes": -1},
        {"chunk_bytes": 1},
        {"chunk_bytes": 2.5},
        {"chunk_bytes": None},
        {"chunk_bytes": True},
    ],
)
def test_native_index_of_other_chunks(tmp_path, edit):
    checkpoint = saved(tmp_path, "native", x=torch.rand(300))
    change(checkpoint, "tensors/index.json", lambda index: index.update(edit))
    assert_refused(checkpoint)


def test_native_chunk_that_is_not_what_it_is_named_by(tmp_path):
    """Else the next save of what the name says would link to it."""
    checkpoint = saved(tmp_path, "native", x=torch.rand(300))
    (chunk,) = (checkpoint / "tensors").glob("*.chunk")
    chunk.write_bytes(bytes(1200))
    forge(checkpoint)
    assert_refused(checkpoint, "is named by another hash")


def test_native_equal_chunks_for_which_there_is_no_memory(tmp_path, monkeypatch):
    """They are stored once: a small file may hold what takes much memory, and does so rightly."""
    checkpoint = saved(tmp_path, "native", zeros=torch.zeros(5_000_000))
    assert sum(f.stat().st_size for f in checkpoint.rglob("*.chunk")) < 10_000_000
    Checkpoint.open(checkpoint).load()
    monkeypatch.setattr("hooktrainer.base.untrusted.files._available", lambda: 19_999_999)
    assert_refused(checkpoint, r"take 20,000,000 bytes; 19,999,999 bytes of memory are free")


def test_torchsnapshot_metadata_are_not_read(tmp_path):
    checkpoint = saved(tmp_path, "torchsnapshot", x=torch.ones(3))
    (checkpoint / "tensors/.snapshot_metadata").write_text(
        f'!!python/object/apply:os.system ["touch {tmp_path / "ran"}"]\n'
    )
    forge(checkpoint)
    assert Checkpoint.open(checkpoint).load()["x"].tolist() == [1, 1, 1]
    assert not (tmp_path / "ran").exists()


def test_a_lock_is_not_written_through_a_link(tmp_path):
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints/.lock").symlink_to(tmp_path / "precious")
    with pytest.raises((CheckpointError, OSError)):
        CheckpointManager(tmp_path / "checkpoints")
    assert (tmp_path / "precious").read_text() == "mine"
