"""Algorithms that learn from a data set: IQL and CQL. They collect nothing."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ..errors import ConfigError
from ..hooks import TargetNetUpdaterHook
from ..loop.cadence import Every
from ..loop.trainer import Trainer
from ..networks import Box, DiagonalGaussianPolicy, TanhGaussianPolicy, ValueNetwork
from ..objectives import CQLLoss, IQLLoss, SoftUpdate
from ..replay.datasets import Dataset, DatasetCollector, load_dataset
from .options import Options
from .task import Task

if TYPE_CHECKING:
    from typing_extensions import Unpack


def iql(
    env: Any,
    *,
    dataset: Dataset | str | os.PathLike[str],
    total_frames: int = 2_560_000,
    batch_size: int = 256,
    lr: float = 1e-3,
    num_cells: Sequence[int] = (256, 256),
    gamma: float = 0.99,
    tau: float = 0.005,
    expectile: float = 0.95,
    temperature: float = 1.0,
    **options: Unpack[Options],
) -> Trainer:
    """Implicit Q-learning, offline, for continuous actions.

    Kostrikov et al., 2021, arXiv:2110.06169. ``num_cells`` and ``tau`` are the paper's, made for
    larger tasks than that of ``recipes/iql_pendulum.py``.

    Args:
        env: Environment id or factory, as for `VectorCollector`, in which the policy is evaluated.
        dataset: A data set, its directory, or ``"minari:<id>"``.
        total_frames: Transitions to train on, ``batch_size`` at every optimizer step.
        batch_size: Transitions per optimizer step.
        lr: Learning rate of all networks.
        num_cells: Units in each hidden layer.
        gamma: Discount factor.
        tau: Rate of the soft updates of the target networks, one per optimizer step.
        expectile: Expectile of the Q-values that the value function is fitted to; above 0.5.
        temperature: Inverse temperature of the actor's weights, ``exp(temperature * advantage)``.
        **options: See `Options`.

    Returns:
        The trainer; call its ``train()``.

    Raises:
        ConfigError: If an argument cannot work, or the data set is of other sizes.
        FileNotFoundError: If there is no such data set.
    """
    task = Task("iql", locals(), "continuous", unit=batch_size / 10)
    bounds = task.bounds()
    mean = nn.Sequential(
        task.network(task.action_features, num_cells),
        Box(bounds["action_features"], bounds["low"], bounds["high"]),
    )
    loss_module = IQLLoss(
        DiagonalGaussianPolicy(mean, task.action_features),
        task.qvalue(num_cells),
        ValueNetwork(task.network(1, num_cells)),
        temperature=temperature,
        expectile=expectile,
        gamma=gamma,
        loss_function="l2",
    )
    return _offline(task, loss_module, dataset, batch_size, lr, tau)


def cql(
    env: Any,
    *,
    dataset: Dataset | str | os.PathLike[str],
    total_frames: int = 2_560_000,
    batch_size: int = 256,
    lr: float = 1e-3,
    num_cells: Sequence[int] = (256, 256),
    gamma: float = 0.99,
    tau: float = 0.005,
    min_q_weight: float = 1.0,
    num_random: int = 10,
    **options: Unpack[Options],
) -> Trainer:
    """Conservative Q-learning over soft actor-critic, offline, for continuous actions.

    Kumar et al., 2020, arXiv:2006.04779. ``num_cells``, ``tau`` and ``num_random`` are the paper's,
    made for larger tasks than that of ``recipes/cql_pendulum.py``.

    Args:
        env: Environment id or factory, as for `VectorCollector`, in which the policy is evaluated.
        dataset: A data set, its directory, or ``"minari:<id>"``.
        total_frames: Transitions to train on, ``batch_size`` at every optimizer step.
        batch_size: Transitions per optimizer step.
        lr: Learning rate of all networks and of the temperature.
        num_cells: Units in each hidden layer.
        gamma: Discount factor.
        tau: Rate of the soft updates of the target networks, one per optimizer step.
        min_q_weight: Weight of the penalty on Q-values of actions that are not in the data.
        num_random: Actions sampled from each of three distributions to estimate that penalty.
        **options: See `Options`.

    Returns:
        The trainer; call its ``train()``.

    Raises:
        ConfigError: If an argument cannot work, or the data set is of other sizes.
        FileNotFoundError: If there is no such data set.
    """
    task = Task("cql", locals(), "continuous", unit=batch_size / 10)
    loss_module = CQLLoss(
        TanhGaussianPolicy(task.network(2 * task.action_features, num_cells), **task.bounds()),
        task.qvalue(num_cells),
        min_q_weight=min_q_weight,
        num_random=num_random,
        gamma=gamma,
        loss_function="l2",
    )
    return _offline(task, loss_module, dataset, batch_size, lr, tau)


def _offline(
    task: Task,
    loss_module: IQLLoss | CQLLoss,
    source: Dataset | str | os.PathLike[str],
    batch_size: int,
    lr: float,
    tau: float,
) -> Trainer:
    dataset = source if isinstance(source, Dataset) else load_dataset(source)
    _check_sizes(task, dataset)
    loss_module.to(task.device)
    updater = TargetNetUpdaterHook(SoftUpdate(loss_module, tau=tau))
    trainer = task.trainer(
        DatasetCollector(dataset, batch_size, loss_module.in_keys, device=task.device),
        loss_module,
        torch.optim.Adam(loss_module.parameters(), lr=lr, fused=True),
        optim_steps_per_batch=1,
    )
    updater.register(trainer)
    every = Every(frames=task.eval_interval, at_start=True)
    trainer.register_op("post_steps_log", dataset.log, every=every)
    return task.finish(trainer, loss_module.actor_network, log_episodes=False)


def _check_sizes(task: Task, dataset: Dataset) -> None:
    for key, features in (
        ("observation", task.observation_features),
        ("action", task.action_features),
    ):
        found = list(dataset.transitions[key].shape[1:])
        if found != [features]:
            raise ConfigError(
                f"{task.algorithm}: the data set ({dataset.env or 'of an unnamed environment'}) "
                f"has {key}s of shape {found}, the environment {task.env_name} of {[features]}."
            )
