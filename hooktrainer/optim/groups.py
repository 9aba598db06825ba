"""`parameter_groups`: options of an optimizer by the names of parameters."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

from torch import nn

from ..base.words import listed
from ..errors import ConfigError


def parameter_groups(
    module: nn.Module, options: Mapping[str, Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Group the parameters of a module for an optimizer, by patterns of their names.

    Args:
        module: The module; parameters that need no gradient are left out.
        options: Options by pattern, as of a shell: ``"*.bias"``. The first pattern that fits a name
            decides; parameters that none fits have the optimizer's own options.

    Returns:
        One group for each pattern, and one for the rest, if any.

    Raises:
        ConfigError: If a pattern decides for no parameter.

    Examples:
        >>> groups = parameter_groups(nn.Linear(2, 3), {"bias": {"weight_decay": 0.0}})
        >>> [(len(group["params"]), group.get("weight_decay")) for group in groups]
        [(1, None), (1, 0.0)]
    """
    groups: dict[str | None, list[nn.Parameter]] = {None: [], **{name: [] for name in options}}
    names = []
    for name, parameter in module.named_parameters():
        if parameter.requires_grad:
            names.append(name)
            fits = (pattern for pattern in options if fnmatchcase(name, pattern))
            groups[next(fits, None)].append(parameter)
    for pattern in options:
        if not groups[pattern]:
            raise ConfigError(
                f"no parameter is left for the pattern {pattern!r}: the names are {listed(names)}, "
                "and the first pattern that fits decides."
            )
    return [
        {"params": members, **(options[pattern] if pattern is not None else {})}
        for pattern, members in groups.items()
        if members
    ]
