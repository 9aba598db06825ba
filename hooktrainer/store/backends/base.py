"""What a back end is: one way to store a flat dict of tensors in a directory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import torch

from ..tensor_spec import TensorSpec


class Backend(Protocol):
    """Stores tensors in files. It need not flush, verify or commit: the checkpoint manager does.

    A back end never pickles, and never reads anything but what it wrote itself. The files may have
    been made by someone else, with hashes that match.
    """

    def write(
        self, directory: Path, tensors: Mapping[str, torch.Tensor], previous: Path | None
    ) -> Mapping[str, str]:
        """Write tensors to an empty directory.

        Args:
            directory: Where to write; it exists and is empty.
            tensors: Tensors by name, on any device, with any strides. They do not change meanwhile.
            previous: A directory this back end wrote before, intact and not to be changed, whose
                files may be hard-linked where their content did not change.

        Returns:
            The xxh3-128 hashes of files whose content was hashed while it was written, by their
            path in ``directory``; the others are read again to hash them.

        Raises:
            OSError: As the disk gives it.
        """
        ...

    def check(self, directory: Path, specs: Mapping[str, TensorSpec]) -> None:
        """Compare what the files say with each other, with their sizes, and with their hashes.

        It takes no memory for the tensors.

        Args:
            directory: What `write` wrote to.
            specs: As for `read`.

        Raises:
            MalformedError: If the files cannot hold just these tensors.
            OSError: As the disk gives it.
        """
        ...

    def read(self, directory: Path, specs: Mapping[str, TensorSpec]) -> dict[str, torch.Tensor]:
        """Read all tensors from a directory, after what `check` does.

        Args:
            directory: What `write` wrote to.
            specs: The dtype and shape of every tensor written, in the order they were written.

        Returns:
            New contiguous CPU tensors by name, each with its own memory.

        Raises:
            MalformedError: As `check`.
        """
        ...
