"""The ``torchsnapshot`` back end: tensors stored by the torchsnapshot package."""

from __future__ import annotations

import asyncio
import os
import traceback
import warnings
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

from ...base import fs
from ...base.untrusted import MalformedError, check_room, open_file
from ...errors import CheckpointError
from ..tree import TensorSpec, blank, byte_view, memory

_KEY = "tensors"


class TorchSnapshotBackend:
    """Stores tensors with torchsnapshot, as bytes, one file for each.

    torchsnapshot 0.1.0 fails on some dtypes and on parameters, so each tensor is handed over as
    uint8 under its number. It also fails inside a running event loop, so it runs in a thread of its
    own; and it would wait for every rank of a process group, so more than one is refused.

    It trusts its metadata: paths outside the directory, sizes, pickles, YAML that makes objects. So
    the files are read here, and the metadata are not.

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
        ranks = torch.distributed.get_world_size() if torch.distributed.is_initialized() else 1
        if ranks > 1:
            raise CheckpointError(
                f"The back end torchsnapshot would wait for all {ranks} ranks of the process "
                "group. Set CKPT_BACKEND to torch or native."
            )
        views = {str(i): byte_view(x) for i, x in enumerate(tensors.values()) if x.numel()}
        fs.check_space(directory, sum(view.numel() for view in views.values()))
        with ThreadPoolExecutor(1, "torchsnapshot") as pool:
            pool.submit(self._take, directory, views).result()
        return {}

    def _take(self, directory: Path, views: Mapping[str, torch.Tensor]) -> None:
        from torchsnapshot import knobs

        largest = max((view.numel() for view in views.values()), default=1)
        try:
            with (
                knobs.override_is_batching_disabled(True),
                knobs.override_max_chunk_size_bytes(largest),
            ):
                self._library.Snapshot.take(
                    str(directory), {_KEY: self._library.StateDict(**views)}
                )
        except BaseException as error:
            _close_loops(error)
            raise

    def check(self, directory: Path, specs: Mapping[str, TensorSpec]) -> None:
        """Compare the files and their sizes with the tensors; see `Backend.check`."""
        files = _files(directory, specs).values()
        if {file for file, _ in files} != set(directory.glob(f"0/{_KEY}/*")):
            raise MalformedError("there are files of other tensors than those of the checkpoint")
        for file, spec in files:
            with open_file(file, directory) as opened:
                size = os.fstat(opened.fileno()).st_size
            if size != spec.nbytes:
                raise MalformedError(f"{file.name} has {size} bytes for {spec.nbytes} of a tensor")
        check_room(sum(spec.nbytes for spec in specs.values()), "its tensors")

    def read(self, directory: Path, specs: Mapping[str, TensorSpec]) -> dict[str, torch.Tensor]:
        """Read all tensors; see `Backend.read`."""
        self.check(directory, specs)
        tensors = blank(specs)
        for name, (file, _) in _files(directory, specs).items():
            with open_file(file, directory) as opened:
                fs.read_into(opened, memory(byte_view(tensors[name])))
        return tensors


def _files(directory: Path, specs: Mapping[str, TensorSpec]) -> dict[str, tuple[Path, TensorSpec]]:
    """Return the file of each tensor that is not empty; torchsnapshot fails on empty ones."""
    return {
        name: (directory / f"0/{_KEY}/{i}", spec)  # of the only rank
        for i, (name, spec) in enumerate(specs.items())
        if spec.nbytes
    }


def _close_loops(error: BaseException) -> None:
    """Close the event loop, and the files and sockets, that torchsnapshot leaves when it fails."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        loop = frame.f_locals.get("event_loop")
        if isinstance(loop, asyncio.AbstractEventLoop) and not loop.is_closed():
            loop.set_exception_handler(lambda *_: None)  # the first error is the one that is raised
            if others := asyncio.all_tasks(loop):
                loop.run_until_complete(asyncio.wait(others))
            loop.close()
