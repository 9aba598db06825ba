"""Functions that build environments, collectors, losses, buffers and trainers from a configuration.

They have the names and arguments of ``torchrl.trainers.helpers``. A configuration is one of the
dataclasses here, several of them joined by inheritance, or any object with the same attributes, an
OmegaConf ``DictConfig`` for instance. It is only read, never changed.
"""

from __future__ import annotations

from .collectors import (
    make_collector_offpolicy,
    make_collector_onpolicy,
    sync_async_collector,
    sync_sync_collector,
)
from .configs import (
    EnvConfig,
    LoggerConfig,
    LossConfig,
    OffPolicyCollectorConfig,
    OnPolicyCollectorConfig,
    ReplayArgsConfig,
    TrainerConfig,
)
from .envs import (
    correct_for_frame_skip,
    get_stats_random_rollout,
    parallel_env_constructor,
    transformed_env_constructor,
)
from .trainer import make_dqn_loss, make_replay_buffer, make_target_updater, make_trainer

__all__ = [
    "EnvConfig",
    "LoggerConfig",
    "LossConfig",
    "OffPolicyCollectorConfig",
    "OnPolicyCollectorConfig",
    "ReplayArgsConfig",
    "TrainerConfig",
    "correct_for_frame_skip",
    "get_stats_random_rollout",
    "make_collector_offpolicy",
    "make_collector_onpolicy",
    "make_dqn_loss",
    "make_replay_buffer",
    "make_target_updater",
    "make_trainer",
    "parallel_env_constructor",
    "sync_async_collector",
    "sync_sync_collector",
    "transformed_env_constructor",
]
