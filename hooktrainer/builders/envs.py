"""TorchRL environments with their usual transforms, made by `torchrl.trainers.helpers`."""

from __future__ import annotations

import copy
import warnings
from typing import Any

from .configs import EnvConfig, OnPolicyCollectorConfig, filled


def correct_for_frame_skip(cfg: Any) -> Any:
    """Return a copy of ``cfg`` whose counts of frames are divided by ``frame_skip``, rounded down.

    They are ``total_frames``, ``frames_per_batch``, ``max_frames_per_traj``, ``record_frames``,
    ``annealing_frames``, ``init_random_frames``, ``init_env_steps`` and ``noops``.
    """
    from torchrl.trainers import helpers

    return helpers.correct_for_frame_skip(copy.deepcopy(cfg))


def transformed_env_constructor(
    cfg: Any, *args: Any, use_env_creator: bool = False, **kwargs: Any
) -> Any:
    """Return a function that builds a TorchRL environment with its transforms.

    Observations are joined into ``"observation_vector"`` (pictures stay ``"pixels"``), normalized
    and converted to float32; steps are counted, and the first step of an episode marked.

    Args:
        cfg: An `EnvConfig`, or an object with its attributes and ``collector_device``.
        *args: Further arguments of TorchRL's function.
        use_env_creator: Whether to return an ``EnvCreator``, which shares running statistics
            between processes.
        **kwargs: Further arguments of TorchRL's function: ``stats`` (``"loc"`` and ``"scale"``,
            from `get_stats_random_rollout`), ``custom_env``, ``custom_env_maker``, ``video_tag``
            and ``logger``, ….
    """
    from torchrl.envs import EnvCreator, StepCounter
    from torchrl.trainers import helpers

    cfg = filled(cfg, EnvConfig, OnPolicyCollectorConfig, gSDE=False)
    build = helpers.transformed_env_constructor(cfg, *args, **kwargs)

    def make_transformed_env(**env_kwargs: Any) -> Any:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*VecNormV2", FutureWarning)
            warnings.filterwarnings("ignore", "Nested TransformedEnvs")
            env = build(**env_kwargs)
        limit = cfg.max_frames_per_traj or 0
        if kwargs.get("return_transformed_envs", True) and limit > 0:
            for transform in env.transform:
                if isinstance(transform, StepCounter):
                    transform.max_steps = limit
            env.empty_cache()
        return env

    return EnvCreator(make_transformed_env) if use_env_creator else make_transformed_env


def parallel_env_constructor(cfg: Any, **kwargs: Any) -> Any:
    """Build the environments of one collector, each in a process of its own.

    Args:
        cfg: An `EnvConfig` and `OnPolicyCollectorConfig` in one, or an object with their fields.
        **kwargs: For `transformed_env_constructor`.

    Returns:
        With ``env_per_collector=1`` a function that builds the one environment; otherwise a
        ``ParallelEnv``, transformed as a whole.
    """
    from torchrl.envs import ParallelEnv

    options = filled(cfg, OnPolicyCollectorConfig)
    number = options.env_per_collector or 1
    if number == 1:
        return transformed_env_constructor(cfg, use_env_creator=True, **kwargs)
    make_env = transformed_env_constructor(
        cfg, use_env_creator=True, return_transformed_envs=False, **kwargs
    )
    envs = ParallelEnv(number, make_env, pin_memory=options.pin_memory)
    return transformed_env_constructor(cfg, custom_env=envs, **kwargs)()


def get_stats_random_rollout(cfg: Any, proof_environment: Any = None, key: Any = None) -> Any:
    """Measure the mean and deviation of an observation under random actions.

    Args:
        cfg: An `EnvConfig`, or an object with its attributes; ``init_env_steps`` are taken.
        proof_environment: The environment; by default one is built, and closed.
        key: Entry to measure; by default the one that `transformed_env_constructor` makes.

    Returns:
        ``"loc"`` and ``"scale"``, for every element of the observation; of pixels over all. A
        constant element gets 0 and 1.
    """
    from torchrl.trainers import helpers

    cfg = filled(cfg, EnvConfig, OnPolicyCollectorConfig)
    key = key or ("pixels" if cfg.from_pixels else "observation_vector")
    return helpers.get_stats_random_rollout(cfg, proof_environment, key)
