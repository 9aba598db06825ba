"""`ParallelWorld`: PettingZoo's parallel environments, stepped one after another."""

from __future__ import annotations

import importlib
import importlib.util
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from operator import getitem
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from gymnasium import spaces
from tensordict import NestedKey

from ...base.space_parts import MASK
from ...base.words import listed
from ...errors import ConfigError, MissingPackageError, StateMismatchError
from ..group import EpisodeSeeds
from ..info import InfoKeys
from ..spaces import ObservationLayout, plain_mask
from .world import (
    AgentGroup,
    AgentInfos,
    Entries,
    Grouping,
    Spaces,
    WorldStep,
    check_agents_info_keys,
    group_agents,
)

Array = npt.NDArray[Any]
Arrays = dict[NestedKey, Array]


class ParallelWorld:
    """PettingZoo parallel environments, in which all agents act at once until they leave.

    Each episode is seeded from the run's seed, the environment's index and the episode's index, as
    in `VectorCollector`. A running episode is saved as its actions and replayed from its seed.
    Continuous actions are clipped to their bounds. For an agent that has left, ``(group, "mask")``
    is false, the reward is 0, and the action mask allows everything. An episode ends when no agent
    is left; it is truncated if an agent of its last step was, else terminated.

    Args:
        make: Makes one environment.
        num_envs: Number of environments.
        name: Name for messages.
        groups: Names of the agents by group; by default agents with equal spaces form a group.
        first_env: Index of the first environment in the run.
        device: Device of the tensors.
        info_keys: Keys of the agents' ``info`` that steps return.

    Raises:
        ConfigError: If ``make`` does not return a parallel environment, or the groups are invalid.
    """

    shares = True
    lost: str | None = None

    def __init__(
        self,
        make: Callable[[], Any],
        num_envs: int,
        name: str,
        groups: Grouping | None = None,
        first_env: int = 0,
        device: torch.device | str = "cpu",
        info_keys: InfoKeys = (),
    ) -> None:
        self.name = name
        self.num_envs = num_envs
        self.device = torch.device(device)
        self.episodes = [-1] * num_envs
        self._first_env = first_env
        self._envs = [checked_env(make(), name) for _ in range(num_envs)]
        env = self._envs[0]
        agents: Spaces = {
            agent: (env.observation_space(agent), env.action_space(agent))
            for agent in env.possible_agents
        }
        _, infos = env.reset(seed=0)
        masked = [agent for agent, info in infos.items() if MASK in info]
        self.groups = group_agents(agents, groups, masked)
        self._info_keys = check_agents_info_keys(info_keys, self.groups)
        self.state_space: spaces.Space[Any] | None = state_space_of(env)
        self._layouts = {g.name: ObservationLayout(g.observation_space) for g in self.groups}
        self._first_look = FirstLook(name, self.groups, agents, infos)
        self._actions: list[list[dict[str, Array]]] = [[] for _ in range(num_envs)]
        self._seen: Arrays = {}
        self.seed(0)

    def seed(self, seed: int) -> None:
        """Seed all environments and start at their first episodes."""
        self._seeds = EpisodeSeeds(seed, self._first_env)
        self.episodes = [-1] * self.num_envs
        self._seen = self._blank()

    def reset(self, envs: torch.Tensor | None = None) -> Entries:
        """Reset the environments."""
        self._seen = {key: array.copy() for key, array in self._seen.items()}
        which = range(self.num_envs) if envs is None else envs.nonzero().flatten().tolist()
        for env in which:
            self.episodes[env] += 1
            self._begin(env)
        return self._tensors(self._seen)

    def step(self, actions: Mapping[str, torch.Tensor]) -> WorldStep:
        """Step the environments one after another."""
        taken = {group.name: self._to_env(group, actions[group.name]) for group in self.groups}
        self._seen = self._blank()
        shapes = {group.name: (self.num_envs, len(group.agents)) for group in self.groups}
        rewards = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
        terminated = {name: np.ones(shape, bool) for name, shape in shapes.items()}
        truncated = {name: np.zeros(shape, bool) for name, shape in shapes.items()}
        ended = np.zeros((2, self.num_envs), bool)  # terminated, truncated
        infos = AgentInfos(self._info_keys, self.groups, self.num_envs)
        for env in range(self.num_envs):
            own = {name: array[env] for name, array in taken.items()}
            self._actions[env].append(own)
            acted, outcome = self._step(env, own)
            _, given, ended_of, cut_of, agent_infos = outcome
            where = f"{self.name} (environment {self._first_env + env})"
            for group in self.groups:
                for place, agent in enumerate(group.agents):
                    if agent not in acted:
                        continue
                    rewards[group.name][env, place] = reward_of(given, agent, where)
                    terminated[group.name][env, place] = bool(ended_of.get(agent, False))
                    truncated[group.name][env, place] = bool(cut_of.get(agent, False))
            is_last = not self._envs[env].agents
            infos.write(env, agent_infos, is_last, where)
            if is_last:
                cut = any(bool(cut_of.get(agent, False)) for agent in acted)
                ended[:, env] = (not cut, cut)
        ends, cuts = torch.from_numpy(ended).to(self.device)
        return WorldStep(
            self._tensors(self._seen),
            self._by_group(rewards),
            ends,
            cuts,
            self._by_group(terminated),
            self._by_group(truncated),
            infos.entries(self.device),
        )

    def state_dict(self) -> dict[str, Any]:
        """The actions of the running episodes and the last observations."""
        return {
            "seed": self._seeds.seed,
            "episodes": list(self.episodes),
            "actions": [
                {name: np.stack([step[name] for step in steps]) for name in steps[0]}
                if steps
                else {}
                for steps in self._actions
            ],
            "seen": {key: array.copy() for key, array in self._seen.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> bool:
        """Replay the running episodes.

        Raises:
            StateMismatchError: If a replayed episode ends in another observation.
        """
        self.seed(state["seed"])
        self.episodes = list(state["episodes"])
        for env, steps in enumerate(state["actions"]):
            if self.episodes[env] < 0:
                continue
            self._begin(env)
            for number in range(len(next(iter(steps.values()))) if steps else 0):
                own = {name: array[number] for name, array in steps.items()}
                self._actions[env].append(own)
                self._clear(env)
                if self._envs[env].agents:
                    self._step(env, own)
            for key, array in self._seen.items():
                if not np.array_equal(array[env], state["seen"][key][env], equal_nan=True):
                    raise StateMismatchError(
                        f"{self.name}: an episode that was played again from its seed took another "
                        f"course, as {key} of environment {self._first_env + env} shows: it "
                        "depends on more than reset(seed=) and the actions. Start a new run."
                    )
        return True

    def close(self) -> None:
        """Close all environments."""
        for env in self._envs:
            env.close()

    def _begin(self, env: int) -> None:
        self._clear(env)
        self._actions[env] = []
        seen, infos = self._envs[env].reset(seed=self._seeds(env, self.episodes[env]))
        if not self._envs[env].agents:
            raise ConfigError(f"{self.name} has no agents after reset().")
        self._first_look.check(self._envs[env].agents, seen, infos)
        self._write(env, seen, infos)

    def _step(self, env: int, actions: Mapping[str, Array]) -> tuple[list[str], Any]:
        """Step one environment; returns the agents that acted and the result."""
        one = self._envs[env]
        acted = list(one.agents)
        chosen = {
            agent: actions[group.name][place]
            for group in self.groups
            for place, agent in enumerate(group.agents)
            if agent in acted
        }
        outcome = one.step(chosen)
        self._write(env, outcome[0], outcome[4])
        return acted, outcome

    def _to_env(self, group: AgentGroup, actions: torch.Tensor) -> Array:
        """Convert a group's actions ``[num_envs, agents, ...]`` to the environments' format."""
        array = actions.detach().cpu().numpy()
        space = group.action_space
        if isinstance(space, spaces.Box):
            array = np.clip(array, space.low, space.high)
        flat = group.action_format.to_env(array.reshape(-1, *array.shape[2:]))
        return flat.reshape(*array.shape[:2], *flat.shape[1:])

    def _blank(self) -> Arrays:
        blank: Arrays = {}
        for group in self.groups:
            shape = (self.num_envs, len(group.agents))
            for key, leaf in zip(group.keys, group.leaves, strict=True):
                blank[key] = np.zeros((*shape, *leaf.shape), leaf.dtype)
            if group.has_mask:
                choices = group.action_format.mask_size
                blank[group.name, MASK] = np.ones((*shape, choices), bool)
            blank[group.name, "mask"] = np.zeros(shape, bool)
        if self.state_space is not None:
            size = tuple(self.state_space.shape or ())
            blank["state"] = np.zeros((self.num_envs, *size), np.float32)
        return blank

    def _clear(self, env: int) -> None:
        for key, array in self._seen.items():
            array[env] = key[-1] == MASK if isinstance(key, tuple) else False

    def _write(self, env: int, seen: Mapping[str, Any], infos: Mapping[str, Any]) -> None:
        """Write the agents' observations, including the last of those that have just left."""
        there = set(self._envs[env].agents)
        for group in self.groups:
            layout = self._layouts[group.name]
            for place, agent in enumerate(group.agents):
                if agent not in seen:
                    continue
                observation = seen[agent]
                if group.mask_path:
                    mask = reduce(getitem, group.mask_path, observation)
                else:
                    mask = (infos.get(agent) or {}).get(MASK)
                values = layout.observation_values(reduce(getitem, group.path, observation))
                for key, value in zip(group.keys, values, strict=True):
                    self._seen[key][env, place] = value
                self._seen[group.name, "mask"][env, place] = agent in there
                if group.has_mask and agent in there:
                    self._allow(group, env, place, mask)
        if self.state_space is not None:
            self._seen["state"][env] = self._envs[env].state()

    def _allow(self, group: AgentGroup, env: int, place: int, mask: Any) -> None:
        allowed = None if mask is None else plain_mask(mask).astype(bool)
        if allowed is None or group.action_format.leaves_nothing(allowed):
            given = "no action_mask" if mask is None else "an action_mask that forbids every action"
            raise ConfigError(
                f"{self.name}: {group.agents[place]} got {given} in environment "
                f"{self._first_env + env}: every agent that acts needs one that allows an action, "
                "at every step."
            )
        self._seen[group.name, MASK][env, place] = allowed

    def _by_group(self, arrays: Mapping[str, Array]) -> dict[str, torch.Tensor]:
        return {name: torch.from_numpy(array).to(self.device) for name, array in arrays.items()}

    def _tensors(self, arrays: Arrays) -> Entries:
        return {key: torch.from_numpy(array).to(self.device) for key, array in arrays.items()}


def joined_states(states: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Join the states of several workers' environments."""
    return {
        "seed": states[0]["seed"],
        "episodes": [episode for state in states for episode in state["episodes"]],
        "actions": [steps for state in states for steps in state["actions"]],
        "seen": {
            key: np.concatenate([state["seen"][key] for state in states])
            for key in states[0]["seen"]
        },
    }


def part_of_state(state: Mapping[str, Any], share: slice) -> dict[str, Any]:
    """The part of a state for one worker's environments."""
    return {
        "seed": state["seed"],
        "episodes": state["episodes"][share],
        "actions": state["actions"][share],
        "seen": {key: array[share] for key, array in state["seen"].items()},
    }


# -- Checks of the first observations of an episode.

ByAgent = Mapping[str, Any]


class FirstLook:
    """Checks the observations and masks that ``reset`` of a parallel environment returns."""

    def __init__(
        self, name: str, groups: Sequence[AgentGroup], agents: Spaces, infos: ByAgent
    ) -> None:
        self._name = name
        self._group_of = {agent: group for group in groups for agent in group.agents}
        self._layouts = {
            group.name: ObservationLayout(
                agents[group.agents[0]][0],
                next(infos[a][MASK] for a in group.agents if MASK in (infos.get(a) or {}))
                if group.mask_path == ()
                else None,
                group.action_format.mask_size,
            )
            for group in groups
        }

    def check(self, there: Sequence[str], seen: ByAgent, infos: ByAgent) -> None:
        """Raises ConfigError for unknown agents, and observations or masks that do not fit."""
        for agent in there:
            if agent not in self._group_of:
                raise ConfigError(
                    f"{self._name} has the agent {agent!r:.80} after reset(), and possible_agents "
                    f"are {listed(self._group_of)}: name every agent there may be."
                )
            if agent not in seen:
                raise ConfigError(
                    f"reset() of {self._name} gave no observation of {agent}, which acts: give one "
                    f"of each agent in agents; it gave those of {listed(seen) or 'none'}."
                )
            group, info = self._group_of[agent], infos.get(agent) or {}
            whose = f"{self._name} ({agent})"
            if group.mask_path == () and MASK not in info:
                raise ConfigError(
                    f"info[{MASK!r}] of {whose} is missing, and others of {group.name!r} have one: "
                    "let every agent of a group have a mask, at every step, or none."
                )
            self._layouts[group.name].check(seen[agent], info, whose)


# -- Finding and checking PettingZoo environments.


def pettingzoo_factory(name: str, kwargs: Mapping[str, Any]) -> Callable[[], Any]:
    """The factory of an environment called ``<family>/<name>``, such as ``mpe/simple_spread_v3``.

    Raises:
        ConfigError: If it does not exist or is not parallel.
        MissingPackageError: If a package it needs is not installed.
    """
    family, _, own = name.partition("/")
    if not own:
        raise ConfigError(
            f"env='pettingzoo/{name}': give the family too, such as pettingzoo/mpe/simple_spread_v3"
            "."
        )
    # Families that are now separate packages.
    home = {"mpe": "mpe2"}.get(family, f"pettingzoo.{family}")
    try:
        with warnings.catch_warnings():  # deprecation notices of other registries
            warnings.simplefilter("ignore")
            importlib.import_module(home)
            # Do not import to look a module up: the name may come from an untrusted file.
            if "." in own or importlib.util.find_spec(f"{home}.{own}") is None:
                raise ConfigError(
                    f"there is no environment 'pettingzoo/{name}': {home} has no {own!r}."
                )
            module = importlib.import_module(f"{home}.{own}")
    except ModuleNotFoundError as error:
        missing = str(error.name)
        extra = "hooktrainer[pettingzoo]" if missing.split(".")[0] in ("pettingzoo", "mpe2") else ""
        raise MissingPackageError(
            f"pettingzoo/{name} needs {missing}, which is not installed: pip install "
            f"'{extra or f'pettingzoo[{family}]'}'",
            name=missing,
        ) from error
    if not hasattr(module, "parallel_env"):
        raise ConfigError(
            f"pettingzoo/{name} has no parallel_env: its agents act in turns, which no algorithm "
            "here is for."
        )
    return partial(module.parallel_env, **kwargs)


def checked_env(env: Any, name: str) -> Any:
    """Return the environment; raises ConfigError if it is not a PettingZoo parallel one."""
    if hasattr(env, "agent_iter"):
        raise ConfigError(
            f"env={name}: made a {type(env).__name__}, whose agents act in turns (PettingZoo's "
            "AEC), which no algorithm here is for: give the function parallel_env of its module, "
            "or lambda: pettingzoo.utils.aec_to_parallel(...)."
        )
    needed = ("reset", "step", "observation_space", "action_space", "possible_agents")
    if missing := [one for one in needed if not hasattr(env, one)]:
        raise ConfigError(
            f"env={name}: made a {type(env).__name__}, which has no {', '.join(missing)}: give a "
            "function that makes a parallel environment of PettingZoo (ParallelEnv)."
        )
    if not env.possible_agents:
        raise ConfigError(f"env={name}: possible_agents is empty; name every agent there may be.")
    return env


def reward_of(rewards: Mapping[str, Any], agent: str, where: str) -> float:
    """The reward of an agent that acted; raises ConfigError if it is not a single number."""
    reward = rewards.get(agent)
    if reward is None or (np.ndim(reward) and np.size(reward) != 1):
        raise ConfigError(
            f"step() of {where} gave {agent} the reward {reward!r:.80}: every agent that acts gets "
            "a number, 0.0 if it earns nothing."
        )
    return float(np.asarray(reward).item())


def state_space_of(env: Any) -> spaces.Space[Any] | None:
    """The space of an environment's global state; ``None`` if it has none."""
    try:
        state = np.asarray(env.state())
    except (NotImplementedError, AttributeError):
        return None
    return spaces.Box(-np.inf, np.inf, state.shape, np.float32)
