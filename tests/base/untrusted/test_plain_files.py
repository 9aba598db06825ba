"""JSON, YAML, names and types of what someone else may have made."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import Literal

import pytest

from hooktrainer.base.untrusted import (
    MalformedError,
    check_fields,
    check_name,
    parse_json,
    parse_yaml,
    read_file,
)


@pytest.mark.parametrize(
    "text", ["", "{", "NaN", "[-Infinity]", b"\xff", "[" * 100_000, "1" * 5000, '{"a": 1} 2']
)
def test_json_that_is_none(text):
    with pytest.raises(MalformedError) as caught:
        parse_json(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "a: [",
        "!!python/object/apply:os.system [true]",
        "!!timestamp zz",
        "!!int x",
        "!!bool x",
        "{[]: 1}",
        "[" * 10_000,
        "[" * 101 + "]" * 101,
        *("x: " + "9" * 5_001, "x: 0x" + "9" * 5_001),
        "a: 1\n---\nb: 2",
        "x: " + "y" * 2_000_000,
        "a: &a [0]\nb: *a",
    ],
    ids=lambda text: text[:20],
)
def test_yaml_that_is_none_or_has_no_end(text):
    with pytest.raises(MalformedError) as caught:
        parse_yaml(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../a", "a/../b", "/a", "a//b", "a\0", "\x1b[31m", 5]
)
def test_names_elsewhere(name):
    with pytest.raises(MalformedError):
        check_name(name)


def test_files_that_are_not_read(tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "outside").write_text("secret")
    (root / "inside").write_text("fine")
    (root / "link").symlink_to("inside")
    (root / "out").symlink_to(tmp_path / "outside")
    (root / "device").symlink_to("/dev/zero")
    os.mkfifo(root / "pipe")
    assert read_file(root / "link", root) == b"fine"
    for name in ("out", "device", "pipe", "."):
        with pytest.raises(MalformedError):
            read_file(root / name, root)
    with pytest.raises(MalformedError):
        read_file(root / "device")
    with pytest.raises(MalformedError, match="more than 3"):
        read_file(root / "inside", limit=3)
    with pytest.raises(FileNotFoundError):
        read_file(root / "absent", root)


@dataclasses.dataclass
class Record:
    number: int
    ratio: float
    kind: Literal["a", "b"]
    known: Mapping[str, float | None] = dataclasses.field(default_factory=dict)


@pytest.mark.parametrize(
    "wrong", [{"number": True}, {"ratio": "1"}, {"kind": "c"}, {"known": {1: 1.0}}, {"more": 1}]
)
def test_fields_of_other_types(wrong):
    right = {"number": 1, "ratio": 2, "kind": "a", "known": {"x": None}}
    check_fields(right, Record)
    with pytest.raises(MalformedError, match=next(iter(wrong))):
        check_fields({**right, **wrong}, Record)
    with pytest.raises(MalformedError, match="lacks 'number'"):
        check_fields({}, Record)
    with pytest.raises(MalformedError, match="named fields"):
        check_fields([], Record)
