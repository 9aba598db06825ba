"""The ``torch`` back end: one file that `torch.load` opens."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch

from ...base.untrusted import MalformedError
from ...base.untrusted.read_torch import read_torch
from .. import fs
from ..tensor_spec import TensorSpec, compact, torch_save

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
        fs.check_space(directory, sum(tensor.nbytes for tensor in content.values()))
        with fs.NewFile(directory / FILE) as file:
            torch_save(content, file)
        return {FILE: file.digest}

    def check(self, directory: Path, specs: Mapping[str, TensorSpec]) -> None:
        """Compare what the file describes with the tensors; see `Backend.check`."""
        content = read_torch(directory / FILE, directory, "meta")
        if type(content) is not dict or any(type(x) is not torch.Tensor for x in content.values()):
            raise MalformedError(f"{FILE} holds more than tensors by name")
        if {name: TensorSpec.of(tensor) for name, tensor in content.items()} != dict(specs):
            raise MalformedError(f"{FILE} does not hold the tensors of its checkpoint")

    def read(self, directory: Path, specs: Mapping[str, TensorSpec]) -> dict[str, torch.Tensor]:
        """Read all tensors; see `Backend.read`."""
        return dict(read_torch(directory / FILE, directory))
