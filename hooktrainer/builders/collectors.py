"""Collectors, in this process or in several."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import gymnasium as gym
from tensordict.nn import InteractionType

from ..collect import VectorCollector
from ..collect.make_envs import find_spec
from ..errors import ConfigError
from .configs import LossConfig, OffPolicyCollectorConfig, chosen, filled

EnvFns = Callable[..., Any] | Sequence[Callable[..., Any]]
EnvKwargs = Mapping[str, Any] | Sequence[Mapping[str, Any]] | None


def sync_sync_collector(
    env_fns: EnvFns,
    env_kwargs: EnvKwargs,
    num_env_per_collector: int | None = None,
    num_collectors: int | None = None,
    **kwargs: Any,
) -> Any:
    """Build TorchRL collectors that wait for each other.

    Args:
        env_fns: Builds an environment, or a list of such functions, one for each.
        env_kwargs: Keyword arguments of those functions, the same for all or one for each.
        num_env_per_collector: Environments of one collector. May be left out if ``env_fns`` is a
            list and ``num_collectors`` is given.
        num_collectors: Number of collectors, each a process; likewise.
        **kwargs: For TorchRL's collector: ``policy``, ``frames_per_batch``, ``total_frames``, ….

    Returns:
        A ``torchrl.collectors.Collector`` of one environment in this process, or a
        ``MultiSyncCollector`` of several collectors.
    """
    from torchrl.trainers import helpers

    numbers = num_env_per_collector, num_collectors
    return helpers.sync_sync_collector(env_fns, env_kwargs, *numbers, **kwargs)


def sync_async_collector(env_fns: EnvFns, env_kwargs: EnvKwargs, *args: Any, **kwargs: Any) -> Any:
    """Build a ``MultiAsyncCollector`` of TorchRL, whose collectors do not wait for each other.

    Arguments are those of `sync_sync_collector`.
    """
    from torchrl.trainers import helpers

    return helpers.sync_async_collector(env_fns, env_kwargs, *args, **kwargs)


def make_collector_onpolicy(
    make_env: Any,
    actor_model_explore: Any,
    cfg: Any,
    make_env_kwargs: Mapping[str, Any] | None = None,
) -> Any:
    """Build a collector for training on what the present policy collects.

    Args:
        make_env: A Gymnasium id, or a function that builds a Gymnasium environment: these make a
            `VectorCollector` of ``cfg.num_workers`` environments. Or a function that builds a
            TorchRL environment, or the result of `parallel_env_constructor`.
        actor_model_explore: The policy.
        cfg: An `OnPolicyCollectorConfig`, or an object with its attributes; of an `EnvConfig`
            ``max_frames_per_traj`` is read, and ``frame_skip`` with an id.
        make_env_kwargs: Keyword arguments of ``make_env``, or of the environment with an id.

    Raises:
        ConfigError: If the configuration cannot work.
    """
    for option in ("async_collection", "multi_step"):
        if getattr(cfg, option, False):
            raise ConfigError(f"make_collector_onpolicy: cfg.{option}=True is off-policy.")
    return _make_collector(make_env, actor_model_explore, cfg, make_env_kwargs)


def make_collector_offpolicy(
    make_env: Any,
    actor_model_explore: Any,
    cfg: Any,
    make_env_kwargs: Mapping[str, Any] | None = None,
) -> Any:
    """Build a collector for training from a replay buffer.

    Multi-step rewards and asynchronous collection need a TorchRL environment. Arguments and errors
    are those of `make_collector_onpolicy`, with an `OffPolicyCollectorConfig`.
    """
    random = filled(cfg, OffPolicyCollectorConfig).init_random_frames
    return _make_collector(
        make_env, actor_model_explore, cfg, make_env_kwargs, init_random_frames=random
    )


def _make_collector(
    make_env: Any, policy: Any, cfg: Any, env_kwargs: Mapping[str, Any] | None, **options: Any
) -> Any:
    cfg = filled(cfg, OffPolicyCollectorConfig, LossConfig, frame_skip=1, max_frames_per_traj=0)
    exploration = cfg.exploration_type
    if not isinstance(exploration, InteractionType):
        known = {kind.name.lower(): kind for kind in InteractionType}
        exploration = known[chosen(cfg, "exploration_type", known)]
    options |= {
        "policy": policy,
        "frames_per_batch": cfg.frames_per_batch,
        "total_frames": cfg.total_frames,
        "exploration_type": exploration,
    }
    limit, kwargs = max(cfg.max_frames_per_traj or 0, 0), dict(env_kwargs or {})
    if isinstance(make_env, str):
        spec = copy.deepcopy(find_spec(make_env))
        own = kwargs.pop("max_episode_steps", spec.max_episode_steps)
        spec.kwargs |= kwargs
        spec.max_episode_steps = min(
            (n for n in (limit * cfg.frame_skip, own or 0) if n > 0), default=None
        )
        return _gymnasium_collector(spec, cfg, options | {"frame_skip": cfg.frame_skip})
    is_built = _is_built(make_env)
    env = make_env if is_built else make_env(**kwargs)  # to look at
    try:
        if isinstance(env, gym.Env):
            # A function repeats actions itself, as one that builds a TorchRL environment does.
            return _gymnasium_collector(
                partial(_build_limited, make_env, kwargs, limit), cfg, options
            )
        # An environment that counts its steps, as the builders make it, has its limit itself.
        counts_steps = "step_count" in env.observation_spec.keys(True, True)
    finally:
        if not is_built:
            env.close()
    options["max_frames_per_traj"] = None if counts_steps else limit or None
    return _torchrl_collector(make_env, cfg, kwargs, is_built, options)


def _gymnasium_collector(env: Any, cfg: Any, options: dict[str, Any]) -> VectorCollector:
    devices = (
        [cfg.collector_device] if isinstance(cfg.collector_device, str) else cfg.collector_device
    )
    for option, refused in (
        ("async_collection", cfg.async_collection),
        ("multi_step", cfg.multi_step),
        ("collector_device", len(set(devices)) != 1),
    ):
        if refused:
            raise ConfigError(
                f"cfg.{option}={getattr(cfg, option)!r} needs a TorchRL environment: let make_env "
                "build one, GymEnv for instance."
            )
    number, in_each = cfg.num_workers, cfg.env_per_collector or cfg.num_workers
    return VectorCollector(
        env,
        num_envs=number,
        seed=cfg.seed,
        device=devices[0],
        workers=0 if in_each >= number else -(-number // in_each),
        **options,
    )


def _torchrl_collector(
    make_env: Any, cfg: Any, kwargs: Mapping[str, Any], is_built: bool, options: dict[str, Any]
) -> Any:
    if cfg.multi_step:
        from torchrl.data import MultiStep

        options["postproc"] = MultiStep(gamma=cfg.gamma, n_steps=cfg.n_steps_return)
    number = -(-cfg.num_workers // (cfg.env_per_collector or 1))
    if is_built and number > 1:
        raise ConfigError(
            f"make_env={make_env} is built already, but cfg.num_workers={cfg.num_workers} are "
            f"{number} collectors: give a function that builds the environments of each."
        )
    device = cfg.collector_device
    if not isinstance(device, str) and len(device) == 1:
        (device,) = device
    kind = sync_async_collector if cfg.async_collection else sync_sync_collector
    if number == 1:
        options["auto_register_policy_transforms"] = False  # the builders add them all
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "split_trajs=True")  # which multi-step rewards need
        collector = kind(
            [make_env] if is_built else make_env,
            kwargs,
            num_env_per_collector=1,  # make_env builds all environments of a collector
            num_collectors=number,
            device=device,
            storing_device=device,
            split_trajs="postproc" in options,
            **options,
        )
    collector.set_seed(cfg.seed)
    return collector


def _build_limited(
    make_env: Callable[..., gym.Env[Any, Any]], kwargs: Mapping[str, Any], limit: int
) -> gym.Env[Any, Any]:
    env = make_env(**kwargs)
    own = env.spec.max_episode_steps if env.spec else None
    return gym.wrappers.TimeLimit(env, limit) if 0 < limit < (own or math.inf) else env


def _is_built(make_env: Any) -> bool:
    from torchrl.envs import EnvBase

    return isinstance(make_env, EnvBase)  # which can be called, as every module can
