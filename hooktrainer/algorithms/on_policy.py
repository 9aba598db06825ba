"""Algorithms that learn from what the present policy collects: PPO, A2C and REINFORCE."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ..hooks import MiniBatches, Schedule, ValueEstimatorHook
from ..loop.trainer import Trainer
from ..networks import CategoricalPolicy, DiagonalGaussianPolicy, ValueNetwork, orthogonal_init
from ..objectives import GAE, ClipPPOLoss
from .options import Options
from .task import Task

if TYPE_CHECKING:
    from typing_extensions import Unpack


def ppo(
    env: Any,
    *,
    total_frames: int,
    num_envs: int = 16,
    steps_per_batch: int = 64,
    num_epochs: int = 10,
    mini_batch_size: int = 256,
    lr: float = 3e-3,
    anneal_lr: bool = True,
    num_cells: Sequence[int] = (64, 64),
    gamma: float = 0.99,
    lmbda: float = 0.95,
    clip_epsilon: float = 0.2,
    entropy_coeff: float = 0.0,
    critic_coeff: float = 0.5,
    max_grad_norm: float | None = 0.5,
    **options: Unpack[Options],
) -> Trainer:
    """Proximal policy optimization, for one discrete action or continuous ones.

    Schulman et al., 2017, arXiv:1707.06347. The defaults solve CartPole; for continuous actions a
    smaller learning rate, 3e-4, is usual.

    Args:
        env: Environment id or factory, as for `VectorCollector`.
        total_frames: Frames after which the run ends.
        num_envs: Number of parallel environments.
        steps_per_batch: Steps per environment in each batch.
        num_epochs: Epochs over each batch.
        mini_batch_size: Frames in each mini-batch.
        lr: Initial learning rate.
        anneal_lr: Whether it falls linearly to zero at ``total_frames``.
        num_cells: Units in each hidden layer.
        gamma: Discount factor.
        lmbda: Lambda of generalized advantage estimation.
        clip_epsilon: Clipping range of the probability ratio around 1.
        entropy_coeff: Weight of the entropy bonus.
        critic_coeff: Weight of the value loss.
        max_grad_norm: The gradient is clipped to this norm; ``None`` for no clipping.
        **options: See `Options`.

    Returns:
        The trainer; call its ``train()``.

    Raises:
        ConfigError: If an argument cannot work.
    """
    return _actor_critic(
        Task("ppo", locals(), "any", clip=True),
        num_envs=num_envs,
        steps_per_batch=steps_per_batch,
        num_epochs=num_epochs,
        mini_batch_size=mini_batch_size,
        lr=lr,
        anneal_lr=anneal_lr,
        num_cells=num_cells,
        gamma=gamma,
        lmbda=lmbda,
        clip_epsilon=clip_epsilon,
        entropy_coeff=entropy_coeff,
        critic_coeff=critic_coeff,
        max_grad_norm=max_grad_norm,
    )


def a2c(
    env: Any,
    *,
    total_frames: int,
    num_envs: int = 8,
    steps_per_batch: int = 16,
    lr: float = 2e-3,
    anneal_lr: bool = True,
    num_cells: Sequence[int] = (64, 64),
    gamma: float = 0.99,
    lmbda: float = 0.95,
    entropy_coeff: float = 0.0,
    critic_coeff: float = 0.5,
    max_grad_norm: float | None = 0.5,
    **options: Unpack[Options],
) -> Trainer:
    """Advantage actor-critic, for one discrete action or continuous ones.

    Mnih et al., 2016, arXiv:1602.01783, synchronous: one optimizer step on each batch. There the
    probability ratio of PPO is 1, and its loss has the gradient of A2C's (Huang et al., 2022,
    arXiv:2205.09123).

    Args:
        env: Environment id or factory, as for `VectorCollector`.
        total_frames: Frames after which the run ends.
        num_envs: Number of parallel environments.
        steps_per_batch: Steps per environment in each batch.
        lr: Initial learning rate.
        anneal_lr: Whether it falls linearly to zero at ``total_frames``.
        num_cells: Units in each hidden layer.
        gamma: Discount factor.
        lmbda: Lambda of generalized advantage estimation; 1 for plain n-step returns.
        entropy_coeff: Weight of the entropy bonus.
        critic_coeff: Weight of the value loss.
        max_grad_norm: The gradient is clipped to this norm; ``None`` for no clipping.
        **options: See `Options`.

    Returns:
        The trainer; call its ``train()``.

    Raises:
        ConfigError: If an argument cannot work.
    """
    return _actor_critic(
        Task("a2c", locals(), "any", clip=True),
        num_envs=num_envs,
        steps_per_batch=steps_per_batch,
        lr=lr,
        anneal_lr=anneal_lr,
        num_cells=num_cells,
        gamma=gamma,
        lmbda=lmbda,
        entropy_coeff=entropy_coeff,
        critic_coeff=critic_coeff,
        max_grad_norm=max_grad_norm,
    )


def reinforce(
    env: Any,
    *,
    total_frames: int,
    num_envs: int = 8,
    steps_per_batch: int = 128,
    lr: float = 1e-2,
    anneal_lr: bool = True,
    num_cells: Sequence[int] = (64, 64),
    gamma: float = 0.99,
    entropy_coeff: float = 0.0,
    critic_coeff: float = 0.5,
    max_grad_norm: float | None = 0.5,
    **options: Unpack[Options],
) -> Trainer:
    """REINFORCE with a learned baseline, for one discrete action or continuous ones.

    Williams, 1992, Simple statistical gradient-following algorithms. Every action is reinforced by
    the discounted return that followed it, less the baseline. Where an episode goes on behind the
    end of a batch, the baseline stands for the rest of its return.

    Args:
        env: Environment id or factory, as for `VectorCollector`.
        total_frames: Frames after which the run ends.
        num_envs: Number of parallel environments.
        steps_per_batch: Steps per environment in each batch, best as many as an episode has.
        lr: Initial learning rate.
        anneal_lr: Whether it falls linearly to zero at ``total_frames``.
        num_cells: Units in each hidden layer.
        gamma: Discount factor.
        entropy_coeff: Weight of the entropy bonus.
        critic_coeff: Weight of the baseline's loss.
        max_grad_norm: The gradient is clipped to this norm; ``None`` for no clipping.
        **options: See `Options`.

    Returns:
        The trainer; call its ``train()``.

    Raises:
        ConfigError: If an argument cannot work.
    """
    return _actor_critic(
        Task("reinforce", locals(), "any", clip=True),
        num_envs=num_envs,
        steps_per_batch=steps_per_batch,
        lr=lr,
        anneal_lr=anneal_lr,
        num_cells=num_cells,
        gamma=gamma,
        lmbda=1.0,  # the return itself, less the baseline
        entropy_coeff=entropy_coeff,
        critic_coeff=critic_coeff,
        max_grad_norm=max_grad_norm,
    )


def _actor_critic(
    task: Task,
    *,
    num_envs: int,
    steps_per_batch: int,
    num_epochs: int = 1,
    mini_batch_size: int | None = None,
    lr: float,
    anneal_lr: bool,
    num_cells: Sequence[int],
    gamma: float,
    lmbda: float,
    clip_epsilon: float = 0.2,
    entropy_coeff: float,
    critic_coeff: float,
    max_grad_norm: float | None,
) -> Trainer:
    """PPO; without ``mini_batch_size``, where a batch is one optimizer step, A2C and REINFORCE."""
    actor, critic = _networks(task, num_cells)
    loss_module = ClipPPOLoss(
        actor,
        critic,
        clip_epsilon=clip_epsilon,
        entropy_coeff=entropy_coeff,
        critic_coeff=critic_coeff,
        loss_critic_type="l2",
        normalize_advantage=True,
        diagnostics=4,
    ).to(task.device)
    optimizer = torch.optim.Adam(loss_module.parameters(), lr=lr, eps=1e-5, fused=True)
    advantages = ValueEstimatorHook(GAE(gamma=gamma, lmbda=lmbda, value_network=critic))
    split = None
    if mini_batch_size is not None:
        split = MiniBatches(mini_batch_size, loss_module.in_keys)
    trainer = task.trainer(
        task.collector(actor, num_envs, steps_per_batch),
        loss_module,
        optimizer,
        num_epochs=num_epochs,
        optim_steps_per_batch=1 if split is None else None,  # None: one for each mini-batch
        clip_norm=max_grad_norm,
    )
    advantages.register(trainer)
    if split is not None:
        split.register(trainer)
    if anneal_lr:
        Schedule.linear(optimizer, "lr", lr, 0.0).register(trainer)
    return task.finish(trainer, actor)


def _networks(
    task: Task, num_cells: Sequence[int]
) -> tuple[CategoricalPolicy | DiagonalGaussianPolicy, ValueNetwork]:
    """The policy and the critic."""
    network = task.network(task.action_features, num_cells, nn.Tanh)
    orthogonal_init(network, output_gain=0.01)
    critic = ValueNetwork(orthogonal_init(task.network(1, num_cells, nn.Tanh)))
    actor = (
        CategoricalPolicy(network)
        if task.discrete
        else DiagonalGaussianPolicy(network, task.action_features)
    )
    return actor.to(task.device), critic.to(task.device)
