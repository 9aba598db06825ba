"""Packages that register environments with Gymnasium, told by the ids of these."""

from __future__ import annotations

import importlib
import importlib.util
import re
from dataclasses import dataclass
from typing import Final

from ..errors import MissingPackageError


@dataclass(frozen=True)
class EnvPackage:
    """A package of environments.

    Attributes:
        install: What ``pip install`` takes.
        module: What is imported.
        ids: A regular expression that its ids, and hardly any others, begin with.
        then: What to do once it is installed; by default to name the module before the id.
    """

    install: str
    module: str
    ids: str
    then: str = ""

    def advice(self, env_id: str) -> str:
        """What to do to get an environment of it."""
        missing = importlib.util.find_spec(self.module.split(".")[0]) is None
        install = f"pip install '{self.install}', then " if missing else ""
        then = self.then or f"write '{self.module}:{env_id}', which imports {self.module} first"
        return f"It comes with {self.install}: {install}{then}."


_ROBOTS = r"Fetch|HandReach|HandManipulate|AdroitHand|AntMaze|PointMaze|FrankaKitchen|MaMuJoCo"
_ROADS = r"(highway|merge|roundabout|parking|intersection|racetrack|exit|lane-keeping|u-turn)-"
_GAMES = r"(Alien|Asteroids|BeamRider|Boxing|Breakout|Enduro|Freeway|MontezumaRevenge|MsPacman|"
_GAMES += r"Pong|Qbert|Seaquest|SpaceInvaders)-v\d"

PACKAGES: Final = (
    EnvPackage("ale-py", "ale_py", rf"ALE/|\w+NoFrameskip-v\d|{_GAMES}"),
    EnvPackage("minigrid", "minigrid", r"MiniGrid-|BabyAI-"),
    EnvPackage("miniworld", "miniworld", r"MiniWorld-"),
    EnvPackage("gymnasium-robotics", "gymnasium_robotics", _ROBOTS),
    EnvPackage("shimmy[dm-control]", "shimmy", r"dm_control/"),
    EnvPackage("shimmy[bsuite]", "shimmy", r"bsuite/"),
    EnvPackage("popgym", "popgym", r"popgym-"),
    EnvPackage(
        "minatar",
        "minatar",
        r"MinAtar/",
        "call minatar.gym.register_envs() before the environment is made",
    ),
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
"""The packages known here."""


def package_of(env_id: str) -> EnvPackage | None:
    """The package whose environments have ids like this; ``None`` if none known here has."""
    return next((package for package in PACKAGES if re.match(package.ids, env_id)), None)


def import_registering(module: str) -> None:
    """Import a module that registers environments.

    Raises:
        MissingPackageError: If it is not installed; it says what to type.
    """
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] != module.split(".")[0]:
            raise
        known = next((p.install for p in PACKAGES if p.module == module), None)
        what = f"pip install '{known}'" if known else "is its name right, and is it installed?"
        raise MissingPackageError(
            f"there is no module {module!r} to register the environment: {what}", name=module
        ) from None
