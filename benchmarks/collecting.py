"""Collecting alone, from EnvPool's environments and Gymnasium's: with our collector and by hand.

The policy is two layers of 64 units on CartPole; on Pong actions are drawn at random, since a
convolutional network would be nearly all of the time. By hand means the loop that the libraries'
own pages show: act, step, keep what PPO learns from. It counts every step as a frame, the one that
only begins an episode included, and keeps no observation that an episode ended with; the collector
does neither.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import gymnasium as gym
import torch
import tyro
from measure import Meter, Run
from torch import Tensor, nn

from hooktrainer import VectorCollector
from hooktrainer.networks import CategoricalPolicy, mlp

STEPS = 128
GAMES = {"cartpole": "CartPole-v1", "pong": "PongNoFrameskip-v4"}
EnvName = Literal["cartpole", "pong"]


@dataclass(kw_only=True)
class Args(Run):
    """Options of the runs that only collect."""

    env: EnvName = "cartpole"
    """which environment"""
    source: Literal["envpool", "gymnasium", "gymnasium-vector"] = "envpool"
    """whose environments; gymnasium-vector is CartPole's version for arrays, by hand only"""
    by_hand: bool = False
    """without hooktrainer"""
    num_envs: int = 8
    """number of environments"""


def pool(args: Args) -> Any:
    """EnvPool's environments, stepped by one thread."""
    import envpool

    name = {"cartpole": "CartPole-v1", "pong": "Pong-v5"}[args.env]
    return envpool.make(
        name, env_type="gymnasium", num_envs=args.num_envs, num_threads=1, seed=args.seed
    )


def game() -> gym.Env[Any, Any]:
    """Pong with the wrappers of the papers, which EnvPool's has built in."""
    env = gym.make(GAMES["pong"])
    return gym.wrappers.FrameStackObservation(gym.wrappers.AtariPreprocessing(env), 4)


def made_by_gymnasium(args: Args) -> gym.vector.VectorEnv[Any, Any, Any]:
    """Gymnasium's environments in one process."""
    if args.env == "cartpole":
        mode = "sync" if args.source == "gymnasium" else "vector_entry_point"
        return gym.make_vec(GAMES[args.env], args.num_envs, vectorization_mode=mode)

    return gym.vector.SyncVectorEnv([game] * args.num_envs)


def drawn(network: nn.Module | None, num_actions: int) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    """What acts by hand: actions and their log-probabilities."""

    def act(observation: Tensor) -> tuple[Tensor, Tensor]:
        if network is None:
            action = torch.randint(num_actions, observation.shape[:1])
            return action, torch.zeros(observation.shape[:1])
        distribution = torch.distributions.Categorical(logits=network(observation))
        action = distribution.sample()
        return action, distribution.log_prob(action)

    return act


@torch.no_grad()
def collect_by_hand(args: Args, meter: Meter) -> None:
    """Fill arrays of a rollout, again and again."""
    env = pool(args) if args.source == "envpool" else made_by_gymnasium(args)
    is_pool = args.source == "envpool"
    space = env.action_space if is_pool else env.single_action_space
    act = drawn(mlp(4, 2) if args.env == "cartpole" else None, int(space.n))
    observation, _ = env.reset() if is_pool else env.reset(seed=args.seed)
    shape = (STEPS, args.num_envs)
    observations = torch.empty(
        *shape, *observation.shape[1:], dtype=torch.from_numpy(observation).dtype
    )
    actions = torch.empty(shape, dtype=torch.int64)
    log_probs, rewards = torch.empty(shape), torch.empty(shape)
    terminated, truncated = torch.empty(shape, dtype=bool), torch.empty(shape, dtype=bool)
    frames = 0
    while not meter.tick(frames):
        for t in range(STEPS):
            observations[t] = torch.from_numpy(observation)
            actions[t], log_probs[t] = act(observations[t])
            observation, *results, _ = env.step(actions[t].numpy())
            for kept, result in zip((rewards, terminated, truncated), results, strict=True):
                kept[t] = torch.from_numpy(result)
        frames += STEPS * args.num_envs


def collect(args: Args, meter: Meter) -> None:
    """Collect with hooktrainer's collector."""
    policy = CategoricalPolicy(mlp(4, 2)) if args.env == "cartpole" else None
    options: dict[str, Any] = {"frames_per_batch": STEPS * args.num_envs}
    if args.source == "envpool":
        collector = VectorCollector(pool(args), policy, **options)
    else:
        env = game if args.env == "pong" else GAMES[args.env]
        collector = VectorCollector(env, policy, num_envs=args.num_envs, seed=args.seed, **options)
    steps = 0  # collector.frames would count what a game skips, too
    while not meter.tick(steps):
        steps += collector.collect().numel()
    collector.shutdown()


def main(args: Args) -> None:
    """Collect, and print the result as one line of JSON."""
    args.prepare()
    if args.env == "pong" and args.source != "envpool":
        import ale_py

        gym.register_envs(ale_py)
    meter = Meter(args, GAMES[args.env])
    (collect_by_hand if args.by_hand else collect)(args, meter)
    meter.print()


if __name__ == "__main__":
    main(tyro.cli(Args))
