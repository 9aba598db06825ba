"""Algorithms that learn from a replay buffer: DQN, DDPG, TD3 and SAC."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ..cadence import Every
from ..hooks import ReplayBufferTrainer, TargetNetUpdaterHook
from ..modules import (
    AdditiveGaussian,
    DeterministicPolicy,
    EpsilonGreedy,
    QNetwork,
    TanhGaussianPolicy,
)
from ..objectives import DDPGLoss, DQNLoss, HardUpdate, SACLoss, SoftUpdate, TD3Loss
from ..objectives.common import Loss
from ..replay import PrioritizedSampler, ReplayBuffer
from ..trainer import Trainer
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
    target_interval: int = 10,
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
        num_envs: Environments stepped side by side.
        steps_per_batch: Steps of each environment in a batch.
        optim_steps_per_batch: Optimizer steps after each batch.
        init_random_frames: Frames collected with random actions before the first optimizer step.
        buffer_size: Transitions kept; then the oldest are overwritten.
        batch_size: Transitions per optimizer step.
        prioritized: Whether transitions of large error are replayed more often.
        alpha: How much the priorities, squared errors, count.
        beta: How much of the bias of prioritized replay is corrected.
        lr: Learning rate.
        num_cells: Widths of the hidden layers.
        gamma: Discount factor.
        double: Whether the network itself chooses the next action, and the target values it.
        target_interval: Optimizer steps between two copies of the network to its target.
        max_grad_norm: Bound of the gradient's norm; ``None`` for none.
        eps_end: Probability of a random action in the end.
        annealing_frames: Frames over which that probability falls from 1.
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
    trainer = task.trainer(
        task.collector(policy, num_envs, steps_per_batch, init_random_frames=init_random_frames),
        loss_module,
        optim_steps_per_batch,
        torch.optim.Adam(loss_module.parameters(), lr=lr, fused=True),
        clip_norm=max_grad_norm,
    )
    sampler = PrioritizedSampler(buffer_size, alpha, beta) if prioritized else None
    _replay(task, trainer, loss_module, buffer_size, batch_size, sampler)
    updater = HardUpdate(loss_module, value_network_update_interval=target_interval)
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
    num_cells: Sequence[int] = (256, 256),
    gamma: float = 0.99,
    tau: float = 0.01,
    sigma: float = 0.1,
    **options: Unpack[Options],
) -> Trainer:
    """Deep deterministic policy gradient, for continuous actions.

    Lillicrap et al., 2015, arXiv:1509.02971, with Gaussian noise to explore.

    Args:
        env: Environment id or factory, as for `VectorCollector`.
        total_frames: Frames after which the run ends.
        num_envs: Environments stepped side by side.
        steps_per_batch: Steps of each environment in a batch.
        optim_steps_per_batch: Optimizer steps after each batch.
        init_random_frames: Frames collected with random actions before the first optimizer step.
        buffer_size: Transitions kept; then the oldest are overwritten.
        batch_size: Transitions per optimizer step.
        lr: Learning rate of the actor and the Q-function.
        num_cells: Widths of the hidden layers.
        gamma: Discount factor.
        tau: How far the target networks move at every optimizer step.
        sigma: Deviation of the exploring noise, in halves of the range of actions.
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
    trainer = task.trainer(
        task.collector(
            AdditiveGaussian(actor, sigma),
            num_envs,
            steps_per_batch,
            init_random_frames=init_random_frames,
        ),
        loss_module,
        optim_steps_per_batch,
        torch.optim.Adam(loss_module.parameters(), lr=lr, fused=True),
    )
    _replay(task, trainer, loss_module, buffer_size, batch_size)
    TargetNetUpdaterHook(SoftUpdate(loss_module, tau=tau)).register(trainer)
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
    num_cells: Sequence[int] = (256, 256),
    gamma: float = 0.99,
    tau: float = 0.01,
    policy_delay: int = 2,
    policy_noise: float = 0.2,
    noise_clip: float = 0.5,
    sigma: float = 0.1,
    **options: Unpack[Options],
) -> Trainer:
    """Twin delayed deep deterministic policy gradient, for continuous actions.

    Fujimoto et al., 2018, arXiv:1802.09477.

    Args:
        env: Environment id or factory, as for `VectorCollector`.
        total_frames: Frames after which the run ends.
        num_envs: Environments stepped side by side.
        steps_per_batch: Steps of each environment in a batch.
        optim_steps_per_batch: Optimizer steps after each batch.
        init_random_frames: Frames collected with random actions before the first optimizer step.
        buffer_size: Transitions kept; then the oldest are overwritten.
        batch_size: Transitions per optimizer step.
        lr: Learning rate of the actor and the Q-functions.
        num_cells: Widths of the hidden layers.
        gamma: Discount factor.
        tau: How far the target networks move at every move.
        policy_delay: Optimizer steps of which the last moves the actor and the targets.
        policy_noise: Deviation of the noise on the target's action, in halves of the range.
        noise_clip: Greatest noise on the target's action, in halves of the range.
        sigma: Deviation of the exploring noise, in halves of the range of actions.
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
    trainer = task.trainer(
        task.collector(
            AdditiveGaussian(actor, sigma),
            num_envs,
            steps_per_batch,
            init_random_frames=init_random_frames,
        ),
        loss_module,
        optim_steps_per_batch,
        torch.optim.Adam(loss_module.parameters(), lr=lr, fused=True),
    )
    _replay(task, trainer, loss_module, buffer_size, batch_size)
    updater = TargetNetUpdaterHook(SoftUpdate(loss_module, tau=tau))
    trainer.register_module("target_net_updater", updater)
    trainer.register_op("post_optim", updater, every=Every(optim_steps=policy_delay))
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
    num_cells: Sequence[int] = (256, 256),
    gamma: float = 0.99,
    tau: float = 0.01,
    alpha_init: float = 1.0,
    fixed_alpha: bool = False,
    target_entropy: float | str = "auto",
    **options: Unpack[Options],
) -> Trainer:
    """Soft actor-critic with a learned temperature, for continuous actions.

    Haarnoja et al., 2018, arXiv:1812.05905.

    Args:
        env: Environment id or factory, as for `VectorCollector`.
        total_frames: Frames after which the run ends.
        num_envs: Environments stepped side by side.
        steps_per_batch: Steps of each environment in a batch.
        optim_steps_per_batch: Optimizer steps after each batch.
        init_random_frames: Frames collected with random actions before the first optimizer step.
        buffer_size: Transitions kept; then the oldest are overwritten.
        batch_size: Transitions per optimizer step.
        lr: Learning rate of the actor, the Q-functions and the temperature.
        num_cells: Widths of the hidden layers.
        gamma: Discount factor.
        tau: How far the target networks move at every optimizer step.
        alpha_init: Weight of the entropy at the beginning.
        fixed_alpha: Whether that weight stays.
        target_entropy: Entropy that weight is adapted to; ``"auto"`` for minus the number of action
            features.
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
    trainer = task.trainer(
        task.collector(actor, num_envs, steps_per_batch, init_random_frames=init_random_frames),
        loss_module,
        optim_steps_per_batch,
        torch.optim.Adam(loss_module.parameters(), lr=lr, fused=True),
    )
    _replay(task, trainer, loss_module, buffer_size, batch_size)
    TargetNetUpdaterHook(SoftUpdate(loss_module, tau=tau)).register(trainer)
    return task.finish(trainer, actor)


def _deterministic(task: Task, num_cells: Sequence[int]) -> DeterministicPolicy:
    network = task.network(task.action_features, num_cells, nn.ReLU)
    return DeterministicPolicy(network, **task.bounds()).to(task.device)


def _replay(
    task: Task,
    trainer: Trainer,
    loss_module: Loss,
    buffer_size: int,
    batch_size: int,
    sampler: PrioritizedSampler | None = None,
) -> None:
    """Register a replay buffer of what the loss reads."""
    buffer = ReplayBuffer(
        buffer_size,
        batch_size=batch_size,
        sampler=sampler,
        keys=loss_module.in_keys,
        device=task.device,
    )
    ReplayBufferTrainer(buffer).register(trainer)
