"""Nothing is lost, mixed or left over, wherever the process, the disk or the power fails."""

from __future__ import annotations

import errno
import os
import random
import signal
import time
from contextlib import suppress

import pytest
import torch
from fault_injection import BACKENDS, FULL, Crash, FaultyOS, VolatileDisk, installed, scratch
from marks import slow_except

from hooktrainer.base import fs
from hooktrainer.errors import CheckpointError
from hooktrainer.store import All, CheckpointManager, Last, compare_trees, list_checkpoints

FROZEN = torch.arange(5000.0)


def tree(frames):
    return {
        "frames": frames,
        "frozen": FROZEN,
        "weights": [torch.full((300,), float(frames + i)) for i in range(3)],
    }


SAVES = 6 if FULL else 4  # then every back end makes more than 200 calls


def run(directory, faulty, backend, on_failure="stop", saves=SAVES):
    """Save some checkpoints and keep two.

    Returns the frames of those whose save returned, and what ended it early.
    """
    returned, manager, error = [], None, None
    with installed(faulty):
        try:
            manager = CheckpointManager(
                directory, backend=backend, keep=Last(2), on_failure=on_failure
            )
            for frames in range(1, saves + 1):
                manager.save(tree(frames), frames=frames)
                manager.wait()
                returned.append(frames)
        except (Crash, OSError, CheckpointError) as ended:
            error = ended
        finally:
            if manager is not None:
                with suppress(Crash, CheckpointError):
                    manager.close()
    return returned, error


def check(directory, at_least, backend, goes_on=True):
    """What is there is intact, nothing is left over, and the run can go on; the newest frames."""
    with CheckpointManager(directory, backend=backend, keep=Last(2)) as manager:
        assert all(path.name[:5] in ("step_", ".lock") for path in directory.iterdir())
        listing = list_checkpoints(directory)
        assert not listing.damaged
        for checkpoint in listing.checkpoints:
            assert not list(compare_trees(checkpoint.load(), tree(checkpoint.manifest.frames)))
        frames = listing.checkpoints[-1].manifest.frames if listing.checkpoints else 0
        assert frames >= at_least
        if goes_on:
            manager.save(tree(99), frames=99)
            assert manager.load()[0].manifest.frames == 99
        return frames


def points(backend):
    """The numbers of the calls to fail: all of them, or some 25."""
    with scratch() as root:
        counter = FaultyOS()
        assert run(root / "run", counter, backend) == (list(range(1, SAVES + 1)), None)
    return range(1, counter.count + 1, 1 if FULL else counter.count // 25)


@pytest.mark.parametrize("backend", slow_except(BACKENDS, "native"))
def test_a_crash_at_any_call_to_the_file_system(backend):
    for fail_at in points(backend):
        with scratch() as root:
            returned, _ = run(root / "run", FaultyOS(fail_at), backend)
            (root / "run").mkdir(exist_ok=True)
            check(root / "run", len(returned), backend)


@pytest.mark.parametrize("hasty", [False, True])
@pytest.mark.parametrize("backend", slow_except(BACKENDS, "native"))
def test_a_power_loss_at_any_call_to_the_file_system(backend, hasty):
    for fail_at in points(backend):
        with scratch() as root:
            (root / "disk").mkdir()
            disk = VolatileDisk(root / "disk", fail_at, hasty)
            returned, _ = run(root / "disk" / "run", disk, backend)
            disk.after_power_loss(root / "later")
            (root / "later" / "run").mkdir(exist_ok=True)
            check(root / "later" / "run", len(returned), backend)


@pytest.mark.parametrize("on_failure", ["stop", "continue"])
@pytest.mark.parametrize("backend", slow_except(BACKENDS, "native"))
def test_an_error_at_any_call_to_the_file_system(backend, on_failure):
    for fail_at in points(backend):
        faulty = FaultyOS(fail_at, OSError(errno.EIO, os.strerror(errno.EIO)))
        with scratch() as root:
            returned, error = run(root / "run", faulty, backend, on_failure)
            (root / "run").mkdir(exist_ok=True)
            if isinstance(error, OSError):  # it came before there was anything to save
                assert returned == []
                check(root / "run", 0, backend)
            elif on_failure == "continue":  # one may be missing, and the run was not stopped
                assert error is None
                assert returned == list(range(1, SAVES + 1))
                check(root / "run", SAVES - 1, backend)
            else:  # either it was raised with the disk's reason, or it cost nothing
                assert "Input/output error" in str(error) if error else len(returned) == SAVES
                check(root / "run", len(returned), backend)


@pytest.mark.parametrize("backend", slow_except(BACKENDS, "native"))
def test_a_disk_that_fills_up(backend):
    with scratch() as root:
        run(root / "run", FaultyOS(), backend, saves=1)
        size = sum(path.stat().st_size for path in (root / "run").rglob("*") if path.is_file())
    spaces = random.Random(0).sample(range(3 * size), 50 if FULL else 12)
    for space in [0, *spaces]:
        with scratch() as root:
            returned, error = run(root / "run", FaultyOS(space=space), backend)
            assert len(returned) < SAVES
            assert "No space left on device" in str(error)
            assert not any((root / "run").glob(".tmp-*"))
            check(root / "run", len(returned), backend)


# --- real ones ---------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("doing", ["save", "save in the background", "delete"])
@pytest.mark.parametrize("backend", slow_except(BACKENDS, "native"))
def test_sigkill_at_random_instants(backend, doing, tmp_path):
    instants = random.Random(f"{backend} {doing}")
    newest = 0
    for _ in range(200 if FULL else 4):
        seconds = instants.uniform(0, 0.01 if doing == "delete" else 0.03)
        reported = kill_after(seconds, lambda write: work_for_ever(doing, tmp_path, backend, write))
        committed = int.from_bytes(reported[-8:], "big")
        assert committed > newest
        newest = check(tmp_path, committed, backend, goes_on=False)


def kill_after(seconds, work):
    """Run ``work`` in a child; kill it some time after its first report; return all it reported."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        with suppress(BaseException):
            work(write)
        os._exit(1)
    os.close(write)
    reported = os.read(read, 8)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    while data := os.read(read, 1 << 16):
        reported += data
    os.close(read)
    return reported


def work_for_ever(doing, directory, backend, pipe):
    background, keep = doing == "save in the background", All() if doing == "delete" else Last(2)
    with CheckpointManager(directory, backend=backend, keep=keep, background=background) as manager:
        frames = newest_in(manager)
        while True:
            frames += 1
            manager.save(tree(frames), frames=frames)
            if frames % 3 or not background:  # else the next save comes while this one is under way
                manager.wait()
                os.write(pipe, frames.to_bytes(8, "big"))
            if doing == "delete" and not frames % 2:
                manager.keep = Last(1)
                manager.prune()
                manager.keep = All()


def newest_in(manager):
    return manager.load()[1]["frames"] if manager.checkpoints() else 0


def test_the_strict_disk_loses_what_was_not_flushed():
    """The model itself: written but not flushed is gone."""
    with scratch() as root:
        (root / "disk").mkdir()
        disk = VolatileDisk(root / "disk")
        with installed(disk):
            for name in ("unflushed", "flushed", "nameless"):
                fs.write_file(root / "disk" / name, name.encode())
            fs.flush_to_disk(root / "disk" / "flushed")
            (root / "disk" / "nameless").rename(root / "elsewhere")
            fs.flush_to_disk(root / "disk")
            fs.write_file(root / "disk" / "late", b"late")
        disk.after_power_loss(root / "later")
        left = {path.name: path.read_bytes() for path in (root / "later").iterdir()}
        assert left == {"unflushed": b"", "flushed": b"flushed"}
