"""`VmasWorld`: scenarios of VMAS, the vectorized multi-agent simulator."""

from __future__ import annotations

import enum
import random
import types
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr
from functools import reduce
from io import StringIO
from operator import getitem
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from tensordict import NestedKey
from torch.utils import _pytree as pytree

from ...base.lazy import import_optional
from ...base.words import did_you_mean, listed
from ...errors import ConfigError, StateMismatchError
from ...store.rng import rng_state, set_rng_state, undisturbed
from ..agent_groups import Grouping, check_agents_info_keys, group_agents, space_of
from ..info import InfoKeys, missing_key
from ..tensor_envs import info_column
from ..worlds.adapters.foreign_world import gymnasium_space
from ..worlds.functional_world import select
from ..worlds.tensor_world import Outcome, TensorWorld
from ..worlds.world_ids import refused_in_one_line

Entries = dict[NestedKey, torch.Tensor]
Advance = tuple[Entries, torch.Tensor, torch.Tensor, Entries]
"""The result of `VmasWorld.advance`."""

_MAX_STEPS = 100


class VmasWorld(TensorWorld):
    """A VMAS scenario: all environments are one batch of tensors.

    Observations and actions are by group, ``[num_envs, agents, ...]``; the reward is the mean over
    all agents, ``Outcome.entries`` are those of `entries_of`.
    Continuous actions are clipped to their bounds. When some episodes end, all environments are
    reset at once and the rows of the others are restored, so that ten resets cost as much as one.
    If a scenario's reset changes more than rows of tensors, its environments are reset one by one.
    Episodes are truncated after ``max_steps`` of ``kwargs``, 100 by default, ``None`` for no limit.
    """

    shares = False
    sets_rng = True
    frame_skip = 1
    lost: str | None = None

    def __init__(
        self,
        scenario: Any,
        num_envs: int,
        device: torch.device | str = "cpu",
        groups: Grouping | None = None,
        kwargs: Mapping[str, Any] | None = None,
        info_keys: InfoKeys = (),
    ) -> None:
        self.num_envs = num_envs
        self.episodes = [-1] * num_envs
        self.device = torch.device(device)
        self.name = f"vmas/{scenario}" if isinstance(scenario, str) else scenario.__qualname__
        self.env = _make(scenario, self.name, num_envs, self.device, kwargs or {})
        agents = {
            agent.name: (gymnasium_space(observed, self.name), gymnasium_space(taken, self.name))
            for agent, observed, taken in zip(
                self.env.agents, self.env.observation_space, self.env.action_space, strict=True
            )
        }
        self.groups = group_agents(agents, groups)
        self.observation_space = space_of(self.groups, None, leave=False)
        self.action_space = spaces.Dict({one.name: one.action_space for one in self.groups})
        self._returns: dict[str, torch.Tensor] = {}
        self._info_keys = check_agents_info_keys(info_keys, self.groups)
        self._agents = {agent.name: agent for agent in self.env.agents}
        self._state = ObjectState(self.env)
        self._rng: dict[str, Any] = {}
        self._row_by_row = False
        self.seed(0)
        self.lost = self._try_out()
        self._row_by_row = self.lost is not None

    def seed(self, seed: int) -> None:
        """Seed the random generators. VMAS draws from one stream for all environments."""
        with self._random_numbers():
            numbers = np.random.SeedSequence(seed).generate_state(3, np.uint32).tolist()
            random.seed(numbers[0])
            np.random.seed(numbers[1])
            torch.manual_seed(numbers[2])

    def reset(self) -> Entries:
        self._returns = {
            group.name: torch.zeros(self.num_envs, len(group.agents), device=self.device)
            for group in self.groups
        }
        return self.begin()

    def step(self, actions: Mapping[str, torch.Tensor]) -> Outcome:
        final, terminated, truncated, entries = self.advance(actions)
        for name, returns in self._returns.items():
            self._returns[name] = entries[name, "episode_reward"] = (
                returns + entries[name, "reward"]
            )
            for key, of_all in ("terminated", terminated), ("truncated", truncated):
                entries[name, key] = of_all.unsqueeze(-1).expand_as(returns)
            entries[name, "done"] = entries[name, "terminated"] | entries[name, "truncated"]
        for key in ("reward", "episode_reward", *self._info_keys):
            of_all = torch.cat([entries[name, key] for name in self._returns], 1)
            entries[key] = of_all.nanmean(1) if key in self._info_keys else of_all.mean(1)
        done, following = terminated | truncated, final
        if bool(done.any()):
            following = select(done, self.begin(done), final)
            for name, returns in self._returns.items():
                self._returns[name] = returns.masked_fill(done.unsqueeze(-1), 0.0)
        reward = entries.pop("reward")
        return Outcome(following, reward, terminated, truncated, final, entries=entries)

    def begin(self, envs: torch.Tensor | None = None) -> Entries:
        """Start episodes in ``envs``, bool ``[num_envs]``, or in all; return the observations.

        Those of the other environments are not valid.
        """
        with self._random_numbers():
            if envs is None or bool(envs.all()):
                self._reset_all()
            elif self._row_by_row or not self._reset_rows(envs):
                self._row_by_row = True
                for env in envs.nonzero().flatten().tolist():
                    self.env.scenario.env_reset_world_at(env)
                    self.env.steps[env] = 0
            return self._observe()

    def advance(self, actions: Mapping[str, torch.Tensor]) -> Advance:
        """Step all environments, and reset none.

        Returns:
            The observations, at an episode's end the true final ones; whether the episode ended in
            a terminal state, and whether it was truncated, bool ``[num_envs]``; and by
            ``(group, name)`` the rewards and the info keys, float32 ``[num_envs, agents]``.
        """
        env, scenario = self.env, self.env.scenario
        with self._random_numbers():
            for group in self.groups:
                taken = actions[group.name].to(self.device)
                for action, name in zip(taken.unbind(1), group.agents, strict=True):
                    flat = action if action.ndim > 1 else action.unsqueeze(-1)
                    env._set_action(flat, self._agents[name])
            for agent in env.world.agents:  # scripted ones included
                scenario.env_process_action(agent)
            scenario.pre_step()
            env.world.step()
            scenario.post_step()
            env.steps = env.steps + 1
            # In the simulator's order: scenarios compute shared values with the first agent.
            rewards = {agent.name: scenario.reward(agent).flatten() for agent in env.agents}
            entries = self._observe()
            infos = self._infos()
            terminated = scenario.done().flatten().clone()
        limit = env.max_steps
        truncated = torch.zeros_like(terminated) if limit is None else env.steps >= limit
        for group in self.groups:
            own = torch.stack([rewards[name] for name in group.agents], 1).float()
            infos[group.name, "reward"] = own
        return entries, terminated, truncated, infos

    def state_dict(self) -> dict[str, Any]:
        objects = None if self.lost else copied(self._state.read())
        rest = {"rng": self._rng, "row_by_row": self._row_by_row}
        return {"objects": objects, "returns": dict(self._returns), **rest}

    def load_state_dict(self, state: Mapping[str, Any]) -> bool:
        returns = state["returns"].items()
        self._returns = {name: value.to(self.device) for name, value in returns}
        self._rng, self._row_by_row = dict(state["rng"]), state["row_by_row"]
        if state["objects"] is None:
            return False
        self._state.write(copied(state["objects"], lambda x: x.to(self.device, copy=True)))
        return True

    def render(self, mode: str) -> Any:
        with self._random_numbers():
            return self.env.render(mode=mode)

    def close(self) -> None:
        if self.env.viewer is not None:
            self.env.viewer.close()
            self.env.viewer = None

    def _reset_all(self) -> None:
        self.env.scenario.env_reset_world_at(None)
        self.env.steps = torch.zeros(self.num_envs, device=self.device)

    def _reset_rows(self, envs: torch.Tensor) -> bool:
        """Reset all, then restore the other rows; returns whether that was possible."""
        before = copied(self._state.read())
        self._reset_all()
        if self._state.keep_rows(before, ~envs):
            return True
        self._state.write(before)
        return False

    def _observe(self) -> Entries:
        seen = {agent.name: self.env.scenario.observation(agent) for agent in self.env.agents}
        entries: Entries = {}
        for group in self.groups:
            for key, leaf in zip(group.keys, group.leaves, strict=True):
                parts = [reduce(getitem, leaf.path, seen[name]) for name in group.agents]
                entries[key] = torch.stack(parts, 1).float()
        return entries

    def _infos(self) -> Entries:
        if not self._info_keys:
            return {}
        infos = {agent.name: self.env.scenario.info(agent) for agent in self.env.agents}
        every = {k: v for info in infos.values() for k, v in info.items()}
        for key in self._info_keys:
            if key not in every:
                raise missing_key(key, every, f"all agents of {self.name}")
        rest = (self.num_envs, self.device)
        return {
            (group.name, key): torch.stack(
                [info_column(key, infos[a], f"{self.name} ({a})", *rest) for a in group.agents], 1
            )
            for key in self._info_keys
            for group in self.groups
        }

    def _try_out(self) -> str | None:
        """Step once and restore the state; returns why that fails, or ``None``."""
        try:
            self.begin()
            state = self.state_dict()
            shapes = {one.name: (len(one.agents), *one.action_format.shape) for one in self.groups}
            self.advance(
                {name: torch.zeros(self.num_envs, *shape) for name, shape in shapes.items()}
            )
            self._state.read()
            self.load_state_dict(state)
        except StateMismatchError as error:
            return f"{self.name}: {error}"
        return None

    @contextmanager
    def _random_numbers(self) -> Iterator[None]:
        with undisturbed():
            if self._rng:
                set_rng_state(self._rng)
            try:
                yield
            finally:
                self._rng = rng_state()


def import_vmas(name: str) -> Any:
    """Import VMAS; ``name`` is the feature that needs it, for the MissingPackageError."""
    with redirect_stderr(StringIO()):
        return import_optional("vmas", name, "hooktrainer[vmas]")


def _make(
    scenario: Any, name: str, num_envs: int, device: torch.device, kwargs: Mapping[str, Any]
) -> Any:
    vmas = import_vmas(name)
    if isinstance(scenario, str):
        known = [*vmas.scenarios, *vmas.mpe_scenarios, *vmas.debug_scenarios]
        if scenario not in known:
            near = did_you_mean(name, [f"vmas/{one}" for one in known])
            there = listed(known, most=len(known))
            raise ConfigError(f"there is no scenario {name!r}.{near} VMAS has {there}.")
        made = scenario
    else:
        made = scenario()
    options = {"max_steps": _MAX_STEPS, "clamp_actions": True, **kwargs}
    # VMAS makes its simulators with random numbers that they all share.
    vmas.simulator.environment.Environment.vmas_random_state[:] = [
        torch.Generator().manual_seed(0).get_state(),
        np.random.RandomState(0).get_state(),
        random.Random(0).getstate(),
    ]
    given = f"{name} cannot be made with env_kwargs={dict(kwargs)}" if kwargs else ""
    with (
        refused_in_one_line(given),
        warnings.catch_warnings(record=True) as caught,
    ):
        warnings.simplefilter("always")
        env = vmas.make_env(made, num_envs=num_envs, device=device, seed=0, **options)
    if unused := next((str(one.message) for one in caught if "not used" in str(one.message)), None):
        raise ConfigError(f"{name}: {unused.split(' This will')[0]} Take it out of env_kwargs.")
    return env


ByAgent = dict[str, Any]


class VmasParallel:
    """One VMAS environment with the interface of PettingZoo's parallel environments."""

    def __init__(self, scenario: Any, render_mode: str | None = None, **kwargs: Any) -> None:
        self._world = VmasWorld(scenario, 1, kwargs=kwargs)
        self.render_mode = render_mode
        self.metadata = {
            "name": self._world.name,
            "render_modes": ["human", "rgb_array"],
            "render_fps": 1.0 / float(self._world.env.world.dt),
        }
        self._places = {
            agent: (group, place)
            for group in self._world.groups
            for place, agent in enumerate(group.agents)
        }
        self.possible_agents = list(self._places)
        self.agents: list[str] = []

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return self._places[agent][0].observation_space

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return self._places[agent][0].action_space

    def reset(
        self, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[ByAgent, ByAgent]:
        if seed is not None:
            self._world.seed(seed)
        self.agents = list(self.possible_agents)
        return self._observed(self._world.begin())

    def step(self, actions: ByAgent) -> tuple[ByAgent, ByAgent, ByAgent, ByAgent, ByAgent]:
        acted = self.agents
        observation, terminated, truncated, entries = self._world.advance(
            {
                group.name: torch.as_tensor(np.stack([actions[a] for a in group.agents]))[None]
                for group in self._world.groups
            }
        )
        rewards = {
            agent: float(entries[group.name, "reward"][0, place])
            for agent, (group, place) in self._places.items()
        }
        ended, cut = bool(terminated[0]), bool(truncated[0])
        if ended or cut:
            self.agents = []
        if self.render_mode == "human":
            self.render()
        seen, infos = self._observed(observation)
        return seen, rewards, dict.fromkeys(acted, ended), dict.fromkeys(acted, cut), infos

    def render(self) -> Any:
        """Draw: returns an image, uint8 ``[height, width, 3]``, or ``None`` with a window."""
        return None if self.render_mode is None else self._world.render(self.render_mode)

    def close(self) -> None:
        self._world.close()

    def _observed(self, entries: Entries) -> tuple[ByAgent, ByAgent]:
        seen: ByAgent = {}
        for agent, (group, place) in self._places.items():
            leaves = zip(group.leaves, group.keys, strict=True)  # one, or those of a flat dict
            parts = {leaf.path: entries[key][0, place].numpy() for leaf, key in leaves}
            seen[agent] = parts.get((), {path[-1]: part for path, part in parts.items() if path})
        return seen, {agent: {} for agent in self.possible_agents}


State = list[list[Any]]
"""For each object the leaves of its attributes. A leaf that is no plain value is
``{"object": index}``, or ``{"object": None}`` for a constant such as a function."""
_PLAIN = (type(None), bool, int, float, str, torch.Tensor, np.ndarray, np.generic)
_CONSTANTS = (
    *(type, enum.Enum, types.ModuleType, types.FunctionType, types.BuiltinFunctionType),
    *(types.MethodType, spaces.Space, torch.device, torch.dtype, frozenset),
)
_CONSTANT_MODULES = ("gym", "gymnasium", "pyglet", "matplotlib")


# VMAS keeps its state in the attributes of many objects: agents, landmarks, world, scenario.
# All reachable objects are listed once, when the simulator is made, in an order that depends only
# on its arguments. Their attributes, in that order, are its state.
class ObjectState:
    """The state of all objects reachable from a root object."""

    def __init__(self, root: Any) -> None:
        self._objects: list[Any] = []
        self._index: dict[int, int] = {}
        # By object and number of leaves, the leaves and containers last read.
        self._forms: dict[tuple[int, int], tuple[list[Any], pytree.TreeSpec]] = {}
        self._find(root)

    def read(self) -> State:
        """The attributes of every object, not copied. Raises StateMismatchError for new objects."""
        state = []
        for place, one in enumerate(self._objects):
            leaves, form = pytree.tree_flatten(dict(vars(one)))
            self._forms[place, len(leaves)] = leaves, form
            state.append([x if isinstance(x, _PLAIN) else self._reference(x) for x in leaves])
        return state

    def write(self, state: State) -> None:
        """Set the attributes that `read` returned; raises StateMismatchError for other objects."""
        if len(state) != len(self._objects):
            raise StateMismatchError(
                f"The saved simulator consists of {len(state)} objects, this one of "
                f"{len(self._objects)}: it was made with other arguments."
            )
        for place, (one, codes) in enumerate(zip(self._objects, state, strict=True)):
            if (place, len(codes)) not in self._forms:
                raise StateMismatchError(
                    f"{type(one).__name__} of the saved simulator has {len(codes)} values, and "
                    "another number here"
                )
            leaves, form = self._forms[place, len(codes)]
            pairs = zip(codes, leaves, strict=True)
            attributes = pytree.tree_unflatten([self._decode(*p) for p in pairs], form)
            vars(one).clear()
            vars(one).update(attributes)

    def keep_rows(self, before: State, rows: torch.Tensor) -> bool:
        """Restore rows, bool ``[rows]``, of all tensors from a copy of an earlier `read`.

        Returns whether only rows of tensors changed; if not, nothing is restored.
        """
        tensors = []
        for olds, news in zip(before, self.read(), strict=True):
            if len(olds) != len(news):
                return False
            for old, new in zip(olds, news, strict=True):
                if _has_rows(new, len(rows)) and _has_rows(old, len(rows)):
                    if old.shape != new.shape or old.dtype != new.dtype:
                        return False
                    tensors.append((old, new))
                elif not _equal(old, new):
                    return False
        for old, new in tensors:
            new.copy_(select(rows, old, new))
        return True

    def _find(self, value: Any) -> None:
        for leaf in pytree.tree_leaves(value):
            if _is_object(leaf) and id(leaf) not in self._index:
                self._index[id(leaf)] = len(self._objects)
                self._objects.append(leaf)
                self._find(vars(leaf))

    def _reference(self, value: Any) -> dict[str, int | None]:
        if _is_object(value) and id(value) not in self._index:
            raise StateMismatchError(f"it makes a new {type(value).__name__} during an episode")
        return {"object": self._index.get(id(value))}

    def _decode(self, code: Any, there: Any) -> Any:
        """Decode a leaf; ``there`` is the one last read at its place."""
        if not isinstance(code, dict):
            return code
        return there if code["object"] is None else self._objects[code["object"]]


def _has_rows(value: Any, number: int) -> bool:
    """Whether it is a tensor whose rows are separate in memory, unlike those of an expanded one."""
    if not isinstance(value, torch.Tensor) or value.ndim == 0 or len(value) != number:
        return False
    return 0 not in value.stride()


def _equal(old: Any, new: Any) -> bool:
    if isinstance(old, torch.Tensor) and isinstance(new, torch.Tensor):  # on any device
        return old.dtype == new.dtype and torch.equal(old, new)
    return old is new or (type(old) is type(new) and bool(np.array_equal(old, new)))


def copied(state: State, copy: Callable[[torch.Tensor], torch.Tensor] = torch.clone) -> State:
    """Copy a state; a tensor that occurs twice is copied once."""
    seen: dict[int, torch.Tensor] = {}

    def one(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            if id(value) not in seen:
                seen[id(value)] = copy(value)
            return seen[id(value)]
        return value.copy() if isinstance(value, np.ndarray) else value

    return [list(map(one, leaves)) for leaves in state]


def _is_object(value: Any) -> bool:
    """Whether the attributes of a value are part of the simulator's state."""
    if isinstance(value, (*_PLAIN, *_CONSTANTS)) or not hasattr(value, "__dict__"):
        return False
    return type(value).__module__.split(".")[0] not in _CONSTANT_MODULES
