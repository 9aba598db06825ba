"""The files of a saved policy, read without trust: nothing in them is executed."""

from __future__ import annotations

import io
import json
import pickle
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import CheckpointError, DamagedCheckpointError

FACTS = "policy.json"
POLICY = "policy.pt"
LATEST = "latest"
DIRECTORY = "policies"
SCHEMA = 1


def read_facts(path: Path) -> dict[str, Any]:
    """Return the content of a saved policy's ``policy.json``.

    Raises:
        DamagedCheckpointError: If it is missing or cannot be read.
        CheckpointError: If its schema is not known.
    """
    try:
        facts = dict(json.loads((path / FACTS).read_bytes()))
        schema = facts["schema"]
    except FileNotFoundError:
        raise DamagedCheckpointError(f"{path} is damaged: {FACTS} is missing.") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DamagedCheckpointError(f"{path} is damaged: {FACTS}: {error!r}") from None
    if schema != SCHEMA:
        raise CheckpointError(
            f"{path} has schema {schema}, and this version of hooktrainer reads {SCHEMA}: load it "
            f"with the version that wrote it ({facts.get('versions')})."
        )
    return facts


def read_content(path: Path, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of a saved policy's ``policy.pt``, after comparing it with its hash.

    Raises:
        DamagedCheckpointError: If the file is not the one that was written.
        CheckpointError: If it holds anything but plain data and tensors.
    """
    import torch
    import xxhash

    try:
        data = (path / POLICY).read_bytes()
        if xxhash.xxh3_128_hexdigest(data) != facts["files"][POLICY]["xxh3_128"]:
            raise DamagedCheckpointError(f"{path} is damaged: {POLICY} does not match its hash.")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about what is refused in any case
            return dict(torch.load(io.BytesIO(data), map_location="cpu", weights_only=True))
    except pickle.UnpicklingError:
        raise CheckpointError(
            f"{path / POLICY} holds more than plain data and tensors, so it was not loaded: it is "
            "not a policy that hooktrainer saved."
        ) from None
    except FileNotFoundError:
        raise DamagedCheckpointError(f"{path} is damaged: {POLICY} is missing.") from None
    except CheckpointError:
        raise
    except (OSError, RuntimeError, KeyError, TypeError, ValueError, EOFError) as error:
        raise DamagedCheckpointError(f"{path} is damaged: {POLICY}: {error!r}") from None
