"""PPO on CartPole-v1 with everything in one program of JAX: the environments, too.

The limit that compiling can reach, in the manner of PureJaxRL (Lu et al., 2022, arXiv:2210.05639):
collecting, advantages and all minibatches of many iterations are one call. Settings are those of
`handwritten_ppo.py`. It logs nothing and saves nothing. JAX has an environment of its own, see
`setup.sh`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

os.environ["XLA_FLAGS"] = (
    "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1 "
    + os.environ.get("XLA_FLAGS", "")
)

import jax
import jax.numpy as jnp
import optax
import tyro
from jax import Array, lax
from measure import Meter, Run


@dataclass(kw_only=True)
class Args(Run):
    """Options of the PPO in JAX."""

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
    gamma: float = 0.99
    """discount"""
    lmbda: float = 0.95
    """lambda of the generalized advantage estimate"""
    clip: float = 0.2
    """clip range of the probability ratio"""
    entropy: float = 0.01
    """weight of the entropy bonus"""
    iterations: int = 10
    """iterations in one call"""


class CartPole(NamedTuple):
    """The state of some environments."""

    values: Array  # [num_envs, 4]
    steps: Array  # [num_envs]


class Step(NamedTuple):
    """One step of all environments, as the loss needs it."""

    observation: Array
    action: Array
    log_prob: Array
    value: Array
    reward: Array
    done: Array
    next_value: Array  # of the true final observation; 0 where the episode terminated


def step(state: CartPole, action: Array, key: Array) -> tuple[CartPole, Array, Array, Array]:
    """Step as Gymnasium's CartPole-v1; ended environments are reset.

    Returns:
        The state, the observations before environments were reset, terminated, truncated.
    """
    x, x_dot, theta, theta_dot = state.values.T
    force = jnp.where(action == 1, 10.0, -10.0)
    cos, sin = jnp.cos(theta), jnp.sin(theta)
    push = (force + 0.05 * theta_dot**2 * sin) / 1.1
    theta_acc = (9.8 * sin - cos * push) / (0.5 * (4.0 / 3.0 - 0.1 * cos**2 / 1.1))
    x_acc = push - 0.05 * theta_acc * cos / 1.1
    new = (x + 0.02 * x_dot, x_dot + 0.02 * x_acc)
    new += (theta + 0.02 * theta_dot, theta_dot + 0.02 * theta_acc)
    values, steps = jnp.stack(new, -1), state.steps + 1
    terminated = (jnp.abs(values[:, 0]) > 2.4) | (jnp.abs(values[:, 2]) > 12 * 2 * jnp.pi / 360)
    truncated = steps >= 500
    done = terminated | truncated
    begun = jax.random.uniform(key, values.shape, minval=-0.05, maxval=0.05)
    state = CartPole(jnp.where(done[:, None], begun, values), jnp.where(done, 0, steps))
    return state, values, terminated, truncated


def network(key: Array, width: int, out: int, gain: float) -> list[tuple[Array, Array]]:
    """Return the weights of 4 -> width -> width -> out, orthogonal, and biases."""
    sizes, gains = (4, width, width, out), (2**0.5, 2**0.5, gain)
    keys = jax.random.split(key, 3)
    return [
        (jax.nn.initializers.orthogonal(scale)(k, (a, b)), jnp.zeros(b))
        for k, a, b, scale in zip(keys, sizes[:-1], sizes[1:], gains, strict=True)
    ]


def forward(layers: list[tuple[Array, Array]], x: Array) -> Array:
    """Run a network."""
    for w, b in layers[:-1]:
        x = jnp.tanh(x @ w + b)
    w, b = layers[-1]
    return x @ w + b


def loss(parameters: dict, batch: tuple[Step, Array, Array], args: Args) -> Array:
    """Return the clipped PPO loss of one minibatch, a scalar."""
    steps, advantage, target = batch
    log_probs = jax.nn.log_softmax(forward(parameters["actor"], steps.observation))
    log_prob = jnp.take_along_axis(log_probs, steps.action[:, None], 1)[:, 0]
    ratio = jnp.exp(log_prob - steps.log_prob)
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    clipped = jnp.clip(ratio, 1 - args.clip, 1 + args.clip)
    policy_loss = -jnp.minimum(ratio * advantage, clipped * advantage).mean()
    entropy = -(jnp.exp(log_probs) * log_probs).sum(-1).mean()
    value = forward(parameters["critic"], steps.observation)[:, 0]
    return policy_loss - args.entropy * entropy + 0.5 * jnp.square(value - target).mean()


def main(args: Args) -> None:
    """Train, and print the result as one line of JSON."""
    args.prepare()
    optimizer = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(args.lr, eps=1e-5))
    size = args.num_envs * args.num_steps

    def act(carry, key):
        parameters, state = carry
        keys = jax.random.split(key)
        observation = state.values
        logits = forward(parameters["actor"], observation)
        action = jax.random.categorical(keys[0], logits)
        log_prob = jnp.take_along_axis(jax.nn.log_softmax(logits), action[:, None], 1)[:, 0]
        value = forward(parameters["critic"], observation)[:, 0]
        state, final, terminated, truncated = step(state, action, keys[1])
        following = forward(parameters["critic"], final)[:, 0] * ~terminated
        reward, done = jnp.ones_like(value), terminated | truncated
        made = Step(observation, action, log_prob, value, reward, done, following)
        return (parameters, state), made

    def minibatch(carry, batch):
        parameters, moments = carry
        gradient = jax.grad(loss)(parameters, batch, args)
        updates, moments = optimizer.update(gradient, moments, parameters)
        return (optax.apply_updates(parameters, updates), moments), None

    def iteration(carry, key):
        parameters, moments, state = carry
        collect, shuffle = jax.random.split(key)
        keys = jax.random.split(collect, args.num_steps)
        (_, state), steps = lax.scan(act, (parameters, state), keys)

        def back(advantage, one):
            delta = one.reward + args.gamma * one.next_value - one.value
            advantage = delta + args.gamma * args.lmbda * ~one.done * advantage
            return advantage, advantage

        _, advantage = lax.scan(back, jnp.zeros(args.num_envs), steps, reverse=True)
        rollout = (steps, advantage, advantage + steps.value)
        flat = jax.tree.map(lambda x: x.reshape(size, *x.shape[2:]), rollout)

        def epoch(carry, key):
            order = jax.random.permutation(key, size)
            parts = jax.tree.map(
                lambda x: x[order].reshape(args.minibatches, -1, *x.shape[1:]), flat
            )
            return lax.scan(minibatch, carry, parts)

        carry, _ = lax.scan(epoch, (parameters, moments), jax.random.split(shuffle, args.epochs))
        return (*carry, state), steps.done.sum()

    @partial(jax.jit, donate_argnums=0)
    def iterations(carry, key):
        return lax.scan(iteration, carry, jax.random.split(key, args.iterations))

    key, *keys = jax.random.split(jax.random.key(args.seed), 4)
    parameters = {
        "actor": network(keys[0], args.width, 2, 0.01),
        "critic": network(keys[1], args.width, 1, 1.0),
    }
    begun = jax.random.uniform(keys[2], (args.num_envs, 4), minval=-0.05, maxval=0.05)
    state = CartPole(begun, jnp.zeros(args.num_envs, jnp.int32))
    carry = (parameters, optimizer.init(parameters), state)
    greedy = jax.jit(lambda actor, x: forward(actor, x).argmax(-1))
    meter = Meter(args, "CartPole-v1")
    meter.start()
    frames = 0
    while True:
        key, now = jax.random.split(key)
        carry, episodes = iterations(carry, now)
        jax.block_until_ready(carry)
        frames += size * args.iterations
        ended = int(episodes.sum())
        if ended:  # a reward of 1 for every step
            meter.returns.append(size * args.iterations / ended)
        actor = carry[0]["actor"]
        if meter.tick(frames, lambda x, actor=actor: jax.device_get(greedy(actor, x))):
            break
    meter.print()


if __name__ == "__main__":
    main(tyro.cli(Args))
