"""`AgentsRollout`: steps a world with the actions of a policy, and lays out what comes of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any

import torch
from tensordict import TensorDict

from ...loop.timing import Timing
from .agent_infos import mean_over_agents
from .world import Entries, World, WorldStep

_FLAGS = ("done", "terminated", "truncated")


class AgentsRollout:
    """Steps a world, adds up returns and lengths, and lays out batches.

    Args:
        world: The environments; it is seeded, and begins new episodes.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._entries: Entries | None = None  # observed now; None: new episodes are to begin
        rows, device = world.num_envs, world.device
        self._returns = {
            group.name: torch.zeros(rows, len(group.agents), 1, device=device)
            for group in world.groups
        }
        self._lengths = torch.zeros(rows, 1, dtype=torch.int64, device=device)

    def abandon(self) -> None:
        """The next batch begins with new episodes."""
        self._entries = None

    def collect(
        self,
        horizon: int,
        act: Callable[[Entries], Entries],
        complete: Callable[[Entries], Entries],
        timing: Timing,
    ) -> TensorDict:
        """A batch ``[num_envs, horizon]``.

        If it fails, the running episodes are abandoned.

        Args:
            horizon: Steps of each environment.
            act: What the policy writes for what is observed in one step.
            complete: What is recorded of that, for all steps together.
            timing: Where the time goes.
        """
        before: list[Entries] = []
        after: list[Entries] = []
        written: list[Entries] = []
        entries, self._entries = self._entries, None
        if entries is None:
            entries = self._world.reset()
            self._forget(slice(None))
        spent = dict.fromkeys(("inference", "env"), 0.0)
        for _ in range(horizon):
            start = perf_counter()
            outputs = act(entries)
            middle = perf_counter()
            spent["inference"] += middle - start
            step = self._world.step(
                {group.name: outputs[group.name, "action"] for group in self._world.groups}
            )
            before.append(entries)
            written.append(outputs)
            done = step.terminated | step.truncated
            after.append(step.entries | self._outcome(step, done))
            entries = step.entries
            if bool(done.any()):
                entries = _merged(done, self._world.reset(done), step.entries)
                self._forget(done)
            spent["env"] += perf_counter() - middle
        for name, seconds in spent.items():
            timing.add(f"collect/{name}", seconds)
        with timing.phase("collect/transfer"):
            batch = self._batch(_stacked(before) | complete(_stacked(written)), _stacked(after))
        self._entries = entries
        return batch

    def state_dict(self) -> dict[str, Any]:
        """The world's state and, unless new episodes are to begin, what else belongs to these."""
        running = None
        if self._entries is not None:
            running = {
                "entries": dict(self._entries),  # which nobody writes into
                "returns": {name: value.clone() for name, value in self._returns.items()},
                "lengths": self._lengths.clone(),
            }
        return {"world": self._world.state_dict(), "running": running}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        goes_on, running = self._world.load_state_dict(state["world"]), state["running"]
        self._entries = None
        if goes_on and running is not None:
            device = self._world.device
            self._entries = {key: value.to(device) for key, value in running["entries"].items()}
            self._lengths.copy_(running["lengths"])
            for name, value in running["returns"].items():
                self._returns[name].copy_(value)

    def _forget(self, envs: Any) -> None:
        for counter in (self._lengths, *self._returns.values()):
            counter[envs] = 0

    def _outcome(self, step: WorldStep, done: torch.Tensor) -> Entries:
        """What stands under ``"next"`` beside the observations."""
        self._lengths += 1
        out: Entries = {
            "terminated": step.terminated.unsqueeze(-1),
            "truncated": step.truncated.unsqueeze(-1),
            "done": done.unsqueeze(-1),
            "step_count": self._lengths.clone(),
        }
        rewards = []
        for group in self._world.groups:
            name = group.name
            reward = step.rewards[name].unsqueeze(-1)
            self._returns[name] += reward
            rewards.append(reward)
            terminated = step.agents_terminated.get(name, step.terminated.unsqueeze(-1))
            truncated = step.agents_truncated.get(name, step.truncated.unsqueeze(-1))
            ends = {
                "terminated": terminated,
                "truncated": truncated,
                "done": terminated | truncated,
            }
            out[name, "reward"] = reward
            out[name, "episode_reward"] = self._returns[name].clone()
            for flag, value in ends.items():
                out[name, flag] = value.unsqueeze(-1).expand(reward.shape)
        out |= {key: value.unsqueeze(-1) for key, value in step.infos.items()}
        out |= mean_over_agents(step.infos)
        out["reward"] = torch.cat(rewards, 1).mean(1)
        out["episode_reward"] = torch.cat(list(self._returns.values()), 1).mean(1)
        return out

    def _batch(self, now: Entries, following: Entries) -> TensorDict:
        batch = self._place(now)
        for flag in _FLAGS:  # no transition starts at an episode's end
            batch.set(flag, torch.zeros_like(following[flag]))
        batch.set("next", self._place(following))
        return batch

    def _place(self, entries: Entries) -> TensorDict:
        """Entries ``[num_envs, time, ...]`` as a TensorDict with one of its own for each group."""
        shape = next(iter(entries.values())).shape[:2]
        parts: dict[str, Any] = {group.name: {} for group in self._world.groups}
        sizes = {group.name: [*shape, len(group.agents)] for group in self._world.groups}
        for key, value in entries.items():
            if isinstance(key, tuple):
                place = parts.setdefault(key[0], {})
                for name in key[1:-1]:
                    place = place.setdefault(name, {})
                place[key[-1]] = value
            else:
                parts[key] = value
        device = self._world.device
        for name, size in sizes.items():
            parts[name] = TensorDict(parts[name], size, device=device)
        return TensorDict(parts, shape, device=device)


def _merged(envs: torch.Tensor, new: Entries, old: Entries) -> Entries:
    """``new`` in some environments, ``old`` in the others."""
    return {
        key: torch.where(envs.view(-1, *[1] * (value.ndim - 1)), value, old[key])
        for key, value in new.items()
    }


def _stacked(steps: list[Entries]) -> Entries:
    """Entries of several steps, ``[num_envs, ...]`` each, as ``[num_envs, time, ...]``."""
    return {key: torch.stack([step[key] for step in steps], 1) for key in steps[0]}
