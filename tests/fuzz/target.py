"""What a target is: good files, ways to spoil them, and how they are opened."""

from __future__ import annotations

import hashlib
import os
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch

from hooktrainer.errors import USER_ERRORS
from hooktrainer.store import flatten


class Link(NamedTuple):
    """A symbolic link."""

    to: str


class Pipe(NamedTuple):
    """A named pipe, which waits for a writer that never comes."""


Files = dict[str, "bytes | Link | Pipe | None"]
"""The content of each file by its path; ``None`` for a directory."""


@dataclass(frozen=True)
class Target:
    """Something that is opened.

    Attributes:
        name: For the table.
        make: Returns the good files.
        spoil: Changes them, hashes and all.
        open: Opens a directory of them, and returns what it took from them.
        errors: The errors that are documented for it.
        memory: Bytes that opening a case may take; its files have some kilobytes.
        lines: Whether they may list differences, each in a line.
    """

    name: str
    make: Callable[[], Files]
    spoil: Callable[[Files, random.Random], None]
    open: Callable[[Path], Any]
    errors: tuple[type[Exception], ...] = USER_ERRORS
    lines: bool = False
    memory: int = 256 << 20


def write(files: Files, place: Path) -> None:
    """Put files into a directory, as far as the names allow."""
    for name, content in files.items():
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, Link):
            path.symlink_to(content.to)
        elif isinstance(content, Pipe):
            os.mkfifo(path)
        elif content is None:
            path.mkdir(exist_ok=True)
        else:
            path.write_bytes(content)


def read(place: Path) -> Files:
    """The regular files in a directory."""
    return {
        path.relative_to(place).as_posix(): path.read_bytes()
        for path in sorted(place.rglob("*"))
        if path.is_file()
    }


def spoil_place(files: Files, rng: random.Random) -> None:
    """Replace, move or remove a file, or lead out of the directory in its place."""
    name = rng.choice(sorted(files))
    kind, content = rng.randrange(9), files[name]
    if kind == 0:
        del files[name]
    elif kind == 1:
        files[name] = None
    elif kind == 2:
        files[name] = Pipe()
    elif kind == 3:
        files[name] = Link(rng.choice(("/dev/zero", "/etc/passwd", "/", name, "nowhere")))
    elif kind == 4:  # to its own content, outside of the directory
        files[name] = Link(f"{'../' * (1 + name.count('/'))}outside/{Path(name).name}")
    elif kind == 5:
        files[name] = b""
    elif kind == 6:
        files[name] = files[rng.choice(sorted(files))]
    elif kind == 7:
        files[f"{name}{rng.choice(('2', '.npy', ' ', '.bak'))}"] = content
    else:
        head = name.split("/")[0]
        files[f"{head}.d/x"] = content


def fingerprint(found: Any) -> tuple[str, bytes]:
    """A hash of what was opened, and the bytes of the tensors in it."""
    digest, tensors = hashlib.sha256(), []
    skeleton, named = flatten(found)
    digest.update(repr(skeleton).encode("utf-8", "backslashreplace"))
    for name, tensor in named.items():
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        data = flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""
        digest.update(f"{name}{tensor.dtype}{list(tensor.shape)}".encode("utf-8", "replace"))
        digest.update(data)
        tensors.append(data)
    return digest.hexdigest(), b"\0\0".join(tensors)
