from __future__ import annotations

import errno
import os
import threading

import pytest
import xxhash

from hooktrainer.store import fs


def test_a_new_file_is_hashed_and_gives_back_what_it_reserved_too_much(tmp_path):
    with fs.NewFile(tmp_path / "x", 1_000_000) as file:
        file.write(b"abc")
        file.write(memoryview(b"defg")[1:])
    assert (tmp_path / "x").read_bytes() == b"abcefg"
    assert file.digest == xxhash.xxh3_128_hexdigest(b"abcefg") == fs.hash_file(tmp_path / "x")
    assert (file.written, (tmp_path / "x").stat().st_size) == (6, 6)


def test_a_name_that_is_taken_is_never_replaced(tmp_path):
    (tmp_path / "x").mkdir()
    (tmp_path / "y").mkdir()
    with pytest.raises(FileExistsError):
        fs.NewFile(tmp_path / "x")
    with pytest.raises(FileExistsError):
        fs.rename(tmp_path / "y", tmp_path / "x")


def test_an_error_while_sending_early_is_raised_on_closing(tmp_path, monkeypatch):
    """The kernel tells of data it could not write once; the flush at the end may well succeed."""
    original = os.fsync

    def fail_in_threads(fd):
        if threading.current_thread() is not threading.main_thread():
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        original(fd)

    monkeypatch.setattr(fs, "_SEND_BYTES", 10)
    monkeypatch.setattr(os, "fsync", fail_in_threads)

    def write():
        with fs.NewFile(tmp_path / "x") as file:
            file.write(b"more than ten bytes")

    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        write()


def test_a_disk_that_cannot_reserve_is_written_to_all_the_same(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.EOPNOTSUPP, "not supported")

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    fs.write_file(tmp_path / "x", b"abc")
    fs.check_space(tmp_path, 1 << 60)
    assert (tmp_path / "x").read_bytes() == b"abc"
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_a_disk_without_enough_space_is_found_out_beforehand(tmp_path):
    with pytest.raises(OSError, match=r"No space|too large"):
        fs.check_space(tmp_path, 1 << 62)
    with pytest.raises(OSError, match=r"No space|too large"):
        fs.NewFile(tmp_path / "x", 1 << 62)


def test_directories_are_made_with_their_parents_once(tmp_path):
    fs.make_directories(tmp_path / "a" / "b")
    fs.make_directories(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()
