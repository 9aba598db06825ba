"""Only plain files are read, and not too much of them."""

from __future__ import annotations

import os

import pytest

from hooktrainer.own_file import read_own


def test_a_plain_file_is_read(tmp_path):
    (tmp_path / "file").write_bytes(b"abc")
    assert read_own(tmp_path / "file", 3) == b"abc"


def test_nothing_else_is(tmp_path):
    (tmp_path / "file").write_bytes(b"abc")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    (tmp_path / "directory").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for name, reason in (
        ("file", "larger than 2 bytes"),
        ("link", "symbolic links"),
        ("directory", "directory"),
        ("pipe", "not a plain file"),
        ("nothing", "No such file"),
    ):
        with pytest.raises(OSError, match=reason):
            read_own(tmp_path / name, 2)
