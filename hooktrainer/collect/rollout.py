"""One rollout after another: a policy, environments, and the batches they make."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

import numpy as np
import torch
from tensordict import NestedKey, TensorDict, unravel_key
from tensordict.nn import TensorDictModuleBase

from ..base.space_parts import MASK
from ..errors import ConfigError, StateMismatchError
from ..loop.timing import Timing
from .action_format import RandomActions, Sampler
from .actors import Actor, FunctionActor, Policy, as_array, learn_outputs
from .buffers import Entries, OutputBuffers, as_batch, env_first_array
from .group import EnvGroup, random_action_seed
from .module_actor import ModuleActor, unknown_keys
from .spaces import Array, ObservationLayout


class AnyRollout(ABC):
    """Steps environments with a policy, and makes batches of the transitions.

    A subclass makes buffers and actors, steps the environments once (`_receive`) and makes a batch.
    Batches of actions that are drawn at random look like those of the policy: all else that it
    would have written is zero.
    """

    is_running = False  # whether the next batch continues the running episodes
    _in_full = False  # whether every step of a rollout is made, and by all environments at once
    _adds: Sequence[str] = ()  # further entries of the state, besides those of every rollout
    _stages: Sequence[slice] = ()  # the parts of the environments that take turns, if any
    _group: EnvGroup  # that is stepped in stages, if any
    _sent: Any  # the latest actions
    _horizon: int
    _buffers: Any
    _take: Callable[[Any], Any]  # turns the policy's actions into those of the environments

    def _set_actors(
        self,
        policy: Policy | None,
        action_format: Any,
        num_envs: int,
        device: torch.device,
        sampler: Sampler,
    ) -> None:
        """Make what acts on the observations of the buffers: the policy, if any, and a sampler."""
        self._policy_device = device
        self._actor = Actor()
        self._has_policy = policy is not None
        if policy is not None:
            inputs = self._buffers.inputs
            rest = (inputs, action_format, num_envs, self._horizon, device)
            act, complete = getattr(policy, "act", None), getattr(policy, "complete", None)
            if callable(complete):
                act = getattr(policy, "sample", act)
            keys = [unravel_key(key) for key in getattr(policy, "in_keys", ())]
            missing = [key for key in keys if key not in inputs]
            if callable(act) and not missing:
                own = (keys or None, complete, self._in_full, self._stages)
                self._actor = FunctionActor(act, *rest, *own)
            elif isinstance(policy, TensorDictModuleBase):
                self._actor = ModuleActor(policy, *rest)
            elif callable(policy) and not missing:
                self._actor = FunctionActor(policy, *rest, stages=self._stages)
            else:
                raise unknown_keys(missing, inputs)
        self._sampler, self._format = sampler, action_format
        self._drawn = OutputBuffers(num_envs, self._horizon)

    def collect(self, timing: Timing, steps: int, warm_up: bool) -> TensorDict:
        """Collect one batch. If that fails, the running episodes are abandoned."""
        is_running, self.is_running = self.is_running, False
        if not is_running:
            self._begin()
        for rows in self._buffers.observation:  # continue where the last rollout ended
            rows[0] = rows[-1]
        self._steps, self._draws = steps, warm_up or not self._has_policy
        if (warm_up or self._actor.may_be_fast) and not self._actor.is_laid_out:
            learn_outputs(self._actor, self._policy_device)
        batch = self._collect(timing)
        self.is_running = True
        return batch

    def _draw(self, t: int, envs: slice | None = None) -> Any:
        """Actions of step ``t`` that are drawn at random."""
        self._actor.skip(t)
        outputs = self._sampler(t, self._steps + t)
        if not self._drawn.buffers:
            self._drawn.allocate(outputs)
        self._drawn.write(t, outputs)
        return self._format.find(outputs)

    def _outputs(self) -> dict[NestedKey, torch.Tensor]:
        """The policy's outputs in this rollout, or the random actions drawn instead."""
        outputs = self._actor.tensors(blank=self._draws)
        if self._draws:
            for key, action in self._drawn.tensors().items():
                outputs[key] = outputs.get(key, action).copy_(action)
        return outputs

    @abstractmethod
    def _begin(self) -> None:
        """Begin the next episode of every environment."""

    @abstractmethod
    def _collect(self, timing: Timing) -> TensorDict:
        """Make the steps of a rollout, and a batch of them."""

    @abstractmethod
    def _receive(self, t: int, stage: int | None) -> object:
        """Complete step ``t`` of a stage, or make it for all, who take the actions ``_sent``.

        Returns whether it was the last step that is needed.
        """

    def _step(self, timing: Timing) -> int:
        """Make all steps of a rollout; return how many there were.

        Stages act in the order of their environments, so that everything comes out as with one.
        """
        act = timing.traced("collect/inference", self._draw if self._draws else self._actor.act)
        receive = timing.traced("collect/env", self._receive)
        take, horizon = self._take, self._horizon
        stages: list[tuple[int | None, slice | None]] = [(None, None)]
        if self._actor.has_stages and not self._draws and self._stages:
            stages = list(enumerate(self._stages))
        inference = stepping = 0.0
        is_last: object = False
        now = perf_counter()
        for t in range(horizon + 1):
            for stage, envs in stages:
                if t:
                    is_last = receive(t - 1, stage)
                    landed = perf_counter()
                    stepping += landed - now
                    now = landed
                if t < horizon and not is_last:
                    actions = take(act(t, envs))
                    acted = perf_counter()
                    inference += acted - now
                    now = acted
                    self._sent = actions
                    if stage is not None:
                        self._group.send(stage, actions, self._buffers.rows[t])
            if is_last:
                break
        timing.totals["collect/inference"] += inference
        timing.totals["collect/env"] += stepping
        return t

    def state_dict(self) -> dict[str, Any]:
        """Everything the next rollout depends on, the policy's parameters aside."""
        return {
            "policy": self._actor.state_dict(),
            "random": self._sampler.state_dict(),
            "running": self._running() if self.is_running else None,
        }

    @abstractmethod
    def _running(self) -> dict[str, Any]:
        """The running episodes; ``"observations"`` are those to act on next."""

    def check(self, state_dict: dict[str, Any]) -> None:
        """Raise a `StateMismatchError` if the state comes from other environments or policies."""
        if state_dict.keys() != {"policy", "random", "running", *self._adds}:
            raise StateMismatchError("The saved collector stepped environments of another kind.")
        if (saved := state_dict["running"]) is not None:
            shapes = [list(observation.shape[1:]) for observation in saved["observations"]]
            own = [list(rows[0].shape[1:]) for rows in self._buffers.inputs.values()]
            if shapes != own:
                raise StateMismatchError(
                    f"The saved observations have the shapes {shapes}, those of this collector "
                    f"{own}."
                )

    def load_state_dict(self, state_dict: dict[str, Any]) -> Sequence[int]:
        self.is_running = False
        self._actor.load_state_dict(state_dict["policy"])
        self._sampler.load_state_dict(state_dict["random"])
        saved = state_dict["running"]
        lost = [] if saved is None else self._restore(saved)
        self.is_running = saved is not None
        return lost

    @abstractmethod
    def _restore(self, saved: dict[str, Any]) -> Sequence[int]:
        """Restore what `_running` returned; see `load_state_dict`."""


class Rollout(AnyRollout):
    """Steps a group of environments with a policy and makes batches of the transitions."""

    _take = staticmethod(as_array)

    def __init__(self, collector: Any, horizon: int | None = None) -> None:
        self._group = group = collector._envs
        self._horizon = horizon = horizon or collector._horizon
        self._traj_ids = collector._traj_ids
        self._device = collector.device
        action_format = collector._action_format
        self._stages = group.stages if len(group.stages) > 1 and not group.has_gaps else ()
        self._in_full = not (self._stages or group.has_gaps)
        num_envs, seeds = group.num_envs, group.seeds
        mask = group.first_mask()
        layout = ObservationLayout(group.observation_space, mask, action_format.mask_size)
        self._buffers = buffers = group.prepare(layout, action_format, horizon)
        self._names = list(buffers.inputs)
        masks = buffers.observation[self._names.index(MASK)] if MASK in self._names else None
        self._masks = masks if action_format.mask_size else None  # [time + 1, num_envs, mask_size]
        seed = random_action_seed(seeds.seed, seeds.first_env)
        sampler = RandomActions(action_format, num_envs, seed, self._masks)
        self._set_actors(collector.policy, action_format, num_envs, collector._computes, sampler)
        self._rewards = np.zeros(num_envs)
        self._counts = np.zeros(num_envs, np.int64)
        self._finals: list[tuple[int, int, list[Array]]] = []
        # Of the environments whose running episodes would have to be played again.
        self._played: dict[int, list[Array]] = {
            i: [] for i, restore in enumerate(group.restores) if restore.method == "replay"
        }

    def _begin(self) -> None:
        self._group.reset(self._buffers.rows[-1])
        self._forget(range(self._group.num_envs))

    def _collect(self, timing: Timing) -> TensorDict:
        first_episodes = list(self._group.episodes)
        self._finals.clear()
        self._add_up(self._step(timing))
        if self._masks is not None:
            self._check_masks(self._masks[:-1])
        with timing.phase("collect/transfer"):
            batch = self._batch(first_episodes)
            if self._played:
                actions = as_array(batch.get("action"))
                last = {i: t for i, t, _ in self._finals}
                for i, parts in self._played.items():
                    if i in last:
                        parts.clear()
                    parts.append(actions[i, last.get(i, -1) + 1 :].copy())
        return batch

    def _restore(self, saved: dict[str, Any]) -> list[int]:
        row = self._buffers.rows[-1]
        for array, observation in zip(row.observation, saved["observations"], strict=True):
            array[...] = observation.numpy()
        self._rewards = saved["episode_rewards"].numpy().copy()
        self._counts = saved["step_counts"].numpy().copy()
        played = {i: saved["actions"][str(i)].numpy() for i in self._played}
        self._played = {i: [array] for i, array in played.items()}
        actions = [played.get(i) for i in range(self._group.num_envs)]
        episodes = list(self._group.episodes)
        lost = self._group.restore(episodes, saved["snapshots"], actions, row)
        self._forget(lost)
        return lost

    def _running(self) -> dict[str, Any]:
        return {
            "episode_rewards": torch.from_numpy(self._rewards.copy()),
            "step_counts": torch.from_numpy(self._counts.copy()),
            "observations": [
                torch.from_numpy(array[-1].copy()) for array in self._buffers.observation
            ],
            "snapshots": self._group.snapshots(),
            "actions": {
                str(i): torch.from_numpy(np.concatenate(parts)) for i, parts in self._played.items()
            },
        }

    def _receive(self, t: int, stage: int | None) -> object:
        group, row = self._group, self._buffers.rows[t]
        if finished := group.step(self._sent, row) if stage is None else group.receive(stage):
            self._actor.begin([i for i, _ in finished])
            self._finals += [(i, t, values) for i, values in finished]
        return False

    def _add_up(self, steps: int, begun: Sequence[tuple[int, int]] = ()) -> None:
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

    def _batch(self, first_episodes: list[int]) -> TensorDict:
        root: Entries = {}
        following: Entries = {}
        buffers = self._buffers
        terminated, truncated = map(env_first_array, (buffers.terminated, buffers.truncated))
        infos = zip(self._group.info_keys, buffers.info, strict=True)
        arrays = {
            "reward": env_first_array(buffers.reward),
            "done": terminated | truncated,
            "terminated": terminated,
            "truncated": truncated,
            "episode_reward": env_first_array(buffers.episode_reward, np.float32),
            "step_count": env_first_array(buffers.step_count),
            **{key: env_first_array(array) for key, array in infos},
        }
        for k, name in enumerate(self._names):
            observed = buffers.observation[k]
            after = env_first_array(observed[1:])
            for i, t, values in self._finals:
                after[i, t] = values[k]
            root[name] = torch.from_numpy(env_first_array(observed[:-1]))
            following[name] = torch.from_numpy(after)
        if self._traj_ids:
            # ``episode * num_envs + environment``, where the episode counts on after each end.
            ended = np.cumsum(arrays["done"], axis=1) - arrays["done"]  # before this step
            episodes = ended + np.asarray(first_episodes)[:, None]
            number = len(first_episodes)
            ids = episodes * number + np.arange(number)[:, None]
            root["collector", "traj_ids"] = torch.from_numpy(ids)
        given = {key: torch.from_numpy(array[..., None]) for key, array in arrays.items()}
        outputs = self._outputs()
        batch = as_batch(outputs, root, following, given)
        stays = self._device.type == "cpu" and all(value.is_cpu for value in outputs.values())
        return batch if stays else batch.to(self._device)

    def _forget(self, envs: Sequence[int]) -> None:
        index = list(envs)
        self._rewards[index] = 0.0
        self._counts[index] = 0
        self._actor.begin(index)
        for i in self._played.keys() & set(index):
            self._played[i].clear()

    def _check_masks(self, masks: Array) -> None:
        """Refuse action masks that allow nothing where an action is to be chosen."""
        nothing = np.argwhere(self._format.leaves_nothing(masks))
        if len(nothing):
            i = int(nothing[0][1])
            raise ConfigError(
                f"the {MASK} of environment {self._group.seeds.first_env + i}, "
                f"{self._group.names[i]}, allows none of the actions of {self._format.space}"
                f" in a running episode: {masks[tuple(nothing[0])].astype(int)}. Let "
                "it allow one, or end the episode."
            )


class GappedRollout(Rollout):
    """A `Rollout` that leaves out the steps in which an episode only begins.

    It steps until every environment has its transitions. Of those that have more by then, since
    fewer of their episodes ended, the last ones are left out: in a batch the transitions of an
    environment follow one another, and between two batches some may be missing.
    """

    def __init__(self, collector: Any) -> None:
        # Even if every second step is none there are enough.
        super().__init__(collector, 2 * collector._horizon)
        self._wanted = collector._horizon
        self._began = np.ones((self._horizon, self._group.num_envs), bool)

    def collect(self, timing: Timing, steps: int, warm_up: bool) -> TensorDict:
        self._began[...] = True
        self._left = np.full(self._group.num_envs, self._wanted)
        made = super().collect(timing, steps, warm_up)
        order = np.argsort(self._began, axis=0, kind="stable")[: self._wanted]
        taken = torch.from_numpy(order.T.copy()).to(made.device or "cpu")
        rows = torch.arange(self._group.num_envs, device=taken.device)[:, None]
        return made[rows, taken]

    def _receive(self, t: int, stage: int | None) -> object:
        finished = self._group.step(self._sent, self._buffers.rows[t])
        self._finals += [(i, t, values) for i, values in finished]
        began = self._group.began
        if began.any():
            self._actor.begin(np.flatnonzero(began).tolist())
        self._began[t] = began
        self._left -= ~began
        return self._left.max() <= 0

    def _add_up(self, steps: int, begun: Sequence[tuple[int, int]] = ()) -> None:
        for array in self._buffers.observation:
            array[-1] = array[steps]  # where the next rollout continues
        places = np.argwhere(self._began[:steps]).tolist()
        super()._add_up(steps, [(i, t) for t, i in places])
