"""hooktrainer: a hook-based trainer for reinforcement learning in PyTorch.

Its names are those of `hooktrainer.public`, imported when the first of them is used: what needs
none, such as the help of the command line, does not wait for PyTorch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .base.version import __version__ as __version__

if TYPE_CHECKING:
    from . import algorithms as algorithms
    from .public import *  # noqa: F403

# Names that must not wait for the trainer: who plays a policy does not train.
_AT_HOME = dict.fromkeys(
    ("LoadedPolicy", "SavedPolicy", "find_policy", "list_policies", "load_policy", "play_episodes"),
    ".policies",
)


def __getattr__(name: str) -> Any:
    if name in _AT_HOME:
        return getattr(import_module(_AT_HOME[name], __name__), name)
    if name == "__all__" or not name.startswith("_"):
        try:  # modules first: they ask for one another while the names are being imported
            return import_module(f".{name}", __name__)
        except ModuleNotFoundError as error:
            if error.name != f"{__name__}.{name}":
                raise
        public = import_module(".public", __name__)
        if hasattr(public, name):
            return getattr(public, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__getattr__("__all__")})
