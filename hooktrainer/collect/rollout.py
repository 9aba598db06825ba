"""`Rollout`: steps environments with a policy, one rollout after another."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import Any

import numpy as np
import torch
from tensordict import NestedKey, TensorDict, unravel_key
from tensordict.nn import TensorDictModuleBase

from ..base.space_parts import MASK
from ..base.words import ranges
from ..errors import ConfigError, StateMismatchError
from ..loop.timing import Timing
from .action_format import RandomActions
from .actors import Actor, FunctionActor, learn_outputs
from .batched_env import BatchedEnv
from .buffers import Buffers, OutputBuffers, as_arrays, as_batch
from .module_actor import ModuleActor, unknown_keys


class Rollout:
    """Steps environments with a policy, and makes batches of the transitions.

    Batches of random actions have the layout of the policy's; its other outputs are zero.

    Args:
        envs: The environments.
        policy: The policy; ``None`` for random actions.
        horizon: Steps of a rollout.
        seed: The run's seed, and ``first_env`` the index of the first environment in it: those of
            the random actions.
        device: Where batches live, and ``computes`` where the policy computes.
        traj_ids: The number of all environments of the run, if batches are to hold the number of
            each trajectory; else 0.
    """

    is_running = False  # whether the next batch continues the running episodes

    def __init__(
        self,
        envs: BatchedEnv,
        policy: Any,
        horizon: int,
        *,
        seed: int,
        first_env: int,
        device: torch.device,
        computes: torch.device,
        traj_ids: int,
    ) -> None:
        self._envs, self._horizon = envs, horizon
        self._traj_ids, self._first_env = traj_ids, first_env
        self._device, self._policy_device, self._has_policy = device, computes, policy is not None
        self._stages = envs.stages if len(envs.stages) > 1 and not envs.has_gaps else ()
        self._format, number = envs.action_format, envs.num_envs
        self._buffers: Buffers = envs.prepare(horizon)
        inputs = self._buffers.inputs
        self._random = RandomActions(self._format, inputs, number, seed, first_env)
        self._drawn = OutputBuffers(number, horizon)
        self._actor = self._actor_of(policy)
        masks = self._buffers.observation.get(MASK)
        self._masks = None if masks is None or envs.is_tensors else masks.numpy()
        # Sums of many small numbers: in double precision where the device has it.
        wide = torch.float32 if envs.device.type == "mps" else torch.float64
        # Of each running episode the sum of rewards, and the number of steps.
        self._sums = torch.zeros(2, number, dtype=wide, device=envs.device)
        # Of the environments whose running episodes would have to be played again, the actions by
        # key, in parts.
        self._played: dict[int, list[list[Any]]] = {
            i: [] for i, restore in enumerate(envs.restores) if restore.method == "replay"
        }

    def _actor_of(self, policy: Any) -> Actor:
        if policy is None:
            return Actor()
        envs, inputs = self._envs, self._buffers.inputs
        rest = (inputs, self._format, envs.num_envs, self._horizon, self._policy_device)
        act, complete = getattr(policy, "act", None), getattr(policy, "complete", None)
        if callable(complete):
            act = getattr(policy, "sample", act)
        keys = [unravel_key(key) for key in getattr(policy, "in_keys", ())]
        missing = [key for key in keys if key not in inputs]
        if callable(act) and not missing:
            in_full = not (self._stages or envs.has_gaps or envs.is_tensors)
            return FunctionActor(act, *rest, keys or None, complete, in_full, self._stages)
        if isinstance(policy, TensorDictModuleBase):
            return ModuleActor(policy, *rest)
        if callable(policy) and not missing:
            return FunctionActor(policy, *rest, stages=self._stages)
        raise unknown_keys(missing, inputs)

    def collect(self, timing: Timing, steps: int, warm_up: bool) -> TensorDict:
        """Collect one batch. If that fails, the running episodes are abandoned."""
        is_running, self.is_running = self.is_running, False
        if not is_running:
            self._envs.reset()
            self._forget(range(self._envs.num_envs))
        for rows in self._buffers.inputs.values():  # continue where the last rollout ended
            rows[0].copy_(rows[-1])
        self._steps, self._draws = steps, warm_up or not self._has_policy
        if (warm_up or self._actor.may_be_fast) and not self._actor.is_laid_out:
            learn_outputs(self._actor)
        first_episodes = list(self._envs.episodes) if self._traj_ids else []
        self._buffers.finals.clear()
        self._made_steps = self._make_steps(timing)
        if self._masks is not None and self._format.mask_size:
            self._check_masks(self._masks[: self._made_steps])
        with timing.phase("collect/transfer"):
            batch = self._batch(first_episodes)
            if self._played:
                self._keep_actions(batch)
        self.is_running = True
        return batch

    def _draw(self, t: int, envs: slice | None = None) -> Any:
        """Actions of step ``t`` that are drawn at random."""
        self._actor.skip(t)
        outputs = self._random(t, self._steps + t)
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

    def _receive(self, t: int, stage: int | None) -> bool:
        """Complete step ``t`` of a stage, or step all environments with the actions ``_sent``.

        Returns whether it was the last step that is needed.
        """
        envs = self._envs
        ended = envs.step(self._sent, t) if stage is None else envs.receive(stage)
        if isinstance(ended, torch.Tensor):
            self._actor.begin(ended)
        elif ended:
            self._actor.begin([i for i, _ in ended])
            self._buffers.finals += [(i, t, values) for i, values in ended]
        return False

    def _make_steps(self, timing: Timing) -> int:
        """Make all steps of a rollout; return how many there were.

        Stages act in the order of their environments, so that the result is that of a single one.
        """
        act = timing.traced("collect/inference", self._draw if self._draws else self._actor.act)
        receive = timing.traced("collect/env", self._receive)
        envs, horizon = self._envs, self._horizon
        stages: list[tuple[int | None, slice | None]] = [(None, None)]
        if self._actor.has_stages and not self._draws and self._stages:
            stages = list(enumerate(self._stages))
        inference = stepping = 0.0
        is_last = False
        now = perf_counter()
        for t in range(horizon + 1):
            for stage, part in stages:
                if t:
                    is_last = receive(t - 1, stage)
                    landed = perf_counter()
                    stepping += landed - now
                    now = landed
                if t < horizon and not is_last:
                    actions = act(t, part)
                    acted = perf_counter()
                    inference += acted - now
                    now = acted
                    self._sent = actions
                    if stage is not None:
                        envs.send(stage, actions, t)
            if is_last:
                break
        timing.totals["collect/inference"] += inference
        timing.totals["collect/env"] += stepping
        return t

    def _batch(self, first_episodes: list[int]) -> TensorDict:
        """The batch, whose entries ``[num_envs, time, ...]`` are fresh tensors, not views."""
        envs = self._envs
        root, following = self._buffers.observed()
        given = self._buffers.given()
        given["done"] = given["terminated"] | given["truncated"]
        rewards, ends = self._buffers.following["reward"], self._ends()
        if rewards.is_cpu:
            returns, counts = _sums(rewards, ends, self._sums, self._made_steps)
        else:
            returns, counts = _sums_on_device(rewards, ends, self._sums)
        # Of several agents, the environments give an "episode_reward" themselves.
        given.setdefault("episode_reward", returns)
        given["step_count"] = counts
        if self._traj_ids:
            if max(first_episodes) < 0:
                raise ConfigError(f"traj_ids: {envs.name} counts no episodes: leave it out.")
            # ``episode * num_envs + environment``, where the episode counts on after each end.
            done = given["done"].squeeze(-1)
            before = done.cumsum(1) - done.long()
            episodes = before + torch.tensor(first_episodes, device=done.device).unsqueeze(-1)
            places = torch.arange(len(done), device=done.device).unsqueeze(-1) + self._first_env
            root["collector", "traj_ids"] = episodes * self._traj_ids + places
        outputs, device = self._outputs(), envs.device
        stays = all(value.device == device for value in outputs.values())
        on = device if stays and envs.is_tensors else None
        batch = as_batch(outputs, root, following, given, on)
        if envs.hides_final:
            batch["collector", "final_hidden"] = batch["next", "done"].clone()
        for group in envs.groups:
            for part in (batch, batch["next"]):
                part[group.name].batch_size = [*batch.batch_size, len(group.agents)]
        return batch if stays and device == self._device else batch.to(self._device)

    def _ends(self) -> torch.Tensor:
        """The steps, ``[time, num_envs]``, after which sums begin again."""
        following = self._buffers.following
        return following["terminated"] | following["truncated"]

    def _keep_actions(self, batch: TensorDict) -> None:
        actions = [as_arrays(batch.get(key)) for key in self._format.keys]
        last = {i: t for i, t, _ in self._buffers.finals}
        for i, parts in self._played.items():
            if i in last:
                parts.clear()
            parts.append([array[i, last.get(i, -1) + 1 :].copy() for array in actions])

    def _forget(self, envs: Sequence[int]) -> None:
        index = list(envs)
        self._sums[:, index] = 0
        self._actor.begin(index)
        for i in self._played.keys() & set(index):
            self._played[i].clear()

    def _check_masks(self, masks: Any) -> None:
        """Refuse action masks that allow nothing where an action is to be chosen."""
        nothing = np.argwhere(self._format.leaves_nothing(masks))
        if len(nothing):
            i = int(nothing[0][1])
            envs: Any = self._envs
            raise ConfigError(
                f"the {MASK} of environment {envs.seeds.first_env + i}, {envs.names[i]}, allows "
                f"none of the actions of {self._format.space} in a running episode: "
                f"{masks[tuple(nothing[0])].astype(int)}. Let it allow one, or end the episode."
            )

    # -- state -----------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Everything the next rollout depends on, the policy's parameters aside.

        ``"observations"`` of ``"running"`` are those to act on next.
        """
        running = None
        if self.is_running:
            running = {
                "observations": [rows[-1].clone() for rows in self._buffers.observation.values()],
                "episode_rewards": self._sums[0].clone(),
                "step_counts": self._sums[1].long(),
                "snapshots": self._envs.snapshots(),
                "actions": {
                    str(i): [torch.from_numpy(np.concatenate(x)) for x in zip(*parts, strict=True)]
                    for i, parts in self._played.items()
                },
            }
        envs = self._envs.state_dict()
        return {"policy": self._actor.state_dict(), "envs": envs, "running": running}

    def check(self, state_dict: dict[str, Any]) -> None:
        """Raise a `StateMismatchError` if the state comes from other environments or policies."""
        if ("world" in state_dict.get("envs", ())) != self._envs.is_tensors:
            raise StateMismatchError("The saved collector stepped environments of another kind.")
        actors = [_form(state) for state in (state_dict["policy"], self._actor.state_dict())]
        if actors[0] != actors[1]:
            raise StateMismatchError(
                f"The saved policy carries {actors[0]} from step to step, this one {actors[1]}."
            )
        if (saved := state_dict["running"]) is not None:
            shapes = [list(observation.shape[1:]) for observation in saved["observations"]]
            own = [list(rows[0].shape[1:]) for rows in self._buffers.inputs.values()]
            if shapes != own:
                raise StateMismatchError(
                    f"The saved observations have the shapes {shapes}, those of this collector "
                    f"{own}."
                )
            if missing := self._played.keys() - set(map(int, saved["actions"])):
                raise StateMismatchError(
                    f"The saved collector kept no actions of the environments "
                    f"{ranges(sorted(missing))}: restore_episodes=False begins new episodes."
                )

    def load_state_dict(self, state_dict: dict[str, Any]) -> list[int]:
        """Restore what `state_dict` returned; returns the environments with a new episode."""
        self.is_running = False
        self._actor.load_state_dict(state_dict["policy"])
        continues = self._envs.load_state_dict(state_dict["envs"])
        saved = state_dict["running"]
        if saved is None or not continues:
            return []
        rows = self._buffers.observation.values()
        for row, observation in zip(rows, saved["observations"], strict=True):
            row[-1].copy_(observation)
        self._sums[0].copy_(saved["episode_rewards"])
        self._sums[1].copy_(saved["step_counts"])
        played = {i: [x.numpy() for x in saved["actions"][str(i)]] for i in self._played}
        self._played = {i: [arrays] for i, arrays in played.items()}
        keys, number = self._format.keys, self._envs.num_envs
        actions = [
            self._format.find(dict(zip(keys, played[i], strict=True))) if i in played else None
            for i in range(number)
        ]
        lost = self._envs.restore(list(self._envs.episodes), saved["snapshots"], actions)
        self._forget(lost)
        self.is_running = True
        return lost


Sums = tuple[torch.Tensor, torch.Tensor]
"""The sum of rewards and the number of steps since an episode's start, ``[num_envs, time, 1]``."""


def _sums(rewards: torch.Tensor, ends: torch.Tensor, before: torch.Tensor, steps: int) -> Sums:
    """The sums in a rollout of ``steps``, on the CPU.

    They continue ``before``, ``[2, num_envs]``, which is set to the sums of the running episodes.
    """
    values, ended, last = np.empty((len(rewards), *before.shape)), ends.numpy(), before.numpy()
    values[:, 0], values[:, 1] = rewards.numpy(), 1
    start, first = 0, last
    # Between two steps in which episodes end, one call.
    reset = ended[: steps - 1].any(1).nonzero()[0].tolist() if steps > 1 else []
    for t in [*reset, steps - 1]:
        span, start = values[start : t + 1], t + 1
        span[0] += first
        np.add.accumulate(span, out=span)
        first = np.where(ended[t], 0, span[-1])
    last[...] = first
    returns, counts = values[:, 0].T[..., None], values[:, 1].T[..., None]
    return (
        torch.from_numpy(returns.astype(np.float32, order="C")),
        torch.from_numpy(counts.astype(np.int64, order="C")),
    )


def _sums_on_device(rewards: torch.Tensor, ends: torch.Tensor, before: torch.Tensor) -> Sums:
    """The same without waiting for the device."""
    values = torch.stack([rewards, torch.ones_like(rewards)], 1).to(before.dtype)
    values[0] += before
    known = values.isfinite()  # others are counted apart: a difference of sums would keep a NaN
    sums = torch.cat([values.where(known, 0), ~known[:, :1]], 1).cumsum(0)
    times = torch.arange(len(ends), device=ends.device).unsqueeze(-1)
    last = torch.where(ends, times, -1).cummax(0).values  # the last end up to each step
    last = torch.cat([torch.full_like(last[:1], -1), last[:-1]]).unsqueeze(1).expand_as(sums)
    sums = sums - torch.where(last < 0, 0, sums.gather(0, last.clamp(min=0)))
    sums, unknown = sums[:, :2], sums[:, 2] > 0
    sums[:, 0].masked_fill_(unknown, torch.nan)
    before.copy_(sums[-1].masked_fill(ends[-1], 0))
    returns, counts = sums.permute(1, 2, 0).unsqueeze(-1).contiguous()
    return returns.float(), counts.long()


def _form(policy: dict[str, Any]) -> dict[str, Any]:
    """The shapes of a policy's hidden state by key, from the state of an `Actor`."""
    hidden = {".".join(key): list(value.shape) for key, value in policy.get("hidden", ())}
    return hidden | {key: list(policy[key].shape) for key in policy.keys() & {"is_init"}}


class GappedRollout(Rollout):
    """A `Rollout` that leaves out the steps in which an episode only begins.

    It steps until every environment has its transitions. Of those that have more by then, since
    fewer of their episodes ended, the last ones are left out: in a batch the transitions of an
    environment follow one another, and between two batches some may be missing.
    """

    def __init__(self, envs: BatchedEnv, policy: Any, horizon: int, **options: Any) -> None:
        # Even if every second step is none there are enough.
        super().__init__(envs, policy, 2 * horizon, **options)
        self._wanted = horizon
        self._began = np.ones((self._horizon, envs.num_envs), bool)

    def collect(self, timing: Timing, steps: int, warm_up: bool) -> TensorDict:
        return super().collect(timing, 2 * steps, warm_up)  # for up to 2 * horizon steps

    def _make_steps(self, timing: Timing) -> int:
        self._began[...] = True
        self._left = np.full(self._envs.num_envs, self._wanted)
        steps = super()._make_steps(timing)
        for rows in self._buffers.observation.values():
            rows[-1] = rows[steps]  # where the next rollout continues
        return steps

    def _receive(self, t: int, stage: int | None) -> bool:
        finished: Any = self._envs.step(self._sent, t)
        self._buffers.finals += [(i, t, values) for i, values in finished]
        began = self._envs.began
        if began.any():
            self._actor.begin(np.flatnonzero(began).tolist())
        self._began[t] = began
        self._left -= ~began
        return bool(self._left.max() <= 0)

    def _check_masks(self, masks: Any) -> None:
        # The policy does not act on final observations.
        super()._check_masks(masks | self._began[: len(masks), :, None])

    def _ends(self) -> torch.Tensor:
        return super()._ends() | torch.from_numpy(self._began)

    def _batch(self, first_episodes: list[int]) -> TensorDict:
        batch = super()._batch(first_episodes)
        order = np.argsort(self._began, axis=0, kind="stable")[: self._wanted]
        taken = torch.from_numpy(order.T.copy()).to(batch.device or "cpu")
        rows = torch.arange(self._envs.num_envs, device=taken.device)[:, None]
        return batch[rows, taken]
