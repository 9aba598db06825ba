from __future__ import annotations

import pickle
import re
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch
from fault_injection import (
    BACKENDS,
    FULL,
    Crash,
    FaultyOS,
    Planted,
    VolatileDisk,
    installed,
    scratch,
)

from hooktrainer.errors import CheckpointError
from hooktrainer.store import load_file, save_file


def test_round_trip_and_plain_torch_load(tmp_path):
    path = tmp_path / "new" / "state.pt"
    save_file(path, {"hook": {1: (torch.ones(2, 3).T, np.float32(2), "x", None)}})
    transposed, scalar, text, nothing = load_file(path)["hook"][1]
    assert transposed.tolist() == [[1, 1]] * 3
    assert (type(scalar), scalar, text, nothing) == (np.float32, 2, "x", None)
    content = torch.load(path, weights_only=True)
    assert set(content) == {"format", "state", "tensors", "checksum"}


def test_a_small_view_does_not_save_its_whole_storage(tmp_path):
    save_file(tmp_path / "s", {"x": torch.zeros(1_000_000)[:3]})
    assert (tmp_path / "s").stat().st_size < 10_000


def left_in(directory):
    """What lies there, without numbers that differ, and without files in deeper directories."""
    found = [path.relative_to(directory) for path in directory.glob("*")]
    found += [path.relative_to(directory) for path in directory.glob("*.tensors/*")]
    return sorted(re.sub("-[0-9a-f]{8}$", "", str(path)) for path in found)


BESIDE = ["state.pt", "state.pt.tensors", "state.pt.tensors/state"]


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_back_end_and_each_in_place_of_another(tmp_path, backend):
    path = tmp_path / "state.pt"
    for number, other in enumerate(BACKENDS * 2):
        for which in (backend, other):
            save_file(path, {"x": torch.full((3,), number), "which": which}, which)
            found = load_file(path)
            assert (found["x"].tolist(), found["which"]) == ([number] * 3, which)
            assert set(left_in(tmp_path)) <= set(BESIDE)
            assert (BESIDE[-1] in left_in(tmp_path)) == (which != "torch")


ROWS = [["native", "torch", "torchsnapshot"], *([[b] * 3 for b in BACKENDS] if FULL else [])]


def saves(root, faulty, backends):
    """Save one state after another; return the numbers of those whose save returned."""
    returned = [0]
    with suppress(Crash), installed(faulty):
        for number, backend in enumerate(backends, start=1):
            save_file(root / "state.pt", {"x": torch.full((300,), number)}, backend)
            returned.append(number)
    return returned


@pytest.mark.parametrize("lost", ["process", "power"])
@pytest.mark.parametrize("backends", ROWS, ids="-".join)
def test_a_save_that_returned_survives_a_crash_at_any_time(backends, lost):
    fail_at, done = 0, False
    while not done:
        fail_at += 1 if FULL else 8
        with scratch() as root:
            (root / "disk").mkdir()
            if lost == "process":
                place, returned = root / "disk", saves(root / "disk", FaultyOS(fail_at), backends)
            else:
                disk = VolatileDisk(root / "disk", fail_at)
                place, returned = root / "later", saves(root / "disk", disk, backends)
                disk.after_power_loss(place)
            if len(returned) > 1 or (place / "state.pt").exists():
                number = load_file(place / "state.pt")["x"].unique().item()
                assert number in (returned[-1], returned[-1] + 1)
            done = len(returned) == len(backends) + 1
            if done or not fail_at % 16:  # the next save tidies up
                save_file(place / "state.pt", {"x": torch.zeros(3)}, "native")
                assert [f for f in left_in(place) if not f.startswith(".tmp-state.pt")] == BESIDE


def test_a_file_without_its_directory_names_it(tmp_path):
    path = tmp_path / "state.pt"
    save_file(path, {"x": torch.ones(3)}, "native")
    (tmp_path / "state.pt.tensors").rename(tmp_path / "elsewhere")
    with pytest.raises(CheckpointError, match=r"state\.pt\.tensors"):
        load_file(path)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "state.pt.tensors").symlink_to(tmp_path / "elsewhere")
    path.rename(tmp_path / "other" / "state.pt")
    with pytest.raises(CheckpointError, match="link out of its directory"):
        load_file(tmp_path / "other" / "state.pt")


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
