"""The ``torch`` back end: one file that `torch.load` opens."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch

from ...errors import CheckpointError
from .. import fs
from ..single_file import compact, torch_save
from .base import TensorSpec

FILE = "tensors.pt"


class TorchBackend:
    """Stores tensors with `torch.save`, as one dict from name to tensor.

    ``torch.load("tensors.pt", weights_only=True)`` reads the file without hooktrainer.
    """

    def write(
        self, directory: Path, tensors: Mapping[str, torch.Tensor], previous: Path | None
    ) -> Mapping[str, str]:
        """Write all tensors to one file; see `Backend.write`."""
        content = compact(tensors)
        size = sum(tensor.nbytes for tensor in content.values())
        with fs.NewFile(directory / FILE, size) as file:
            torch_save(content, file)
        return {FILE: file.digest}

    def read(self, directory: Path, specs: Mapping[str, TensorSpec]) -> dict[str, torch.Tensor]:
        """Read all tensors; see `Backend.read`."""
        content = torch.load(directory / FILE, map_location="cpu", weights_only=True)
        found = {name: TensorSpec.of(tensor) for name, tensor in content.items()}
        if found != dict(specs):
            raise CheckpointError(
                f"{directory / FILE} does not hold the tensors of its checkpoint."
            )
        return dict(content)
