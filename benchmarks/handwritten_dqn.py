"""DQN on CartPole-v1 as one would write it by hand for speed: one gradient step per frame.

Transitions are rows of one array, so that a minibatch is one gather; the greedy action is computed
in NumPy; Adam is fused; the loss can be compiled.

Reference: Mnih et al. 2015, "Human-level control through deep reinforcement learning".
"""

from __future__ import annotations

from dataclasses import dataclass

import gymnasium as gym
import numpy as np
import torch
import tyro
from measure import Meter, Run
from torch import Tensor, nn
from torch.utils.tensorboard import SummaryWriter


@dataclass(kw_only=True)
class Args(Run):
    """Options of the hand-written DQN."""

    lr: float = 2.5e-4
    """learning rate of Adam"""
    batch_size: int = 128
    """transitions per gradient step"""
    buffer_size: int = 10_000
    """transitions that are kept"""
    learning_starts: int = 1_000
    """random frames before the first gradient step"""
    target_interval: int = 500
    """frames between two copies of the network into its target"""
    gamma: float = 0.99
    """discount"""
    compile: bool = False
    """compile the loss with torch.compile"""


# Columns of a stored transition.
OBSERVATION, NEXT, ACTION, REWARD, TERMINATED, WIDTH = slice(0, 4), slice(4, 8), 8, 9, 10, 11


def dqn_loss(network: nn.Module, target: nn.Module, batch: Tensor, gamma: float) -> Tensor:
    """Return the mean squared temporal-difference error of a batch `[n, WIDTH]`, a scalar."""
    with torch.no_grad():
        bootstrap = target(batch[:, NEXT]).amax(-1) * (1 - batch[:, TERMINATED])
        expected = batch[:, REWARD] + gamma * bootstrap
    value = network(batch[:, OBSERVATION]).gather(1, batch[:, ACTION, None].long()).squeeze(1)
    return nn.functional.mse_loss(value, expected)


def q_network() -> nn.Sequential:
    """Return the network 4 -> 120 -> 84 -> 2 that all peers use."""
    hidden = [nn.Linear(4, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU()]
    return nn.Sequential(*hidden, nn.Linear(84, 2))


def main(args: Args) -> None:
    """Train, and print the result as one line of JSON."""
    args.prepare()
    rng = np.random.default_rng(args.seed)
    env = gym.make("CartPole-v1")
    network, target = q_network(), q_network()
    target.load_state_dict(network.state_dict())
    # The layers' weights and biases as NumPy arrays that share torch's memory.
    (w1, b1), (w2, b2), (w3, b3) = (
        (layer.weight.detach().numpy().T, layer.bias.detach().numpy()) for layer in network[::2]
    )
    parameters, target_parameters = list(network.parameters()), list(target.parameters())
    optimizer = torch.optim.Adam(parameters, lr=args.lr, fused=True)
    loss_fn = torch.compile(dqn_loss) if args.compile else dqn_loss
    writer = SummaryWriter(str(args.log_dir))
    meter = Meter(args, "CartPole-v1")

    def greedy(x: np.ndarray) -> np.ndarray:
        hidden = np.maximum(np.maximum(x @ w1 + b1, 0) @ w2 + b2, 0)
        return (hidden @ w3 + b3).argmax(-1)

    buffer = np.zeros((args.buffer_size, WIDTH), np.float32)
    exploration_frames = args.frames // 2
    total_loss, episode_return = torch.zeros(()), 0.0
    meter.start()
    observation, _ = env.reset(seed=args.seed)
    for frame in range(args.frames):
        epsilon = max(0.05, 1 - 0.95 * frame / exploration_frames)
        action = int(rng.integers(2) if rng.random() < epsilon else greedy(observation))
        next_observation, reward, terminated, truncated, _ = env.step(action)
        row = buffer[frame % args.buffer_size]
        row[OBSERVATION], row[NEXT] = observation, next_observation
        row[ACTION], row[REWARD], row[TERMINATED] = action, reward, terminated
        observation = next_observation
        episode_return += float(reward)
        if terminated or truncated:
            writer.add_scalar("train/return", episode_return, frame)
            meter.returns.append(episode_return)
            observation, _ = env.reset()
            episode_return = 0.0

        if frame >= args.learning_starts:
            rows = rng.integers(min(frame + 1, args.buffer_size), size=args.batch_size)
            loss = loss_fn(network, target, torch.from_numpy(buffer[rows]), args.gamma)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total_loss += loss.detach()
            if frame % args.target_interval == 0:
                with torch.no_grad():
                    torch._foreach_copy_(target_parameters, parameters)
            if frame % 100 == 0:
                writer.add_scalar("loss", total_loss / 100, frame)
                total_loss.zero_()
        if (frame + 1) % 100 == 0 and meter.tick(frame + 1, greedy):
            break
    writer.close()
    meter.print()


if __name__ == "__main__":
    main(tyro.cli(Args))
