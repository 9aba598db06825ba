"""`PolicyRecorder`: saves snapshots of a policy and deletes old ones."""

from __future__ import annotations

import copy
import dataclasses
import functools
import inspect
import json
import logging
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
import xxhash
from gymnasium.envs.registration import EnvSpec, WrapperSpec, load_env_creator
from tensordict import NestedKey, unravel_key
from torch import Tensor

from ..base import fs
from ..base.space_parts import MASK, Leaf, parts_of
from ..collect.action_format import ActionFormat, clips
from ..collect.agent_groups import Grouping
from ..collect.make_envs import Envs, Wrapped, agents_of, find_spec, is_several, make_one
from ..collect.spaces import ObservationLayout
from ..collect.worlds.world_ids import adapt_world, is_built, is_world
from ..errors import CheckpointError
from ..loop.cadence import Progress
from ..store import Retention
from ..store.provenance import origin
from ..store.retention import best_of
from ..store.stored import TRASH, UNFINISHED, delete, free_path, seal, surplus, sweep
from .actions import Action, Part
from .environment import Environment
from .interface import PRESENCE, Group, Interface, Observation
from .policy_files import FACTS, POLICY, SCHEMA, SEAL, PolicyContent, encode
from .saved import SavedPolicy, scan_policies
from .trace import Traced, current_weights, trace
from .trust import OTHERS, code_of, root_of

_log = logging.getLogger(__name__)


class PolicyRecorder:
    """Saves a policy under ``<directory>/step_<frames>/``.

    It changes neither the policy nor training's random numbers. Policies of other runs in the
    directory are left alone. Arguments are those of `hooktrainer.PolicySnapshot` and of the
    collectors; what cannot be recorded is a `ConfigError`.
    """

    def __init__(
        self,
        directory: Path,
        policy: Any,
        env: Any,
        env_kwargs: Mapping[str, Any] | None = None,
        *,
        frame_skip: int = 1,
        categorical_actions: bool = True,
        groups: Grouping | None = None,
        run_id: str | None = None,
    ) -> None:
        self.directory = directory
        self.run_id = run_id
        self._policy = getattr(policy, "_orig_mod", policy)  # as it was before torch.compile
        self._described = describe(
            env, env_kwargs, categorical_actions=categorical_actions, groups=groups
        )
        self.environment = self._described.environment  # how to make it again
        self._frame_skip = frame_skip
        self._provenance = origin()
        self._traced: Traced | None = None
        fs.make_directories(directory)
        sweep(directory, UNFINISHED, TRASH)

    def save(self, progress: Progress, keep: Retention | None = None) -> None:
        """Save the policy as it is now, then delete what is not kept.

        One of the same frames is replaced. A failure on the disk is logged; training continues.
        """
        seen = self._described
        actions = [(group.name, "action") if group.agents else "action" for group in seen.groups]
        self._traced = traced = trace(
            self._policy, list(seen.observations), seen.examples, actions, former=self._traced
        )
        state = {name: value.contiguous().clone() for name, value in traced.state.items()}
        trained = [n for n, _ in self._policy.named_parameters("policy") if n in traced.weights]
        program = {**traced.program, "sampling": traced.sampling, "parameters": trained}
        content = PolicyContent(program, current_weights(self._policy, traced), state)
        interface = Interface(tuple(seen.observations[key] for key in traced.reads), seen.groups)
        try:
            data = encode(content)
            facts = {
                "schema": SCHEMA,
                "run_id": self.run_id,
                "frames": progress.frames,
                "optim_steps": progress.optim_steps,
                "seconds": round(progress.seconds, 3),
                "time": time.time(),
                "env": self.environment.encode(),
                "frame_skip": self._frame_skip,
                "recurrent": bool(state),
                "interface": dataclasses.asdict(interface),
                "evaluation": None,
                "files": {POLICY: {"size": len(data), "xxh3_128": xxhash.xxh3_128_hexdigest(data)}},
                **self._provenance,
            }
            former = [saved for saved in self._own() if saved.frames == progress.frames]
            with fs.new_directory(free_path(self.directory, progress.frames)) as work:
                fs.write_file(work / POLICY, data)
                fs.write_file(work / FACTS, seal(SEAL, facts))
            for saved in former:  # only now: one of the two is there at any moment
                delete(saved.path)
            if keep is not None:
                self.prune(keep)
        except (OSError, CheckpointError) as error:
            _log.warning("a policy could not be saved; training continues: %s", error)

    def prune(self, keep: Retention) -> None:
        """Delete the policies that a retention policy does not keep; the latest and the best stay.

        If it keeps the best, policies that have not been evaluated stay as well.
        """
        best = best_of(keep)
        for saved in surplus(self._own(), keep, best):
            if best is None or best.metric in saved.metrics:
                delete(saved.path)

    def resume(self, frames: int) -> int:
        """Resume a run at ``frames``, and return the frames of its newest policy, or -1.

        Policies of later frames are deleted: that part of the run is repeated.
        """
        policies = self._own()
        left = [saved for saved in policies if saved.frames <= frames]
        for saved in policies[len(left) :]:
            delete(saved.path)
        return left[-1].frames if left else -1

    def _own(self) -> list[SavedPolicy]:
        return [p for p in scan_policies(self.directory)[0] if p.run_id == self.run_id]


# -- Describes the environment of a policy in training: how to make it, its spaces, examples.


EXAMPLES = 12
_NOT_OF_ONE = ("num_envs", "vectorization_mode", "vector_kwargs")


@dataclasses.dataclass(frozen=True)
class Described:
    """The description of an environment: how to make it, what can be read by key, its actions.

    `examples` are sampled observations, ``[12, ...]`` for each key, with an agent dimension if
    there are several agents.
    """

    environment: Environment
    observations: dict[NestedKey, Observation]
    examples: list[Tensor]
    groups: tuple[Group, ...]


def describe(
    env: Any,
    env_kwargs: Mapping[str, Any] | None = None,
    *,
    categorical_actions: bool = True,
    groups: Grouping | None = None,
) -> Described:
    """Describe an environment of one agent or of several: one is built, reset and closed.

    Arguments are those of `VectorCollector`.
    """
    if is_several(env) or _makes_several(env, env_kwargs):
        return _describe_several(env, env_kwargs or {}, groups)
    bounded: gym.Space[Any] | None = None
    mask = None
    if is_built(env):
        world = adapt_world(env)
        environment = Environment(reason="its environments were one batch, built before training")
        space, action_space = world.observation_space, world.action_space
        bounded = action_space
    elif isinstance(env, gym.vector.VectorEnv):  # whose reset would disturb the collector
        environment = _plain(_by_spec(env.spec, {}))
        space, action_space = env.single_observation_space, env.single_action_space
    else:
        made = make_one(env, env_kwargs)
        try:
            mask = made.reset(seed=0)[1].get(MASK)
            environment = _plain(_recorded(env, env_kwargs or {}, made))
        finally:
            made.close()
        space, action_space = made.observation_space, made.action_space
        bounded = next((layer.env.action_space for layer in _layers(made) if clips(layer)), None)
    layout = ObservationLayout(space, mask)
    return Described(
        environment,
        {unravel_key(leaf.key): observation_of(leaf) for leaf in layout.leaves},
        _examples(space, layout, EXAMPLES, {} if mask is None else {MASK: mask}),
        (Group(action_of(action_space, categorical_actions, bounded)),),
    )


def _describe_several(
    env: Any, env_kwargs: Mapping[str, Any], groups: Grouping | None
) -> Described:
    envs = agents_of(env, env_kwargs, groups)
    try:
        buffers = envs.prepare(1)
        envs.reset()
    finally:
        envs.close()
    seen = {key: rows[-1] for key, rows in buffers.observation.items()}
    observations: dict[NestedKey, Observation] = {}
    examples: list[Tensor] = []
    for group in envs.groups:
        agents = len(group.agents)
        layout = ObservationLayout(group.observation_space)
        drawn = _examples(group.observation_space, layout, EXAMPLES * agents, {})
        examples += [v.reshape(EXAMPLES, agents, *v.shape[1:]) for v in drawn]
        own = [observation_of(leaf, group.path) for leaf in layout.leaves]
        for name, path in ((MASK, group.mask_path or ()), (PRESENCE, ())):
            if (value := seen.get((group.name, name))) is not None:
                own.append(Observation((name,), path, tuple(value.shape[2:]), "bool"))
                examples.append(value.cpu().repeat_interleave(EXAMPLES, 0))
        for one in own:
            full = unravel_key((group.name, *one.keys))
            observations[full] = dataclasses.replace(one, group=group.name)
    spaces: Any = envs.observation_space
    if (space := spaces.spaces.get("state")) is not None:
        layout = ObservationLayout(space)
        examples += _examples(space, layout, EXAMPLES, {})
        state = observation_of(layout.leaves[0])
        observations["state"] = dataclasses.replace(state, keys=("state",))
    return Described(
        _plain(_recorded_several(env, env_kwargs)),
        observations,
        examples,
        tuple(
            Group(action_of(one.action_space, True, one.action_space), one.name, one.agents)
            for one in envs.groups
        ),
    )


def _recorded(env: Envs, env_kwargs: Mapping[str, Any], made: gym.Env[Any, Any]) -> Environment:
    if any(isinstance(layer, gym.wrappers.NormalizeObservation) for layer in _layers(made)):
        return Environment(
            reason="it normalizes its observations by what it has seen, which is not a part of the "
            "policy; put a RunningNorm into the network instead"
        )
    if isinstance(env, str | EnvSpec):
        return _by_spec(find_spec(env) if isinstance(env, str) else env, env_kwargs)
    factory: Any = env[0] if isinstance(env, Sequence) else env
    if isinstance(factory, Wrapped):
        found = _recorded(factory.env, factory.env_kwargs or {}, made)
        wrapper: Any = factory.wrapper
        if isinstance(factory.env, EnvSpec):
            if not isinstance(wrapper, type):
                if not clips(made):
                    return _by_spec(made.spec, {})
                wrapper = type(made)
        elif found.factory is None or found.id is not None:  # by Gymnasium's record, complete
            return found
        name = f"{wrapper.__module__}:{wrapper.__qualname__}"
        return dataclasses.replace(found, wrappers=(*found.wrappers, (name, {})))
    factory, given = _parts_of(factory, env_kwargs)
    try:
        inspect.signature(factory).bind(**given, **{"num_envs": 1} if is_world(factory) else {})
        place = place_of(factory)
    except (TypeError, ValueError):
        place = None
    return _by_spec(made.spec, {}) if place is None else Environment(**place, kwargs=given)


def _parts_of(factory: Any, kwargs: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """A function without a `functools.partial` around it, and its arguments."""
    if isinstance(factory, functools.partial) and not factory.args:
        return factory.func, {**factory.keywords, **kwargs}
    return factory, dict(kwargs)


def _recorded_several(env: Any, env_kwargs: Mapping[str, Any]) -> Environment:
    env, given = _parts_of(env, env_kwargs)
    place = {"id": env} if isinstance(env, str) else place_of(env)
    if place is None:
        return Environment(reason="other processes cannot import what makes it", several=True)
    return Environment(**place, kwargs=given, several=True)


def _plain(found: Environment) -> Environment:
    """The environment as JSON has it, or with the reason why it has it not."""
    try:
        return Environment.decode(json.loads(json.dumps(found.encode(), allow_nan=False)))
    except (TypeError, ValueError) as error:
        reason = f"it has arguments that are not plain data ({error})"
        return Environment(reason=reason, several=found.several)


def _by_spec(spec: EnvSpec | None, kwargs: Mapping[str, Any]) -> Environment:
    """Gymnasium's record: id, arguments, wrappers, and the module that registers the id."""
    if spec is None or spec.id not in gym.registry:
        return Environment(reason="it comes from a function that other processes cannot import")
    known = gym.registry[spec.id]
    own = {k: v for k, v in {**spec.kwargs, **kwargs}.items() if k not in _NOT_OF_ONE}
    given = {k: v for k, v in own.items() if k not in known.kwargs or known.kwargs[k] != v}
    if spec.max_episode_steps != known.max_episode_steps:
        given["max_episode_steps"] = spec.max_episode_steps
    if (lost := next(filter(_loses_arguments, spec.additional_wrappers), None)) is not None:
        return Environment(
            reason=f"other processes cannot make its wrapper {lost.name}, which is no class of a "
            "module or does not record its arguments: derive it from "
            "gymnasium.utils.RecordConstructorArgs too, or make it in a function of a module"
        )
    wrappers = tuple((one.entry_point, one.kwargs or {}) for one in spec.additional_wrappers)
    found = Environment(spec.id, given, wrappers, _directories(wrappers))
    entry = known.entry_point
    if entry is None or (isinstance(entry, str) and entry.startswith("gymnasium.")):
        return found
    registered = {"kwargs": known.kwargs, "max_episode_steps": known.max_episode_steps}
    with suppress(ImportError, AttributeError, TypeError, ValueError):
        place = place_of(load_env_creator(entry) if isinstance(entry, str) else entry)
        whole = dataclasses.replace(found, **(place or {}), registered=registered)
        return found if place is None or _plain(whole).reason else whole
    return found  # it can be made after importing what registers it


def _directories(wrappers: Sequence[tuple[str, Any]]) -> tuple[str, ...]:
    """Where Python finds the modules of wrappers that need trust."""
    names = [name.partition(":")[0] for name, _ in wrappers if code_of("", {}, [(name, {})])]
    files = {name: getattr(sys.modules.get(name), "__file__", None) for name in names}
    return tuple(
        str(root_of(name, str(Path(file).resolve()))) for name, file in files.items() if file
    )


def _loses_arguments(wrapper: WrapperSpec) -> bool:
    """Whether another process would make another wrapper, or none."""
    if wrapper.entry_point.startswith("__main__:"):
        return True
    if wrapper.kwargs is not None or wrapper.entry_point in OTHERS:
        return False
    try:
        return len(inspect.signature(load_env_creator(wrapper.entry_point)).parameters) > 1
    except (AttributeError, ImportError):
        return True


def place_of(factory: Any) -> dict[str, Any] | None:
    """Where other processes find a function or class, as `Environment` fields, or ``None``."""
    name, module = getattr(factory, "__name__", None), getattr(factory, "__module__", None)
    if not isinstance(name, str) or module not in sys.modules:
        return None
    if getattr(sys.modules[module], name, None) is not factory:
        return None
    file = getattr(sys.modules[module], "__file__", None)
    if file is None and module == "__main__":
        return None
    file = None if file is None else str(Path(file).resolve())
    return {"factory": name, "module": module, "file": file}


def _layers(env: gym.Env[Any, Any]) -> list[Any]:
    """The wrappers, and the environment in them."""
    layers: list[Any] = [env]
    while isinstance(layers[-1], gym.Wrapper):
        layers.append(layers[-1].env)
    return layers


def _examples(
    space: gym.Space[Any], layout: ObservationLayout, number: int, info: Mapping[str, Any]
) -> list[Tensor]:
    """Sample observations ``[number, ...]`` of each leaf, from a copy of the space."""
    drawing = copy.deepcopy(space)
    drawing.seed(0)
    rows = [layout.copies(drawing.sample(), info) for _ in range(number)]
    return [torch.from_numpy(np.stack(values)) for values in zip(*rows, strict=True)]


def observation_of(leaf: Leaf, before: tuple[str | int, ...] = ()) -> Observation:
    """A leaf as plain data, its path after some keys."""
    start = None if leaf.start is None else np.asarray(leaf.start).tolist()
    return Observation(tuple(leaf.key), (*before, *leaf.path), leaf.shape, leaf.dtype.name, start)


def action_of(space: gym.Space[Any], categorical: bool, bounded: gym.Space[Any] | None) -> Action:
    """The actions of a space: indices if ``categorical``, else one-hot; clipped to ``bounded``."""
    limits = parts_of(space if bounded is None else bounded)
    parts = []
    for (path, part), (_, limit) in zip(parts_of(space), limits, strict=True):
        form = ActionFormat(part, categorical or bool(path))
        start = getattr(part, "start", None)
        sizes = tuple(form.sizes if form.is_one_hot else ())
        low = high = None
        box = limit if bounded is not None and isinstance(limit, gym.spaces.Box) else None
        if box is not None and (box.bounded_below | box.bounded_above).any():
            far = float(np.finfo(np.float32).max)  # infinity is no JSON
            ends = (np.nan_to_num(x, posinf=far, neginf=-far) for x in (box.low, box.high))
            low, high = (end.tolist() for end in ends)
        shape = tuple(part.shape or ())
        first = None if start is None else np.asarray(start).tolist()
        parts.append(Part(path, shape, str(part.dtype), first, sizes, low, high))
    return Action(tuple(parts))


def _makes_several(env: Any, env_kwargs: Mapping[str, Any] | None) -> bool:
    """Whether a function makes a parallel PettingZoo environment."""
    if not callable(env) or isinstance(env, Wrapped) or is_world(env):
        return False
    made = env(**(env_kwargs or {}))
    made.close()
    return hasattr(made, "possible_agents")
