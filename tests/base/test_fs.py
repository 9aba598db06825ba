"""Files in the place of which others may have put something."""

from __future__ import annotations

import os

import pytest

from hooktrainer.base.fs import open_to_lock, write_atomically
from hooktrainer.errors import ConfigError


@pytest.mark.parametrize("content", ["new", b"new"])
def test_the_target_of_a_link_is_not_written(content, tmp_path):
    precious, page = tmp_path / "precious", tmp_path / "page.html"
    precious.write_text("old")
    page.symlink_to(precious)
    write_atomically(page, content)
    assert (precious.read_text(), page.read_text()) == ("old", "new")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["page.html", "precious"]
    lock = tmp_path / "lock"
    lock.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="lock is a link"):
        open_to_lock(lock)
    assert not (tmp_path / "elsewhere").exists()


def test_devices_and_directories_are_not_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/dev/null")
    for path in (tmp_path, tmp_path / "pipe", tmp_path / "link"):
        with pytest.raises(ConfigError, match="is no file"):
            write_atomically(path, "x")
    assert (tmp_path / "link").is_symlink()
