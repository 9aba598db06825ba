"""Files of `torch.save` with changes in their pickle, their records, or anywhere."""

from __future__ import annotations

import io
import random
import warnings
import zipfile
from typing import Any

from mutate import mutate_bytes


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
