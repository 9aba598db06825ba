"""Which environments of a saved policy can be made without trust.

Without trust, nothing that a file names is imported, run or read. So an environment is made only if

- its id is registered by Gymnasium, by a package installed as a plug-in of Gymnasium or known to
  hooktrainer, or by something that this process has imported already. The module of an id such as
  ``module:Id``, or of a factory, is not imported. Ids of several agents are VMAS's and
  PettingZoo's;
- its wrappers are in `WRAPPERS` (Gymnasium's) or `OTHERS`, which only compute;
- its keyword arguments are plain: numbers, booleans, ``None``, words, and lists and dicts of these.
  A word has letters, digits, ``_``, ``+`` and ``-``: no path, file, address or ``module:name``. A
  number, which may be a size, is at most 1,000, their product ten million, and the length of an
  episode from 1 to a million. Pictures are not collected.

Everything else is reported, and made if the user trusts it.
"""

from __future__ import annotations

import functools
import importlib
import math
import re
import reprlib
import runpy
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from ..base.imports import ENV_SCRIPT, search_last
from ..base.words import printable
from ..errors import ConfigError

WRAPPERS: Final = frozenset(
    {
        *("AtariPreprocessing", "ClipAction", "ClipReward", "DelayObservation"),
        *("DiscretizeAction", "DiscretizeObservation", "DtypeObservation", "FilterObservation"),
        *("FlattenObservation", "FrameStackObservation", "GrayscaleObservation"),
        *("MaxAndSkipObservation", "NormalizeReward", "RecordEpisodeStatistics", "RepeatAction"),
        *("RescaleAction", "RescaleObservation", "ReshapeObservation", "ResizeObservation"),
        *("StickyAction", "TimeAwareObservation", "TimeLimit"),
    }
)
"""Gymnasium's wrappers that only compute."""
OTHERS: Final = frozenset(
    {
        "hooktrainer.collect.action_format:ClipParts",
        "hooktrainer.collect.families:SkipRendering",
        "hooktrainer.collect.families:EpisodicLife",
        "hooktrainer.collect.families:FirstAction",
        "hooktrainer.collect.families:CategoricalImage",
        "hooktrainer.collect:LastAction",
        "hooktrainer.collect:LastReward",
        "hooktrainer.collect.last_step:LastAction",
        "hooktrainer.collect.last_step:LastReward",
        "minigrid.wrappers:DictObservationSpaceWrapper",
    }
)
"""Other wrappers that training uses."""
FAMILIES: Final = frozenset({"atari", "butterfly", "classic", "mpe", "sisl"})
"""PettingZoo's families of environments."""
_VERSIONED = re.compile(r"[a-z0-9_]+_v\d+")
_WORD = re.compile(r"[A-Za-z0-9_+-]{0,100}")
_PLACE = re.compile(r"file|path|dir|folder|url|module|entry|import|command", re.IGNORECASE)
_MOST_DEPTH = 8
_LARGEST = 1_000
_MOST_TOGETHER = 10_000_000
_LENGTHS = ("max_episode_steps", "max_steps", "max_cycles")
_LONGEST = 1_000_000


def code_of(
    id: str, kwargs: Mapping[str, Any], wrappers: Iterable[tuple[str, Mapping[str, Any]]]
) -> str | None:
    """Describe what `gymnasium.make` would import, run or read beyond packages.

    A wrapper is a name, as ``module:class``, and keyword arguments.
    """
    import gymnasium as gym

    module, colon, _ = id.rpartition(":")
    if colon:
        return f"the module {printable(module)}, which its id names"
    wrappers = list(wrappers)
    for name, _ in wrappers:
        place, _, wrapper = name.partition(":")
        if name in OTHERS:
            continue
        known = wrapper in WRAPPERS and getattr(gym.wrappers, wrapper).__module__
        if not known or place not in (known, "gymnasium.wrappers"):
            return f"the wrapper {printable(name)}"
    return _code_of_arguments((("", kwargs), *wrappers))


def code_of_agents(id: str, kwargs: Mapping[str, Any]) -> str | None:
    """The same for several agents; VMAS's scenarios and PettingZoo's families are known."""
    origin, _, name = id.partition("/")
    family, _, own = name.partition("/")
    known = origin == "vmas" and ":" not in name
    if not known and (family not in FAMILIES or _VERSIONED.fullmatch(own) is None):
        return f"the module of {printable(id)}, which its id names"
    return _code_of_arguments([("", kwargs)])


def _code_of_arguments(owned: Iterable[tuple[str, Mapping[str, Any]]]) -> str | None:
    """Describe the first argument that is not plain, or makes the sizes too large together."""
    together = 1.0
    for owner, arguments in owned:
        for argument, value in arguments.items():
            is_plain = _is_plain(argument, value, _MOST_DEPTH)
            if is_plain and argument not in _LENGTHS:
                together *= _size(value)
            if not is_plain or together > _MOST_TOGETHER:
                of = f"of {printable(owner)} " if owner else ""
                return f"the argument {of}{printable(argument)}={printable(reprlib.repr(value))}"
    return None


def _is_plain(name: str, value: Any, depth: int) -> bool:
    if not isinstance(name, str) or _WORD.fullmatch(name) is None:
        return False
    if name in _LENGTHS:  # others stand for no end
        return isinstance(value, (int, float)) and 1 <= value <= _LONGEST
    if name == "render_mode":
        return value in (None, "rgb_array")
    if isinstance(value, str):
        return _WORD.fullmatch(value) is not None and _PLACE.search(name) is None
    if isinstance(value, (list, tuple)):
        value = [(name, item) for item in value]
    elif isinstance(value, Mapping):
        value = list(value.items())
    elif isinstance(value, (int, float)):
        return abs(value) <= _LARGEST
    else:
        return value is None
    if depth == 0 or len(value) > _LARGEST:
        return False
    return all(_is_plain(key, item, depth - 1) for key, item in value)


def _size(value: Any) -> float:
    """Return the product of the numbers in an argument that exceed 1."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return math.prod(map(_size, value))
    return max(1.0, float(abs(value))) if isinstance(value, (int, float)) else 1.0


# -- Code that a saved policy names: imported or run only if the user trusts it.


def root_of(module: str, file: str) -> Path:
    """The directory in which Python finds the module of a file."""
    return Path(file).parents[module.count(".") + (Path(file).name == "__init__.py")]


def find_callable(name: str, module: str, file: str | None) -> Callable[..., Any]:
    """Import a module, or run the script ``file`` of ``__main__``; return its function or class.

    ``file`` is also where to look for a module that cannot be imported.
    """
    if file is not None:
        search_last(root_of(module, file))
    try:
        if module == "__main__":
            scope = _run_script(str(file))
        else:
            scope = vars(importlib.import_module(module))
    except (FileNotFoundError, ModuleNotFoundError) as error:
        raise ConfigError(
            f"the environment is made by {name} of the module {module} in {file}, which cannot be "
            f"imported here: {error}"
        ) from error
    if not callable(found := scope.get(name)):
        raise ConfigError(f"{file or module} has no {name} any more.")
    return found


@functools.cache
def _run_script(file: str) -> dict[str, Any]:
    """The names that a script defines; its ``__main__`` block does not run."""
    return runpy.run_path(file, run_name=ENV_SCRIPT)
