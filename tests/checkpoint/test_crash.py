"""Nothing is lost, mixed or left over, wherever the process, the disk or the power fails."""

from __future__ import annotations

import errno
import os
import random
import shutil
import signal
import subprocess
import time
from contextlib import contextmanager, suppress

import pytest
import torch
from fault_injection import FULL, Crash, FaultyOS, VolatileDisk, scratch

from hooktrainer.checkpoint import CheckpointManager, Latest, fs, list_checkpoints
from hooktrainer.checkpoint.diff import differences
from hooktrainer.errors import CheckpointError


@pytest.fixture(autouse=True)
def small_files_are_sent_early(monkeypatch):
    monkeypatch.setattr(fs, "_SEND_BYTES", 10_000)


BACKENDS = ["torch", "native"]  # torchsnapshot writes by itself; it is killed for real below
FROZEN = torch.arange(5000.0)


def tree(frames):
    return {
        "frames": frames,
        "frozen": FROZEN,
        "weights": [torch.full((300,), float(frames + i)) for i in range(3)],
    }


def run(directory, faulty, backend, on_failure="stop", saves=4):
    """Save four checkpoints and keep two; return the frames of those whose save returned."""
    returned = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fs, "os", faulty)
        manager = None
        try:
            manager = CheckpointManager(
                directory, backend=backend, keep=Latest(2), on_failure=on_failure
            )
            for frames in range(1, saves + 1):
                manager.save(tree(frames), frames=frames)
                manager.wait()
                returned.append(frames)
        except (Crash, OSError, CheckpointError):
            pass
        finally:
            if manager is not None:
                with suppress(Crash, CheckpointError):
                    manager.close()
    return returned


def check(directory, at_least, backend):
    """What is there is intact, nothing is left over, and the run can go on."""
    with CheckpointManager(directory, backend=backend, keep=Latest(2)) as manager:
        assert all(path.name[:5] in ("step_", ".lock") for path in directory.iterdir())
        listing = list_checkpoints(directory)
        assert not listing.damaged
        for checkpoint in listing.checkpoints:
            assert not list(differences(checkpoint.load(), tree(checkpoint.manifest.frames)))
        frames = listing.checkpoints[-1].manifest.frames if listing.checkpoints else 0
        assert frames >= at_least
        manager.save(tree(99), frames=99)
        assert manager.load()[0].manifest.frames == 99


def points(backend):
    """The numbers of the calls to fail: all of them, or some 25."""
    with scratch() as root:
        counter = FaultyOS()
        assert run(root / "run", counter, backend) == [1, 2, 3, 4]
    return range(1, counter.count + 1, 1 if FULL else counter.count // 25)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_crash_at_any_call_to_the_file_system(backend):
    for fail_at in points(backend):
        with scratch() as root:
            returned = run(root / "run", FaultyOS(fail_at), backend)
            (root / "run").mkdir(exist_ok=True)
            check(root / "run", len(returned), backend)


@pytest.mark.parametrize("hasty", [False, True])
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_power_loss_at_any_call_to_the_file_system(backend, hasty):
    for fail_at in points(backend):
        with scratch() as root:
            (root / "disk").mkdir()
            disk = VolatileDisk(root / "disk", fail_at, hasty)
            returned = run(root / "disk" / "run", disk, backend)
            disk.after_power_loss(root / "later")
            (root / "later" / "run").mkdir(exist_ok=True)
            check(root / "later" / "run", len(returned), backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_error_at_any_call_to_the_file_system(backend):
    for fail_at in points(backend):
        with scratch() as root:
            error = OSError(errno.EIO, os.strerror(errno.EIO))
            run(root / "run", FaultyOS(fail_at, error), backend, on_failure="continue", saves=5)
            (root / "run").mkdir(exist_ok=True)
            made = any((root / "run").glob("step_*"))  # the error may have been the first mkdir
            check(root / "run", 4 if made else 0, backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_disk_that_fills_up(backend):
    with scratch() as root:
        run(root / "run", FaultyOS(), backend, saves=1)
        size = sum(path.stat().st_size for path in (root / "run").rglob("*") if path.is_file())
    spaces = random.Random(0).sample(range(4 * size), 50 if FULL else 12)
    for space in [0, *spaces]:
        with scratch() as root:
            returned = run(root / "run", FaultyOS(space=space), backend)
            assert len(returned) < 4
            assert not any((root / "run").glob(".tmp-*"))
            check(root / "run", len(returned), backend)


# --- real ones ---------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("backend", [*BACKENDS, "torchsnapshot"])
def test_sigkill_at_random_instants(backend, tmp_path):
    random.seed(backend)
    newest = 0
    for _ in range(200 if FULL else 8):
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            with suppress(BaseException):
                save_for_ever(tmp_path, backend, write)
            os._exit(1)
        os.close(write)
        first = os.read(read, 8)  # the first save of this child returned
        time.sleep(random.uniform(0, 0.03))
        os.kill(child, signal.SIGKILL)
        assert os.waitpid(child, 0)[1] == signal.SIGKILL
        reported = first
        while data := os.read(read, 1 << 16):
            reported += data
        os.close(read)
        committed = int.from_bytes(reported[-8:], "big")
        assert committed > newest
        newest = check_after_kill(tmp_path, backend, committed)


def save_for_ever(directory, backend, pipe):
    with CheckpointManager(directory, backend=backend, keep=Latest(2)) as manager:
        checkpoints = manager.checkpoints()
        frames = manager.load()[1]["frames"] if checkpoints else 0
        while True:
            frames += 1
            manager.save(tree(frames), frames=frames)
            if frames % 3:
                manager.wait()
                os.write(pipe, frames.to_bytes(8, "big"))


def check_after_kill(directory, backend, committed):
    with CheckpointManager(directory, backend=backend, keep=Latest(2)) as manager:
        assert all(path.name[:5] in ("step_", ".lock") for path in directory.iterdir())
        for checkpoint in manager.checkpoints():
            assert not list(differences(checkpoint.load(), tree(checkpoint.manifest.frames)))
        latest = manager.load()[0].manifest.frames
        assert latest >= committed
        return latest


@contextmanager
def mounted(*arguments):
    """A file system mounted on a new directory, or a skipped test."""
    with scratch() as root:
        point = root / "mount"
        point.mkdir()
        command = ["mount", *map(str, arguments), str(point)]
        if os.geteuid() or subprocess.run(command, capture_output=True).returncode:
            pytest.skip("needs the right to mount")
        try:
            yield point
        finally:
            subprocess.run(["umount", str(point)], check=True)


@pytest.mark.parametrize("backend", [*BACKENDS, "torchsnapshot"])
def test_a_full_tmpfs(backend):
    for kilobytes in range(8, 308, 6) if FULL else (8, 40, 60, 100):
        options = f"size={kilobytes}k"
        with (
            mounted("-t", "tmpfs", "-o", options, "none") as disk,
            CheckpointManager(disk, backend=backend, keep=Latest(99)) as manager,
        ):
            returned = []
            with suppress(CheckpointError):
                for frames in range(1, 99):
                    manager.save(tree(frames), frames=frames)
                    manager.wait()
                    returned.append(frames)
            assert len(returned) < 20
            with pytest.raises(CheckpointError, match="No space left on device"):
                manager.save({"large": torch.ones(1_000_000)}, frames=100), manager.wait()
            left = sorted(path.name for path in disk.iterdir())
            assert left == [".lock", *(f"step_{frames:012d}" for frames in returned)]
            for frames in returned:
                assert manager.load(str(frames))[1]["frames"] == frames


@pytest.mark.skipif(not FULL, reason="takes a minute; HOOKTRAINER_FAULTS=1 runs it")
@pytest.mark.parametrize("backend", [*BACKENDS, "torchsnapshot"])
@pytest.mark.parametrize("seconds", [0, 0.5, 7, 14, 24])
def test_power_loss_of_an_ext4_image(backend, seconds, tmp_path):
    image, copy = tmp_path / "disk", tmp_path / "copy"
    with image.open("wb") as file:
        file.truncate(64 << 20)
    subprocess.run(["mkfs.ext4", "-q", str(image)], check=True)
    with (
        mounted("-o", "loop", image) as disk,
        CheckpointManager(disk / "run", backend=backend, keep=Latest(1)) as manager,
    ):
        for frames in (1, 2, 3):
            manager.save(tree(frames), frames=frames)
            manager.wait()
        time.sleep(seconds)
        shutil.copyfile(image, copy)
    with mounted("-o", "loop", copy) as disk:
        latest = list_checkpoints(disk / "run").checkpoints[-1]
        assert latest.manifest.frames == 3
        assert not list(differences(latest.load(), tree(3)))


def test_the_strict_disk_loses_what_was_not_flushed():
    """The model itself: written but not flushed is gone."""
    with scratch() as root:
        (root / "disk").mkdir()
        disk = VolatileDisk(root / "disk")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(fs, "os", disk)
            for name in ("unflushed", "flushed", "nameless"):
                fs.write_file(root / "disk" / name, name.encode())
            fs.flush_to_disk(root / "disk" / "flushed")
            (root / "disk" / "nameless").rename(root / "elsewhere")
            fs.flush_to_disk(root / "disk")
            fs.write_file(root / "disk" / "late", b"late")
        disk.after_power_loss(root / "later")
        left = {path.name: path.read_bytes() for path in (root / "later").iterdir()}
        assert left == {"unflushed": b"", "flushed": b"flushed"}
