from __future__ import annotations

import errno
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from fault_injection import Crash, Planted, VolatileDisk, scratch

from hooktrainer.errors import CheckpointError
from hooktrainer.store import fs, load_file, save_file


def test_round_trip_and_plain_torch_load(tmp_path):
    path = tmp_path / "new" / "state.pt"
    save_file(path, {"hook": {1: (torch.ones(2, 3).T, np.float32(2), "x", None)}})
    transposed, scalar, text, nothing = load_file(path)["hook"][1]
    assert transposed.tolist() == [[1, 1]] * 3
    assert (type(scalar), scalar, text, nothing) == (np.float32, 2, "x", None)
    content = torch.load(path, weights_only=True)
    assert set(content) == {"format", "skeleton", "tensors", "checksum"}


def test_a_small_view_does_not_save_its_whole_storage(tmp_path):
    save_file(tmp_path / "s", {"x": torch.zeros(1_000_000)[:3]})
    assert (tmp_path / "s").stat().st_size < 10_000


def test_a_failed_save_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "state.pt"
    save_file(path, {"x": torch.ones(3)})

    def full(fd, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(fs.os, "write", full)
    with pytest.raises(OSError, match="No space left"):
        save_file(path, {"x": torch.zeros(3)})
    monkeypatch.undo()
    with pytest.raises(CheckpointError, match=r"x: a builtins\.object"):
        save_file(path, {"x": object()})
    assert [p.name for p in tmp_path.iterdir()] == ["state.pt"]
    assert load_file(path)["x"].tolist() == [1, 1, 1]


def test_a_save_that_returned_survives_a_power_loss_at_any_time():
    tree, fail_at, done = {"x": torch.rand(300)}, 0, False
    while not done:
        fail_at += 1
        with scratch() as root, pytest.MonkeyPatch.context() as patch:
            (root / "disk").mkdir()
            disk = VolatileDisk(root / "disk", fail_at)
            patch.setattr(fs, "os", disk)
            saved = []
            try:
                for value in (1.0, 2.0, 3.0):
                    save_file(root / "disk" / "state.pt", {**tree, "value": value})
                    saved.append(value)
            except Crash:
                pass
            disk.after_power_loss(root / "later")
            if saved:
                back = load_file(root / "later" / "state.pt")
                assert back["value"] >= saved[-1]
                assert torch.equal(back["x"], tree["x"])
            done = len(saved) == 3


@pytest.mark.parametrize(
    "write", [torch.save, lambda x, p: Path(p).write_bytes(pickle.dumps(x, 2))]
)
def test_a_planted_pickle_does_not_run(tmp_path, write):
    write({"format": Planted(tmp_path / "planted")}, tmp_path / "evil")
    with pytest.raises(CheckpointError, match="never loaded"):
        load_file(tmp_path / "evil")
    assert not (tmp_path / "planted").exists()


def test_damaged_and_foreign_files_are_refused(tmp_path):
    path = tmp_path / "s"
    save_file(path, {"x": torch.arange(1000)})
    path.write_bytes(path.read_bytes()[:2000])
    with pytest.raises(CheckpointError, match="damaged"):
        load_file(path)
    save_file(path, {"x": torch.arange(1000)})
    content = bytearray(path.read_bytes())
    content[content.index(bytes(torch.arange(500, 510).numpy().data))] ^= 1
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="damaged"):
        load_file(path)
    save_file(path, {"x": torch.arange(1000)})
    torch.save({**torch.load(path), "checksum": "0" * 32}, path)
    with pytest.raises(CheckpointError, match="checksum"):
        load_file(path)
    torch.save({"x": torch.ones(1)}, path)
    with pytest.raises(CheckpointError, match="not a state file"):
        load_file(path)
    with pytest.raises(FileNotFoundError):
        load_file(tmp_path / "absent")
