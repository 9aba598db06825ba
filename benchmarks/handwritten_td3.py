"""TD3 on Pendulum-v1 as one would write it by hand for speed: one gradient step per frame.

As in `handwritten_sac.py` the two critics are one stack of weights, transitions are rows of one
array, Adam is fused, and all targets move in one call.

Reference: Fujimoto et al. 2018, "Addressing Function Approximation Error in Actor-Critic Methods"
(arXiv:1802.09477).
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass

import gymnasium as gym
import numpy as np
import torch
import tyro
from handwritten_sac import (
    ACTION,
    MAX_ACTION,
    NEXT,
    OBSERVATION,
    REWARD,
    TERMINATED,
    WIDTH,
    Critics,
)
from measure import Meter, Run
from torch import Tensor, nn
from torch.utils.tensorboard import SummaryWriter


@dataclass(kw_only=True)
class Args(Run):
    """Options of the hand-written TD3."""

    lr: float = 1e-3
    """learning rate of both Adams"""
    batch_size: int = 256
    """transitions per gradient step"""
    learning_starts: int = 100
    """random frames before the first gradient step"""
    gamma: float = 0.99
    """discount"""
    tau: float = 0.005
    """how far the targets move at each update"""
    policy_delay: int = 2
    """gradient steps of the critics per update of the actor and the targets"""
    policy_noise: float = 0.2
    """standard deviation of the noise on target actions, for actions in [-1, 1]"""
    noise_clip: float = 0.5
    """bound of that noise"""
    exploration_noise: float = 0.1
    """standard deviation of the exploration noise, for actions in [-1, 1]"""
    compile: bool = False
    """compile both losses with torch.compile"""


def critic_loss(
    target_actor: nn.Module,
    critics: nn.Module,
    targets: nn.Module,
    batch: Tensor,
    args: Args,
) -> Tensor:
    """Return the summed squared errors of both critics on a batch `[n, WIDTH]`, a scalar."""
    with torch.no_grad():
        action = target_actor(batch[:, NEXT])
        noise = torch.randn_like(action) * args.policy_noise
        action = (action + noise.clamp(-args.noise_clip, args.noise_clip)).clamp(-1, 1)
        value = targets(batch[:, NEXT], action).amin(0)
        expected = batch[:, REWARD, None] + args.gamma * (1 - batch[:, TERMINATED, None]) * value
    error = critics(batch[:, OBSERVATION], batch[:, ACTION]) - expected
    return error.square().mean((1, 2)).sum()


def actor_loss(actor: nn.Module, critics: nn.Module, batch: Tensor) -> Tensor:
    """Return minus the first critic's mean value of the actor's actions, a scalar."""
    return -critics(batch[:, OBSERVATION], actor(batch[:, OBSERVATION]))[0].mean()


def main(args: Args) -> None:
    """Train, and print the result as one line of JSON."""
    args.prepare()
    rng = np.random.default_rng(args.seed)
    env = gym.make("Pendulum-v1")
    actor = nn.Sequential(
        nn.Linear(3, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 1), nn.Tanh()
    )
    critics = Critics()
    target_actor, targets = deepcopy(actor), deepcopy(critics)
    actor_parameters, critic_parameters = list(actor.parameters()), list(critics.parameters())
    moved = [*target_actor.parameters(), *targets.parameters()]
    actor_optimizer = torch.optim.Adam(actor_parameters, lr=args.lr, fused=True)
    critic_optimizer = torch.optim.Adam(critic_parameters, lr=args.lr, fused=True)
    critic_loss_fn = torch.compile(critic_loss) if args.compile else critic_loss
    actor_loss_fn = torch.compile(actor_loss) if args.compile else actor_loss
    writer = SummaryWriter(str(args.log_dir))
    meter = Meter(args, "Pendulum-v1")

    @torch.no_grad()
    def act(x: np.ndarray) -> np.ndarray:
        return MAX_ACTION * actor(torch.from_numpy(x).float()).numpy()

    buffer = np.zeros((args.frames, WIDTH), np.float32)
    total_loss, episode_return = torch.zeros(()), 0.0
    meter.start()
    observation, _ = env.reset(seed=args.seed)
    for frame in range(args.frames):
        if frame < args.learning_starts:
            action = rng.uniform(-1, 1, 1)
        else:
            with torch.no_grad():
                action = actor(torch.from_numpy(observation)).numpy()
            action = np.clip(action + args.exploration_noise * rng.standard_normal(1), -1, 1)
        next_observation, reward, terminated, truncated, _ = env.step(MAX_ACTION * action)
        row = buffer[frame]
        row[OBSERVATION], row[ACTION], row[NEXT] = observation, action, next_observation
        row[REWARD], row[TERMINATED] = reward, terminated
        observation = next_observation
        episode_return += float(reward)
        if terminated or truncated:
            writer.add_scalar("train/return", episode_return, frame)
            meter.returns.append(episode_return)
            observation, _ = env.reset()
            episode_return = 0.0

        if frame >= args.learning_starts:
            batch = torch.from_numpy(buffer[rng.integers(frame + 1, size=args.batch_size)])
            loss = critic_loss_fn(target_actor, critics, targets, batch, args)
            critic_optimizer.zero_grad()
            loss.backward()
            critic_optimizer.step()

            if frame % args.policy_delay == 0:
                for parameter in critic_parameters:  # the actor's loss needs no gradient of these
                    parameter.requires_grad_(False)
                policy_loss = actor_loss_fn(actor, critics, batch)
                actor_optimizer.zero_grad()
                policy_loss.backward()
                actor_optimizer.step()
                for parameter in critic_parameters:
                    parameter.requires_grad_(True)
                with torch.no_grad():
                    torch._foreach_lerp_(moved, actor_parameters + critic_parameters, args.tau)
            total_loss += loss.detach()
            if frame % 100 == 0:
                writer.add_scalar("loss", total_loss / 100, frame)
                total_loss.zero_()
        if (frame + 1) % 100 == 0 and meter.tick(frame + 1, act):
            break
    writer.close()
    meter.print()


if __name__ == "__main__":
    main(tyro.cli(Args))
