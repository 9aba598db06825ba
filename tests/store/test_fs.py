from __future__ import annotations

import pytest
import xxhash

from hooktrainer.store import fs


def test_a_new_file_is_hashed(tmp_path):
    with fs.NewFile(tmp_path / "x") as file:
        file.write(b"abc")
        file.write(memoryview(b"defg")[1:])
    assert (tmp_path / "x").read_bytes() == b"abcefg"
    assert file.digest == xxhash.xxh3_128_hexdigest(b"abcefg")


def test_a_name_that_is_taken_is_never_replaced(tmp_path):
    (tmp_path / "x").mkdir()
    (tmp_path / "y").mkdir()
    with pytest.raises(FileExistsError):
        fs.NewFile(tmp_path / "x")
    with pytest.raises(FileExistsError):
        fs.rename(tmp_path / "y", tmp_path / "x")


def test_directories_are_made_with_their_parents_once(tmp_path):
    fs.make_directories(tmp_path / "a" / "b")
    fs.make_directories(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()
