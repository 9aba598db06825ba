"""The usual wrappers of an environment that is given by its id."""

from __future__ import annotations

import copy
import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from gymnasium.envs.registration import EnvSpec

from ..make_group import find_spec
from . import atari, dm_control, minatar, minigrid
from .family import Family

FAMILIES: Final = (atari.FAMILY, minigrid.FAMILY, minatar.FAMILY, dm_control.FAMILY)
"""The families whose environments are wrapped."""


@dataclass(frozen=True)
class UsualWrappers:
    """An environment with the wrappers that are usual for it.

    Attributes:
        train: What is trained in; its keyword arguments are part of it.
        play: What the policy is evaluated in: whole episodes with their true returns.
        says: What was done, in a line.
    """

    train: EnvSpec
    play: EnvSpec
    says: str


def usual_wrappers(env: Any, env_kwargs: Mapping[str, Any] | None = None) -> UsualWrappers | None:
    """Return an environment with the wrappers that are usual for it.

    Args:
        env: An id or a specification.
        env_kwargs: Keyword arguments of the environment.

    Returns:
        It; ``None`` if none are usual, if it has wrappers already, or if it is given by a function,
        which wraps as it likes.

    Raises:
        ConfigError: If an argument does not go with the wrappers.
        MissingPackageError: If a package of a family is missing, or has no such environment.
    """
    if not isinstance(env, (str, EnvSpec)):
        return None
    family = family_of(env.rpartition(":")[2] if isinstance(env, str) else env.id)
    if family is None:
        return None
    spec = find_spec(env) if isinstance(env, str) else env
    if spec.additional_wrappers:
        return None
    bare = copy.deepcopy(spec)
    bare.kwargs = {**spec.kwargs, **family.kwargs, **(env_kwargs or {})}
    bare.vector_entry_point = None  # which knows nothing of the wrappers
    train, play = (
        dataclasses.replace(bare, additional_wrappers=family.wrappers(bare, training))
        for training in (True, False)
    )
    says = f"{spec.id} with the wrappers usual for {family.name}: {family.says(bare)}"
    return UsualWrappers(train, play, f"{says}; --no-usual-wrappers leaves them out")


def family_of(env_id: str) -> Family | None:
    """The family of an id; ``None`` if it is of none."""
    return next((family for family in FAMILIES if re.match(family.ids, env_id)), None)
