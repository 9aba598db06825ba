"""PPO on CartPole-v1 as one would write it by hand for speed: no hooks, no TensorDicts.

The yardstick for hooktrainer. It uses every trick that is still plain PyTorch and NumPy:

* one environment object that steps all environments at once, with same-step resets;
* while collecting, the actor runs in NumPy; values and log-probabilities are left for one
  batched call after the rollout;
* actions by the Gumbel trick on noise drawn once per rollout, no distribution objects;
* advantages by a NumPy recursion over time;
* minibatches gathered once per epoch; fused Adam; optionally a compiled loss.

References: PPO, Schulman et al. 2017 (arXiv:1707.06347); GAE, Schulman et al. 2015
(arXiv:1506.02438).
"""

from __future__ import annotations

from dataclasses import dataclass

import gymnasium as gym
import numpy as np
import torch
import tyro
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv
from measure import Meter, Run
from torch import Tensor, nn
from torch.utils.tensorboard import SummaryWriter


@dataclass(kw_only=True)
class Args(Run):
    """Options of the hand-written PPO."""

    num_envs: int = 4
    """number of environments"""
    num_steps: int = 128
    """steps in each environment per rollout"""
    epochs: int = 4
    """passes over each rollout"""
    minibatches: int = 4
    """minibatches per pass"""
    width: int = 64
    """units in each of the two hidden layers of the actor and of the critic"""
    lr: float = 2.5e-4
    """learning rate of Adam"""
    anneal: bool = False
    """lower the learning rate and the clip range to zero, linearly, over --frames"""
    gamma: float = 0.99
    """discount"""
    lmbda: float = 0.95
    """lambda of the generalized advantage estimate"""
    clip: float = 0.2
    """clip range of the probability ratio"""
    entropy: float = 0.01
    """weight of the entropy bonus"""
    compile: bool = False
    """compile the loss with torch.compile"""


class SameStepCartPole(CartPoleVectorEnv):
    """Gymnasium's vectorised CartPole, with finished environments reset in the same step.

    The observations returned by `step` are those to act on; the true final ones of finished
    episodes are in `info["final_obs"]`.
    """

    def step(self, action):
        observation, reward, terminated, truncated, info = super().step(action)
        done = terminated | truncated
        if done.any():
            info = {"final_obs": observation.copy()}
            low, high = self.low, self.high
            self.state[:, done] = self.np_random.uniform(low, high, (4, int(done.sum())))
            self.steps[done] = 0
            self.prev_done[:] = False
            observation[done] = self.state.T[done]
        return observation, reward, terminated, truncated, info


def mlp(width: int, out: int, gain: float) -> nn.Sequential:
    """Return a network 4 -> width -> width -> out with tanh and orthogonal weights."""
    layers = [nn.Linear(4, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh()]
    layers.append(nn.Linear(width, out))
    for layer, scale in zip(layers[::2], (2**0.5, 2**0.5, gain), strict=True):
        nn.init.orthogonal_(layer.weight, scale)
        nn.init.zeros_(layer.bias)
    return nn.Sequential(*layers)


def numpy_view(network: nn.Sequential) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the weights `[in, out]` and biases of the layers, sharing torch's memory."""
    return [(m.weight.detach().numpy().T, m.bias.detach().numpy()) for m in network[::2]]


def forward(layers: list[tuple[np.ndarray, np.ndarray]], x: np.ndarray) -> np.ndarray:
    """Run the network on NumPy arrays: three small matrix products, no torch dispatch."""
    (w1, b1), (w2, b2), (w3, b3) = layers
    return np.tanh(np.tanh(x @ w1 + b1) @ w2 + b2) @ w3 + b3


def gae(
    reward: np.ndarray,
    value: np.ndarray,
    done: np.ndarray,
    final_value: np.ndarray,
    next_value: np.ndarray,
    gamma: float,
    lmbda: float,
) -> np.ndarray:
    """Return the generalized advantage estimates `[time, num_envs]`, by recursion over time.

    Args:
        reward: `[time, num_envs]`.
        value: of the observations acted on, `[time, num_envs]`.
        done: whether the episode ended with the step, `[time, num_envs]`.
        final_value: what follows where `done`: the value of the final observation if the episode
            was truncated, 0 if it terminated, `[time, num_envs]`.
        next_value: of the observations after the last step, `[num_envs]`.
        gamma: discount.
        lmbda: weight of longer estimates.
    """
    advantages = np.empty_like(reward)
    advantage = np.zeros_like(next_value)
    for t in reversed(range(len(reward))):
        bootstrap = np.where(done[t], final_value[t], next_value)
        delta = reward[t] + gamma * bootstrap - value[t]
        advantages[t] = advantage = delta + gamma * lmbda * ~done[t] * advantage
        next_value = value[t]
    return advantages


def ppo_loss(
    actor: nn.Module,
    critic: nn.Module,
    observation: Tensor,
    action: Tensor,
    log_prob: Tensor,
    advantage: Tensor,
    target: Tensor,
    clip: Tensor,
    entropy_weight: float,
) -> Tensor:
    """Return the clipped PPO loss of one minibatch, a scalar."""
    log_probs = actor(observation).log_softmax(-1)
    ratio = (log_probs.gather(1, action).squeeze(1) - log_prob).exp()
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    clipped = torch.minimum(torch.maximum(ratio, 1 - clip), 1 + clip)
    policy_loss = -torch.minimum(ratio * advantage, clipped * advantage).mean()
    entropy = -(log_probs.exp() * log_probs).sum(-1).mean()
    value_loss = (critic(observation).squeeze(1) - target).square().mean()
    return policy_loss - entropy_weight * entropy + 0.5 * value_loss


def main(args: Args) -> None:
    """Train, and print the result as one line of JSON."""
    args.prepare()
    rng = np.random.default_rng(args.seed)
    envs = SameStepCartPole(args.num_envs, gym.spec("CartPole-v1").max_episode_steps)
    actor, critic = mlp(args.width, 2, 0.01), mlp(args.width, 1, 1.0)
    actor_layers, critic_layers = numpy_view(actor), numpy_view(critic)
    parameters = [*actor.parameters(), *critic.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=args.lr, eps=1e-5, fused=True)
    loss_fn = torch.compile(ppo_loss) if args.compile else ppo_loss
    writer = SummaryWriter(str(args.log_dir))
    meter = Meter(args, "CartPole-v1")

    steps, num_envs = args.num_steps, args.num_envs
    size = steps * num_envs
    observations = np.empty((steps, num_envs, 4), np.float32)
    actions = np.empty((steps, num_envs), np.int64)
    logits = np.empty((steps, num_envs, 2), np.float32)
    rewards = np.empty((steps, num_envs), np.float32)
    dones = np.empty((steps, num_envs), bool)
    final_values = np.zeros((steps, num_envs), np.float32)
    clip = torch.tensor(args.clip)

    meter.start()
    observation, _ = envs.reset(seed=args.seed)
    episode_return, returns, frames = np.zeros(num_envs), [], 0
    while True:
        noise = -np.log(rng.exponential(size=(steps, num_envs, 2)))
        for t in range(steps):
            observations[t] = observation
            logits[t] = forward(actor_layers, observation)
            actions[t] = (logits[t] + noise[t]).argmax(-1)
            observation, rewards[t], terminated, truncated, info = envs.step(actions[t])
            dones[t] = terminated | truncated
            episode_return += rewards[t]
            if info:
                if truncated.any():
                    final = forward(critic_layers, info["final_obs"])[:, 0]
                    final_values[t] = np.where(truncated & ~terminated, final, 0)
                returns += episode_return[dones[t]].tolist()
                episode_return[dones[t]] = 0
        frames += size

        values = forward(critic_layers, observations)[..., 0]
        next_value = forward(critic_layers, observation)[:, 0]
        advantages = gae(rewards, values, dones, final_values, next_value, args.gamma, args.lmbda)
        final_values[:] = 0

        if args.anneal:
            remaining = max(0.0, 1 - (frames - size) / args.frames)
            optimizer.param_groups[0]["lr"] = remaining * args.lr
            clip.fill_(remaining * args.clip)
        batch_observation = torch.from_numpy(observations).view(size, 4)
        batch_action = torch.from_numpy(actions).view(size, 1)
        log_probs = torch.from_numpy(logits).view(size, 2).log_softmax(-1)
        batch_advantage = torch.from_numpy(advantages).view(size)
        packed = torch.stack(
            (
                log_probs.gather(1, batch_action).squeeze(1),
                batch_advantage,
                batch_advantage + torch.from_numpy(values).view(size),
            )
        )
        total_loss = torch.zeros(())
        for _ in range(args.epochs):
            order = torch.randperm(size)
            for minibatch in zip(
                batch_observation[order].chunk(args.minibatches),
                batch_action[order].chunk(args.minibatches),
                *(row.chunk(args.minibatches) for row in packed[:, order]),
                strict=True,
            ):
                loss = loss_fn(actor, critic, *minibatch, clip, args.entropy)
                loss.backward()
                nn.utils.clip_grad_norm_(parameters, 0.5)
                optimizer.step()
                optimizer.zero_grad()
                total_loss += loss.detach()

        writer.add_scalar("loss", total_loss / (args.epochs * args.minibatches), frames)
        if returns:
            writer.add_scalar("train/return", sum(returns) / len(returns), frames)
            meter.returns.extend(returns)
            returns.clear()
        if meter.tick(frames, lambda x: forward(actor_layers, x).argmax(-1)):
            break
    writer.close()
    meter.print()


if __name__ == "__main__":
    main(tyro.cli(Args))
