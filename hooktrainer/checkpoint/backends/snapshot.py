"""The ``torchsnapshot`` back end: tensors stored by the torchsnapshot package."""

from __future__ import annotations

import asyncio
import json
import traceback
import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import torch
import xxhash

from ...errors import CheckpointError
from .. import fs
from .base import TensorSpec, byte_view, memory

_T = TypeVar("_T")
_KEY = "tensors"
_CHECKSUMS = "checksums.json"
_METADATA = ".snapshot_metadata"


class TorchSnapshotBackend:
    """Stores tensors with torchsnapshot, as bytes.

    torchsnapshot 0.1.0 fails on some dtypes and on parameters, so each tensor is handed over as
    uint8 under its number. It also fails inside a running event loop, so it runs in a thread of its
    own; and it would wait for every rank of a process group, so more than one is refused.

    Raises:
        CheckpointError: If torchsnapshot cannot be imported.
    """

    def __init__(self) -> None:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # torch.jit, at import
                import torchsnapshot
        except ImportError as error:
            raise CheckpointError(
                f"CKPT_BACKEND=torchsnapshot needs the package torchsnapshot ({error}): "
                "pip install torchsnapshot"
            ) from error
        self._library = torchsnapshot

    def write(
        self, directory: Path, tensors: Mapping[str, torch.Tensor], previous: Path | None
    ) -> Mapping[str, str]:
        """Write all tensors as one snapshot; see `Backend.write`."""
        self._refuse_ranks()
        views = _views(tensors)
        fs.check_space(directory, sum(view.numel() for view in views.values()))
        state = {_KEY: self._library.StateDict(**views)}
        _in_thread(lambda: self._library.Snapshot.take(str(directory), state))
        fs.write_file(directory / _CHECKSUMS, json.dumps(_checksums(views)).encode())
        return {}

    def read(self, directory: Path, specs: Mapping[str, TensorSpec]) -> dict[str, torch.Tensor]:
        """Read all tensors; see `Backend.read`."""
        self._refuse_ranks()
        _refuse_pickles(directory / _METADATA)
        tensors = {name: torch.empty(spec.shape, dtype=spec.dtype) for name, spec in specs.items()}
        views = _views(tensors)
        state = {_KEY: self._library.StateDict(**views)}
        _in_thread(lambda: self._library.Snapshot(str(directory)).restore(state))
        for key, view in views.items():  # restored in place, unless torchsnapshot had a reason
            if state[_KEY][key].data_ptr() != view.data_ptr():
                view.copy_(state[_KEY][key])
        # torchsnapshot logs what goes wrong while it restores, and returns as if nothing had.
        if _checksums(views) != json.loads((directory / _CHECKSUMS).read_bytes()):
            raise CheckpointError(f"torchsnapshot did not restore all tensors of {directory}.")
        return tensors

    def _refuse_ranks(self) -> None:
        distributed = torch.distributed
        if distributed.is_available() and distributed.is_initialized():
            ranks = distributed.get_world_size()
            if ranks > 1:
                raise CheckpointError(
                    f"The back end torchsnapshot would wait for all {ranks} ranks of the process "
                    "group. Set CKPT_BACKEND to torch or native."
                )


def _views(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The bytes of each tensor that has any, by its number: torchsnapshot fails on empty ones."""
    return {str(i): byte_view(x) for i, x in enumerate(tensors.values()) if x.numel()}


def _checksums(views: Mapping[str, torch.Tensor]) -> dict[str, str]:
    return {key: xxhash.xxh3_128_hexdigest(memory(view)) for key, view in views.items()}


def _in_thread(function: Callable[[], _T]) -> _T:
    def run() -> _T:
        try:
            return function()
        except BaseException as error:
            _close_loops(error)
            raise

    with ThreadPoolExecutor(1, "torchsnapshot") as pool:
        return pool.submit(run).result()


def _close_loops(error: BaseException) -> None:
    """Close the event loop, and the sockets in it, that torchsnapshot leaves open when it fails."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        loop = frame.f_locals.get("event_loop")
        if isinstance(loop, asyncio.AbstractEventLoop) and not loop.is_closed():
            for task in asyncio.all_tasks(loop):
                task.cancel()
                loop.run_until_complete(asyncio.wait([task]))
            loop.close()


def _refuse_pickles(path: Path) -> None:
    """Refuse a snapshot with any entry that torchsnapshot would unpickle."""
    try:
        entries = json.loads(path.read_bytes())["manifest"].values()
        safe = all(map(_holds_bytes, entries))
    except (ValueError, KeyError, TypeError, AttributeError):
        safe = False
    if not safe:
        raise CheckpointError(f"{path} lists more than plain tensors, which is never loaded.")


def _holds_bytes(entry: dict[str, Any]) -> bool:
    kind = entry["type"]
    if kind == "ChunkedTensor":
        return all(_holds_bytes({**chunk["tensor"], "type": "Tensor"}) for chunk in entry["chunks"])
    return kind == "dict" or (kind == "Tensor" and entry["serializer"] == "buffer_protocol")
