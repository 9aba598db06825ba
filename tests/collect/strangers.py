"""A collector such as somebody else may write: a batched simulator that knows no Gymnasium."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from tensordict import TensorDict
from torch import nn

from hooktrainer.collect import Collector


class Walker(nn.Module):
    """Goes right with a probability that is learned."""

    def __init__(self) -> None:
        super().__init__()
        self.logit = nn.Parameter(torch.zeros(()))

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        return torch.rand(len(observation)) < self.logit.detach().sigmoid()


class Walks(Collector):
    """Random walks from a place that depends on the seed, the environment and the episode."""

    num_envs: int

    def __init__(self, num_envs: int = 4, time: int = 6, total_frames: int = -1, seed: int = 0):
        self.policy = Walker()
        self.time, self.first = time, 0
        self.num_envs, self.frames_per_batch = num_envs, num_envs * time
        self.total_frames, self.seed = total_frames, seed
        self.closed = 0
        self._begin()

    def _begin(self) -> None:
        self.frames = 0
        self.episode = torch.zeros(self.num_envs, dtype=torch.int64)
        self.step = torch.zeros(self.num_envs, dtype=torch.int64)
        self.place = torch.stack([self._start_of(env) for env in range(self.num_envs)])

    def _start_of(self, env: int) -> torch.Tensor:
        entropy = [self.seed, self.first + env, int(self.episode[env])]
        return torch.tensor(np.random.default_rng(entropy).random(), dtype=torch.float32)

    def _observe(self) -> torch.Tensor:
        return torch.stack([self.place, self.step.float()], -1)

    def collect(self) -> TensorDict:
        if self.closed:
            raise RuntimeError("closed")
        self.frames += self.frames_per_batch
        return torch.stack([self._advance() for _ in range(self.time)], 1)

    def _advance(self) -> TensorDict:
        observation = self._observe()
        action = self.policy(observation)
        self.place = self.place + action.float() - 0.5
        self.step = self.step + 1
        done = (self.step >= 3 + self.episode % 3).unsqueeze(-1)
        following = {
            "observation": self._observe(),
            "reward": action.float().unsqueeze(-1),
            "done": done,
            "terminated": done.clone(),
            "truncated": torch.zeros_like(done),
        }
        for env in done.squeeze(-1).nonzero().flatten().tolist():
            self.episode[env] += 1
            self.step[env] = 0
            self.place[env] = self._start_of(env)
        return TensorDict(
            {
                "observation": observation,
                "action": action,
                "weight": self.policy.logit.detach().expand(self.num_envs).clone(),
                "next": following,
            },
            [self.num_envs],
        )

    def set_seed(self, seed: int, static_seed: bool = False) -> None:
        self.seed = seed
        self._begin()

    def state_dict(self) -> dict[str, Any]:
        names = ("frames", "seed", "episode", "step", "place")
        return {n: v.clone() if torch.is_tensor(v := getattr(self, n)) else v for n in names}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        vars(self).update(state_dict)

    def shard(self, rank: int, world_size: int) -> None:
        self.check_shares(world_size)
        self.num_envs //= world_size
        self.frames_per_batch //= world_size
        self.first += rank * self.num_envs
        self._begin()

    def reshard(self, states: Any) -> dict[str, Any]:
        rows = slice(self.first, self.first + self.num_envs)
        joined = {n: torch.cat([s[n] for s in states]) for n in ("episode", "step", "place")}
        frames = sum(s["frames"] for s in states) * self.num_envs // len(joined["step"])
        own = {name: value[rows].clone() for name, value in joined.items()}
        return {"frames": frames, "seed": states[0]["seed"], **own}

    def shutdown(self) -> None:
        self.closed += 1


class OnlySome:
    """Has no more than `collect`, and cannot be iterated over."""

    def __init__(self) -> None:
        self._walks = Walks()

    def collect(self) -> TensorDict:
        return self._walks.collect()
