"""Mirrors of checkpoints: what they promise, on a server that fails, stalls and lies."""

from __future__ import annotations

import json
import logging
import shutil
import threading
import time

import pytest
import torch
from faulty_remote import FAULTS, FaultyFileSystem, complete
from outcomes import same, wait_for

from hooktrainer import RunDir
from hooktrainer.errors import CheckpointError, ConfigError, TakenError
from hooktrainer.store import Best, CheckpointManager, Last, Mirror, fetch, list_checkpoints
from hooktrainer.testing import tiny_trainer

URL = "faulty://bucket/run"


@pytest.fixture(autouse=True)
def healthy():
    FAULTS.reset()
    FaultyFileSystem.store.clear()
    FaultyFileSystem.pseudo_dirs[:] = [""]
    yield
    FAULTS.rate, FAULTS.broken = 0.0, set()
    FAULTS.gate.set()
    for thread in threading.enumerate():  # one that was not waited for
        if thread.name == "mirror":
            thread.join(60)


def state(value):
    return {"weight": torch.full((64,), float(value)), "count": value}


def mirror(url=URL, **options):
    return Mirror(url, **{"pause": 0.0, "closing": 60.0, **options})


def manager_of(run, url=URL, *, manager=None, **options):
    return CheckpointManager(
        run / "checkpoints", mirror=mirror(url, **options), keep=Last(3), **(manager or {})
    )


def there(root="bucket/run"):
    """The checkpoints on the server that have a manifest."""
    start, end = f"/{root}/checkpoints/", "/manifest.json"
    found = [path for path in FaultyFileSystem.store if path.startswith(start)]
    return sorted(int(path.split("/step_")[1][:12]) for path in found if path.endswith(end))


def settled(manager):
    """Wait until the server has the last checkpoint."""
    manager.wait()
    last = list_checkpoints(manager.directory).checkpoints[-1].frames
    wait_for(lambda: manager.mirror.frames == last)


# -- What is there.


@pytest.mark.parametrize("kind", ["file", "memory"])
def test_the_latest_checkpoints_are_there_and_come_back(kind, tmp_path):
    url = f"file://{tmp_path}/there/run" if kind == "file" else f"memory://{tmp_path.name}/run"
    run = RunDir.create(tmp_path / "run", seed=3)
    run.write_config({"lr": 0.1})
    run.metrics.write_text("step,name,value\n10,x,1.0\n")
    with manager_of(run.path, url) as manager:
        for frames in (10, 20):
            manager.save(state(frames), frames=frames)
            settled(manager)
    again = fetch(url, tmp_path / "elsewhere")
    assert again is not None
    assert (again.frames, again.path.parent) == (20, tmp_path / "elsewhere" / "checkpoints")
    assert same(again.load(), state(20))
    back = RunDir(tmp_path / "elsewhere")
    assert (back.run_id, back.read_config()) == (run.run_id, {"lr": 0.1})
    assert back.read()["mirrored_frames"] == run.read()["mirrored_frames"] == 20
    assert back.metrics.read_text() == run.metrics.read_text()


def test_it_keeps_as_many_as_asked_and_the_best_and_nothing_unfinished(tmp_path):
    best = Best(1, "score")
    FaultyFileSystem().pipe_file("/bucket/run/checkpoints/step_000000000005/state.json", b"half")
    with manager_of(tmp_path, keep=2, manager={"best": best}) as manager:
        for frames, score in ((10, 1), (20, 5), (30, 2), (40, 3), (50, 4)):
            manager.save(state(frames), frames=frames, metrics={"score": score})
            settled(manager)
    assert there() == [20, 40, 50]
    assert not [path for path in FaultyFileSystem.store if "0005/" in path or ".tmp" in path]


def test_while_it_is_busy_only_the_newest_waits_and_nothing_else_does(tmp_path):
    FAULTS.stalled = {"put_file"}
    with manager_of(tmp_path, keep=9) as manager:
        manager.save(state(10), frames=10)
        wait_for(lambda: "put_file" in FAULTS.calls)
        for frames in (20, 30, 40, 50):
            manager.save(state(frames), frames=frames)
        manager.wait()
        # What is being copied is not deleted meanwhile, though three later ones are kept.
        assert len(list_checkpoints(manager.directory).checkpoints) == 4
        assert manager.mirror.frames is None
        FAULTS.gate.set()
    assert there() == [10, 50]


@pytest.mark.parametrize("call", ["ls", "makedirs", "put_file", "pipe_file", "open", "mv"])
def test_training_does_not_wait_for_a_server_that_does_not_answer(
    call, tmp_path, caplog, monkeypatch
):
    """The server answers only after the run has ended."""
    monkeypatch.setattr("hooktrainer.store.mirror._FIRST_ANSWER", 0.0)
    FAULTS.stalled = {call}
    manager = manager_of(tmp_path, closing=0.0, patience=0.0)
    trainer = tiny_trainer(total_frames=100, checkpoints=manager, save_trainer_interval=10)
    trainer.train()
    assert not FAULTS.gate.is_set()
    assert trainer.collected_frames == 100
    assert manager.mirror.frames is None
    assert "has no checkpoint, not yet the last one, at 100 frames" in caplog.text
    assert f"hooktrainer resume {tmp_path}" in caplog.text


def test_a_server_that_does_not_answer_is_reported_once(tmp_path, caplog):
    FAULTS.stalled = {"put_file"}
    with manager_of(tmp_path, patience=0.0) as manager:
        manager.save(state(10), frames=10)
        wait_for(lambda: "put_file" in FAULTS.calls)
        for frames in (20, 30, 40):
            manager.save(state(frames), frames=frames)
        manager.wait()
        assert caplog.text.count("no answer for 0 seconds") == 1
        FAULTS.gate.set()


def test_the_wait_at_the_end_ends_at_the_deadline_of_a_signal(tmp_path):
    FAULTS.stalled = {"put_file"}
    manager = manager_of(tmp_path, closing=600.0)
    manager.save(state(10), frames=10)
    manager.set_deadline(time.monotonic())
    closer = threading.Thread(target=manager.close)
    closer.start()
    closer.join(60)
    assert not closer.is_alive()


# -- What goes wrong.


class Witness(Mirror):
    """Looks into the store whenever a checkpoint is said to be there."""

    said: list[tuple[int, bool]]

    def __init__(self, *args, **options):
        self.said = []
        super().__init__(*args, **options)

    @property
    def frames(self):
        return self.said[-1][0] if self.said else None

    @frames.setter
    def frames(self, value):
        if value is not None:
            self.said.append((value, complete("bucket/run", f"step_{value:012d}")))


def test_after_500_faults_nothing_that_was_said_to_be_there_is_missing(tmp_path, caplog):
    caplog.set_level(logging.CRITICAL)
    witness = Witness(URL, keep=2, pause=0.0, closing=60.0)
    FAULTS.rate = 0.25
    frames = 0
    manager = CheckpointManager(tmp_path / "run" / "checkpoints", mirror=witness, keep=Last(1))
    while sum(FAULTS.injected.values()) < 500:
        frames += 1
        manager.save(state(frames), frames=frames)
    FAULTS.rate = 0.0
    manager.close()
    assert len(witness.said) > 5
    assert all(is_there for _, is_there in witness.said)
    assert witness.frames == frames
    assert there()[-1] == frames
    kinds = {"error", "timeout", "cancelled", "stall", "stale", "truncated", "torn"}
    assert set(FAULTS.injected) == kinds | {"wrong bytes", "short"}
    FAULTS.rate = 0.1
    back = fetch(URL, tmp_path / "back", pause=0.0, attempts=50)
    assert same(back.load(), state(back.frames))
    assert back.frames in there()  # perhaps not the last: a listing may be older


def test_a_listing_of_what_was_deleted_since_is_not_believed(tmp_path):
    with manager_of(tmp_path / "run", keep=1) as manager:
        for frames in (10, 20):
            manager.save(state(frames), frames=frames)
            settled(manager)
    FAULTS.stale, FAULTS.next = ["/bucket/run/checkpoints/step_000000000010"], {"ls": ["stale"]}
    back = fetch(URL, tmp_path / "back", pause=0.0)
    assert back is not None
    assert back.frames == 20


def test_a_listing_of_only_what_is_damaged_is_not_believed(tmp_path):
    with manager_of(tmp_path / "run") as manager:
        for frames in (10, 20):
            manager.save(state(frames), frames=frames)
            settled(manager)
    damaged = "/bucket/run/checkpoints/step_000000000010"
    FaultyFileSystem().pipe_file(f"{damaged}/manifest.json", b"half")
    FAULTS.stale, FAULTS.next = [damaged], {"ls": ["stale"]}
    back = fetch(URL, tmp_path / "back", pause=0.0)
    assert back is not None
    assert back.frames == 20


@pytest.mark.parametrize(
    ("call", "lie"),
    [
        *(("put_file", "truncated"), ("pipe_file", "truncated"), ("mv", "truncated")),
        *(("open", "wrong bytes"), ("open", "short")),
    ],
)
def test_each_lie_is_found_before_a_checkpoint_is_said_to_be_there(call, lie, tmp_path, caplog):
    witness = Witness(URL, pause=0.0, closing=60.0)
    with CheckpointManager(tmp_path / "run" / "checkpoints", mirror=witness) as manager:
        FAULTS.next = {call: [lie] * 3}
        manager.save(state(10), frames=10)
    assert FAULTS.next == {call: []}
    assert "is not there as it was written" in caplog.text
    assert witness.said == [(10, True)]


def test_a_streak_of_failures_is_reported_once_in_words_that_help(tmp_path, caplog):
    FAULTS.broken = {"put_file"}
    with manager_of(tmp_path) as manager:
        manager.save(state(10), frames=10)
        wait_for(lambda: FAULTS.calls.count("put_file") > 20)
        assert caplog.text.count("cannot be written to") == 1
        assert "503 Slow Down" in caplog.text
        assert "check the address, the rights and the free space there" in caplog.text
        FAULTS.broken = set()
        settled(manager)
        wait_for(lambda: "can be written to again" in caplog.text)  # said after what is settled
        assert caplog.text.count("can be written to again") == 1
        FAULTS.broken = {"*"}
        manager.save(state(20), frames=20)
        manager.wait()
        wait_for(lambda: caplog.text.count("cannot be written to") == 2)
        FAULTS.broken = set()
    assert there() == [10, 20]


def test_pauses_double_up_to_a_minute(tmp_path, monkeypatch):
    pauses = []
    made = Mirror(URL, pause=1.0, closing=0.0)

    class Woken(threading.Event):
        def wait(self, timeout=None):
            pauses.append(timeout)
            made._is_over = len(pauses) == 9
            return False

    made._woken = Woken()
    FAULTS.broken = {"*"}
    manager = CheckpointManager(tmp_path / "checkpoints", mirror=made)
    manager.save(state(1), frames=1)
    wait_for(lambda: len(pauses) == 9)
    manager.close()
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_a_failing_mirror_does_not_end_a_run(tmp_path):
    FAULTS.broken = {"*"}
    manager = manager_of(tmp_path, closing=0.0)
    trainer = tiny_trainer(total_frames=100, checkpoints=manager, save_trainer_interval=10)
    trainer.train()
    assert (trainer.collected_frames, trainer.control.status) == (100, "finished")


def test_what_one_process_could_not_copy_the_next_one_does(tmp_path):
    FAULTS.broken = {"mv"}
    with manager_of(tmp_path, closing=0.0) as manager:
        manager.save(state(10), frames=10)
    assert there() == []
    FAULTS.broken = set()
    FAULTS.calls.clear()
    manager_of(tmp_path).close()
    assert there() == [10]


def test_another_runs_mirror_is_refused(tmp_path):
    with manager_of(tmp_path / "a") as manager:
        manager.save(state(10), frames=10)
        one = manager.run_id
    with pytest.raises(TakenError, match=f"holds run {one}, not this run") as refused:
        manager_of(tmp_path / "b")
    assert "--resume faulty://bucket/run, or choose another --mirror" in str(refused.value)
    assert list_checkpoints(tmp_path / "b" / "checkpoints").checkpoints == []
    CheckpointManager(tmp_path / "b" / "checkpoints").close()  # its lock is free


@pytest.mark.parametrize("address", ["{}", "file://{}", "file://{}/../a/"])
def test_a_run_is_no_mirror_of_itself(address, tmp_path):
    place = tmp_path / "a" / "checkpoints"
    with pytest.raises(TakenError, match="is the run's own directory"):
        CheckpointManager(place, mirror=Mirror(address.format(tmp_path / "a")))


def test_an_older_copy_of_the_run_is_told_of_the_later_checkpoint(tmp_path, caplog):
    with manager_of(tmp_path / "a") as manager:
        manager.save(state(10), frames=10)
        manager.wait()
        shutil.copytree(tmp_path / "a", tmp_path / "b")
        manager.save(state(20), frames=20)
    manager_of(tmp_path / "b").close()
    assert "has a later checkpoint, at 20 frames" in caplog.text
    assert there() == [10, 20]


def test_after_a_rollback_the_new_checkpoints_are_the_latest(tmp_path):
    with manager_of(tmp_path / "a") as manager:
        for frames in (10, 20):
            manager.save(state(frames), frames=frames)
            settled(manager)
    with CheckpointManager(tmp_path / "a" / "checkpoints") as manager:
        manager.rollback("10", discard=True)
    with manager_of(tmp_path / "a") as manager:
        manager.save(state(15), frames=15)
    assert fetch(URL, tmp_path / "b").frames == 15


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("nothere://bucket", "Protocol not known: nothere"),
        ("sftp://me:***@host/run", "passwords are not recorded"),
        ("", "'' names no directory"),
        ("file:///", "'file:///' names no directory"),
    ],
)
def test_an_address_that_cannot_work_is_refused_at_once(url, message):
    with pytest.raises(ConfigError, match=message.replace("*", r"\*")):
        Mirror(url)


# -- The way back.


@pytest.fixture
def two(tmp_path):
    """A mirror with checkpoints at 10 and 20 frames."""
    with manager_of(tmp_path / "run") as manager:
        for frames in (10, 20):
            manager.save(state(frames), frames=frames)
            settled(manager)


@pytest.mark.parametrize("file", ["manifest.json", "state.json", "tensors/tensors.pt"])
@pytest.mark.parametrize("how", ["changed", "missing"])
def test_a_checkpoint_that_does_not_verify_is_passed_over(file, how, two, tmp_path):
    path = f"/bucket/run/checkpoints/step_000000000020/{file}"
    data = bytearray(FaultyFileSystem.store.pop(path).getvalue())
    if how == "changed":
        data[len(data) // 2] ^= 1
        FaultyFileSystem().pipe_file(path, bytes(data))
    found = fetch(URL, tmp_path / "back", pause=0.0)
    assert found.frames == 10
    assert [p.name for p in (tmp_path / "back" / "checkpoints").glob("step_*")] == [
        "step_000000000010"
    ]
    assert not list((tmp_path / "back" / "checkpoints").glob(".tmp-*"))


def test_if_none_is_intact_that_is_an_error(two, tmp_path):
    for path in [path for path in FaultyFileSystem.store if path.endswith("tensors.pt")]:
        del FaultyFileSystem.store[path]
    with pytest.raises(CheckpointError, match=r"No checkpoint in faulty://bucket/run is intact"):
        fetch(URL, tmp_path / "back", pause=0.0)


def test_a_server_that_is_away_is_an_error_and_not_an_empty_mirror(two, tmp_path):
    FAULTS.broken = {"open"}
    with pytest.raises(CheckpointError, match=r"cannot be read \(open: 503 Slow Down\)"):
        fetch(URL, tmp_path / "back", pause=0.0)
    assert not (tmp_path / "back").exists()
    FAULTS.broken = set()
    assert fetch("faulty://bucket/other", tmp_path / "back") is None


def test_the_directory_of_another_run_or_of_one_that_trains_is_left_alone(two, tmp_path):
    other = tmp_path / "other"
    with CheckpointManager(other / "checkpoints") as manager:
        manager.save(state(5), frames=5)
        manager.wait()
        with pytest.raises(TakenError, match=r"choose another --run-dir"):
            fetch(URL, other)
    with (
        CheckpointManager(tmp_path / "run" / "checkpoints"),
        pytest.raises(CheckpointError, match="in use by another run"),
    ):
        fetch(URL, tmp_path / "run")


def test_what_is_here_already_is_not_read_again(two, tmp_path):
    FAULTS.calls.clear()
    fetch(URL, tmp_path / "run")
    assert FAULTS.calls.count("open") == 5  # the manifests, and files of the run
    damaged = tmp_path / "run" / "checkpoints" / "step_000000000020" / "tensors" / "tensors.pt"
    damaged.write_bytes(b"x")
    assert same(fetch(URL, tmp_path / "run").load(), state(20))


# -- Secrets.


def test_a_password_is_written_nowhere(tmp_path, caplog):
    FAULTS.broken = {"put_file"}
    url = "faulty://me:se/cret@host/bucket/run".replace("/cret", "cret")
    with manager_of(tmp_path, url, closing=0.0) as manager:
        manager.save(state(10), frames=10)
        wait_for(lambda: "cannot be written to" in caplog.text)
    assert "faulty://me:***@host/bucket/run" in caplog.text
    assert "secret" not in caplog.text + json.dumps([str(p) for p in tmp_path.rglob("*")])
