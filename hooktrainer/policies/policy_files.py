"""The files of a saved policy, read without trust: nothing in them is executed.

- ``policy.json``: the policy's facts, sealed by a checksum.
- ``policy.safetensors``: its tensors (``weights/...`` and ``state/...``), and the program as text.

Both must be regular files; sizes are checked before memory is taken.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import xxhash

from ..base.fs import replace_file
from ..base.untrusted import MalformedError, one_line, read_file, refusing
from ..errors import CheckpointError, DamagedCheckpointError
from ..store.stored import seal, unseal
from .packed import read_packed

if TYPE_CHECKING:
    import torch

FACTS: Final = "policy.json"
POLICY: Final = "policy.safetensors"
LATEST: Final = "latest"
DIRECTORY: Final = "policies"
SEAL: Final = "policy"
SCHEMA: Final = 7

MOST_FACTS: Final = 1 << 24
"""Largest size of ``policy.json`` and of the program, in bytes."""

MOST_POLICY: Final = 1 << 32
"""Largest size of ``policy.safetensors``, in bytes."""


@dataclass(frozen=True)
class PolicyContent:
    """What ``policy.safetensors`` holds.

    `program` has the program that takes the best action, under ``sampling`` the one that samples,
    or why there is none, and under ``parameters`` the names of the weights that were trained;
    `state` has the initial hidden states without a batch.
    """

    program: dict[str, Any]
    weights: Mapping[str, torch.Tensor]
    state: Mapping[str, torch.Tensor]


def read_facts(path: Path) -> dict[str, Any]:
    """Return the content of a ``policy.json``."""
    data = _read(path, FACTS, MOST_FACTS)
    with refusing(f"{path} is damaged: {FACTS}", DamagedCheckpointError):
        facts = unseal(SEAL, data)
        schema = facts["schema"]
    if schema != SCHEMA:
        raise CheckpointError(
            f"{path} has schema {schema!r:.20}, and this version of hooktrainer reads {SCHEMA}: "
            f"load it with the version that wrote it ({facts.get('versions')!r:.200})."
        )
    return facts


def change_facts(path: Path, **fields: Any) -> None:
    """Replace fields of ``policy.json`` atomically."""
    facts = {**read_facts(path), **fields}
    with replace_file(path / FACTS) as file:
        file.write(seal(SEAL, facts))


def file_record(facts: Mapping[str, Any]) -> tuple[int, str]:
    """Return the recorded size and hash of ``policy.safetensors``."""
    ((name, record),) = facts["files"].items()
    size, digest = record["size"], record["xxh3_128"]
    if name != POLICY or type(size) is not int or not isinstance(digest, str):
        raise MalformedError(f"{name!r:.80} is no file of a policy")
    if not 0 <= size <= MOST_POLICY:
        raise MalformedError(f"a file of {size} bytes")
    return size, digest


def read_content(path: Path, facts: Mapping[str, Any]) -> PolicyContent:
    """Return the content of a ``policy.safetensors`` after comparing its hash."""
    with refusing(f"{path} is damaged: {POLICY}", DamagedCheckpointError):
        size, digest = file_record(facts)
        data = _read(path, POLICY, size)
        if len(data) != size or xxhash.xxh3_128_hexdigest(data) != digest:
            raise MalformedError("it does not match its hash")
        return decode(data)


def _read(path: Path, name: str, limit: int) -> bytes:
    """Return the content of a file in a policy's directory, or in a packed policy."""
    if path.is_file():
        return read_packed(path, name, limit)
    try:
        return read_file(path / name, path, limit)
    except FileNotFoundError:
        raise DamagedCheckpointError(f"{path} is damaged: {name} is missing.") from None
    except (OSError, MalformedError) as error:
        reason = one_line(error)
        raise DamagedCheckpointError(f"{path} is damaged: {name}: {reason}") from None


def encode(content: PolicyContent) -> bytes:
    """Return the bytes of ``policy.safetensors``."""
    from safetensors.torch import save

    tensors = {f"weights/{name}": tensor for name, tensor in content.weights.items()}
    tensors |= {f"state/{name}": tensor for name, tensor in content.state.items()}
    program = json.dumps(content.program, separators=(",", ":"))
    nbytes = sum(tensor.nbytes for tensor in tensors.values())
    if len(program) > MOST_FACTS or nbytes + 2 * MOST_FACTS > MOST_POLICY:
        raise CheckpointError(
            f"the policy has {nbytes / 1e9:,.1f} GB of weights and a program of {len(program):,} "
            f"bytes; at most {MOST_POLICY / 1e9:,.1f} GB and {MOST_FACTS:,} bytes can be saved."
        )
    return save(tensors, {"program": program})


def decode(data: bytes) -> PolicyContent:
    """Return what `encode` wrote."""
    import torch
    from safetensors.torch import load

    # The header: its length in 8 bytes, then JSON. The library compares the sizes in it with each
    # other and with the file's.
    header = data[8 : 8 + int.from_bytes(data[:8], "little")]
    if len(header) > 2 * MOST_FACTS:
        raise MalformedError(f"a header of {len(header):,} bytes")
    tensors = load(data)
    program = json.loads(json.loads(header)["__metadata__"]["program"])
    kinds: dict[str, dict[str, torch.Tensor]] = {"weights": {}, "state": {}}
    for name, tensor in tensors.items():
        kind, _, rest = name.partition("/")
        # Other bytes than 0 and 1 in booleans are counted wrongly by some operators.
        if tensor.dtype is torch.bool and tensor.numel() and tensor.view(torch.uint8).max() > 1:
            raise MalformedError(f"{name} is not boolean")
        kinds[kind][rest] = tensor
    return PolicyContent(program, **kinds)
