"""One rollout after another: a policy, a group of environments, and the batches they make."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import Any

import numpy as np
import torch
from tensordict import NestedKey, TensorDict, unravel_key

from ..base.space_parts import MASK
from ..base.tensordicts import tensordict_of
from ..base.untrusted import one_line
from ..base.words import listed
from ..errors import ConfigError, StateMismatchError
from ..loop.timing import Timing
from .action_format import AnyActionFormat
from .actors import Actor, PartActor, Policy, RandomActor, WarmUp, as_array, learn_outputs
from .buffers import StepBuffers, env_first_array
from .device_rows import DeviceRows, SendingActor, crosses_once, to_device
from .group import EnvGroup
from .module_actor import actor_of
from .spaces import Array, ObservationLayout
from .worker_group import WorkerGroup


class Rollout:
    """Steps a group of environments with a policy and makes batches of the transitions.

    Args:
        group: The environments.
        policy: What `VectorCollector` takes.
        horizon: Steps of a rollout.
        action_format: How the policy writes actions.
        traj_ids: Whether batches hold the trajectories' numbers.
        policy_device: Where the policy computes.
        device: Where batches live.
    """

    _is_running = False  # whether the next batch continues the running episodes
    _in_full = True  # whether every step of a rollout is made, and by all environments at once

    def __init__(
        self,
        group: EnvGroup,
        policy: Policy | None,
        horizon: int,
        *,
        action_format: AnyActionFormat,
        traj_ids: bool,
        policy_device: torch.device,
        device: torch.device,
    ) -> None:
        self._group = group
        self._traj_ids = traj_ids
        self._policy_device = policy_device
        self._device = device
        # Compared once: a comparison of devices costs as much as making a small tensor.
        self._moves_outputs = policy_device.type != "cpu" or device.type != "cpu"
        self._moves_arrays = device.type != "cpu"
        self._envs = range(group.num_envs)
        num_envs = group.num_envs
        mask = group.first_info().get(MASK)
        layout = ObservationLayout(group.observation_space, mask, action_format.mask_size)
        group.bind(layout, action_format)
        self._policy = policy
        self._action_format = action_format
        self._names = [unravel_key(leaf.key) for leaf in layout.leaves]
        self._lay_out(group.make_buffers(horizon, pin=policy_device.type == "cuda"))
        self._rewards = np.zeros(num_envs)
        self._counts = np.zeros(num_envs, np.int64)
        self._finals: list[tuple[int, int, list[Array]]] = []
        self._timing = Timing()
        # Of the environments whose running episodes would have to be played again.
        self._played = {
            i: ActionLog(action_format.shape)
            for i, restore in enumerate(group.restores)
            if restore.method == "replay"
        }

    def _lay_out(self, buffers: StepBuffers) -> None:
        """Have the environments write there, and actors that read it."""
        self._buffers = buffers
        self._masks: Array | None = None  # [time + 1, num_envs, mask_size]
        if MASK in self._names and self._action_format.mask_size:
            self._masks = buffers.observation[self._names.index(MASK)]
        group, seeds = self._group, self._group.seeds
        sizes = (self._action_format, group.num_envs, len(buffers.rows))
        self._random = RandomActor(buffers, *sizes, seeds.seed, seeds.first_env)
        self._actor: Actor = self._random
        self._on_device: DeviceRows | None = None
        if self._policy is not None and crosses_once(self._policy_device, self._device):
            self._on_device = DeviceRows(buffers, self._device)
            actor = actor_of(self._policy, self._on_device, *sizes, self._policy_device)
            self._actor = SendingActor(actor, self._on_device)
        elif self._policy is not None:
            device = self._policy_device
            self._actor = actor_of(self._policy, buffers, *sizes, device, self._in_full)
        self._warm_up = WarmUp(self._actor, self._random)

    def begin_episodes(self) -> None:
        """Begin the next episode of every environment."""
        self._group.reset(self._buffers.rows[-1])
        self._forget(self._envs)

    def abandon(self) -> None:
        """Begin the next batch with new episodes."""
        self._is_running = False

    def collect(self, timing: Timing, steps: int, warm_up: bool) -> TensorDict:
        """Step all environments ``horizon`` times and return the transitions.

        If it fails, the running episodes are abandoned.

        Args:
            timing: Where the time goes: ``collect/env``, ``collect/inference`` and, for putting the
                batch together where it belongs, ``collect/transfer``.
            steps: How many steps each environment made before; of no interest here.
            warm_up: Whether random actions take the place of the policy's.
        """
        is_running, self._is_running = self._is_running, False
        if not is_running:
            self.begin_episodes()
        self._timing = timing
        self._buffers.carry()
        if self._on_device is not None:
            self._on_device.begin()
        if warm_up and not self._actor.is_laid_out:
            learn_outputs(self._actor, self._policy_device)
        first_episodes = list(self._group.episodes)
        self._check_masks(slice(0, 1))
        self._step(self._acting(warm_up))
        self._check_masks(slice(1, -1))
        with timing.phase("collect/transfer"):
            batch = self._batch(self._acting(warm_up).tensors(), first_episodes, warm_up)
            if self._played:
                self._log_actions(as_array(batch.get("action")))
        self._is_running = True
        return batch

    def _acting(self, warm_up: bool) -> Actor | WarmUp:
        return self._warm_up if warm_up else self._actor

    def state_dict(self) -> dict[str, Any]:
        """Everything the next rollout depends on, the policy's parameters aside."""
        return {
            "policy": self._actor.state_dict(),
            "random": self._random.state_dict(),
            "running": self._running() if self._is_running else None,
        }

    def check(self, state_dict: dict[str, Any]) -> None:
        """Raise a `StateMismatchError` if the state comes from other environments or policies."""
        self._actor.check(state_dict["policy"])
        saved = state_dict["running"]
        if saved is None:
            return
        if saved["kind"] != self._group.kind:
            raise StateMismatchError(
                f"The saved collector stepped {one_line(saved['kind'])}, this one steps "
                f"{self._group.kind}: build it from the same env and vectorization_mode."
            )
        methods = [restore.method for restore in self._group.restores]
        pairs = zip(methods, saved["methods"], strict=True)
        if any(method not in (before, "none") for method, before in pairs):
            before = one_line(listed(sorted({*saved["methods"]})), 80)
            raise StateMismatchError(
                f"The saved environments are restored by {before}, these by "
                f"{listed(sorted({*methods}))}: they are not the same."
            )
        shapes = [list(observation.shape[1:]) for observation in saved["observations"]]
        own = [list(leaf.shape) for leaf in self._buffers.leaves]
        if shapes != own:
            raise StateMismatchError(
                f"The saved observations have the shapes {shapes}, those of this collector {own}."
            )

    def load_state_dict(self, state_dict: dict[str, Any]) -> list[int]:
        """Restore what `state_dict` returned and `check` has seen.

        Returns:
            The environments that could not be restored and have begun a new episode.

        Raises:
            StateMismatchError: If an episode that was played again took another course.
        """
        self._actor.load_state_dict(state_dict["policy"])
        self._random.load_state_dict(state_dict["random"])
        saved = state_dict["running"]
        if saved is None:
            return []
        row = self._buffers.rows[-1]
        for array, observation in zip(row.observation, saved["observations"], strict=True):
            array[...] = observation.numpy()
        self._rewards = saved["episode_rewards"].numpy().copy()
        self._counts = saved["step_counts"].numpy().copy()
        for i, log in self._played.items():
            log.clear()
            log.extend(saved["actions"][str(i)].numpy())
        actions = [self._played[i].actions if i in self._played else None for i in self._envs]
        episodes = list(self._group.episodes)
        lost = self._group.restore(episodes, saved["snapshots"], actions, row)
        self._forget(lost)
        self._is_running = True
        return lost

    def _running(self) -> dict[str, Any]:
        return {
            "kind": self._group.kind,
            "methods": [restore.method for restore in self._group.restores],
            "episode_rewards": torch.from_numpy(self._rewards.copy()),
            "step_counts": torch.from_numpy(self._counts.copy()),
            "observations": [
                torch.from_numpy(array[-1].copy()) for array in self._buffers.observation
            ],
            "snapshots": self._group.snapshots(),
            "actions": {str(i): torch.from_numpy(p.actions) for i, p in self._played.items()},
        }

    def _step(self, actor: Actor | WarmUp) -> None:
        act = self._timing.traced("collect/inference", actor.act)
        step = self._timing.traced("collect/env", self._group.step)
        self._finals.clear()
        inference = stepping = 0.0
        now = perf_counter()
        for t, row in enumerate(self._buffers.rows):
            actions = as_array(act(t))
            acted = perf_counter()
            finished = step(actions, row)
            if finished:
                actor.begin([i for i, _ in finished])
                self._finals += [(i, t, values) for i, values in finished]
            inference += acted - now
            now = perf_counter()
            stepping += now - acted
        self._add_up(len(self._buffers.rows))
        self._timing.add("collect/inference", inference)
        self._timing.add("collect/env", stepping)

    def _add_up(self, steps: int, begun: Sequence[tuple[int, int]] = ()) -> None:
        """Add up the rewards and steps of each episode.

        Args:
            steps: How many steps there were.
            begun: Environments and the steps in which they only began an episode.
        """
        ended: defaultdict[int, list[int]] = defaultdict(list)
        for i, t in [*((i, t) for i, t, _ in self._finals), *begun]:
            ended[t].append(i)
        buffers, start = self._buffers, 0
        for t in sorted({*ended, steps - 1}):  # between two of these no episode ends
            span, start = slice(start, t + 1), t + 1
            rewards, counts = buffers.episode_reward[span], buffers.step_count[span]
            rewards[...], counts[...] = buffers.reward[span], 1
            rewards[0] += self._rewards
            counts[0] += self._counts
            np.add.accumulate(rewards, out=rewards)
            np.add.accumulate(counts, out=counts)
            self._rewards, self._counts = rewards[-1].copy(), counts[-1].copy()
            self._rewards[ended[t]] = self._counts[ended[t]] = 0

    def _batch(
        self, outputs: dict[NestedKey, torch.Tensor], first_episodes: list[int], warm_up: bool
    ) -> TensorDict:
        root: dict[NestedKey, Any] = {}
        following: dict[NestedKey, Any] = {}
        for key, tensor in outputs.items():
            placed = tensor.to(self._device) if self._moves_outputs else tensor
            if isinstance(key, tuple) and key[0] == "next":
                following[unravel_key(key[1:])] = placed
            else:
                root[key] = placed
        arrays = self._arrays(following)
        if self._on_device is not None:
            seen = self._on_device.observations(self._finals, wait=warm_up)
            for name, (before, after) in zip(self._names, seen, strict=True):
                root[name], following[name] = before, after
            following |= to_device(arrays, self._device)
        else:
            self._observe(root, following)
            following |= {key: self._tensor(array) for key, array in arrays.items()}
        done = following["done"]
        for name in ("done", "terminated", "truncated"):
            root[name] = torch.zeros_like(done)
        size = done.shape[:2]
        if self._traj_ids:
            ids = self._trajectories(arrays["done"][..., 0], first_episodes)
            root["collector", "traj_ids"] = ids
        root["next"] = tensordict_of(following, size)
        return tensordict_of(root, size)

    def _observe(self, root: dict[NestedKey, Any], following: dict[NestedKey, Any]) -> None:
        """Put what was observed into a batch, and what that led to."""
        for k, (name, array) in enumerate(zip(self._names, self._buffers.observation, strict=True)):
            after = env_first_array(array[1:])
            for i, t, values in self._finals:
                after[i, t] = values[k]
            root[name] = self._tensor(env_first_array(array[:-1]))
            following[name] = self._tensor(after)

    def _arrays(self, taken: Mapping[NestedKey, Any]) -> dict[NestedKey, Array]:
        """What the environments gave beside observations, ``[num_envs, time, 1]`` each."""
        buffers = self._buffers
        terminated = env_first_array(buffers.terminated)[..., None]
        truncated = env_first_array(buffers.truncated)[..., None]
        episode_reward = env_first_array(buffers.episode_reward, np.float32)
        arrays: dict[NestedKey, Array] = {
            "reward": env_first_array(buffers.reward)[..., None],
            "done": terminated | truncated,
            "terminated": terminated,
            "truncated": truncated,
            "episode_reward": episode_reward[..., None],
            "step_count": env_first_array(buffers.step_count)[..., None],
        }
        for key, array in zip(self._group.info_keys, buffers.info, strict=True):
            if key in arrays or key in taken or key in self._names:
                raise ConfigError(
                    f"info_keys: the policy writes ('next', {key!r}) already. Let the environment, "
                    "or a wrapper around it, call it otherwise in its info."
                )
            arrays[key] = env_first_array(array)[..., None]
        return arrays

    def _trajectories(self, done: Array, first_episodes: list[int]) -> torch.Tensor:
        """``episode * num_envs + environment``, where the episode counts on after each end."""
        num_envs = len(done)
        ended = np.cumsum(done, axis=1) - done  # before this step
        episodes = ended + np.asarray(first_episodes)[:, None]
        return self._tensor(episodes * num_envs + np.arange(num_envs)[:, None])

    def _log_actions(self, actions: Array) -> None:
        last = {i: t for i, t, _ in self._finals}
        for i, log in self._played.items():
            if i in last:
                log.clear()
            log.extend(actions[i, last.get(i, -1) + 1 :])

    def _forget(self, envs: Sequence[int]) -> None:
        index = list(envs)
        self._rewards[index] = 0.0
        self._counts[index] = 0
        self._actor.begin(index)
        for i in self._played.keys() & set(index):
            self._played[i].clear()

    def _check_masks(self, steps: slice) -> None:
        """Refuse action masks that allow nothing where an action is to be chosen."""
        if self._masks is None:
            return
        nothing = np.argwhere(self._action_format.leaves_nothing(self._masks[steps]))
        if len(nothing):
            i = int(nothing[0][1])
            raise ConfigError(
                f"the {MASK} of environment {self._group.seeds.first_env + i}, "
                f"{self._group.names[i]}, allows none of the actions of {self._action_format.space}"
                f" in a running episode: {self._masks[steps][tuple(nothing[0])].astype(int)}. Let "
                "it allow one, or end the episode."
            )

    def _tensor(self, array: Array) -> torch.Tensor:
        tensor = torch.from_numpy(array)
        return tensor.to(self._device) if self._moves_arrays else tensor


class StagedRollout(Rollout):
    """A `Rollout` over a `WorkerGroup`.

    Stages act in the order of their environments, so that everything comes out as with one.
    """

    _in_full = False
    _group: WorkerGroup

    def _step(self, actor: Actor | WarmUp) -> None:
        if not isinstance(actor, PartActor):  # random actions wait for nothing
            super()._step(actor)
            return
        stages, rows = self._group.stages, self._buffers.rows
        send = self._group.send
        act_for = self._timing.traced("collect/inference", actor.act_for)
        receive = self._timing.traced("collect/env", self._group.receive)
        self._finals.clear()
        inference = waited = 0.0
        now = perf_counter()
        for t in range(len(rows) + 1):
            for stage, envs in enumerate(stages):
                if t:
                    finished = receive(stage)
                    landed = perf_counter()
                    waited += landed - now
                    now = landed
                    if finished:
                        actor.begin([i for i, _ in finished])
                        self._finals += [(i, t - 1, values) for i, values in finished]
                if t < len(rows):
                    send(stage, as_array(act_for(t, envs)), rows[t])
                    acted = perf_counter()
                    inference += acted - now
                    now = acted
        self._add_up(len(rows))
        self._timing.add("collect/inference", inference)
        self._timing.add("collect/env", waited)


class GappedRollout(Rollout):
    """A `Rollout` that leaves out the steps in which an episode only begins.

    It steps until every environment has its transitions. Of those that have more by then, since
    fewer of their episodes ended, the last ones are left out: in a batch the transitions of an
    environment follow one another, and between two batches some may be missing.

    Args:
        group: The environments, whose ``began`` says who only began an episode.
        policy: What `VectorCollector` takes.
        horizon: Transitions of each environment in a batch.
        **rest: As for `Rollout`.
    """

    _in_full = False

    def __init__(self, group: EnvGroup, policy: Policy | None, horizon: int, **rest: Any) -> None:
        # Even if every second step is none there are enough.
        super().__init__(group, policy, 2 * horizon, **rest)
        self._horizon = horizon
        self._is_transition = np.zeros((2 * horizon, group.num_envs), bool)

    def collect(self, timing: Timing, steps: int, warm_up: bool) -> TensorDict:
        """Collect the transitions of a batch, ``[num_envs, horizon]``."""
        made = super().collect(timing, steps, warm_up)
        order = np.argsort(~self._is_transition, axis=0, kind="stable")[: self._horizon]
        taken = torch.from_numpy(order.T.copy()).to(made.device or "cpu")
        rows = torch.arange(self._group.num_envs, device=taken.device)[:, None]
        return made[rows, taken]

    def _step(self, actor: Actor | WarmUp) -> None:
        act = self._timing.traced("collect/inference", actor.act)
        step = self._timing.traced("collect/env", self._group.step)
        self._finals.clear()
        self._is_transition[...] = False
        inference = stepping = 0.0
        now = perf_counter()
        begun: list[tuple[int, int]] = []
        left = np.full(self._group.num_envs, self._horizon)
        for t, row in enumerate(self._buffers.rows):
            actions = as_array(act(t))
            acted = perf_counter()
            self._finals += [(i, t, values) for i, values in step(actions, row)]
            began = self._group.began
            if began.any():
                actor.begin(np.flatnonzero(began).tolist())
                begun += [(i, t) for i in np.flatnonzero(began).tolist()]
            self._is_transition[t] = ~began
            left -= ~began
            inference += acted - now
            now = perf_counter()
            stepping += now - acted
            if left.max() <= 0:
                break
        for array in self._buffers.observation:
            array[-1] = array[t + 1]  # where the next rollout goes on
        self._add_up(t + 1, begun)
        self._timing.add("collect/inference", inference)
        self._timing.add("collect/env", stepping)


_FIRST_CAPACITY = 64


class ActionLog:
    """A growing array of actions.

    Args:
        shape: Shape of one action.
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._buffer: Array = np.zeros((_FIRST_CAPACITY, *shape))
        self._length = 0

    @property
    def actions(self) -> Array:
        """A copy of the actions so far, ``[steps, *shape]``."""
        return self._buffer[: self._length].copy()

    def extend(self, actions: Array) -> None:
        """Add ``actions``, ``[steps, *shape]``; the first ones of an episode set the type."""
        if not self._length:
            self._buffer = self._buffer.astype(actions.dtype, copy=False)
        end = self._length + len(actions)
        if end > len(self._buffer):
            more = np.zeros((end, *self._buffer.shape[1:]), self._buffer.dtype)
            self._buffer = np.concatenate([self._buffer, more])
        self._buffer[self._length : end] = actions
        self._length = end

    def clear(self) -> None:
        """Forget all actions: another episode begins."""
        self._length = 0
