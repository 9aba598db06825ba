"""Changes to structures: what someone might write who knows a format and means no good."""

from __future__ import annotations

import copy
import io
import json
import random
import warnings
import zipfile
from collections.abc import Iterator
from typing import Any

NUMBERS = (
    *(0, 1, -1, 2, 7, 255, 256, 65536, 2**31 - 1, 2**31, -(2**31), 2**32, 2**40, 2**53),
    *(2**62, 2**63 - 1, 2**63, -(2**63), 2**64, 10**25, -(10**25), 0.5, -0.0, 1e308, -1e-308),
    *(float("nan"), float("inf"), float("-inf")),
)
TEXTS = (
    *("", "0", "x", "nan", "-1", "1e999", "9" * 40, "\0", "\n", "a\nb", "\x1b[31mred\x1b[0m"),
    *("\u202e", "\ud800", "é", "../x", "../../../../etc/passwd", "/etc/passwd", "/dev/zero", "."),
    *("..", "a//b", "x" * 5000, "os", "os:system", "this:s", "__class__", "__reduce__"),
    *("__dict__", "items", "self", "float32[3]", "float32[-3]", "float32[99999999999]"),
    *("int8[4611686018427387904, 4]", "cuda:0", "object[1]", "qint8[3]", "|O", "<f4", "<V8", "O"),
    *("<U99999999", "f4,f4", "meta", "cpu:7", "$x", "$tensor", "$bytes", "$ndarray", "$dict"),
    *("$OrderedDict", "$TensorDict", "$range", "$dtype", "!!python/object/apply:os.system"),
    *("${HOME}", "%s%n", "{0.__class__}", "2026-13-45T99:00", "[/red]", "[link=x]:smile:"),
)


def value(rng: random.Random) -> Any:
    """Any small value."""
    kind = rng.randrange(8)
    if kind < 3:
        return rng.choice(NUMBERS)
    if kind < 5:
        return rng.choice(TEXTS)
    if kind == 5:
        return rng.choice((None, True, False))
    if kind == 6:
        return [value(rng) for _ in range(rng.choice((0, 1, 2, 3)))]
    return {rng.choice(TEXTS): value(rng) for _ in range(rng.choice((0, 1, 2)))}


def mutate_tree(tree: Any, rng: random.Random) -> Any:
    """A tree of plain data with one to three changes, each to any node."""
    try:
        tree = copy.deepcopy(tree)
    except RecursionError:  # it was spoilt before
        return tree
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        tree = _mutate_once(tree, rng)
    return tree


def _mutate_once(tree: Any, rng: random.Random) -> Any:
    places = list(_places(tree))
    if not places or rng.random() < 0.02:
        return value(rng)
    parent, key = rng.choice(places)
    old, kind = parent[key], rng.randrange(12)
    if kind == 0:
        del parent[key]
    elif kind == 1:
        other, where = rng.choice(places)
        parent[key] = copy.deepcopy(other[where]) if where in _keys(other) else None
    elif kind == 2 and isinstance(parent, dict):
        parent[rng.choice((*TEXTS, *parent))] = parent.pop(key)
    elif kind == 3 and isinstance(parent, list):
        parent.insert(key, copy.deepcopy(old))
    elif kind == 3 and isinstance(parent, dict):
        parent[f"{key}{rng.choice(TEXTS)}"] = copy.deepcopy(old)
    elif kind == 4 and isinstance(old, list):
        parent[key] = old * rng.choice((0, 2, 3, 50))
    elif kind == 5:
        for _ in range(rng.choice((1, 2, 60, 900))):
            old = [old] if rng.random() < 0.8 else {"x": old}
        parent[key] = old
    elif kind == 6 and isinstance(old, list) and old:
        rng.shuffle(old)
    elif kind == 7 and isinstance(parent, dict):
        other = rng.choice(list(parent))
        parent[key], parent[other] = parent[other], parent[key]
    elif isinstance(old, bool) or old is None:
        parent[key] = value(rng)
    elif isinstance(old, int | float):
        parent[key] = _number(old, rng)
    elif isinstance(old, str) and rng.random() < 0.6:
        parent[key] = mutate_text(old, rng)
    else:
        parent[key] = value(rng)
    return tree


def _number(old: int | float, rng: random.Random) -> Any:
    near = old + rng.choice((-1, 1, 4, -4, 100)), old * rng.choice((2, -1, 1000, 1 << 20))
    same = float(old) if abs(old) < 2**1000 else 0.0, str(old)
    return rng.choice((*near, *same, rng.choice(NUMBERS), rng.choice(NUMBERS)))


def mutate_text(old: str, rng: random.Random) -> str:
    """A text with a change in a number, a letter, or in its length."""
    digits = [i for i, c in enumerate(old) if c.isdigit()]
    kind = rng.randrange(5)
    if kind < 2 and digits:
        place = rng.choice(digits)
        return old[:place] + rng.choice(("0", "9", "-", "99999999", "", ".")) + old[place + 1 :]
    if kind == 2 and old:
        place = rng.randrange(len(old))
        return old[:place] + rng.choice(TEXTS) + old[place + rng.randrange(2) :]
    if kind == 3:
        return old[: rng.randrange(len(old) + 1)]
    return rng.choice(TEXTS)


def _places(tree: Any) -> Iterator[tuple[Any, Any]]:
    """Every place in a tree: what holds it, and the key or index."""
    stack = [tree]
    while stack:
        node = stack.pop()
        for key in _keys(node):
            yield node, key
            if isinstance(node[key], dict | list):
                stack.append(node[key])


def _keys(node: Any) -> list[Any]:
    if isinstance(node, dict):
        return list(node)
    return list(range(len(node))) if isinstance(node, list) else []


def mutate_json(data: bytes, rng: random.Random) -> bytes:
    """A JSON text that says something else, or is none."""
    kind = rng.randrange(20)
    if kind == 0:
        return mutate_bytes(data, rng)
    if kind == 1:
        depth = rng.choice((100, 2000, 50_000))
        return b"[" * depth + data + b"]" * rng.choice((depth, 0))
    try:
        text = json.dumps(mutate_tree(json.loads(data), rng))
        if kind == 2 and text.startswith("{"):  # twice the same names
            again = json.dumps(mutate_tree(json.loads(data), rng))
            text = f"{text[:-1]}, {again[1:]}" if len(again) > 2 and len(text) > 2 else text
        return text.encode("utf-8", "surrogatepass")
    except (ValueError, RecursionError):  # it was spoilt before
        return mutate_bytes(data, rng)


def mutate_bytes(data: bytes, rng: random.Random) -> bytes:
    """Bytes with bits flipped, parts left out, repeated, or overwritten by numbers."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4))):
        place, kind = rng.randrange(len(changed) + 1), rng.randrange(7)
        if kind <= 1 and changed:
            changed[min(place, len(changed) - 1)] ^= 1 << rng.randrange(8)
        elif kind == 2:
            del changed[place:]
        elif kind == 3:
            del changed[place : place + rng.choice((1, 2, 8, 64))]
        elif kind == 4:
            changed[place:place] = changed[place : place + rng.choice((1, 8, 200))]
        elif kind == 5:
            width = rng.choice((1, 2, 4, 8))
            number = rng.choice((0, 1, 2**31, 2**63, 2**64 - 1, rng.randrange(2**16)))
            number %= 256**width
            changed[place : place + width] = number.to_bytes(width, rng.choice(("little", "big")))
        else:
            changed[place:place] = rng.randbytes(rng.choice((1, 4, 100)))
    return bytes(changed)


# -- Files of `torch.save`.


def spoil_torch_file(data: Any, rng: random.Random) -> bytes:
    """A file of `torch.save` with a change in its pickle, its records, or anywhere."""
    if rng.random() < 0.15:
        return mutate_bytes(data, rng)
    result = io.BytesIO()
    try:
        old = zipfile.ZipFile(io.BytesIO(data))
        names = old.namelist()
        victim = next(name for name in names if name.endswith("data.pkl"))
        if rng.random() < 0.25:
            victim = rng.choice(names)
        method = rng.choice((zipfile.ZIP_STORED,) * 19 + (zipfile.ZIP_DEFLATED,))
        with zipfile.ZipFile(result, "w", method) as new, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for name in names:
                content = old.read(name)
                if name == victim:
                    content = spoil_pickle(content, rng)
                if name == victim and rng.random() < 0.05:
                    new.writestr(name, old.read(name))
                if not (name == victim and rng.random() < 0.05):
                    new.writestr(name, content)
    except (ValueError, zipfile.BadZipFile, StopIteration, NotImplementedError, OSError):
        return mutate_bytes(data, rng)
    return result.getvalue()


_NAMES = (
    *(b"cos\nsystem\n", b"cbuiltins\neval\n", b"cbuiltins\nbytearray\n", b"cposix\nsystem\n"),
    *(b"ctorch._utils\n_rebuild_tensor\n", b"ctorch._utils\n_rebuild_sparse_tensor\n"),
    *(b"ccollections\nOrderedDict\n", b"c_codecs\nencode\n", b"ctorch\nDoubleStorage\n"),
    *(b"ctorch\nload\n", b"ctorch.storage\nUntypedStorage\n"),
    b"ctorch._utils\n_rebuild_tensor_v2\n",
)
_INSTRUCTIONS = (
    *(bytes([code]) for code in b"(.012Rbt}])usaeQ\x81\x85\x86\x87ioN\x93"),
    *(b"\x82\x01", b"h\x00", b"h\xff", b"q\x01", b"\x8c\x00", b"B\xff\xff\xff\x7f"),
    *(b"j\xff\xff\xff\x7f", b"r\xff\xff\xff\x7f", b"K\x00", b"M\xff\xff", b"J\xff\xff\xff\xff"),
    *(b"\x8a\x08" + b"\xff" * 7 + b"\x7f", b"\x8a\xff" + b"\x7f" * 255, b"J\x00\x00\x00\x7f"),
    *(b"\x8b\xff\xff\xff\x7f", b"X\xff\xff\xff\x7f", b"X\x00\x00\x00\x00", b"G" + b"\xff" * 8),
    *(b"\x8e" + b"\xff" * 8, b"\x95" + b"\xff" * 8),
)


def spoil_pickle(content: bytes, rng: random.Random) -> bytes:
    """Other sizes, other names, other instructions."""
    changed = content
    for _ in range(rng.choice((1, 1, 2, 3))):
        kind, place = rng.randrange(7), rng.randrange(len(changed) + 1)
        small = [i for i in range(len(changed) - 1) if changed[i : i + 1] in (b"K", b"M", b"J")]
        names = [i for i in range(len(changed)) if changed.startswith((b"ctorch", b"ccoll"), i)]
        if kind <= 2 and small:
            place = rng.choice(small)
            width = {b"K": 1, b"M": 2, b"J": 4}[changed[place : place + 1]]
            number = rng.choice([b for b in _INSTRUCTIONS if b[:1] in (b"K", b"M", b"J", b"\x8a")])
            if rng.random() < 0.5:
                number = b"K" + bytes([rng.randrange(256)])
            changed = changed[:place] + number + changed[place + 1 + width :]
        elif kind == 3 and names:
            place = rng.choice(names)
            end = changed.find(b"\n", changed.find(b"\n", place) + 1) + 1
            changed = changed[:place] + rng.choice(_NAMES) + changed[end or place :]
        elif kind == 4:
            changed = changed[:place] + rng.choice(_INSTRUCTIONS) + changed[place:]
        elif kind == 5:
            changed = changed[:place] + rng.choice(_INSTRUCTIONS) + changed[place + 1 :]
        else:
            changed = mutate_bytes(changed, rng)
    return changed
