"""State trees: nested Python state, split into plain JSON and a flat dict of tensors, and back.

A *state tree* is what ``state_dict()`` methods return: dicts, lists and tuples of numbers, strings,
tensors, NumPy arrays and TensorDicts. `flatten` splits one into

* a **skeleton**: JSON values only. What JSON has no word for is an object whose first key starts
  with ``$`` and names the type, such as ``{"$tuple": [1, 2]}``;
* **tensors**: every tensor and array, under the path it has in the tree.

`unflatten` is the exact inverse. No pickle is involved and no class is looked up by name, so
reading a skeleton never runs code that came with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

from ..base.untrusted import refusing
from ..errors import CheckpointError
from .decode import Decoder
from .encode import Encoder, Json
from .tensor_spec import TensorSpec


def flatten(tree: Any) -> tuple[Json, dict[str, torch.Tensor]]:
    """Split a state tree into JSON and tensors.

    Types are kept exactly: dict keys of any type, tuples, the bits of floats, NumPy scalars, the
    ``_metadata`` of an `OrderedDict`, the batch size, device and names of a TensorDict. Not kept:
    strides, ``requires_grad``, and tensor subclasses (a parameter is saved as a tensor). A tensor
    that occurs twice is stored once, and is one tensor again when restored.

    Args:
        tree: The state tree. It is not copied: the tensors returned share its memory.

    Returns:
        The skeleton, and the tensors by name, in the order of the tree.

    Raises:
        CheckpointError: If the tree holds a value that cannot be saved; names its path and type.
    """
    encoder = Encoder()
    try:
        skeleton = encoder.node(tree, "")
    except RecursionError:
        raise CheckpointError("The state contains itself, or is nested too deep to save.") from None
    return skeleton, encoder.tensors


def unflatten(skeleton: Json, tensors: Mapping[str, torch.Tensor]) -> Any:
    """Rebuild the tree that `flatten` split.

    Args:
        skeleton: The JSON part.
        tensors: The tensors by name. They become part of the tree without a copy; one that was
            saved from another device goes back there if this machine has it.

    Raises:
        CheckpointError: If a tensor is missing, the skeleton has a type this version does not know,
            or is malformed.
    """
    with refusing("The state is malformed", CheckpointError):
        return Decoder(tensors).node(skeleton)


class Blank(Mapping[str, torch.Tensor]):
    """Tensors of zeros, for trying out a skeleton: the system gives no memory for them until used.

    Args:
        specs: Dtype and shape of each, by name.
    """

    def __init__(self, specs: Mapping[str, TensorSpec]) -> None:
        self._specs = specs

    def __getitem__(self, name: str) -> torch.Tensor:
        spec = self._specs[name]
        if not spec.nbytes:
            return torch.empty(spec.shape, dtype=spec.dtype)
        zeros = torch.from_numpy(np.zeros(spec.nbytes, np.uint8))
        return zeros.view(spec.dtype).reshape(spec.shape)

    def __iter__(self) -> Iterator[str]:
        return iter(self._specs)

    def __len__(self) -> int:
        return len(self._specs)
