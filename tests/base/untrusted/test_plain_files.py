"""JSON, YAML, arrays, names and types of what someone else may have made."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import Literal

import numpy as np
import pytest

from hooktrainer.base.untrusted import (
    MalformedError,
    check_fields,
    check_name,
    parse_json,
    parse_yaml,
    read_file,
)
from hooktrainer.base.untrusted.array_file import read_array


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
        "&a [*a]",
        "[" * 10_000,
        "[" * 101 + "]" * 101,
        "x: " + "9" * 1_001,
        "a: 1\n---\nb: 2",
        "x: " + "y" * 2_000_000,
        "\n".join(
            [
                "a0: &a0 [0, 0, 0, 0, 0, 0, 0, 0, 0]",
                *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)),
            ]
        ),
    ],
    ids=lambda text: text[:20],
)
def test_yaml_that_is_none_or_has_no_end(text):
    with pytest.raises(MalformedError) as caught:
        parse_yaml(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("dtype", ["<f4", "<i8", "|b1", "<c16", "<M8[s]", "<U3"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays(tmp_path, dtype, order):
    array = np.zeros((2, 3), dtype, order)
    np.save(tmp_path / "a.npy", array)
    back = read_array(tmp_path / "a.npy", tmp_path)
    assert (back == array).all()
    assert back.dtype == array.dtype
    assert back.flags.writeable


def header(shape, dtype="'<f4'"):
    text = f"{{'descr': {dtype}, 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()


@pytest.mark.parametrize(
    "content",
    [
        header((10**12,)) + bytes(40),
        header((-10,)) + bytes(40),
        header((11,)) + bytes(40),
        header((9,)) + bytes(40),
        header((2**62, 2**62, 0)),
        header((1,), "'|O'") + bytes(8),
        header((1,), "[('a', '<f4')]") + bytes(4),
        header((1,), "'nonsense'") + bytes(4),
        header("(" * 50 + ")" * 50),
        b"\x93NUMPY\x03\x00\x00\x00\x00\x00",
        b"PK\3\4",
        b"",
    ],
)
def test_arrays_that_claim_other_bytes_than_there_are(tmp_path, content):
    (tmp_path / "a.npy").write_bytes(content)
    with pytest.raises(MalformedError):
        read_array(tmp_path / "a.npy", tmp_path)


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
