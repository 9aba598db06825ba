"""The spool: what is in it, and how far it was sent, whoever is killed when."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from hooktrainer.log.sending import RunGoneError, Sender, reason
from hooktrainer.log.spool import Spool, forget_spools

TARGET = {"kind": "fake", "key": "k", "uri": "there"}


class Server:
    """Keeps records by their time, as a table with a key does; fails when it is told to."""

    def __init__(self) -> None:
        self.rows: dict[int, tuple[int, Any]] = {}
        self.requests = 0
        self.fail_at: set[int] = set()
        self.fail_after: set[int] = set()
        self.gone = False

    def destination(self, memory: dict[str, Any]) -> Destination:
        return Destination(self, memory)

    @property
    def values(self) -> list[Any]:
        return [value for _, value in self.rows.values()]


class Destination:
    def __init__(self, server: Server, memory: dict[str, Any]) -> None:
        self.server = server
        self.memory = memory

    def open(self, first: dict[str, Any]) -> None:
        if self.server.gone and "lost" not in self.memory:
            raise RunGoneError

    def take_back(self, time: int) -> None:
        for key in [key for key in self.server.rows if key > time]:
            del self.server.rows[key]

    def send(self, records: Any, files: Path) -> None:
        server = self.server
        for record in records:
            server.requests += 1
            if server.requests in server.fail_at:
                raise ConnectionRefusedError(111, "Connection refused")
            if "metrics" in record:
                server.rows[record["time"]] = (record["step"], record["metrics"]["x"])
            if server.requests in server.fail_after:
                raise TimeoutError("no answer")
        self.memory["sent"] = self.memory.get("sent", 0) + len(records)


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def spool(tmp_path) -> Spool:
    return Spool(tmp_path / "spool" / "fake")


def fill(spool: Spool, values: Any) -> None:
    for value in values:
        spool.add(value, metrics={"x": value})
    spool.flush()
    spool.write_target(TARGET)


def send(spool: Spool, server: Server, uri: str = "there", *, restarts: bool = True) -> int:
    """Send all of it as a process of its own would, trying again, or starting again, until done."""
    spool = Spool(spool.directory)
    sender = Sender(spool, server.destination, uri)
    while True:
        if restarts:
            sender = Sender(spool, server.destination, uri)
        try:
            total = 0
            while number := sender.send_some():
                total += number
        except OSError:
            continue
        return total


def test_everything_is_sent_in_order_and_once(spool, server):
    fill(spool, range(5))
    assert spool.unsent() == 5
    assert send(spool, server) == 5
    assert (spool.unsent(), spool.count()) == (0, 5)
    assert send(spool, server) == 0
    fill(spool, range(5, 8))
    assert spool.unsent() == 3
    assert send(spool, server) == 3
    assert server.values == list(range(8))
    assert list(server.rows) == sorted(server.rows)


@pytest.mark.parametrize("when", range(1, 8))
@pytest.mark.parametrize("answered", [False, True])
@pytest.mark.parametrize("restarts", [False, True])
def test_a_server_that_fails_at_any_request_has_every_record_once(
    spool, server, when, answered, restarts
):
    fill(spool, range(6))
    (server.fail_after if answered else server.fail_at).update({when, when + 3})
    send(spool, server, restarts=restarts)
    assert server.values == list(range(6))


@pytest.mark.parametrize("sent_before", [0, 3, 5])
def test_a_resume_takes_back_what_came_after_the_checkpoint(spool, server, sent_before):
    fill(spool, range(3))
    state = spool.position()
    if sent_before == 3:
        send(spool, server)
    fill(spool, [97, 98])
    if sent_before == 5:
        send(spool, server)
    again = Spool(spool.directory)
    again.rewind(state)
    fill(again, [3, 4])
    send(again, server)
    assert server.values == [0, 1, 2, 3, 4]
    assert again.unsent() == 0


def test_several_resumes_before_anything_is_sent_go_back_to_the_earliest(spool, server):
    fill(spool, range(2))
    state = spool.position()
    fill(spool, range(90, 95))
    send(spool, server)
    for value in (2, 3):
        spool = Spool(spool.directory)
        spool.rewind(state)
        fill(spool, [value])
        state = spool.position()
    send(spool, server)
    assert server.values == [0, 1, 2, 3]


def test_the_last_record_may_be_torn_by_a_kill(spool, server):
    fill(spool, range(3))
    with spool.records.open("ab") as file:
        file.write(b'{"time": 1, "metr')
    assert send(spool, server) == 3
    assert (spool.unsent(), spool.count()) == (0, 3)


def test_a_spool_that_lost_its_end_goes_on_with_what_is_there(spool, server, caplog):
    fill(spool, range(5))
    state = spool.position()
    data = spool.records.read_bytes()
    spool.records.write_bytes(data[: len(data) - 20])
    again = Spool(spool.directory)
    again.rewind(state)
    fill(again, [5])
    send(again, server)
    assert server.values == [0, 1, 2, 3, 5]
    assert "continuing after its 4 records up to step 4" in caplog.text


def test_a_position_that_is_known_by_its_step_alone_keeps_the_records_up_to_it(spool, server):
    fill(spool, range(5))
    again = Spool(spool.directory)
    again.rewind({"bytes": None, "crc32": 0, "time": None, "step": 2})
    fill(again, [9])
    send(again, server)
    assert server.values == [0, 1, 2, 9]


def test_a_second_run_in_the_same_place_moves_the_first_ones_aside(spool, server):
    fill(spool, range(3))
    again = Spool(spool.directory)
    fill(again, [7])
    send(again, server)
    assert server.values == [7]
    assert (spool.directory / "previous_1" / "records.jsonl").exists()


def test_a_start_that_is_forgotten_leaves_nothing_but_its_key(spool, server, tmp_path):
    fill(spool, range(3))
    spool.add_file(1, "texts/a.txt", b"a")
    send(spool, server)
    forget_spools(tmp_path)
    again = Spool(spool.directory)
    assert (again.key(), again.count(), list(again.files.iterdir())) == ("k", 0, [])
    fill(again, [5])
    send(again, server)
    assert server.values == [5]


def test_another_server_is_sent_all_of_it(spool, server):
    fill(spool, range(3))
    send(spool, server)
    other = Server()
    assert send(spool, other, "elsewhere") == 3
    assert other.values == server.values == [0, 1, 2]


def test_a_run_that_is_gone_is_begun_anew_with_all_of_it(spool, server):
    fill(spool, range(3))
    send(spool, server)
    server.rows.clear()
    server.gone = True
    fill(spool, [3])
    sender = Sender(Spool(spool.directory), server.destination, "there")
    with pytest.raises(RunGoneError):
        sender.send_some()
    assert sender.send_some() == 4
    assert server.values == [0, 1, 2, 3]


def test_files_are_kept_until_they_are_sent_and_taken_back_with_the_rest(spool, server):
    fill(spool, [0])
    spool.add_file(1, "images/a/b.png", b"picture")
    state = spool.position() | {"time": spool.position()["time"]}
    spool.flush()
    state = spool.position()
    spool.add_file(2, "images/c.png", b"late")
    spool.flush()
    assert len(list(spool.files.iterdir())) == 2
    again = Spool(spool.directory)
    again.rewind(state)
    (stored,) = spool.files.iterdir()
    assert stored.read_bytes() == b"picture"
    fill(again, [2])
    send(again, server)
    assert list(spool.files.iterdir()) == []


def test_a_run_without_an_end_is_ended_on_request(spool, server):
    ends: list[str] = []

    class Ending(Destination):
        def send(self, records: Any, files: Path) -> None:
            ends.extend(record["end"] for record in records if "end" in record)

    fill(spool, [0])
    sender = Sender(Spool(spool.directory), lambda memory: Ending(server, memory), "there")
    assert sender.end()
    spool.add(1, end="finished")
    spool.flush()
    assert not sender.end()
    assert ends == ["interrupted"]


def test_one_process_sends_at_a_time(spool):
    with spool.sending() as first, Spool(spool.directory).sending() as second:
        assert (first, second) == (True, False)
    with spool.sending() as free:
        assert free


def test_times_grow_even_if_the_clock_does_not(spool, monkeypatch):
    monkeypatch.setattr("hooktrainer.log.spool.time.time", lambda: 5.0)
    fill(spool, range(3))
    copy = pickle.loads(pickle.dumps(spool))
    fill(copy, [3])
    times = [json.loads(line)["time"] for line in spool.records.read_text().splitlines()]
    assert times == [5000, 5001, 5002, 5003]


def test_the_reason_is_what_the_system_said():
    error = RuntimeError("API request failed\nwith much to say")
    assert reason(error) == "API request failed"
    error.__cause__ = ConnectionRefusedError(111, "Connection refused")
    assert reason(error) == "Connection refused"
