"""PettingZoo's parallel environments, as Gymnasium's: the agents are a dimension of each array."""

from __future__ import annotations

import importlib
import importlib.util
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from tensordict import NestedKey

from ...base.space_parts import MASK, leaves_of
from ...base.tensordicts import nested
from ...base.words import listed
from ...errors import ConfigError, MissingPackageError
from ..action_format import JointActionFormat
from ..agent_groups import (
    AgentGroup,
    GroupsFormat,
    Spaces,
    check_agents_info_keys,
    entries_of,
    group_agents,
    space_of,
)
from ..batched_env import EnvOptions, reset_env
from ..buffers import Row
from ..info import missing_key, number
from ..scalar_envs import ScalarEnvs
from ..spaces import Array, ObservationLayout, plain_mask

Arrays = dict[NestedKey, Array]
ENTRIES = "entries"  # of the info


class ParallelEnv(gym.Env[Any, Any]):
    """A PettingZoo parallel environment, in which all agents act at once until they leave.

    One whose agents act in turns may be below: then ``(group, "mask")`` is true for the agent in
    turn alone. Rewards are those of each step, also of agents that wait.

    Observations are a dict by group, whose arrays are ``[agents, ...]``; actions are as the policy
    writes them, clipped to their bounds. The reward is the mean over all agents. For an agent that
    has left, ``(group, "mask")`` is false, the reward is 0, and the action mask allows everything.
    An episode ends when no agent is left; it is truncated if an agent of its last step was, else
    terminated. ``info["entries"]`` holds the entries of the agents; see `entries_of`.
    """

    def __init__(self, env: Any, name: str, options: EnvOptions) -> None:
        self.env, self._name = checked_env(env, name), name
        env = self.env
        self._base = getattr(env, "unwrapped", env)  # whose attributes are set
        agents: Spaces = {
            agent: (env.observation_space(agent), env.action_space(agent))
            for agent in env.possible_agents
        }
        _, infos = reset_env(env, 0, options.reset_options)
        masks = {agent: info[MASK] for agent, info in infos.items() if MASK in (info or {})}
        self.groups = group_agents(agents, options.groups, masks)
        state_shape = _state_shape_of(env)
        self.observation_space = space_of(self.groups, state_shape, leave=True)
        self._has_state = state_shape is not None
        self.action_space = GroupsFormat(self.groups).space
        self.info_keys = check_agents_info_keys(options.info_keys, self.groups)
        # Of an agent that does not act: its reward, its ends, its infos.
        self._absent = {"reward": np.float32(0), "terminated": True, "truncated": False}
        self._absent |= dict.fromkeys(self.info_keys, np.float32(np.nan))
        self._places: dict[str, tuple[AgentGroup, int]] = {}
        # By group, with the keys in the order of the leaves, of which a mask may be the first.
        self._layouts: dict[str, tuple[ObservationLayout, list[tuple[str, ...]]]] = {}
        for group in self.groups:
            self._places |= {agent: (group, place) for place, agent in enumerate(group.agents)}
            mask = next((masks[a] for a in group.agents if a in masks), None)
            space, size = agents[group.agents[0]][0], group.action_format.mask_size
            layout = ObservationLayout(space, mask if group.mask_path == () else None, size)
            own = iter(group.leaves)
            keys = [(MASK,) if x.key == (MASK,) else next(own).key for x in layout.leaves]
            self._layouts[group.name] = layout, keys
        self._blank = {
            leaf.key: np.full(leaf.shape, leaf.key[-1] == MASK, leaf.dtype)
            for leaf in leaves_of(self.observation_space)
        }

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        assert seed is not None
        seen, infos = reset_env(self.env, seed, options)
        self._check_agents("reset", seen)
        for agent in acting(self.env):
            layout, _ = self._layouts[self._places[agent][0].name]
            layout.check(seen[agent], infos.get(agent) or {}, f"{self._name} ({agent})")
        self._returns = {one.name: np.zeros(len(one.agents), np.float32) for one in self.groups}
        return self._observed(seen, infos), {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        env, taken = self.env, dict[str, Any]()
        for group in self.groups:
            form, chosen = group.action_format, action[group.name]
            joint = isinstance(form, JointActionFormat)
            taken[group.name] = form.each(chosen) if joint else form.to_env(chosen)
        acted = {agent: self._places[agent] for agent in env.agents}
        seen, rewards, *ends, infos = env.step(
            {agent: taken[group.name][place] for agent, (group, place) in acted.items()}
        )
        self._check_agents("step", seen)
        values: Arrays = {
            (group.name, key): np.full(len(group.agents), value)
            for group in self.groups
            for key, value in self._absent.items()
        }
        for agent, (group, place) in acted.items():
            values[group.name, "reward"][place] = reward_of(rewards, agent, self._name)
            for key, flags in zip(("terminated", "truncated"), ends, strict=True):
                values[group.name, key][place] = bool(flags.get(agent, False))
                if flags.get(agent, False) and agent in env.agents:
                    raise ConfigError(
                        f"step() of {self._name} has {agent} {key}, and still in agents: remove an "
                        "agent that has ended; the episode ends when none is left."
                    )
        is_over, is_cut = not env.agents, any(ends[1].get(agent, False) for agent in acted)
        self._write_infos(values, infos, is_over)
        for name, returns in self._returns.items():
            returns += values[name, "reward"]
            values[name, "episode_reward"] = returns
            values[name, "done"] = values[name, "terminated"] | values[name, "truncated"]
        for key in ("reward", "episode_reward", *self.info_keys):
            of_all = np.concatenate([values[group.name, key] for group in self.groups])
            there = of_all[~np.isnan(of_all)] if key in self.info_keys else of_all
            values[key] = there.mean() if len(there) else np.array(np.nan)
        observed = self._observed(seen, infos)
        return (
            observed,
            float(values["reward"]),
            is_over and not is_cut,
            is_over and is_cut,
            {ENTRIES: values},
        )

    def has_wrapper_attr(self, name: str) -> bool:
        return hasattr(self._base, name)

    def set_wrapper_attr(self, name: str, value: Any, *, force: bool = True) -> bool:
        setattr(self._base, name, value)
        return True

    def close(self) -> None:
        self.env.close()

    def __str__(self) -> str:
        return self._name

    def _check_agents(self, call: str, seen: Mapping[str, Any]) -> None:
        there = self.env.agents
        is_empty = call == "reset" and not there
        if is_empty or not set(there) <= seen.keys() or not seen.keys() <= self._places.keys():
            raise ConfigError(
                f"{call}() of {self._name} has the agents {listed(there) or 'none'}, of "
                f"possible_agents {listed(self._places)}, and observations of "
                f"{listed(seen) or 'none'}: name every agent, and give each that acts one."
            )

    def _observed(self, seen: Mapping[str, Any], infos: Mapping[str, Any]) -> dict[str, Any]:
        """The agents' observations, including the last of those that have just left."""
        found = {key: array.copy() for key, array in self._blank.items()}
        there = set(acting(self.env))
        for agent, observed in seen.items():
            (group, place), acts = self._places[agent], agent in there
            layout, keys = self._layouts[group.name]
            values = layout.values(observed, (infos.get(agent) or {}) if acts else None)
            for key, value in zip(keys, values, strict=False):
                full = (group.name, *key)
                array = found[full]
                if key[-1] != MASK:
                    array[place] = value
                elif acts:
                    allowed = array[place] = plain_mask(value).astype(bool)
                    if group.action_format.leaves_nothing(allowed):
                        raise ConfigError(
                            f"{self._name}: {agent} got an action_mask that forbids every action: "
                            "let it allow one."
                        )
            found[group.name, "mask"][place] = acts
        if self._has_state:
            found["state",][...] = self.env.state()
        return nested(found)

    def _write_infos(self, values: Arrays, infos: Mapping[str, Any], is_last: bool) -> None:
        for key in self.info_keys:
            told = {a: info[key] for a, info in infos.items() if key in (info or {})}
            for agent in told.keys() & self._places.keys():
                group, place = self._places[agent]
                values[group.name, key][place] = number(key, told[agent], f"{self._name} ({agent})")
            if not told and is_last:
                every = {k: v for info in infos.values() for k, v in (info or {}).items()}
                raise missing_key(key, every, f"all agents of {self._name}")


class ParallelEnvs(ScalarEnvs):
    """PettingZoo's parallel environments as an `ArrayEnv`."""

    def __init__(self, envs: Sequence[ParallelEnv], options: EnvOptions) -> None:
        if options.frame_skip not in (None, 1):
            raise ConfigError(
                f"frame_skip={options.frame_skip}: agents' actions are not repeated; leave it out."
            )
        super().__init__(envs, options)
        self.groups = envs[0].groups
        self.action_format = GroupsFormat(self.groups)
        self.entries = entries_of(self.groups, options.info_keys)

    def first_mask(self) -> None:
        return None  # those of the agents are observations

    def _write_entries(self, row: Row, infos: Sequence[dict[str, Any]]) -> None:
        for key, column in zip(self.entries, row.entries, strict=True):
            for i, info in enumerate(infos):
                column[i] = info[ENTRIES][key]


# -- Finding and checking PettingZoo environments.


def pettingzoo_factory(name: str) -> Callable[..., Any]:
    """The factory of an environment called ``<family>/<name>``, as ``mpe/simple_spread_v3``."""
    family, _, own = name.partition("/")
    # Families that are now separate packages.
    home = {"mpe": "mpe2"}.get(family, f"pettingzoo.{family}")
    try:
        with warnings.catch_warnings():  # deprecation notices of other registries
            warnings.simplefilter("ignore")
            # Do not import to look a module up: the name may come from an untrusted file.
            if not own.isidentifier() or importlib.util.find_spec(f"{home}.{own}") is None:
                raise ConfigError(
                    f"there is no environment 'pettingzoo/{name}': {home} has no {own!r}. Give "
                    "family and name, such as pettingzoo/mpe/simple_spread_v3."
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
    factory: Callable[..., Any] = getattr(module, "parallel_env", None) or module.env
    return factory


def checked_env(env: Any, name: str) -> Any:
    """Return the environment; one whose agents act in turns is made a parallel one.

    Raises:
        ConfigError: If it is no environment of PettingZoo.
    """
    needed = ("reset", "step", "observation_space", "action_space", "possible_agents")
    missing = [one for one in needed if not getattr(env, one, None)]
    if missing:
        raise ConfigError(
            f"env={name}: made a {type(env).__name__}, which has no {', '.join(missing)}: give a "
            "function that makes an environment of PettingZoo, such as parallel_env of its module."
        )
    return _with_turns(env)


class TurnBased:
    """Makes an environment of PettingZoo whose agents act in turns (AEC) a parallel one.

    As PettingZoo's ``turn_based_aec_to_parallel``, but rewards given to an agent that is over count
    until its last turn, where it leaves; and what the agent in turn observes is never out of date.
    """

    def __init__(self, aec_env: Any) -> None:
        self.aec_env = aec_env

    def __getattr__(self, name: str) -> Any:
        if name == "aec_env":  # before it is set, as in a copy
            raise AttributeError(name)
        return getattr(self.aec_env, name)

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        env = self.aec_env
        env.reset(seed=seed, options=options)
        return {agent: env.observe(agent) for agent in env.agents}, dict(env.infos)

    def step(self, actions: Mapping[str, Any]) -> tuple[Any, ...]:
        """Only the action of the agent in turn is taken."""
        env = self.aec_env
        env.step(actions[env.agent_selection])
        seen = {agent: env.observe(agent) for agent in env.agents}
        over = terminated, truncated = dict(env.terminations), dict(env.truncations)
        rewards, infos = dict(env.rewards), dict(env.infos)
        while env.agents and any(ends[env.agent_selection] for ends in over):
            env.step(None)
        for agent in env.agents:
            seen[agent] = env.observe(agent)
            terminated[agent] = truncated[agent] = False  # until its last turn
        return seen, rewards, terminated, truncated, infos


def _with_turns(env: Any) -> Any:
    """Replace an environment whose agents act in turns, also below wrappers of parallel ones."""
    name = type(env).__name__
    if name == "turn_based_aec_to_parallel_wrapper":
        return TurnBased(env.aec_env)
    if name != "TurnBased" and hasattr(env, "agent_iter"):
        return TurnBased(env)
    inner = getattr(env, "__dict__", {}).get("env")
    if inner is not None and (made := _with_turns(inner)) is not inner:
        env.env = made
    return env


def acting(env: Any) -> list[str]:
    """The agents of a parallel environment that act in the next step."""
    agents = env.agents
    while env is not None and not isinstance(env, TurnBased):  # which may be below wrappers
        env = getattr(env, "__dict__", {}).get("env")
    return [agent for agent in agents if env is None or agent == env.agent_selection]


def reward_of(rewards: Mapping[str, Any], agent: str, where: str) -> float:
    """The reward of an agent that acted; raises ConfigError if it is not a single number."""
    reward = rewards.get(agent)
    if reward is None or np.size(reward) != 1:
        raise ConfigError(
            f"step() of {where} gave {agent} the reward {reward!r:.80}: every agent that acts gets "
            "a number, 0.0 if it earns nothing."
        )
    return float(np.asarray(reward).item())


def _state_shape_of(env: Any) -> tuple[int, ...] | None:
    try:
        return np.asarray(env.state()).shape
    # TypeError: games such as rps_v2 have an attribute of this name that is no method.
    except (NotImplementedError, AttributeError, TypeError):
        return None
