"""Replay buffers of 10^4 to 10^7 transitions: what storing and sampling cost when they are full.

A step stores one transition of CartPole, samples 128 and, if prioritized, updates their
priorities: what off-policy training does at every frame. The buffer is filled before the clock
starts. `frames` counts such steps.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import gymnasium as gym
import numpy as np
import torch
import tyro
from measure import Meter, Run
from tensordict import TensorDict

BATCH = 128
CHUNK = 100_000


@dataclass(kw_only=True)
class Args(Run):
    """Options of the replay benchmark."""

    frames: int = 6_000
    """steps to make"""
    warmup: int = 100
    """steps before the clock starts"""
    library: Literal["hooktrainer", "torchrl", "sb3"] = "torchrl"
    """whose buffer"""
    size: int = 10_000
    """transitions it holds"""
    storage: Literal["tensor", "memmap"] = "tensor"
    """in memory, or mapped from files"""
    prioritized: bool = False
    """sample in proportion to priorities, and update them"""


def transitions(count: int) -> TensorDict:
    """Return random transitions as a collector yields them, flattened."""
    flag = torch.zeros(count, 1, dtype=torch.bool)
    return TensorDict(
        {
            "observation": torch.randn(count, 4),
            "action": torch.randint(2, (count,)),
            "next": TensorDict(
                {
                    "observation": torch.randn(count, 4),
                    "reward": torch.ones(count, 1),
                    "done": flag,
                    "terminated": flag.clone(),
                    "truncated": flag.clone(),
                },
                [count],
            ),
        },
        [count],
    )


def torchrl_buffer(args: Args, folder: str) -> Any:
    """Return TorchRL's buffer."""
    from torchrl.data import LazyMemmapStorage, LazyTensorStorage, TensorDictReplayBuffer
    from torchrl.data.replay_buffers.samplers import PrioritizedSampler, RandomSampler

    if args.storage == "memmap":
        storage = LazyMemmapStorage(args.size, scratch_dir=folder)
    else:
        storage = LazyTensorStorage(args.size)
    sampler = (
        PrioritizedSampler(args.size, alpha=0.6, beta=0.4) if args.prioritized else RandomSampler()
    )
    return TensorDictReplayBuffer(storage=storage, sampler=sampler, batch_size=BATCH)


def hooktrainer_buffer(args: Args, folder: str) -> Any:
    """Return hooktrainer's buffer."""
    from hooktrainer.replay import PrioritizedSampler, ReplayBuffer

    return ReplayBuffer(
        args.size,
        batch_size=BATCH,
        sampler=PrioritizedSampler(args.size, alpha=0.6, beta=0.4) if args.prioritized else None,
        scratch_dir=folder if args.storage == "memmap" else None,
    )


def tensordict_steps(args: Args, buffer: Any) -> tuple[Callable[[int], None], Callable[[], None]]:
    """Return how to store `n` transitions, and how to make one step."""
    one, error = transitions(1), torch.rand(BATCH)

    def step() -> None:
        buffer.extend(one)
        sample = buffer.sample()
        if args.prioritized:
            sample.set("td_error", error)
            buffer.update_tensordict_priority(sample)

    return lambda n: buffer.extend(transitions(n)), step


def sb3_buffer(args: Args) -> tuple[Callable[[int], None], Callable[[], None]]:
    """Return the same for Stable-Baselines3's buffer, which stores one step at a time."""
    from stable_baselines3.common.buffers import ReplayBuffer

    env = gym.make("CartPole-v1")
    buffer = ReplayBuffer(args.size, env.observation_space, env.action_space, device="cpu")
    observation, action = np.random.randn(1, 4).astype(np.float32), np.array([[1]])
    reward, done = np.ones(1, np.float32), np.zeros(1, bool)

    def fill(count: int) -> None:
        # Adding row by row would take minutes; the arrays are written as `add` would.
        start, stop = buffer.pos, buffer.pos + count
        buffer.observations[start:stop] = np.random.randn(count, 1, 4)
        buffer.next_observations[start:stop] = np.random.randn(count, 1, 4)
        buffer.rewards[start:stop] = 1
        buffer.pos, buffer.full = stop % args.size, stop == args.size

    def step() -> None:
        buffer.add(observation, observation, action, reward, done, [{}])
        buffer.sample(BATCH)

    return fill, step


def main(args: Args) -> None:
    """Fill the buffer, make the steps, and print the result as one line of JSON."""
    args.prepare()
    folder = tempfile.mkdtemp(prefix="replay")
    try:
        if args.library == "sb3":
            fill, step = sb3_buffer(args)
        else:
            make = {"torchrl": torchrl_buffer, "hooktrainer": hooktrainer_buffer}[args.library]
            fill, step = tensordict_steps(args, make(args, folder))
        for start in range(0, args.size, CHUNK):
            fill(min(CHUNK, args.size - start))
        meter = Meter(args, "CartPole-v1")
        for frame in range(args.frames + 1):
            if frame % 100 == 0 and meter.tick(frame):
                break
            step()
        meter.print()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(tyro.cli(Args))
