"""`ParallelWorld`: PettingZoo's parallel environments, in this process or in workers."""

from __future__ import annotations

import importlib
import importlib.util
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from gymnasium import spaces
from tensordict import NestedKey, unravel_key

from ...base.space_parts import MASK
from ...base.words import listed
from ...base.worker import WorkerPool
from ...errors import ConfigError, MissingPackageError
from ..episodes_collector import Workers
from ..group import EpisodeSeeds, begun, check_replayed
from ..info import InfoKeys, missing, number
from ..spaces import ObservationLayout, plain_mask
from ..worker_group import call, split, start_workers
from .world import (
    Advance,
    AgentGroup,
    AgentsWorld,
    Entries,
    Grouping,
    Spaces,
    agent_leaves,
    check_agents_info_keys,
    group_agents,
)

Array = npt.NDArray[Any]
Arrays = dict[NestedKey, Array]


class ParallelWorld(AgentsWorld):
    """PettingZoo parallel environments, in which all agents act at once until they leave.

    Each episode is seeded from the run's seed, the environment's index and the episode's index, as
    in `VectorCollector`. A running episode is saved as its actions and replayed from its seed.
    Continuous actions are clipped to their bounds. For an agent that has left, ``(group, "mask")``
    is false, the reward is 0, and the action mask allows everything. An episode ends when no agent
    is left; it is truncated if an agent of its last step was, else terminated.
    """

    shares = True
    agents_leave = True

    def __init__(
        self,
        make: Callable[[], Any],
        num_envs: int,
        name: str,
        groups: Grouping | None,
        info_keys: InfoKeys,
        first_env: int,
        device: torch.device | str,
        workers: Workers,
    ) -> None:
        self.name, self.num_envs, self.device = name, num_envs, torch.device(device)
        self._first_env = first_env
        self.pool = WorkerPool()
        self._shares = split(slice(0, num_envs), max(workers.number, 1))
        numbers = range(first_env, first_env + num_envs)
        made = [(make, name, numbers[share], groups, info_keys) for share in self._shares]
        if workers.number:
            shares = [[share] for share in self._shares]
            facts = start_workers(self.pool, ParallelEnvs, shares, made, workers.timeout)[0]
        else:
            self.envs = ParallelEnvs(*made[0])
            facts = self.envs.facts()
        self.groups, self.state_space = facts
        self.seed(0)

    def seed(self, seed: int) -> None:
        self._seeds = EpisodeSeeds(seed, self._first_env)
        self.episodes = [-1] * self.num_envs
        self._seen: list[Arrays] = [{}] * self.num_envs  # last
        self._played: list[list[dict[str, Array]]] = [[] for _ in range(self.num_envs)]

    def begin(self, envs: torch.Tensor | None = None) -> Entries:
        begun = range(self.num_envs) if envs is None else envs.nonzero().flatten().tolist()
        seeds: list[Any] = [None] * self.num_envs
        for env in begun:
            self.episodes[env] += 1
            self._played[env] = []
            seeds[env] = (self._seeds(env, self.episodes[env]),)
        answers = zip(self._seen, self._ask("reset", seeds), strict=True)
        self._seen = [new or old for old, new in answers]
        return self._joined(self._seen)

    def advance(self, actions: Mapping[str, torch.Tensor]) -> Advance:
        """Step the environments one after another; the workers do so in parallel."""
        taken = {name: action.detach().cpu().numpy().copy() for name, action in actions.items()}
        for env, steps in enumerate(self._played):
            steps.append({name: array[env] for name, array in taken.items()})
        parts = self._ask("step", [(steps[-1],) for steps in self._played])
        self._seen = [part[0] for part in parts]
        observation, *ends, entries = (self._joined(part) for part in zip(*parts, strict=True))
        return observation, *ends, entries

    def save(self) -> dict[str, Any]:
        return {
            "seed": self._seeds.seed,
            "episodes": list(self.episodes),
            "actions": [
                {
                    group.name: np.array([step[group.name] for step in steps])
                    for group in self.groups
                }
                for steps in self._played
            ],
            "seen": self._joined(self._seen),
        }

    def restore(self, state: Mapping[str, Any]) -> bool:
        self.seed(state["seed"])
        self.episodes = list(state["episodes"])
        if not state["seen"]:
            return True
        self._played = [
            [dict(zip(actions, step, strict=True)) for step in zip(*actions.values(), strict=True)]
            for actions in state["actions"]
        ]
        episodes = zip(self.episodes, self._played, strict=True)
        self._seen = self._ask(
            "replay", [(self._seeds(env, e), steps) for env, (e, steps) in enumerate(episodes)]
        )
        for env, seen in enumerate(self._seen):
            saved = [state["seen"][key][env].cpu().numpy() for key in seen]
            which = f"An episode of environment {self._first_env + env}, {self.name}"
            check_replayed(seen.values(), saved, which)
        return True

    def close(self) -> None:
        self.pool.close()
        if not self.pool:
            self.envs.close()

    def _ask(self, method: str, args: Sequence[tuple[Any, ...] | None]) -> list[Any]:
        if not self.pool:
            return self.envs.each(method, args)
        self.pool.settle()
        shares = self.pool.ask_all(lambda w: call("each", method, args[self._shares[w]]))
        return [answer for share in shares for answer in share]

    def _joined(self, envs: Sequence[Any]) -> Any:
        if isinstance(envs[0], dict):
            return {key: self._joined([env[key] for env in envs]) for key in envs[0]}
        return torch.from_numpy(np.stack(envs)).to(self.device)


class ParallelEnvs:
    """The environments of one process, the ``numbers`` of the run; returns ``[agents, ...]``."""

    def __init__(
        self,
        make: Callable[[], Any],
        name: str,
        numbers: Sequence[int],
        groups: Grouping | None,
        info_keys: InfoKeys,
    ) -> None:
        self._name, self._numbers = name, numbers
        self.envs = [checked_env(make(), name) for _ in numbers]
        env = self.envs[0]
        agents: Spaces = {
            agent: (env.observation_space(agent), env.action_space(agent))
            for agent in env.possible_agents
        }
        _, infos = begun(env, 0)
        masks = {agent: info[MASK] for agent, info in infos.items() if MASK in info}
        self.groups = group_agents(agents, groups, masks)
        self.state_space = _state_space_of(env)
        self._info_keys = check_agents_info_keys(info_keys, self.groups)
        # Of an agent that does not act: its reward, its ends, its infos.
        self._absent = {"reward": np.float32(0), "terminated": True, "truncated": False}
        self._absent |= dict.fromkeys(self._info_keys, np.float32(np.nan))
        self._places: dict[str, tuple[AgentGroup, int]] = {}
        # By group, with the keys in the order of the leaves, of which a mask may be the first.
        self._layouts: dict[str, tuple[ObservationLayout, list[NestedKey]]] = {}
        for group in self.groups:
            self._places |= {agent: (group, place) for place, agent in enumerate(group.agents)}
            mask = next((masks[a] for a in group.agents if a in masks), None)
            space, size = agents[group.agents[0]][0], group.action_format.mask_size
            layout = ObservationLayout(space, mask if group.mask_path == () else None, size)
            own = iter(group.keys)
            keys = [(group.name, MASK) if x.key == (MASK,) else next(own) for x in layout.leaves]
            self._layouts[group.name] = layout, keys
        self._blank = {
            unravel_key(leaf.key): np.full(leaf.shape, leaf.key[-1] == MASK, leaf.dtype)
            for leaf in agent_leaves(self.groups, self.state_space, leave=True)
        }

    def facts(self) -> tuple[tuple[AgentGroup, ...], spaces.Space[Any] | None]:
        return self.groups, self.state_space

    def each(self, method: str, args: Sequence[tuple[Any, ...] | None]) -> list[Any]:
        """Call a method for each environment that has arguments; ``None`` for the others."""
        run = getattr(self, method)
        return [None if own is None else run(env, *own) for env, own in enumerate(args)]

    def reset(self, env: int, seed: int) -> Arrays:
        """Begin an episode; returns the observations."""
        seen, infos = begun(self.envs[env], seed)
        self._check_agents("reset", env, seen)
        for agent in self.envs[env].agents:
            layout, _ = self._layouts[self._places[agent][0].name]
            layout.check(seen[agent], infos.get(agent) or {}, f"{self._name} ({agent})")
        return self._observed(env, seen, infos)

    def step(self, env: int, actions: Mapping[str, Array]) -> tuple[Any, ...]:
        """Step one environment; returns the parts of an `Advance`."""
        one = self.envs[env]
        taken = {group.name: _to_env(group, actions[group.name]) for group in self.groups}
        acted = {agent: self._places[agent] for agent in one.agents}
        seen, rewards, *ends, infos = one.step(
            {agent: taken[group.name][place] for agent, (group, place) in acted.items()}
        )
        self._check_agents("step", env, seen)
        where = f"{self._name} (environment {self._numbers[env]})"
        values: Arrays = {
            (group.name, key): np.full(len(group.agents), value)
            for group in self.groups
            for key, value in self._absent.items()
        }
        for agent, (group, place) in acted.items():
            values[group.name, "reward"][place] = reward_of(rewards, agent, where)
            for key, flags in zip(("terminated", "truncated"), ends, strict=True):
                values[group.name, key][place] = bool(flags.get(agent, False))
        is_over, is_cut = not one.agents, any(ends[1].get(agent, False) for agent in acted)
        self._write_infos(values, infos, where, is_over)
        return self._observed(env, seen, infos), is_over and not is_cut, is_over and is_cut, values

    def replay(self, env: int, seed: int, actions: Sequence[Mapping[str, Array]]) -> Arrays:
        """Play an episode again; returns its last observations."""
        seen = self.reset(env, seed)
        for action in actions:
            seen = self.step(env, action)[0]
        return seen

    def close(self) -> None:
        for env in self.envs:
            env.close()

    def _check_agents(self, call: str, env: int, seen: Mapping[str, Any]) -> None:
        there = self.envs[env].agents
        is_empty = call == "reset" and not there
        if is_empty or not set(there) <= seen.keys() or not seen.keys() <= self._places.keys():
            raise ConfigError(
                f"{call}() of {self._name} has the agents {listed(there) or 'none'}, of "
                f"possible_agents {listed(self._places)}, and observations of "
                f"{listed(seen) or 'none'}: name every agent, and give each that acts one."
            )

    def _observed(self, env: int, seen: Mapping[str, Any], infos: Mapping[str, Any]) -> Arrays:
        """The agents' observations, including the last of those that have just left."""
        found = {key: array.copy() for key, array in self._blank.items()}
        there = set(self.envs[env].agents)
        for agent, observed in seen.items():
            (group, place), acts = self._places[agent], agent in there
            layout, keys = self._layouts[group.name]
            values = layout.values(observed, (infos.get(agent) or {}) if acts else None)
            for key, value in zip(keys, values, strict=False):
                if key[-1] != MASK:
                    found[key][place] = value
                elif acts:
                    allowed = found[key][place] = plain_mask(value).astype(bool)
                    if group.action_format.leaves_nothing(allowed):
                        raise ConfigError(
                            f"{self._name}: {agent} got an action_mask that forbids every action "
                            f"in environment {self._numbers[env]}: let it allow one."
                        )
            found[group.name, "mask"][place] = acts
        if self.state_space is not None:
            found["state"][...] = self.envs[env].state()
        return found

    def _write_infos(
        self, values: Arrays, infos: Mapping[str, Any], where: str, is_last: bool
    ) -> None:
        for key in self._info_keys:
            told = {a: info[key] for a, info in infos.items() if key in (info or {})}
            for agent in told.keys() & self._places.keys():
                group, place = self._places[agent]
                values[group.name, key][place] = number(key, told[agent], f"{where} ({agent})")
            if not told and is_last:
                every = {k: v for info in infos.values() for k, v in (info or {}).items()}
                raise ConfigError(missing(key, every, f"all agents of {where}"))


def _to_env(group: AgentGroup, actions: Array) -> Array:
    space = group.action_space
    if isinstance(space, spaces.Box):
        actions = np.clip(actions, space.low, space.high)
    return group.action_format.to_env(actions)


# -- Finding and checking PettingZoo environments.


def pettingzoo_factory(name: str, kwargs: Mapping[str, Any]) -> Callable[[], Any]:
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
    if not hasattr(module, "parallel_env"):
        raise ConfigError(f"pettingzoo/{name} has no parallel_env: its agents act in turns.")
    return partial(module.parallel_env, **kwargs)


def checked_env(env: Any, name: str) -> Any:
    """Return the environment; raises ConfigError if it is not a PettingZoo parallel one."""
    needed = ("reset", "step", "observation_space", "action_space", "possible_agents")
    missing = [one for one in needed if not getattr(env, one, None)]
    if missing or hasattr(env, "agent_iter"):
        problem = f"has no {', '.join(missing)}" if missing else "has agents that act in turns"
        raise ConfigError(
            f"env={name}: made a {type(env).__name__}, which {problem}: give a function that makes "
            "a parallel environment of PettingZoo, such as parallel_env of its module."
        )
    return env


def reward_of(rewards: Mapping[str, Any], agent: str, where: str) -> float:
    """The reward of an agent that acted; raises ConfigError if it is not a single number."""
    reward = rewards.get(agent)
    if reward is None or np.size(reward) != 1:
        raise ConfigError(
            f"step() of {where} gave {agent} the reward {reward!r:.80}: every agent that acts gets "
            "a number, 0.0 if it earns nothing."
        )
    return float(np.asarray(reward).item())


def _state_space_of(env: Any) -> spaces.Space[Any] | None:
    try:
        state = np.asarray(env.state())
    except (NotImplementedError, AttributeError):
        return None
    return spaces.Box(-np.inf, np.inf, state.shape, np.float32)
