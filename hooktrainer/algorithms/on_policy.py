"""Algorithms that learn from what the present policy collects: PPO, A2C and REINFORCE."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ..hooks import LRSchedulerHook, MiniBatches, ValueEstimatorHook
from ..modules import (
    CategoricalPolicy,
    DiagonalGaussianPolicy,
    ValueNetwork,
    orthogonal_init,
)
from ..objectives import GAE, ClipPPOLoss
from ..trainer import Trainer
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
        num_envs: Environments stepped side by side.
        steps_per_batch: Steps of each environment in a batch.
        num_epochs: Passes over a batch.
        mini_batch_size: Frames per optimizer step.
        lr: Learning rate at the beginning.
        anneal_lr: Whether it falls to zero at ``total_frames``.
        num_cells: Widths of the hidden layers.
        gamma: Discount factor.
        lmbda: Lambda of generalized advantage estimation.
        clip_epsilon: How far the probability ratio may leave 1.
        entropy_coeff: Weight of the entropy bonus.
        critic_coeff: Weight of the value loss.
        max_grad_norm: Bound of the gradient's norm; ``None`` for none.
        **options: See `Options`.

    Returns:
        The trainer; call its ``train()``.

    Raises:
        ConfigError: If an argument cannot work.
    """
    task = Task("ppo", locals(), "any", clip=True)
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
    trainer = task.trainer(
        task.collector(actor, num_envs, steps_per_batch),
        loss_module,
        None,  # as many as there are mini-batches
        optimizer,
        num_epochs=num_epochs,
        clip_norm=max_grad_norm,
    )
    ValueEstimatorHook(GAE(gamma=gamma, lmbda=lmbda, value_network=critic)).register(trainer)
    MiniBatches(mini_batch_size, loss_module.in_keys).register(trainer)
    if anneal_lr:
        _anneal(trainer, optimizer, num_envs * steps_per_batch)
    return task.finish(trainer, actor)


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
        num_envs: Environments stepped side by side.
        steps_per_batch: Steps of each environment in a batch.
        lr: Learning rate at the beginning.
        anneal_lr: Whether it falls to zero at ``total_frames``.
        num_cells: Widths of the hidden layers.
        gamma: Discount factor.
        lmbda: Lambda of generalized advantage estimation; 1 for plain n-step returns.
        entropy_coeff: Weight of the entropy bonus.
        critic_coeff: Weight of the value loss.
        max_grad_norm: Bound of the gradient's norm; ``None`` for none.
        **options: See `Options`.

    Returns:
        The trainer; call its ``train()``.

    Raises:
        ConfigError: If an argument cannot work.
    """
    task = Task("a2c", locals(), "any", clip=True)
    return _one_step_a_batch(
        task,
        num_envs,
        steps_per_batch,
        lr,
        anneal_lr,
        num_cells,
        gamma,
        lmbda,
        entropy_coeff,
        critic_coeff,
        max_grad_norm,
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
        num_envs: Environments stepped side by side.
        steps_per_batch: Steps of each environment in a batch, best as many as an episode has.
        lr: Learning rate at the beginning.
        anneal_lr: Whether it falls to zero at ``total_frames``.
        num_cells: Widths of the hidden layers.
        gamma: Discount factor.
        entropy_coeff: Weight of the entropy bonus.
        critic_coeff: Weight of the baseline's loss.
        max_grad_norm: Bound of the gradient's norm; ``None`` for none.
        **options: See `Options`.

    Returns:
        The trainer; call its ``train()``.

    Raises:
        ConfigError: If an argument cannot work.
    """
    task = Task("reinforce", locals(), "any", clip=True)
    return _one_step_a_batch(
        task,
        num_envs,
        steps_per_batch,
        lr,
        anneal_lr,
        num_cells,
        gamma,
        1.0,
        entropy_coeff,
        critic_coeff,
        max_grad_norm,
    )


def _one_step_a_batch(
    task: Task,
    num_envs: int,
    steps_per_batch: int,
    lr: float,
    anneal_lr: bool,
    num_cells: Sequence[int],
    gamma: float,
    lmbda: float,
    entropy_coeff: float,
    critic_coeff: float,
    max_grad_norm: float | None,
) -> Trainer:
    """A2C; with ``lmbda=1``, REINFORCE."""
    actor, critic = _networks(task, num_cells)
    loss_module = ClipPPOLoss(
        actor,
        critic,
        entropy_coeff=entropy_coeff,
        critic_coeff=critic_coeff,
        loss_critic_type="l2",
        normalize_advantage=True,
        diagnostics=4,
    ).to(task.device)
    optimizer = torch.optim.Adam(loss_module.parameters(), lr=lr, eps=1e-5, fused=True)
    trainer = task.trainer(
        task.collector(actor, num_envs, steps_per_batch),
        loss_module,
        1,
        optimizer,
        clip_norm=max_grad_norm,
    )
    ValueEstimatorHook(GAE(gamma=gamma, lmbda=lmbda, value_network=critic)).register(trainer)
    if anneal_lr:
        _anneal(trainer, optimizer, num_envs * steps_per_batch)
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


def _anneal(trainer: Trainer, optimizer: torch.optim.Optimizer, frames_per_batch: int) -> None:
    """Let the learning rate fall to zero at the end of the run."""
    batches = -(-trainer.total_frames // frames_per_batch)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=batches)
    LRSchedulerHook(scheduler).register(trainer)
