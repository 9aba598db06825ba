"""Packages that register environments with Gymnasium, recognized by environment id."""

from __future__ import annotations

import importlib.util
import re
from dataclasses import dataclass
from types import ModuleType
from typing import Final

import gymnasium as gym

from ..errors import MissingPackageError
from .imports import import_place
from .lazy import import_optional
from .words import did_you_mean


@dataclass(frozen=True)
class EnvPackage:
    """A package of environments.

    Attributes:
        install: Argument of ``pip install``.
        module: The module to import.
        ids: A regular expression that matches the beginning of its ids.
        then: Advice after installing it; by default to prefix the id with the module.
        register: The module's function that registers them, if importing it does not.
    """

    install: str
    module: str
    ids: str
    then: str = ""
    register: str = ""

    @property
    def is_installed(self) -> bool:
        """Whether its module exists."""
        return importlib.util.find_spec(self.module.split(".")[0]) is not None

    def advice(self, env_id: str) -> str:
        """Return how to get one of its environments."""
        if not self.is_installed:
            then = f", then {self.then}" if self.then else ""
            return f"It comes with {self.install}: pip install '{self.install}'{then}."
        then = self.then or f"{self.module} is installed, but registers none of this name"
        near = did_you_mean(env_id, gym.registry, most=3)
        if self.module.startswith("hooktrainer."):
            return f"hooktrainer has no tensor environment of this name.{near}"
        return f"It comes with {self.install}: {then}.{near}"


_ROBOTS = r"Fetch|HandReach|HandManipulate|AdroitHand|AntMaze|PointMaze|FrankaKitchen|MaMuJoCo"
_ROADS = r"(highway|merge|roundabout|parking|intersection|racetrack|exit|lane-keeping|u-turn)-"
_GAMES = r"(Alien|Asteroids|BeamRider|Boxing|Breakout|Enduro|Freeway|MontezumaRevenge|MsPacman|"
_GAMES += r"Pong|Qbert|Seaquest|SpaceInvaders)-v\d"

PACKAGES: Final = (
    # Those of Gymnasium's environments that are tensors here.
    EnvPackage(
        "hooktrainer", "hooktrainer.collect.worlds.world_ids", r"torch/", register="register"
    ),
    EnvPackage("hooktrainer[atari]", "ale_py", rf"ALE/|\w+NoFrameskip-v\d|{_GAMES}"),
    EnvPackage("hooktrainer[minigrid]", "minigrid", r"MiniGrid-|BabyAI-"),
    EnvPackage("miniworld", "miniworld", r"MiniWorld-"),
    EnvPackage("hooktrainer[robotics]", "gymnasium_robotics", _ROBOTS),
    EnvPackage("hooktrainer[dm-control]", "shimmy", r"dm_control/"),
    EnvPackage("shimmy[bsuite]", "shimmy", r"bsuite/"),
    EnvPackage("hooktrainer[popgym]", "popgym", r"popgym-"),
    EnvPackage("hooktrainer[minatar]", "minatar.gym", r"MinAtar/", register="register_envs"),
    EnvPackage("highway-env", "highway_env", _ROADS),
    EnvPackage("panda-gym", "panda_gym", r"Panda(Reach|Push|Slide|PickAndPlace|Stack|Flip)"),
    EnvPackage("flappy-bird-gymnasium", "flappy_bird_gymnasium", r"FlappyBird-"),
    EnvPackage("metaworld", "metaworld", r"Meta-World/"),
    EnvPackage("vizdoom", "vizdoom.gymnasium_wrapper", r"Vizdoom"),
    EnvPackage(
        "hooktrainer[minari]",
        "minari",
        r"(D4RL|mujoco|minigrid)/[\w-]+/[\w-]+-v\d",
        "train on it with an offline algorithm, such as iql(dataset=...): it is a data set",
    ),
)
"""The known packages."""


def package_of(env_id: str, missing: str | None = None) -> EnvPackage | None:
    """Return the known package of an environment id, or ``None``.

    Args:
        env_id: The id.
        missing: A module that was not found: a tensor world is evaluated in the original.
    """
    found = next((package for package in PACKAGES if re.match(package.ids, env_id)), None)
    if missing is None or (found is not None and not found.is_installed):
        return found
    return next((one for one in PACKAGES if one.module.split(".")[0] == missing), found)


def register_known(env_id: str) -> None:
    """Import the package of an environment if it is known, installed and not imported yet."""
    package = package_of(env_id)
    if env_id in gym.registry or package is None or not package.is_installed:
        return
    module = import_optional(package.module, env_id, package.install)
    if package.register:
        getattr(module, package.register)()


def import_registering(module: str) -> ModuleType:
    """Import a module or file that has environments, or registers them."""
    try:
        return import_place(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] != module.split(".")[0]:
            raise
        known = next((p.install for p in PACKAGES if p.module == module), None)
        what = f"pip install '{known}'" if known else "is its name right, and is it installed?"
        raise MissingPackageError(
            f"there is no module {module!r} to register the environment: {what}", name=module
        ) from None
