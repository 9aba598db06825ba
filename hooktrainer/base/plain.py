"""Configurations as plain nested Python values, for YAML, JSON and loggers."""

from __future__ import annotations

import dataclasses
import hashlib
import math
from argparse import Namespace
from collections.abc import Mapping
from enum import Enum
from pathlib import PurePath
from types import BuiltinFunctionType, FunctionType, SimpleNamespace
from typing import Any, Final

MOST_NUMBERS: Final = 1_000
"""Numbers of an array that a configuration shows."""


def to_plain(config: Any) -> dict[str, Any]:
    """Convert a configuration to nested dicts and lists of `None`, bool, int, float and str.

    Paths, devices, dtypes and other objects become their `str`, enum members their name, classes
    and functions their dotted name, arrays and tensors lists. Of more than 1000 numbers there is
    a digest instead, which identifies them.
    """
    plain = _plain(config)
    if not isinstance(plain, dict):
        if isinstance(config, type) or not hasattr(config, "__dict__"):
            raise TypeError(
                f"a configuration is a dataclass instance, a mapping or an object with "
                f"attributes, not {config!r}"
            )
        plain = _plain(vars(config))
    return plain


def without_omegaconf(value: Any) -> Any:
    """Convert OmegaConf's lists and dicts to Python's; return other values unchanged."""
    kind = type(value).__name__
    if kind == "ListConfig":
        return [without_omegaconf(item) for item in value]
    if kind == "DictConfig":
        return {key: without_omegaconf(item) for key, item in value.items()}
    return value


def flatten_config(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Join nested keys with dots: `{"optim": {"lr": 1}}` becomes `{"optim.lr": 1}`."""
    flat: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            flat.update(flatten_config(value, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def to_yaml(config: Mapping[str, Any]) -> str:
    """Format a plain configuration as YAML, in its order."""
    import yaml

    return str(yaml.safe_dump(dict(config), sort_keys=False, allow_unicode=True))


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.name
    if value is None or type(value) in (bool, int, float, str):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping) or (hasattr(value, "keys") and hasattr(value, "items")):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (Namespace, SimpleNamespace)):
        return _plain(vars(value))
    if isinstance(value, (set, frozenset)):
        return [_plain(item) for item in sorted(value, key=str)]
    if isinstance(value, (list, tuple)) or type(value).__name__ == "ListConfig":
        return [_plain(item) for item in value]
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, (type, FunctionType, BuiltinFunctionType)):
        return f"{value.__module__}.{value.__qualname__}"
    if hasattr(value, "tolist"):
        return _numbers(value)
    for base in (bool, int, float, str):
        if isinstance(value, base):
            return base(value)
    return str(value)


def _numbers(value: Any) -> Any:
    """Return the numbers of an array or a tensor, or a digest of too many."""
    if math.prod(value.shape) <= MOST_NUMBERS:
        return value.tolist()
    import numpy as np

    if hasattr(value, "detach"):
        value = value.detach().cpu()
        value = value.float() if "bfloat16" in str(value.dtype) else value
    array = np.ascontiguousarray(value)
    digest = hashlib.sha256(array.tobytes()).hexdigest()[:16]
    return f"{array.dtype}{list(array.shape)} sha256:{digest}"
