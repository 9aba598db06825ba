from __future__ import annotations

import errno
import gc
import json
import logging
import os
import pathlib
import shutil
import signal
import threading
import time
from concurrent.futures import Future
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from fault_injection import BACKENDS
from outcomes import same
from tensordict import TensorDict

from hooktrainer.base import fs
from hooktrainer.errors import CheckpointError, DamagedCheckpointError, WriteFailedError
from hooktrainer.store import (
    Best,
    Checkpoint,
    CheckpointManager,
    Last,
    get_backend,
    list_checkpoints,
    lock,
    save_file,
)

NativeBackend = type(get_backend("native"))


def state(value):
    return {
        "modules": {"net": {"weight": torch.full((64, 64), float(value)), "bias": torch.zeros(3)}},
        "td": TensorDict({"x": torch.arange(6).reshape(2, 3)}, [2]),
        "array": np.full(5, value),
        "counters": {1: (value, None), "nan": float("nan")},
    }


def names(directory):
    return sorted(path.name for path in directory.iterdir() if path.name != ".lock")


# --- saving and loading ------------------------------------------------------------------------


@pytest.mark.parametrize("background", [True, False])
@pytest.mark.parametrize("backend", BACKENDS)
def test_round_trip(backend, background, tmp_path):
    with CheckpointManager(tmp_path / "c", backend=backend, background=background) as manager:
        for frames in (100, 200):
            manager.save(state(frames), frames=frames, optim_steps=7, metrics={"loss": 0.5})
        checkpoint, tree = manager.load("latest")
        assert same(tree, state(200))
        assert same(manager.load("100")[1], state(100))
    assert names(tmp_path / "c") == ["step_000000000100", "step_000000000200"]
    manifest = checkpoint.manifest
    assert (manifest.frames, manifest.optim_steps, manifest.backend) == (200, 7, backend)
    assert manifest.metrics == {"loss": 0.5}
    assert manifest.versions["torch"] == torch.__version__
    assert set(manifest.files) == {
        path.relative_to(checkpoint.path).as_posix()
        for path in checkpoint.path.rglob("*")
        if path.is_file() and path.name != "manifest.json"
    }


def test_each_back_end_reads_the_others_checkpoints(tmp_path):
    for frames, backend in enumerate(BACKENDS):
        with CheckpointManager(tmp_path, backend=backend) as manager:
            manager.save(state(frames), frames=frames)
            for earlier in range(frames + 1):
                assert same(manager.load(str(earlier))[1], state(earlier))


def test_the_copy_follows_a_state_that_changes_its_shape(tmp_path):
    with CheckpointManager(tmp_path) as manager:
        for frames, tree in enumerate([{"x": torch.ones(3)}, {"x": torch.ones(9)}, {}, state(1)]):
            manager.save(tree, frames=frames)
            assert same(manager.load()[1], tree)


def test_a_state_that_would_not_be_read_again_is_refused_at_once(tmp_path, monkeypatch):
    for module in ("store.stored", "base.untrusted.files"):
        monkeypatch.setattr(f"hooktrainer.{module}.MAX_STRUCTURE", 10_000)
    with CheckpointManager(tmp_path / "run") as manager:
        with pytest.raises(CheckpointError, match="more than 10,000: return large data"):
            manager.save({"x": bytes(9_000)}, frames=1)
        manager.save({"x": bytes(6_000)}, frames=2)
        assert manager.load()[1] == {"x": bytes(6_000)}
    with pytest.raises(CheckpointError, match="more than 10,000"):
        save_file(tmp_path / "state.pt", {"x": bytes(9_000)})


def test_a_configuration_that_is_not_plain_data_is_refused_at_once(tmp_path):
    with (
        CheckpointManager(tmp_path, config={"env": object()}) as manager,
        pytest.raises(CheckpointError, match="config/env"),
    ):
        manager.save({}, frames=1)
    assert names(tmp_path) == []


def test_configuration_and_unusual_metrics_come_back(tmp_path):
    config = {"lr": 3e-4, "layers": (64, 64), "path": None}
    with CheckpointManager(tmp_path, config=config) as manager:
        metrics = {"a": float("inf"), "b": torch.tensor(2.0), "c": float("nan")}
        manager.save({}, frames=1, metrics=metrics)
    manifest = Checkpoint.open(tmp_path / "step_000000000001").manifest
    assert manifest.config == config
    assert str(manifest.metrics) == "{'a': inf, 'b': 2.0, 'c': nan}"
    json.loads(
        (tmp_path / "step_000000000001" / "manifest.json").read_text(),
        parse_constant=lambda word: pytest.fail(f"{word} is not JSON"),
    )


def test_the_native_back_end_shares_what_did_not_change_also_after_a_resume(tmp_path):
    tree = {"frozen": torch.rand(1_500_000), "counter": torch.zeros(1)}
    for frames in (1, 2, 3):
        with CheckpointManager(tmp_path, backend="native") as manager:
            if frames > 1:
                tree = manager.load()[1]
                tree["counter"] += 1
            manager.save(tree, frames=frames)
    places = [tmp_path / f"step_{i:012d}" / "tensors" for i in (1, 2, 3)]
    (large,) = (path.name for path in places[0].iterdir() if path.stat().st_size == 4 << 20)
    assert (places[2] / large).samefile(places[0] / large)
    assert len({path.stat().st_ino for place in places for path in place.glob("*.chunk")}) == 5


def test_files_that_were_touched_are_not_shared(tmp_path):
    tree = {"frozen": torch.rand(1_000_000)}
    with CheckpointManager(tmp_path, backend="native", background=False) as manager:
        manager.save(tree, frames=1)
        (chunk,) = (tmp_path / "step_000000000001" / "tensors").glob("*.chunk")
        data = bytearray(chunk.read_bytes())
        data[100] ^= 1
        chunk.write_bytes(data)
        os.utime(chunk, ns=(0, 0))
        manager.save(tree, frames=2)
        assert same(manager.load("latest")[1], tree)


# --- failures ----------------------------------------------------------------------------------


def disk_full(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("backend", ["torch", "native"])
@pytest.mark.parametrize("background", [True, False])
def test_a_failed_write_stops_training_with_the_disks_own_reason(
    background, backend, tmp_path, monkeypatch
):
    with CheckpointManager(tmp_path, backend=backend, background=background) as manager:
        manager.save(state(1), frames=1)
        manager.wait()
        monkeypatch.setattr(fs.os, "write", disk_full)

        def save_and_wait():
            manager.save(state(2), frames=2)
            manager.wait()

        with pytest.raises(CheckpointError, match="No space left on device") as caught:
            save_and_wait()
        assert isinstance(caught.value.__cause__, OSError)
        monkeypatch.undo()
        assert names(tmp_path) == ["step_000000000001"]
        manager.check()  # reported once
        manager.save(state(3), frames=3)
        assert same(manager.load()[1], state(3))


@pytest.mark.parametrize("background", [True, False])
def test_an_interrupted_save_holds_the_state_as_it_was(background, tmp_path, monkeypatch):
    def slow(*args):
        time.sleep(0.1)
        return original(*args)

    def interrupt(*_):
        raise KeyboardInterrupt

    original = NativeBackend.write
    monkeypatch.setattr(NativeBackend, "write", slow)
    tree = {"x": torch.zeros(3)}
    with CheckpointManager(tmp_path, backend="native", background=background) as manager:
        with monkeypatch.context() as patch:
            patch.setattr(Future, "exception", interrupt)
            with pytest.raises(KeyboardInterrupt):
                manager.save(tree, frames=1), manager.wait()
        tree["x"] += 1.0
        assert manager.load()[1]["x"].tolist() == [0.0, 0.0, 0.0]


def test_check_does_not_wait(tmp_path, monkeypatch):
    gate = threading.Event()
    original = NativeBackend.write

    def slow(self, *args):
        gate.wait(10)
        return original(self, *args)

    monkeypatch.setattr(NativeBackend, "write", slow)
    with CheckpointManager(tmp_path, backend="native") as manager:
        manager.save(state(1), frames=1)
        manager.check()
        assert manager.checkpoints() == []
        gate.set()
        manager.wait()
        assert len(manager.checkpoints()) == 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_does_not_fit_is_refused_before_the_disk_is_full(backend, tmp_path, monkeypatch):
    disk = SimpleNamespace(f_frsize=512, f_blocks=200, f_bavail=20, f_bfree=20)
    with CheckpointManager(tmp_path, backend=backend, background=False) as manager:
        manager.save(state(1), frames=1)
        monkeypatch.setattr(fs.os, "statvfs", lambda _: disk)
        if backend == "native":
            manager.save(state(1), frames=2)  # it is there already
        with pytest.raises(WriteFailedError, match="No space left on device"):
            manager.rollback("1", discard=True), manager.save(state(2), frames=3)
    assert names(tmp_path) == ["step_000000000001"]


# --- damage ------------------------------------------------------------------------------------


def damage(checkpoint, file="state.json"):
    path = checkpoint / file
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)


def test_latest_falls_back_to_the_newest_intact_and_says_why(tmp_path, caplog):
    with CheckpointManager(tmp_path) as manager:
        for frames in (1, 2, 3):
            manager.save(state(frames), frames=frames)
    damage(tmp_path / "step_000000000003", "manifest.json")
    damage(tmp_path / "step_000000000002", "tensors/tensors.pt")
    with CheckpointManager(tmp_path) as manager:
        checkpoint, tree = manager.load("latest")
        assert checkpoint.manifest.frames == 1
        assert same(tree, state(1))
        assert "tensors/tensors.pt does not match its hash" in caplog.text
        assert "manifest.json: it does not match its own hash" in caplog.text
        manager.save(state(2), frames=2)  # its name is free again
    kept = names(tmp_path)
    assert [name.rsplit("-", 1)[0] for name in kept[:2]] == [
        "damaged-step_000000000002",
        "damaged-step_000000000003",
    ]
    assert kept[2:] == ["step_000000000001", "step_000000000002"]
    reason = (tmp_path / kept[0] / "reason.txt").read_text()
    assert "tensors/tensors.pt does not match its hash" in reason


def test_a_checkpoint_asked_for_by_frames_or_path_is_refused_and_left_alone(tmp_path):
    with CheckpointManager(tmp_path, background=False) as manager:
        manager.save(state(1), frames=1)
        manager.save(state(2), frames=2)
        damage(tmp_path / "step_000000000002")
        for spec in ("2", tmp_path / "step_000000000002"):
            with pytest.raises(DamagedCheckpointError, match=r"state\.json does not match"):
                manager.load(spec)
    assert names(tmp_path) == ["step_000000000001", "step_000000000002"]


def test_nothing_intact_is_an_error_that_lists_all_and_changes_nothing(tmp_path):
    with CheckpointManager(tmp_path, background=False) as manager:
        for frames in (1, 2):
            manager.save(state(frames), frames=frames)
            damage(tmp_path / f"step_{frames:012d}")
        for _ in range(2):  # a second resume must not restart the run
            with pytest.raises(CheckpointError, match=r"step_000000000002.*step_000000000001"):
                manager.load()
    assert frames_of(tmp_path) == [1, 2]


@pytest.mark.parametrize("file", ["manifest.json", "state.json"])
def test_what_is_out_of_reach_is_not_taken_for_damage(file, tmp_path, monkeypatch):
    with CheckpointManager(tmp_path, background=False) as manager:
        for frames in (1, 2):
            manager.save({"x": frames}, frames=frames)

        def refuse(path, *arguments):
            if pathlib.Path(path).name == file:
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), str(path))
            return read(path, *arguments)

        read = os.open
        monkeypatch.setattr(os, "open", refuse)
        with pytest.raises(CheckpointError, match=rf"{file} cannot be read \(Too many") as caught:
            manager.load("2")
        assert not isinstance(caught.value, DamagedCheckpointError)
        monkeypatch.undo()
        assert manager.load("latest")[1] == {"x": 2}
    assert names(tmp_path) == ["step_000000000001", "step_000000000002"]


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOTDIR])
def test_what_the_disk_cannot_read_is_damaged(code, tmp_path, monkeypatch, caplog):
    with CheckpointManager(tmp_path, background=False) as manager:
        for frames in (1, 2):
            manager.save({"x": frames}, frames=frames)

        def fail(path, *arguments):
            if "step_000000000002/tensors" in str(path):
                raise OSError(code, os.strerror(code), str(path))
            return read(path, *arguments)

        read = os.open
        monkeypatch.setattr(os, "open", fail)
        assert manager.load("latest")[1] == {"x": 1}
        assert f"tensors/tensors.pt cannot be read ({os.strerror(code)})" in caplog.text


# --- keeping -----------------------------------------------------------------------------------


def frames_of(directory):
    return [c.manifest.frames for c in list_checkpoints(directory).checkpoints]


def test_retention_follows_each_commit_and_goes_on_after_a_resume(tmp_path):
    keep = Last(2) | Best(1, "r")
    with CheckpointManager(tmp_path, keep=keep) as manager:
        for frames, value in [(8, 1.0), (9, 5.0), (10, 2.0)]:
            manager.save({}, frames=frames, metrics={"r": value})
    assert frames_of(tmp_path) == [9, 10]
    with CheckpointManager(tmp_path, keep=keep) as manager:
        for frames, value in [(11, 1.0), (12, 2.0), (100, 3.0)]:
            manager.save({}, frames=frames, metrics={"r": value})
    assert frames_of(tmp_path) == [9, 12, 100]
    assert len(names(tmp_path)) == 3


def test_the_best_survives_a_policy_that_does_not_name_it(tmp_path):
    with CheckpointManager(tmp_path, keep=Last(1), best=Best(1, "r", "min")) as manager:
        for frames, value in enumerate([3.0, 1.0, 2.0, 4.0]):
            manager.save({}, frames=frames, metrics={"r": value})
        assert manager.load("best")[0].manifest.frames == 1


def test_nothing_is_deleted_before_the_commit(tmp_path, monkeypatch):
    with CheckpointManager(tmp_path, keep=Last(1), background=False) as manager:
        manager.save({}, frames=1)
        monkeypatch.setattr(fs.os, "write", disk_full)  # nothing that a delete needs
        with pytest.raises(CheckpointError):
            manager.save({}, frames=2)
    assert frames_of(tmp_path) == [1]


def test_a_failed_delete_is_reported_and_tried_again(tmp_path, monkeypatch, caplog):
    def refuse(path, *_):
        raise OSError(errno.EACCES, "Permission denied", str(path))

    with CheckpointManager(tmp_path, keep=Last(1), background=False) as manager:
        manager.save({}, frames=1)
        monkeypatch.setattr(fs.os, "unlink", refuse)
        manager.save({}, frames=2)
        assert "Permission denied" in caplog.text
        assert frames_of(tmp_path) == [2]
        assert any(name.startswith(".trash-") for name in names(tmp_path))
        monkeypatch.undo()
        manager.save({}, frames=3)
    assert names(tmp_path) == ["step_000000000003"]


def test_a_checkpoint_being_read_is_deleted_later(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    with CheckpointManager(tmp_path, keep=Last(1), background=False) as manager:
        manager.save({}, frames=1)
        with lock.locked(tmp_path / "step_000000000001" / "manifest.json"):
            manager.save({}, frames=2)
            assert frames_of(tmp_path) == [1, 2]
            assert "is being read" in caplog.text
        assert manager.prune() == []
    assert frames_of(tmp_path) == [2]


def test_only_this_runs_checkpoints_are_deleted(tmp_path):
    (tmp_path / "a" / "notes").mkdir(parents=True)
    (tmp_path / "b" / ".tmp-step_000000000001-ab").mkdir(parents=True)
    with CheckpointManager(tmp_path / "a", keep=Last(1), background=False) as manager:
        manager.save({}, frames=1)
        for name in ("a/mine", "a/aside-step_000000000001-ab", "b/step_000000000001"):
            shutil.copytree(tmp_path / "a" / "step_000000000001", tmp_path / name)
        manager.save({}, frames=2)
    left = ["aside-step_000000000001-ab", "mine", "notes", "step_000000000002"]
    assert names(tmp_path / "a") == left
    assert names(tmp_path / "b") == [".tmp-step_000000000001-ab", "step_000000000001"]


@pytest.mark.parametrize("discard", [True, False])
def test_rollback(discard, tmp_path):
    with CheckpointManager(tmp_path) as manager:
        for frames in (1, 2, 3):
            manager.save({"x": frames}, frames=frames)
        assert manager.rollback("1", discard=discard).manifest.frames == 1
        assert manager.load()[1] == {"x": 1}
        aside = [path for path in tmp_path.iterdir() if path.name.startswith("aside-")]
        assert len(aside) == (0 if discard else 2)
        assert {Checkpoint.open(path).load()["x"] for path in aside} == (
            set() if discard else {2, 3}
        )
        manager.save({"x": 20}, frames=2)
        assert manager.load()[1] == {"x": 20}


def test_going_on_from_an_earlier_one_makes_it_the_latest(tmp_path, caplog):
    with CheckpointManager(tmp_path) as manager:
        for frames in (1, 2, 3):
            manager.save({"x": frames}, frames=frames)
        manager.load("1")
        assert frames_of(tmp_path) == [1, 2, 3]  # loading alone changes nothing
        manager.resume()
        assert frames_of(tmp_path) == [1]
        assert caplog.text.count("is set aside: the run resumes from an earlier one") == 2
        manager.save({"x": 20}, frames=2)
        manager.wait()
        manager.resume()
        assert frames_of(tmp_path) == [1, 2]
        assert manager.load()[1] == {"x": 20}
        assert [c.manifest.sequence for c in manager.checkpoints()] == [0, 3]  # of names used again


@pytest.mark.parametrize("place", ["moved", "set aside"])
def test_going_on_from_a_checkpoint_from_elsewhere_saves_it_here(place, tmp_path):
    with CheckpointManager(tmp_path / "a") as manager:
        for frames in (1, 2, 3):
            manager.save({"x": frames}, frames=frames, optim_steps=7, metrics={"r": 1.0})
        manager.rollback("1", discard=False)
        (path,) = (tmp_path / "a").glob("aside-step_000000000003-*")
        manager.save({"x": 20}, frames=2)
    if place == "moved":
        path = path.rename(tmp_path / "mine")
    with CheckpointManager(tmp_path / "a") as manager:
        manager.load(path)
        manager.resume()
        checkpoint, tree = manager.load("latest")
    assert tree == {"x": 3}
    assert (checkpoint.manifest.frames, checkpoint.manifest.optim_steps) == (3, 7)
    assert checkpoint.manifest.metrics == {"r": 1.0}
    assert path.exists()


# --- locking -----------------------------------------------------------------------------------


def test_one_writer_at_a_time(tmp_path):
    with (
        CheckpointManager(tmp_path),
        pytest.raises(CheckpointError, match=f"in use by another run .process {os.getpid()} on "),
    ):
        CheckpointManager(tmp_path)
    CheckpointManager(tmp_path).close()


def test_a_manager_that_was_not_closed_releases_the_directory_when_it_is_deleted(tmp_path):
    manager = CheckpointManager(tmp_path)
    manager.cycle = manager
    del manager
    gc.collect()
    CheckpointManager(tmp_path).close()


def test_leftovers_are_swept_only_when_no_live_process_holds_the_lock(tmp_path):
    leftover = tmp_path / ".tmp-step_000000000001-ab"
    leftover.mkdir()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        held = lock.RunLock(tmp_path)
        os.write(write, b"held")
        signal.pause()
        held.release()
    os.read(read, 4)
    with pytest.raises(CheckpointError, match=f"process {child} on "):
        CheckpointManager(tmp_path)
    assert leftover.exists()
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0), os.close(read), os.close(write)
    CheckpointManager(tmp_path).close()
    assert names(tmp_path) == []


def test_a_forked_child_does_not_keep_the_lock(tmp_path):
    manager = CheckpointManager(tmp_path)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(write)
        os.read(read, 1)  # until the parent is done
        os._exit(0)
    manager.close()
    CheckpointManager(tmp_path).close()
    os.close(write), os.close(read)
    os.waitpid(child, 0)


def test_a_newer_schema_is_refused_and_not_taken_for_damage(tmp_path, monkeypatch):
    monkeypatch.setattr("hooktrainer.store.stored.SCHEMA", 99)
    with CheckpointManager(tmp_path) as manager:
        manager.save({}, frames=1)
    monkeypatch.undo()
    with CheckpointManager(tmp_path) as manager, pytest.raises(CheckpointError, match="schema 99"):
        manager.load()
    assert names(tmp_path) == ["step_000000000001"]
