"""Algorithms that learn from a replay buffer: DQN, DDPG, TD3 and SAC."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ..hooks import ReplayBufferTrainer, TargetNetUpdaterHook
from ..loop.cadence import Every
from ..loop.trainer import Trainer
from ..networks import (
    AdditiveGaussian,
    DeterministicPolicy,
    EpsilonGreedy,
    QNetwork,
    TanhGaussianPolicy,
)
from ..objectives import DDPGLoss, DQNLoss, HardUpdate, SACLoss, SoftUpdate, TD3Loss
from ..objectives.common import Loss
from ..replay import PrioritizedSampler, ReplayBuffer
from .options import Options
from .task import Task

if TYPE_CHECKING:
    from typing_extensions import Unpack


def dqn(
    env: Any,
    *,
    total_frames: int,
    num_envs: int = 8,
    steps_per_batch: int = 8,
    optim_steps_per_batch: int = 32,
    init_random_frames: int = 1_000,
    buffer_size: int = 100_000,
    batch_size: int = 64,
    prioritized: bool = False,
    alpha: float = 0.3,
    beta: float = 0.4,
    lr: float = 2.3e-3,
    num_cells: Sequence[int] = (256, 256),
    gamma: float = 0.99,
    double: bool = True,
    target_interval: int = 100,
    max_grad_norm: float | None = 10.0,
    eps_end: float = 0.04,
    annealing_frames: int = 8_000,
    **options: Unpack[Options],
) -> Trainer:
    """Deep Q-learning, for one discrete action.

    Mnih et al., 2015; double, van Hasselt et al., 2016, arXiv:1509.06461; prioritized, Schaul et
    al., 2016, arXiv:1511.05952. The defaults solve CartPole.

    Args:
        env: Environment id or factory, as for `VectorCollector`.
        total_frames: Frames after which the run ends.
        num_envs: Number of parallel environments.
        steps_per_batch: Steps per environment in each batch.
        optim_steps_per_batch: Optimizer steps after each batch.
        init_random_frames: Frames collected with random actions before the first optimizer step.
        buffer_size: Capacity of the replay buffer, in transitions.
        batch_size: Transitions per optimizer step.
        prioritized: Whether to use prioritized replay.
        alpha: Exponent of the priorities, which are squared TD errors; 0 for uniform sampling.
        beta: Exponent of the importance weights, which correct the bias; 1 for all of it.
        lr: Learning rate.
        num_cells: Units in each hidden layer.
        gamma: Discount factor.
        double: Whether to use double Q-learning.
        target_interval: Optimizer steps between two updates of the target network.
        max_grad_norm: The gradient is clipped to this norm; ``None`` for no clipping.
        eps_end: Final epsilon, the probability of a random action.
        annealing_frames: Frames over which epsilon falls linearly from 1 to ``eps_end``.
        **options: See `Options`.

    Returns:
        The trainer; call its ``train()``.

    Raises:
        ConfigError: If an argument cannot work.
    """
    task = Task("dqn", locals(), "discrete")
    q_network = QNetwork(task.network(task.action_features, num_cells)).to(task.device)
    policy = EpsilonGreedy(q_network, eps_end=eps_end, annealing_num_steps=annealing_frames)
    loss_module = DQNLoss(q_network, gamma=gamma, loss_function="smooth_l1", double_dqn=double)
    loss_module.to(task.device)
    sampler = PrioritizedSampler(buffer_size, alpha, beta) if prioritized else None
    updater = HardUpdate(loss_module, value_network_update_interval=target_interval)
    trainer = replay_trainer(
        task,
        policy,
        loss_module,
        task.replay_buffer(loss_module, buffer_size, batch_size, sampler),
        num_envs=num_envs,
        steps_per_batch=steps_per_batch,
        optim_steps_per_batch=optim_steps_per_batch,
        init_random_frames=init_random_frames,
        lr=lr,
        clip_norm=max_grad_norm,
    )
    TargetNetUpdaterHook(updater).register(trainer)
    trainer.register_module("epsilon", policy)
    trainer.register_op("post_steps", policy.step, frames=num_envs * steps_per_batch)
    return task.finish(trainer, q_network)


def ddpg(
    env: Any,
    *,
    total_frames: int,
    num_envs: int = 4,
    steps_per_batch: int = 4,
    optim_steps_per_batch: int = 8,
    init_random_frames: int = 800,
    buffer_size: int = 1_000_000,
    batch_size: int = 256,
    lr: float = 1e-3,
    num_cells: Sequence[int] = (128, 128),
    gamma: float = 0.99,
    tau: float = 0.01,
    sigma: float = 0.1,
    **options: Unpack[Options],
) -> Trainer:
    """Deep deterministic policy gradient, for continuous actions.

    Lillicrap et al., 2015, arXiv:1509.02971, with Gaussian noise to explore. The defaults solve
    Pendulum; larger tasks need wider networks, and a million frames or more.

    Args:
        env: Environment id or factory, as for `VectorCollector`.
        total_frames: Frames after which the run ends.
        num_envs: Number of parallel environments.
        steps_per_batch: Steps per environment in each batch.
        optim_steps_per_batch: Optimizer steps after each batch.
        init_random_frames: Frames collected with random actions before the first optimizer step.
        buffer_size: Capacity of the replay buffer, in transitions.
        batch_size: Transitions per optimizer step.
        lr: Learning rate of the actor and the Q-function.
        num_cells: Units in each hidden layer.
        gamma: Discount factor.
        tau: Rate of the soft updates of the target networks, one per optimizer step.
        sigma: Standard deviation of the exploration noise, for actions scaled to [-1, 1].
        **options: See `Options`.

    Returns:
        The trainer; call its ``train()``.

    Raises:
        ConfigError: If an argument cannot work.
    """
    task = Task("ddpg", locals(), "continuous")
    actor = _deterministic(task, num_cells)
    loss_module = DDPGLoss(actor, task.qvalue(num_cells), gamma=gamma, delay_actor=True)
    loss_module.to(task.device)
    updater = SoftUpdate(loss_module, tau=tau)
    trainer = replay_trainer(
        task,
        AdditiveGaussian(actor, sigma),
        loss_module,
        task.replay_buffer(loss_module, buffer_size, batch_size),
        num_envs=num_envs,
        steps_per_batch=steps_per_batch,
        optim_steps_per_batch=optim_steps_per_batch,
        init_random_frames=init_random_frames,
        lr=lr,
    )
    TargetNetUpdaterHook(updater).register(trainer)
    return task.finish(trainer, actor)


def td3(
    env: Any,
    *,
    total_frames: int,
    num_envs: int = 4,
    steps_per_batch: int = 4,
    optim_steps_per_batch: int = 8,
    init_random_frames: int = 800,
    buffer_size: int = 1_000_000,
    batch_size: int = 256,
    lr: float = 1e-3,
    num_cells: Sequence[int] = (128, 128),
    gamma: float = 0.99,
    tau: float = 0.01,
    policy_delay: int = 2,
    policy_noise: float = 0.2,
    noise_clip: float = 0.5,
    sigma: float = 0.1,
    **options: Unpack[Options],
) -> Trainer:
    """Twin delayed deep deterministic policy gradient, for continuous actions.

    Fujimoto et al., 2018, arXiv:1802.09477. The defaults solve Pendulum; larger tasks need wider
    networks, and a million frames or more.

    Args:
        env: Environment id or factory, as for `VectorCollector`.
        total_frames: Frames after which the run ends.
        num_envs: Number of parallel environments.
        steps_per_batch: Steps per environment in each batch.
        optim_steps_per_batch: Optimizer steps after each batch.
        init_random_frames: Frames collected with random actions before the first optimizer step.
        buffer_size: Capacity of the replay buffer, in transitions.
        batch_size: Transitions per optimizer step.
        lr: Learning rate of the actor and the Q-functions.
        num_cells: Units in each hidden layer.
        gamma: Discount factor.
        tau: Rate of the soft updates of the target networks.
        policy_delay: Optimizer steps per update of the actor and of the target networks.
        policy_noise: Standard deviation of the noise on target actions, for actions scaled to
            [-1, 1].
        noise_clip: Bound of that noise, for actions scaled to [-1, 1].
        sigma: Standard deviation of the exploration noise, for actions scaled to [-1, 1].
        **options: See `Options`.

    Returns:
        The trainer; call its ``train()``.

    Raises:
        ConfigError: If an argument cannot work.
    """
    task = Task("td3", locals(), "continuous")
    actor = _deterministic(task, num_cells)
    loss_module = TD3Loss(
        actor,
        task.qvalue(num_cells),
        policy_delay=policy_delay,
        policy_noise=policy_noise,
        noise_clip=noise_clip,
        gamma=gamma,
        loss_function="l2",
    ).to(task.device)
    updater = SoftUpdate(loss_module, tau=tau)
    trainer = replay_trainer(
        task,
        AdditiveGaussian(actor, sigma),
        loss_module,
        task.replay_buffer(loss_module, buffer_size, batch_size),
        num_envs=num_envs,
        steps_per_batch=steps_per_batch,
        optim_steps_per_batch=optim_steps_per_batch,
        init_random_frames=init_random_frames,
        lr=lr,
    )
    TargetNetUpdaterHook(updater, every=Every(optim_steps=policy_delay)).register(trainer)
    return task.finish(trainer, actor)


def sac(
    env: Any,
    *,
    total_frames: int,
    num_envs: int = 4,
    steps_per_batch: int = 4,
    optim_steps_per_batch: int = 8,
    init_random_frames: int = 800,
    buffer_size: int = 1_000_000,
    batch_size: int = 256,
    lr: float = 1e-3,
    num_cells: Sequence[int] = (128, 128),
    gamma: float = 0.99,
    tau: float = 0.01,
    alpha_init: float = 1.0,
    fixed_alpha: bool = False,
    target_entropy: float | str = "auto",
    **options: Unpack[Options],
) -> Trainer:
    """Soft actor-critic with a learned temperature, for continuous actions.

    Haarnoja et al., 2018, arXiv:1812.05905. The defaults solve Pendulum; larger tasks need what
    ``recipes/sac_halfcheetah.py`` sets: wider networks, more random actions, a smaller ``tau``.

    Args:
        env: Environment id or factory, as for `VectorCollector`.
        total_frames: Frames after which the run ends.
        num_envs: Number of parallel environments.
        steps_per_batch: Steps per environment in each batch.
        optim_steps_per_batch: Optimizer steps after each batch.
        init_random_frames: Frames collected with random actions before the first optimizer step.
        buffer_size: Capacity of the replay buffer, in transitions.
        batch_size: Transitions per optimizer step.
        lr: Learning rate of the actor, the Q-functions and the temperature.
        num_cells: Units in each hidden layer.
        gamma: Discount factor.
        tau: Rate of the soft updates of the target networks, one per optimizer step.
        alpha_init: Initial temperature, the weight of the entropy.
        fixed_alpha: Whether the temperature stays as it is.
        target_entropy: Entropy that the temperature is adapted to; ``"auto"`` for minus the number
            of action features.
        **options: See `Options`.

    Returns:
        The trainer; call its ``train()``.

    Raises:
        ConfigError: If an argument cannot work.

    Examples:
        >>> trainer = sac("Pendulum-v1", total_frames=20_000, seed=0, progress_bar=False)
        >>> trainer.remove_hook("log_episodes").group
        'train'
        >>> trainer.shutdown()
    """
    task = Task("sac", locals(), "continuous")
    actor = TanhGaussianPolicy(
        task.network(2 * task.action_features, num_cells), **task.bounds()
    ).to(task.device)
    loss_module = SACLoss(
        actor,
        task.qvalue(num_cells),
        gamma=gamma,
        loss_function="l2",
        alpha_init=alpha_init,
        fixed_alpha=fixed_alpha,
        target_entropy=target_entropy,
    ).to(task.device)
    updater = SoftUpdate(loss_module, tau=tau)
    trainer = replay_trainer(
        task,
        actor,
        loss_module,
        task.replay_buffer(loss_module, buffer_size, batch_size),
        num_envs=num_envs,
        steps_per_batch=steps_per_batch,
        optim_steps_per_batch=optim_steps_per_batch,
        init_random_frames=init_random_frames,
        lr=lr,
    )
    TargetNetUpdaterHook(updater).register(trainer)
    return task.finish(trainer, actor)


def replay_trainer(
    task: Task,
    policy: Any,
    loss_module: Loss,
    replay_buffer: ReplayBuffer,
    *,
    num_envs: int,
    steps_per_batch: int,
    optim_steps_per_batch: int,
    init_random_frames: int,
    lr: float,
    clip_norm: float | None = None,
) -> Trainer:
    """A trainer that collects with ``policy`` and trains on samples of ``replay_buffer``."""
    trainer = task.trainer(
        task.collector(policy, num_envs, steps_per_batch, init_random_frames=init_random_frames),
        loss_module,
        torch.optim.Adam(loss_module.parameters(), lr=lr, fused=True),
        optim_steps_per_batch=optim_steps_per_batch,
        clip_norm=clip_norm,
    )
    ReplayBufferTrainer(replay_buffer).register(trainer)
    return trainer


def _deterministic(task: Task, num_cells: Sequence[int]) -> DeterministicPolicy:
    network = task.network(task.action_features, num_cells, nn.ReLU)
    return DeterministicPolicy(network, **task.bounds()).to(task.device)
