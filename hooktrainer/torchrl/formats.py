"""The forms in which TorchRL's trainer saves itself, each read as one: name to state dict.

===================================== ==========================================================
``CKPT_BACKEND=torch``                a file of `torch.save`
``CKPT_BACKEND=memmap``               a directory with one for each state dict, and ``state.json``
``CKPT_BACKEND=torchsnapshot``        a directory with a ``.snapshot_metadata``
``checkpoint=Checkpoint(...)``        a directory or a zip archive with a ``manifest.json``
===================================== ==========================================================
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from ..base.untrusted import open_file, parse_json, refusing
from ..errors import CheckpointError
from .memmap import Archive, Directory, Folder, manifest_of, read_tensordict
from .trainer_snapshot import is_of_trainer, read_snapshot
from .unified import read_components

OWN = ("collector", "loss_module", "state")
"""What TorchRL's trainer saves of itself; the rest are modules that were registered."""

_RENAMED = {"trainer_state": "state"}
_MODULE = "trainer_module."


class Content(dict[str, Any]):
    """What TorchRL's trainer saved, read from a directory or an archive."""


def recognizes(content: Any) -> bool:
    """Whether ``content`` is what `read` returned, or was read from TorchRL's `torch.save`."""
    return isinstance(content, Content) or (
        isinstance(content, Mapping)
        and all(isinstance(content.get(name), Mapping) for name in OWN)
        and "collected_frames" in content["state"]
    )


def read(path: Path) -> Content | None:
    """Return what is in a directory or an archive of TorchRL's; ``None`` if it is another file.

    Raises:
        CheckpointError: If it is damaged, or a directory of something else.
    """
    if not path.is_dir():
        with refusing(path, CheckpointError), open_file(path) as file:
            if not zipfile.is_zipfile(file):
                return None
    with (
        refusing(path, CheckpointError),
        closing(Directory(path) if path.is_dir() else Archive(path)) as folder,
    ):
        manifest = manifest_of(folder)
        if manifest is not None:
            return _unified(folder, manifest)
        if "state.json" in folder and "loss_module/meta.json" in folder:
            return _memmap(folder)
        if is_of_trainer(folder):
            return Content(read_snapshot(folder))
    if path.is_dir():
        raise CheckpointError(
            f"{path} is a directory, and none that TorchRL's trainer saved. A checkpoint of a run "
            "is loaded by --resume, or with CheckpointManager.load."
        )
    return None


def _unified(folder: Folder, manifest: Mapping[str, Any]) -> Content:
    components = read_components(folder, manifest)
    components.pop("policy", None)  # its parameters are the loss module's as well
    return Content(
        (_RENAMED.get(name, name.removeprefix(_MODULE)), state)
        for name, state in components.items()
    )


def _memmap(folder: Folder) -> Content:
    names = [name for name in sorted(folder.names()) if f"{name}/meta.json" in folder]
    content = {name: read_tensordict(folder, name) for name in names}
    return Content(content, state=parse_json(folder.read("state.json"), nan=True))
