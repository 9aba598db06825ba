"""SAC on Pendulum-v1 as one would write it by hand for speed: one gradient step per frame.

The two critics are one stack of weights and one batched matrix product per layer; transitions are
rows of one array; Adam is fused; targets move in one call.

Reference: Haarnoja et al. 2018, "Soft Actor-Critic Algorithms and Applications"
(arXiv:1812.05905).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import gymnasium as gym
import numpy as np
import torch
import tyro
from measure import Meter, Run
from torch import Tensor, nn
from torch.nn.functional import relu, softplus
from torch.utils.tensorboard import SummaryWriter


@dataclass(kw_only=True)
class Args(Run):
    """Options of the hand-written SAC."""

    lr: float = 1e-3
    """learning rate of all three Adams"""
    batch_size: int = 256
    """transitions per gradient step"""
    learning_starts: int = 100
    """random frames before the first gradient step"""
    gamma: float = 0.99
    """discount"""
    tau: float = 0.005
    """how far the targets move towards the critics after each step"""
    compile: bool = False
    """compile both losses with torch.compile"""


# Columns of a stored transition.
OBSERVATION, ACTION, NEXT, REWARD, TERMINATED, WIDTH = (
    slice(0, 3),
    slice(3, 4),
    slice(4, 7),
    7,
    8,
    9,
)
MAX_ACTION = 2.0


class Critics(nn.Module):
    """Two networks 4 -> 256 -> 256 -> 1 in one stack of weights; returns values `[2, n, 1]`."""

    def __init__(self) -> None:
        super().__init__()
        sizes = [(4, 256), (256, 256), (256, 1)]
        shapes = [(2, *size) for size in sizes] + [(2, 1, out) for _, out in sizes]
        bounds = [1 / math.sqrt(fan_in) for fan_in, _ in sizes] * 2
        self.weights = nn.ParameterList(
            torch.empty(shape).uniform_(-bound, bound)
            for shape, bound in zip(shapes, bounds, strict=True)
        )

    def forward(self, observation: Tensor, action: Tensor) -> Tensor:
        w1, w2, w3, b1, b2, b3 = self.weights
        x = torch.cat((observation, action), -1).expand(2, -1, -1)
        return torch.baddbmm(b3, relu(torch.baddbmm(b2, relu(torch.baddbmm(b1, x, w1)), w2)), w3)


def sample(actor: nn.Module, observation: Tensor) -> tuple[Tensor, Tensor]:
    """Return a tanh-Gaussian action `[n, 1]` in [-1, 1] and its log-probability `[n, 1]`."""
    mean, log_std = actor(observation).chunk(2, -1)
    log_std = log_std.clamp(-20, 2)
    noise = torch.randn_like(mean)
    x = mean + log_std.exp() * noise
    log_prob = -0.5 * noise.square() - log_std - 0.5 * math.log(2 * math.pi)
    # log(1 - tanh(x)^2), written so that it does not underflow
    return x.tanh(), log_prob - 2 * (math.log(2) - x - softplus(-2 * x))


def critic_loss(
    actor: nn.Module,
    critics: nn.Module,
    targets: nn.Module,
    batch: Tensor,
    alpha: Tensor,
    gamma: float,
) -> Tensor:
    """Return the summed squared errors of both critics on a batch `[n, WIDTH]`, a scalar."""
    with torch.no_grad():
        action, log_prob = sample(actor, batch[:, NEXT])
        value = targets(batch[:, NEXT], action).amin(0) - alpha * log_prob
        expected = batch[:, REWARD, None] + gamma * (1 - batch[:, TERMINATED, None]) * value
    error = critics(batch[:, OBSERVATION], batch[:, ACTION]) - expected
    return 0.5 * error.square().mean((1, 2)).sum()


def actor_loss(
    actor: nn.Module, critics: nn.Module, batch: Tensor, alpha: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the actor's loss and the mean log-probability of its actions, two scalars."""
    action, log_prob = sample(actor, batch[:, OBSERVATION])
    value = critics(batch[:, OBSERVATION], action).amin(0)
    return (alpha * log_prob - value).mean(), log_prob.detach().mean()


def main(args: Args) -> None:
    """Train, and print the result as one line of JSON."""
    args.prepare()
    rng = np.random.default_rng(args.seed)
    env = gym.make("Pendulum-v1")
    actor = nn.Sequential(
        nn.Linear(3, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 2)
    )
    critics, targets = Critics(), Critics()
    targets.load_state_dict(critics.state_dict())
    log_alpha = torch.zeros((), requires_grad=True)
    actor_parameters, critic_parameters = list(actor.parameters()), list(critics.parameters())
    target_parameters = list(targets.parameters())
    actor_optimizer = torch.optim.Adam(actor_parameters, lr=args.lr, fused=True)
    critic_optimizer = torch.optim.Adam(critic_parameters, lr=args.lr, fused=True)
    alpha_optimizer = torch.optim.Adam([log_alpha], lr=args.lr, fused=True)
    critic_loss_fn = torch.compile(critic_loss) if args.compile else critic_loss
    actor_loss_fn = torch.compile(actor_loss) if args.compile else actor_loss
    writer = SummaryWriter(str(args.log_dir))
    meter = Meter(args, "Pendulum-v1")

    @torch.no_grad()
    def act(x: np.ndarray) -> np.ndarray:
        mean = actor(torch.from_numpy(x).float()).chunk(2, -1)[0]
        return MAX_ACTION * mean.tanh().numpy()

    buffer = np.zeros((args.frames, WIDTH), np.float32)
    total_loss, episode_return = torch.zeros(()), 0.0
    meter.start()
    observation, _ = env.reset(seed=args.seed)
    for frame in range(args.frames):
        if frame < args.learning_starts:
            action = rng.uniform(-1, 1, 1)
        else:
            with torch.no_grad():
                action = sample(actor, torch.from_numpy(observation)[None])[0][0].numpy()
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
            alpha = log_alpha.detach().exp()
            loss = critic_loss_fn(actor, critics, targets, batch, alpha, args.gamma)
            critic_optimizer.zero_grad()
            loss.backward()
            critic_optimizer.step()

            for parameter in critic_parameters:  # the actor's loss needs no gradient of these
                parameter.requires_grad_(False)
            policy_loss, log_prob = actor_loss_fn(actor, critics, batch, alpha)
            actor_optimizer.zero_grad()
            policy_loss.backward()
            actor_optimizer.step()
            for parameter in critic_parameters:
                parameter.requires_grad_(True)

            # The target entropy is minus the number of action dimensions.
            log_alpha.grad = -alpha * (log_prob - 1)
            alpha_optimizer.step()
            with torch.no_grad():
                torch._foreach_lerp_(target_parameters, critic_parameters, args.tau)
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
