"""`WorldCollector`: steps tensor environments and yields the same batches as `VectorCollector`."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
import torch
from tensordict import NestedKey, TensorDict, unravel_key
from tensordict.nn import InteractionType

from ...base.checks import share_equally
from ...base.space_parts import Leaf, leaves_of
from ...errors import ConfigError
from ...graphs.compiling import CannotCompileError, Graph
from ...loop.timing import Timing
from ..actors import FunctionActor, Policy, learn_outputs
from ..buffers import Entries, Inputs, OutputBuffers, as_batch, env_first
from ..episodes_collector import EpisodesCollector, Workers
from ..group import no_attribute
from ..info import check_info_keys
from ..rollout import AnyRollout
from .functional_world import Carry, FunctionalWorld
from .tensor_world import Observations, Outcome, TensorWorld
from .world_actions import WorldActions
from .world_ids import make_tensor_world, makes_shares

# -- `WorldBuffers`: the buffers of a rollout of tensor environments, on their device.


class WorldBuffers:
    """The buffers of a rollout, time first, allocated once.

    ``observation`` has a tensor ``[time + 1, num_envs, *shape]`` for each leaf, ``inputs`` its
    rows: the policy's inputs, and last its input of the next rollout. ``following`` holds a batch's
    ``"next"``.
    """

    def __init__(
        self,
        leaves: Sequence[Leaf],
        num_envs: int,
        horizon: int,
        device: torch.device,
        infos: Sequence[str] = (),
    ) -> None:
        self.device = device
        self.keys: list[NestedKey] = [unravel_key(leaf.key) for leaf in leaves]
        kinds = [torch.from_numpy(np.zeros((), leaf.dtype)).dtype for leaf in leaves]
        self.observation = [
            torch.zeros((horizon + 1, num_envs, *leaf.shape), dtype=kind, device=device)
            for leaf, kind in zip(leaves, kinds, strict=True)
        ]
        rows = [observation.unbind(0) for observation in self.observation]
        self.inputs: Inputs = dict(zip(self.keys, rows, strict=True))
        reward = torch.zeros(num_envs, device=device)
        self.following = OutputBuffers(num_envs, horizon)
        self.following.allocate(
            {key: rows[0] for key, rows in self.inputs.items()}
            | dict.fromkeys(("terminated", "truncated", "done"), reward.bool())
            | dict.fromkeys(("reward", *infos), reward)
        )
        self._infos = tuple(infos)
        self._starts = {
            key: torch.as_tensor(leaf.start).to(device)
            for key, leaf in zip(self.keys, leaves, strict=True)
            if leaf.start is not None
        }

    def put(self, observation: Observations, row: int) -> None:
        for rows, value in zip(self.inputs.values(), self.values(observation), strict=True):
            rows[row].copy_(value)

    def write(self, t: int, outcome: Outcome) -> torch.Tensor:
        """Write the result of step ``t``; returns ``done``, bool ``[num_envs]``."""
        self.put(outcome.observation, t + 1)
        ends = ends_of(outcome)
        if outcome.final is not None:
            final = self.values(outcome.final)
        else:  # hidden: an episode's last known observation is the policy's last input
            final = [
                torch.where(ends["done"].view(-1, *[1] * (rows[t].ndim - 1)), rows[t], rows[t + 1])
                for rows in self.inputs.values()
            ]
        written = {**dict(zip(self.keys, final, strict=True)), "reward": outcome.reward, **ends}
        for name in self._infos:
            rest = (outcome.log, "the simulator", len(outcome.reward), self.device)
            written[name] = info_column(name, *rest)
        if outcome.entries:
            if not outcome.entries.keys() <= self.following.buffers.keys():
                self.following.allocate(outcome.entries)
            written |= outcome.entries
        self.following.write(t, written)
        return ends["done"]

    def values(self, observation: Observations) -> list[torch.Tensor]:
        """The leaves of an observation, in order; discrete ones start at 0."""
        if not self._starts:
            return [observation[key] for key in self.keys]
        return [observation[key] - self._starts.get(key, 0) for key in self.keys]

    def rows(self, span: slice, sample: Mapping[NestedKey, torch.Tensor]) -> Rows:
        """The buffers of the steps ``span``; ``sample`` holds those of the policy's outputs."""
        after = slice(span.start + 1, span.stop + 1)
        observation = [observation[after] for observation in self.observation]
        return Rows(observation, self.following.rows(span), sample)


def ends_of(outcome: Outcome) -> dict[NestedKey, torch.Tensor]:
    """The flags of a step by key, bool ``[num_envs]``."""
    terminated, truncated = outcome.terminated, outcome.truncated
    done = torch.logical_or(terminated, truncated)
    return {"terminated": terminated, "truncated": truncated, "done": done}


def info_column(
    key: str,
    values: Mapping[str, torch.Tensor] | None,
    name: str,
    num_envs: int,
    device: torch.device,
) -> torch.Tensor:
    """One number for each environment, float32 ``[num_envs]``; NaN if there are none."""
    value = None if values is None else values.get(key)
    if value is None:
        return torch.full((num_envs,), torch.nan, device=device)
    shape = list(getattr(value, "shape", ()))
    if math.prod(shape) != num_envs:
        raise ConfigError(
            f"info_keys: info[{key!r}] of {name} has the shape {shape}, not one number for each of "
            f"the {num_envs} environments: leave the key out."
        )
    return value.reshape(num_envs).float()


class Rows(NamedTuple):
    """Buffers of several steps, ``[steps, num_envs, ...]`` each.

    By leaf the observations to act on next; by key a batch's ``"next"``, and the policy's outputs.
    """

    observation: list[torch.Tensor]
    following: Mapping[NestedKey, torch.Tensor]
    sample: Mapping[NestedKey, torch.Tensor]


def _sums_of_episodes(
    values: torch.Tensor, done: torch.Tensor, before: torch.Tensor
) -> torch.Tensor:
    """Sums of ``values`` ``[time, num_envs]`` from the start of each episode, after ``before``."""
    sums = torch.cat([(values[0] + before).unsqueeze(0), values[1:]]).cumsum(0)
    times = torch.arange(len(done), device=done.device).unsqueeze(-1)
    ends = torch.where(done, times, -1).cummax(0).values  # the last one up to each step
    ends = torch.cat([torch.full_like(ends[:1], -1), ends[:-1]])
    return sums - torch.where(ends < 0, 0, sums.gather(0, ends.clamp(min=0)))


class WorldCollector(EpisodesCollector):
    """Collects batches ``[num_envs, time]`` from tensor environments, on their device.

    A batch has the same entries as one of `VectorCollector`. Nothing passes through NumPy, and **no
    step waits for the device**. Policy and environments write to buffers that are allocated once; a
    batch is a copy.

    If the simulator does not return final observations, ``("next", <observation>)`` holds the last
    known one at an episode's end, the policy's last input, and ``("collector", "final_hidden")``,
    bool ``[..., 1]``, is true.

    Random actions are a function of the seed, the environment's index and its step. The simulator's
    log is averaged over each batch and logged as ``world/<name>``, or by its own name if that has a
    group.

    Arguments that are not listed are as for `VectorCollector`.

    Args:
        env: An id such as ``"torch/CartPole-v1"``; a class or function that takes ``num_envs``,
            such as a subclass of `FunctionalWorld`; or a `TensorWorld`, which cannot be divided
            among processes.
        frame_skip: The simulator's own, if given: actions are not repeated.
        clip_actions: Whether the environment receives continuous actions clipped to their bounds.
            Batches hold the policy's actions.
        info_keys: Entries of the simulator's log that batches hold in ``"next"``, one number for
            each environment, float32 ``[..., 1]``; NaN for steps without a value.
        device: Device of the simulation and the batches; by default the policy's.
        compile: Whether several steps of environment and policy are one compiled graph.
            This needs a `FunctionalWorld` and a policy without memory that has ``sample`` and
            ``complete``, such as those of `hooktrainer.networks`.

    Raises:
        ConfigError: If the arguments are invalid.

    Examples:
        >>> collector = WorldCollector("torch/CartPole-v1", num_envs=4, frames_per_batch=512)
        >>> collector.collect().batch_size
        torch.Size([4, 128])
    """

    world: TensorWorld
    _live = ("_envs", "world", "_rollout", "_actions")

    def __init__(
        self,
        env: Any,
        policy: Policy | None = None,
        *,
        num_envs: int | None = None,
        frames_per_batch: int,
        total_frames: int = -1,
        seed: int = 0,
        init_random_frames: int = 0,
        frame_skip: int | None = None,
        env_kwargs: Mapping[str, Any] | None = None,
        categorical_actions: bool = True,
        clip_actions: bool = False,
        info_keys: Sequence[str] = (),
        exploration_type: InteractionType = InteractionType.RANDOM,
        first_env: int = 0,
        device: torch.device | str | None = None,
        compile: bool = False,
    ) -> None:
        super().__init__(
            policy,
            frames_per_batch,
            total_frames,
            seed,
            init_random_frames,
            exploration_type,
            device,
            first_env=first_env,
        )
        self._env = env
        self._env_kwargs = env_kwargs
        self._categorical_actions = categorical_actions
        self._clip_actions = clip_actions
        self._compile = compile
        self._info_keys = check_info_keys(info_keys)
        self._open(num_envs)
        if frame_skip not in (None, self.frame_skip):
            raise ConfigError(
                f"frame_skip={frame_skip}: {self.world.name} counts {self.frame_skip} frames a "
                "step, and actions are not repeated: leave it out."
            )

    def _make(self, num_envs: int | None, workers: Workers) -> None:
        self._envs = self.world = make_tensor_world(
            self._env,
            num_envs,
            device=self.device,
            first_env=self._first_env,
            env_kwargs=self._env_kwargs,
        )
        self._make_rollout = WorldRollout
        self.num_envs = self.world.num_envs
        self.frame_skip = self.world.frame_skip
        self.device = self.world.device
        self._actions = WorldActions(
            self.world.action_space, self._categorical_actions, self._clip_actions, self.device
        )

    def _leaves(self) -> Sequence[Leaf]:
        return leaves_of(self.world.observation_space)

    def register(self, trainer: Any) -> None:
        trainer.register_op("pre_steps_log", self.log_of_world)

    def log_of_world(self, batch: Any = None) -> dict[str, Any] | None:
        """The simulator's log of the last batch, by metric name; ``None`` if it is empty."""
        log = getattr(self._rollout, "log", None)
        if not log:
            return None
        return {name if "/" in name else f"world/{name}": value for name, value in log.items()}

    def _set_in_envs(self, name: str, value: Any) -> None:
        if not hasattr(self.world, name):
            raise no_attribute(self.world.name, name)
        now = getattr(self.world, name)
        if isinstance(now, torch.Tensor):
            now.copy_(torch.as_tensor(value))
        else:
            setattr(self.world, name, value)

    def check_shares(self, number: int) -> None:
        self._check_independent(number, makes_shares(self._env))
        share_equally(self.num_envs, number, "num_envs")

    def _check_independent(self, number: int, made_apart: bool = True) -> None:
        if not (made_apart and self.world.shares):
            raise ConfigError(
                f"{number} processes cannot share the environments of {self.world.name}: they are "
                "built already or without first_env, or depend on each other or on one stream of "
                "random numbers. Give a function of num_envs and first_env, or use one process."
            )


class WorldRollout(AnyRollout):
    """Steps tensor environments with a policy and makes batches, without waiting for the device."""

    _adds = ("world",)

    def __init__(self, collector: WorldCollector) -> None:
        self._world, self._actions = collector.world, collector._actions
        self._horizon, policy = collector._horizon, collector.policy
        num_envs, device, actions = collector.num_envs, collector.device, self._actions
        leaves, infos = collector._leaves(), collector._info_keys
        self._buffers = WorldBuffers(leaves, num_envs, self._horizon, device, infos)
        self._take = actions.to_world
        inputs = self._buffers.inputs
        sampler = actions.sampler(inputs, collector.seed, collector._first_env, num_envs)
        self._set_actors(policy, actions.format, num_envs, collector._computes, sampler)
        self._moves = collector._computes != device
        # Sums of many small numbers: in double precision where the device has it.
        wide = torch.float32 if device.type == "mps" else torch.float64
        self._returns = torch.zeros(num_envs, dtype=wide, device=device)
        self._lengths = torch.zeros(num_envs, dtype=torch.int64, device=device)
        self._compiled = self._compile(policy) if collector._compile else None
        self._rows: list[Rows] = []  # buffers of the compiled steps
        self._graphs: dict[int, Graph[Carry]] = {}  # by how many steps they make
        self._hides_final = False
        self._logged: dict[str, list[torch.Tensor]] = {}
        self.log: dict[str, torch.Tensor] = {}

    def _begin(self) -> None:
        self._buffers.put(self._world.reset(), -1)
        self._returns.zero_()
        self._lengths.zero_()
        self._actor.begin(
            torch.ones_like(self._lengths, dtype=torch.bool, device=self._policy_device)
        )

    def _collect(self, timing: Timing) -> TensorDict:
        self._hides_final = False
        self._logged = {}
        if self._compiled is None or self._draws:
            self._step(timing)
        else:
            self._step_at_once(self._compiled, timing)
        with timing.phase("collect/transfer"):
            self.log = {
                name: torch.stack(values).nanmean() for name, values in self._logged.items()
            }
            batch = self._batch()
            if self._hides_final:
                batch["collector", "final_hidden"] = batch["next", "done"].clone()
            return batch

    def _batch(self) -> TensorDict:
        """The batch, whose entries ``[num_envs, time, ...]`` are fresh tensors, not views."""
        buffers = self._buffers
        pairs = zip(buffers.keys, buffers.observation, strict=True)
        root: Entries = {key: env_first(before[:-1]) for key, before in pairs}
        given: Entries = buffers.following.tensors()
        following = {key: given.pop(key) for key in buffers.keys}
        rewards, done = given["reward"].transpose(0, 1), given["done"].transpose(0, 1)
        returns = _sums_of_episodes(rewards.to(self._returns.dtype), done, self._returns)
        lengths = _sums_of_episodes(
            done.new_ones(done.shape, dtype=torch.int64), done, self._lengths
        )
        self._returns = returns[-1].masked_fill(done[-1], 0.0)
        self._lengths = lengths[-1].masked_fill(done[-1], 0)
        given = {  # of several agents, the environment gives its own "episode_reward"
            "episode_reward": env_first(returns.to(rewards.dtype)),
            "step_count": env_first(lengths),
            **given,
        }
        given = {key: value.unsqueeze(-1) for key, value in given.items()}
        outputs = self._outputs()
        if all(value.device == buffers.device for value in outputs.values()):
            return as_batch(outputs, root, following, given, buffers.device)
        return as_batch(outputs, root, following, given).to(buffers.device)

    def _receive(self, t: int, stage: int | None) -> object:
        outcome = self._world.step(self._sent)
        done = self._buffers.write(t, outcome)
        self._actor.begin(done.to(self._policy_device) if self._moves else done)
        for name, value in (outcome.log or {}).items():
            self._logged.setdefault(name, []).append(value.float().nanmean())
        self._hides_final |= outcome.final is None
        return False

    def _compile(self, policy: Any) -> WorldSteps:
        world: Any = self._world
        sample: Any = getattr(policy, "sample", None)
        fits = isinstance(self._actor, FunctionActor) and callable(sample) and not self._moves
        if not fits or not isinstance(world, FunctionalWorld):
            raise ConfigError(
                f"compile: {world.name} has to be a FunctionalWorld, and the policy, a "
                f"{type(policy).__name__}, to have sample(), to carry nothing from step to step "
                "and to compute on the same device: compile the optimizer step alone, or nothing."
            )
        places = [self._buffers.keys.index(unravel_key(key)) for key in policy.in_keys]
        return WorldSteps(world, sample, places, self._actions.to_world, self._buffers)

    def _step_at_once(self, steps: WorldSteps, timing: Timing) -> None:
        world: Any = self._world
        actor: Any = self._actor
        if not actor.is_laid_out:
            learn_outputs(actor, self._policy_device)
        if not self._rows:
            spans = (
                slice(t, min(t + STEPS, self._horizon)) for t in range(0, self._horizon, STEPS)
            )
            self._rows = [self._buffers.rows(span, actor.outputs.rows(span)) for span in spans]
        start = perf_counter()
        try:
            for number, rows in enumerate(self._rows):
                length = len(rows.following["reward"])
                if length not in self._graphs:
                    what = f"{length} steps of the world" if length > 1 else "a step of the world"
                    self._graphs[length] = Graph(steps.__call__, what)
                graph = self._graphs[length]
                # From the second call on only values have changed.
                world.carry = (graph.again if number else graph)(world.carry, rows)
        except CannotCompileError as error:
            self._compiled = None
            _log.warning(
                "the steps of %s cannot be compiled, and are made eagerly: %s", world.name, error
            )
            self._step(timing)
            return
        timing.totals["collect/env"] += perf_counter() - start

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "world": self._world.state_dict()}

    def _running(self) -> dict[str, Any]:
        return {
            "observations": [rows[-1].clone() for rows in self._buffers.observation],
            "returns": self._returns.clone(),
            "lengths": self._lengths.clone(),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> Sequence[int]:
        goes_on = self._world.load_state_dict(state_dict["world"])
        running = state_dict["running"] if goes_on else None
        return super().load_state_dict({**state_dict, "running": running})

    def _restore(self, saved: dict[str, Any]) -> Sequence[int]:
        for rows, saved_row in zip(self._buffers.observation, saved["observations"], strict=True):
            rows[-1].copy_(saved_row)
        self._returns.copy_(saved["returns"])
        self._lengths.copy_(saved["lengths"])
        return []


STEPS = 8
"""Steps per graph; more take longer to compile and gain little."""
_log = logging.getLogger(__name__)


@dataclass
class WorldSteps:
    """Several steps of a `FunctionalWorld` and its policy, as a function of tensors.

    ``places`` are those of the policy's inputs among the leaves of an observation.
    """

    world: FunctionalWorld
    sample: Callable[..., dict[NestedKey, torch.Tensor]]
    places: list[int]
    to_world: Callable[[Any], torch.Tensor]
    buffers: WorldBuffers

    def __call__(self, carry: Carry, rows: Rows) -> Carry:
        """Make as many steps as ``rows`` has, write them there, and return the new state."""
        leaves = self.buffers.values
        now = leaves(self.world.observed(carry.state))
        steps = []
        for _ in range(len(rows.following["reward"])):
            sample = self.sample(*(now[place] for place in self.places))
            carry, outcome = self.world.advance(carry, self.to_world(sample["action"]))
            now = leaves(outcome.observation)
            assert outcome.final is not None
            final = dict(zip(self.buffers.keys, leaves(outcome.final), strict=True))
            following = {**final, "reward": outcome.reward, **ends_of(outcome)}
            outputs = [sample[key] for key in rows.sample]
            steps.append([*now, *following.values(), *outputs])
        written = [rows.following[key] for key in following]
        places = [*rows.observation, *written, *rows.sample.values()]
        for place, values in zip(places, zip(*steps, strict=True), strict=True):
            place.copy_(torch.stack(values))
        return carry
