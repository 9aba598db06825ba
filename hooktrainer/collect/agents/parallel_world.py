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
from ...base.worker import Worker, WorkerPool
from ...errors import ConfigError, MissingPackageError, StateMismatchError
from ..collector import TIMEOUT
from ..group import EpisodeSeeds
from ..info import InfoKeys, missing, number
from ..spaces import ObservationLayout, plain_mask
from ..worker_group import call, serve
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
        groups: Grouping | None = None,
        first_env: int = 0,
        device: torch.device | str = "cpu",
        info_keys: InfoKeys = (),
        workers: int = 0,
        timeout: float = TIMEOUT,
    ) -> None:
        self.name, self.num_envs, self.device = name, num_envs, torch.device(device)
        self._first_env = first_env
        self.pool = WorkerPool()
        parts = np.array_split(range(num_envs), max(workers, 1))
        self._shares = [slice(int(part[0]), int(part[-1]) + 1) for part in parts]
        made = [
            (make, share.stop - share.start, name, groups, first_env + share.start, info_keys)
            for share in self._shares
        ]
        if not workers:
            self.envs = ParallelEnvs(*made[0])
            facts = [self.envs.facts()]
        else:
            try:
                for place, share in enumerate(self._shares):
                    title = f"worker {place} (environments {share.start}-{share.stop - 1})"
                    worker = Worker(title, serve, ParallelEnvs, *made[place], timeout=timeout)
                    self.pool.add(worker)
                facts = [worker.receive_object() for worker in self.pool.workers]
            except BaseException:
                self.close()
                raise
        self.groups, self.state_space = facts[0]
        self.seed(0)

    def seed(self, seed: int) -> None:
        """Seed all environments and start at their first episodes."""
        self._seeds = EpisodeSeeds(seed, self._first_env)
        self.episodes = [-1] * self.num_envs
        self._seen: Entries = {}
        self._played: list[list[dict[str, Array]]] = [[] for _ in range(self.num_envs)]

    def begin(self, envs: torch.Tensor | None = None) -> Entries:
        """Start episodes in ``envs``, or in all."""
        seeds: list[int | None] = [None] * self.num_envs
        for env in range(self.num_envs) if envs is None else envs.nonzero().flatten().tolist():
            self.episodes[env] += 1
            self._played[env] = []
            seeds[env] = self._seeds(env, self.episodes[env])
        self._seen = self._joined(self._ask("reset", lambda share: (seeds[share],)))
        return self._seen

    def advance(self, actions: Mapping[str, torch.Tensor]) -> Advance:
        """Step the environments one after another; the workers do so in parallel."""
        taken = {name: action.detach().cpu().numpy().copy() for name, action in actions.items()}
        return self._advance(taken, [True] * self.num_envs)

    def _advance(self, taken: Mapping[str, Array], envs: Sequence[bool]) -> Advance:
        for env, steps in enumerate(self._played):
            if envs[env]:
                steps.append({name: array[env] for name, array in taken.items()})
        parts = self._ask("advance", lambda share: (_rows(taken, share), envs[share]))
        advance = Advance(*[self._joined(part) for part in zip(*parts, strict=True)])
        self._seen = advance.observation
        return advance

    def save(self) -> dict[str, Any]:
        """The actions of the running episodes and the last observations."""
        return {
            "seed": self._seeds.seed,
            "episodes": list(self.episodes),
            "actions": [
                {name: np.stack([step[name] for step in steps]) for name in steps[0]}
                if steps
                else {}
                for steps in self._played
            ],
            "seen": {key: seen.clone() for key, seen in self._seen.items()},
        }

    def restore(self, state: Mapping[str, Any]) -> bool:
        """Replay the running episodes."""
        self.seed(state["seed"])
        if not state["seen"]:
            self.episodes = list(state["episodes"])
            return True
        self.episodes = [episode - 1 for episode in state["episodes"]]
        self.begin()
        lengths = [max(map(len, steps.values()), default=0) for steps in state["actions"]]
        longest = state["actions"][int(np.argmax(lengths))]
        for t in range(max(lengths)):
            taken = {
                name: np.stack(
                    [
                        (steps if t < length else longest)[name][t]
                        for steps, length in zip(state["actions"], lengths, strict=True)
                    ]
                )
                for name in longest
            }
            self._advance(taken, [t < length for length in lengths])
        for key, seen in self._seen.items():
            for env, (one, saved) in enumerate(zip(seen, state["seen"][key], strict=True)):
                if not np.array_equal(one.cpu(), saved.cpu(), equal_nan=True):
                    raise StateMismatchError(
                        f"{self.name}: an episode that was played again from its seed took another "
                        f"course, as {key} of environment {self._first_env + env} shows: it "
                        "depends on more than reset(seed=) and the actions. Start a new run."
                    )
        return True

    def close(self) -> None:
        """Close all environments. Safe to call again."""
        self.pool.close()
        if not self.pool.workers:
            self.envs.close()

    def _ask(self, name: str, args: Callable[[slice], tuple[Any, ...]]) -> list[Any]:
        """Call a method of every share's `ParallelEnvs`, and return the results."""
        if not self.pool.workers:
            return [getattr(self.envs, name)(*args(self._shares[0]))]
        self.pool.settle()
        return self.pool.ask_all(lambda w: call(name, *args(self._shares[w])))

    def _joined(self, parts: Sequence[Any]) -> Any:
        """Join the shares' arrays, or dicts of arrays, to tensors of all environments."""
        if isinstance(parts[0], dict):
            return {key: self._joined([part[key] for part in parts]) for key in parts[0]}
        array = parts[0] if len(parts) == 1 else np.concatenate(parts)
        return torch.from_numpy(array).to(self.device)


def _rows(arrays: Mapping[Any, Array], share: slice) -> dict[Any, Array]:
    return {key: array[share] for key, array in arrays.items()}


class ParallelEnvs:
    """The environments of one process, as arrays; the arguments are those of `ParallelWorld`."""

    def __init__(
        self,
        make: Callable[[], Any],
        num_envs: int,
        name: str,
        groups: Grouping | None,
        first_env: int,
        info_keys: InfoKeys,
    ) -> None:
        self._name, self._first_env, self.num_envs = name, first_env, num_envs
        self.envs = [checked_env(make(), name) for _ in range(num_envs)]
        env = self.envs[0]
        agents: Spaces = {
            agent: (env.observation_space(agent), env.action_space(agent))
            for agent in env.possible_agents
        }
        _, infos = env.reset(seed=0)
        masked = [agent for agent, info in infos.items() if MASK in info]
        self.groups = group_agents(agents, groups, masked)
        self.state_space = state_space_of(env)
        self._info_keys = check_agents_info_keys(info_keys, self.groups)
        self._places = {
            agent: (group, place)
            for group in self.groups
            for place, agent in enumerate(group.agents)
        }
        self._layouts: dict[str, ObservationLayout] = {}
        # In the order of the layouts' leaves, of which a mask may be the first.
        self._keys: dict[str, list[NestedKey]] = {}
        for group in self.groups:
            mask = None
            if group.mask_path == ():
                mask = next(infos[a][MASK] for a in group.agents if MASK in infos.get(a, ()))
            space, size = agents[group.agents[0]][0], group.action_format.mask_size
            layout = self._layouts[group.name] = ObservationLayout(space, mask, size)
            keys = iter(group.keys)
            self._keys[group.name] = [
                (group.name, MASK) if leaf.key == (MASK,) else next(keys) for leaf in layout.leaves
            ]
        self._seen = self._blank()

    def facts(self) -> tuple[tuple[AgentGroup, ...], spaces.Space[Any] | None]:
        """The agents by group, and the space of the global state."""
        return self.groups, self.state_space

    def reset(self, seeds: Sequence[int | None]) -> Arrays:
        """Begin an episode where there is a seed; returns the observations."""
        self._seen = {key: array.copy() for key, array in self._seen.items()}
        for env, seed in enumerate(seeds):
            if seed is not None:
                self._begin(env, seed)
        return self._seen

    def advance(self, actions: Mapping[str, Array], envs: Sequence[bool]) -> list[Any]:
        """Step the environments ``envs``; returns the fields of an `Advance`, as arrays."""
        taken = {group.name: self._to_env(group, actions[group.name]) for group in self.groups}
        self._seen = {key: array.copy() for key, array in self._seen.items()}
        rewards, ends = self._full(np.float32(0)), np.zeros((2, self.num_envs), bool)
        kinds = {"terminated": True, "truncated": False}
        kinds |= dict.fromkeys(self._info_keys, np.float32(np.nan))
        said: Arrays = {
            (name, key): array
            for key, value in kinds.items()
            for name, array in self._full(value).items()
        }
        for env, one in enumerate(self.envs):
            if not envs[env] or not one.agents:
                continue
            own = {name: array[env] for name, array in taken.items()}
            acted, (_, given, terminated, truncated, infos) = self._step(env, own)
            where = f"{self._name} (environment {self._first_env + env})"
            for agent in acted:
                group, place = self._places[agent]
                rewards[group.name][env, place] = reward_of(given, agent, where)
                for flag, flags in (("terminated", terminated), ("truncated", truncated)):
                    said[group.name, flag][env, place] = bool(flags.get(agent, False))
            self._write_infos(said, env, infos, where)
            if not one.agents:
                is_cut = any(bool(truncated.get(agent, False)) for agent in acted)
                ends[:, env] = (not is_cut, is_cut)
        return [self._seen, rewards, *ends, said]

    def close(self) -> None:
        """Close all environments."""
        for env in self.envs:
            env.close()

    def _begin(self, env: int, seed: int) -> None:
        self._clear(env)
        seen, infos = self.envs[env].reset(seed=seed)
        there = self.envs[env].agents
        if not there or not set(there) <= self._places.keys() & seen.keys():
            raise ConfigError(
                f"reset() of {self._name} has the agents {listed(there) or 'none'}, of "
                f"possible_agents {listed(self._places)}, and observations of "
                f"{listed(seen) or 'none'}: name every agent, and give each that acts one."
            )
        for agent in there:
            layout = self._layouts[self._places[agent][0].name]
            layout.check(seen[agent], infos.get(agent) or {}, f"{self._name} ({agent})")
        self._write(env, seen, infos)

    def _step(self, env: int, actions: Mapping[str, Array]) -> tuple[list[str], Any]:
        """Step one environment; returns the agents that acted and the result."""
        acted = list(self.envs[env].agents)
        chosen = {
            agent: actions[group.name][place]
            for agent, (group, place) in self._places.items()
            if agent in acted
        }
        outcome = self.envs[env].step(chosen)
        self._clear(env)
        self._write(env, outcome[0], outcome[4])
        return acted, outcome

    def _to_env(self, group: AgentGroup, array: Array) -> Array:
        """Convert a group's actions ``[num_envs, agents, ...]`` to the environments' format."""
        space = group.action_space
        if isinstance(space, spaces.Box):
            array = np.clip(array, space.low, space.high)
        flat = group.action_format.to_env(array.reshape(-1, *array.shape[2:]))
        return flat.reshape(*array.shape[:2], *flat.shape[1:])

    def _full(self, value: Any) -> dict[str, Array]:
        """By group an array ``[num_envs, agents]`` full of a value."""
        return {g.name: np.full((self.num_envs, len(g.agents)), value) for g in self.groups}

    def _blank(self) -> Arrays:
        leaves = agent_leaves(self.groups, self.state_space, leave=True)
        return {
            unravel_key(leaf.key): np.full(
                (self.num_envs, *leaf.shape), leaf.key[-1] == MASK, leaf.dtype
            )
            for leaf in leaves
        }

    def _clear(self, env: int) -> None:
        for key, array in self._seen.items():
            array[env] = key[-1] == MASK if isinstance(key, tuple) else False

    def _write(self, env: int, seen: Mapping[str, Any], infos: Mapping[str, Any]) -> None:
        """Write the agents' observations, including the last of those that have just left."""
        there = set(self.envs[env].agents)
        for agent, observed in seen.items():
            group, place = self._places[agent]
            layout, acts = self._layouts[group.name], agent in there
            values = layout.values(observed, (infos.get(agent) or {}) if acts else None)
            for key, value in zip(self._keys[group.name], values, strict=False):
                if key[-1] != MASK:
                    self._seen[key][env, place] = value
                elif acts:
                    allowed = self._seen[key][env, place] = plain_mask(value).astype(bool)
                    if group.action_format.leaves_nothing(allowed):
                        raise ConfigError(
                            f"{self._name}: {agent} got an action_mask that forbids every action "
                            f"in environment {self._first_env + env}: let it allow one."
                        )
            self._seen[group.name, "mask"][env, place] = acts
        if self.state_space is not None:
            self._seen["state"][env] = self.envs[env].state()

    def _write_infos(
        self, said: Mapping[Any, Array], env: int, infos: Mapping[str, Any], where: str
    ) -> None:
        """Write one environment's infos; at an episode's end an agent has to report each key."""
        for key in self._info_keys:
            told = {
                a: info[key]
                for a, info in infos.items()
                if a in self._places and key in (info or {})
            }
            for agent, value in told.items():
                group, place = self._places[agent]
                said[group.name, key][env, place] = number(key, value, f"{where} ({agent})")
            if not told and not self.envs[env].agents:
                every = {k: v for info in infos.values() for k, v in (info or {}).items()}
                raise ConfigError(missing(key, every, f"all agents of {where}"))


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
