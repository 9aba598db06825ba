"""An algorithm that learns a model of the environment, and trains on what the model imagines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from ..errors import ConfigError
from ..hooks import ModelRollouts, TargetNetUpdaterHook
from ..loop.cadence import Every
from ..loop.trainer import Trainer
from ..networks import DynamicsEnsemble, TanhGaussianPolicy
from ..objectives import SACLoss, SoftUpdate
from .off_policy import replay_trainer
from .options import Options
from .task import Task

if TYPE_CHECKING:
    from typing_extensions import Unpack


def mbpo(
    env: Any,
    *,
    total_frames: int,
    num_envs: int = 2,
    steps_per_batch: int = 10,
    optim_steps_per_batch: int = 100,
    init_random_frames: int = 400,
    fit_interval: int = 200,
    fit_steps: int = 200,
    num_models: int = 5,
    num_rollouts: int = 4_000,
    horizon: int = 2,
    real_ratio: float = 0.1,
    terminates: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] | None = None,
    buffer_size: int = 100_000,
    batch_size: int = 256,
    lr: float = 1e-3,
    num_cells: Sequence[int] = (128, 128),
    gamma: float = 0.99,
    tau: float = 0.01,
    **options: Unpack[Options],
) -> Trainer:
    """Model-based policy optimization, for continuous actions.

    Janner et al., 2019, arXiv:1906.08253: soft actor-critic (`sac`), trained mostly on what an
    ensemble of networks imagines. It needs few frames and much computation for each.

    Args:
        env: Environment id or factory, as for `VectorCollector`.
        total_frames: Frames after which the run ends.
        num_envs: Number of parallel environments.
        steps_per_batch: Steps per environment in each batch.
        optim_steps_per_batch: Optimizer steps after each batch.
        init_random_frames: Frames collected with random actions before the first optimizer step.
        fit_interval: Frames between two fits of the model.
        fit_steps: Optimizer steps of each fit.
        num_models: Dynamics networks in the ensemble.
        num_rollouts: Model rollouts after each fit.
        horizon: Steps of a model rollout.
        real_ratio: Fraction of each batch that is real, not from model rollouts.
        terminates: Which steps of model rollouts end an episode, as for `ModelRollouts`; ``None``
            for none.
        buffer_size: Capacity of the replay buffer, in transitions.
        batch_size: Transitions per optimizer step.
        lr: Learning rate of the actor, the Q-functions, the temperature and the model.
        num_cells: Units in each hidden layer of the actor and the Q-functions.
        gamma: Discount factor.
        tau: Rate of the soft updates of the target networks, one per optimizer step.
        **options: See `Options`.

    Returns:
        The trainer; call its ``train()``.

    Raises:
        ConfigError: If an argument cannot work.
    """
    task = Task("mbpo", locals(), "continuous")
    real = round(real_ratio * batch_size)
    if not 0 < real < batch_size:
        raise ConfigError(
            f"mbpo: real_ratio={real_ratio} of batch_size={batch_size} leaves nothing collected, "
            "or nothing imagined; pass a fraction between 0 and 1."
        )
    actor = TanhGaussianPolicy(
        task.network(2 * task.action_features, num_cells), **task.bounds()
    ).to(task.device)
    loss_module = SACLoss(actor, task.qvalue(num_cells), gamma=gamma, loss_function="l2")
    loss_module.to(task.device)
    collected = task.replay_buffer(loss_module, buffer_size, real)
    imagined = task.replay_buffer(loss_module, 4 * num_rollouts * horizon, batch_size - real)
    updater = SoftUpdate(loss_module, tau=tau)
    trainer = replay_trainer(
        task,
        actor,
        loss_module,
        collected,
        num_envs=num_envs,
        steps_per_batch=steps_per_batch,
        optim_steps_per_batch=optim_steps_per_batch,
        init_random_frames=init_random_frames,
        lr=lr,
    )
    dynamics = DynamicsEnsemble(task.observation_features, task.action_features, num_models)
    ModelRollouts(
        dynamics.to(task.device),
        actor,
        collected,
        imagined,
        every=Every(frames=fit_interval),
        fit_steps=fit_steps,
        lr=lr,
        num_rollouts=num_rollouts,
        horizon=horizon,
        terminates=terminates,
    ).register(trainer)
    TargetNetUpdaterHook(updater).register(trainer)
    return task.finish(trainer, actor)
