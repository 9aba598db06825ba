"""Collectors, in this process or in several."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import gymnasium as gym
from tensordict.nn import InteractionType

from ..collect import VectorCollector
from ..collect.episodes_collector import device_of
from ..collect.make_group import find_spec
from ..errors import ConfigError
from .configs import Reader

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
        env_fns: Builds an environment, or several such functions, one for each.
        env_kwargs: Keyword arguments of those functions, the same for all or one for each.
        num_env_per_collector: Environments of one collector. May be left out if ``env_fns`` is a
            list and ``num_collectors`` is given.
        num_collectors: Number of collectors, each a process; likewise.
        **kwargs: For TorchRL's collector: ``policy``, ``frames_per_batch``, ``total_frames``, ….

    Returns:
        A ``torchrl.collectors.Collector`` in this process, or a ``MultiSyncCollector`` of several.

    Raises:
        ConfigError: If the numbers do not fit together.
    """
    groups = _grouped(env_fns, env_kwargs, num_env_per_collector, num_collectors)
    from torchrl.collectors import Collector, MultiSyncCollector

    if len(groups) == 1:
        kwargs.setdefault("auto_register_policy_transforms", False)  # the builders add them all
        return Collector(groups[0], **kwargs)
    return MultiSyncCollector(groups, **kwargs)


def sync_async_collector(
    env_fns: EnvFns,
    env_kwargs: EnvKwargs,
    num_env_per_collector: int | None = None,
    num_collectors: int | None = None,
    **kwargs: Any,
) -> Any:
    """Build a ``MultiAsyncCollector`` of TorchRL, whose collectors do not wait for each other.

    Arguments and errors are those of `sync_sync_collector`.
    """
    groups = _grouped(env_fns, env_kwargs, num_env_per_collector, num_collectors)
    from torchrl.collectors import MultiAsyncCollector

    return MultiAsyncCollector(groups, **kwargs)


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
    read = Reader(cfg, "make_collector_onpolicy")
    _refuse_torchrl_options(read, "is off-policy: set it to False, or use another algorithm.")
    return _make_collector(make_env, actor_model_explore, read, make_env_kwargs, off_policy=False)


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
    read = Reader(cfg, "make_collector_offpolicy")
    return _make_collector(make_env, actor_model_explore, read, make_env_kwargs, off_policy=True)


def _make_collector(
    make_env: Any,
    policy: Any,
    read: Reader,
    env_kwargs: Mapping[str, Any] | None,
    *,
    off_policy: bool,
) -> Any:
    exploration = read("exploration_type")
    if not isinstance(exploration, InteractionType):
        known = {kind.name.lower(): kind for kind in InteractionType}
        exploration = known[read.one_of("exploration_type", tuple(known))]
    options: dict[str, Any] = {
        "policy": policy,
        "frames_per_batch": read("frames_per_batch"),
        "total_frames": read("total_frames"),
        "exploration_type": exploration,
    }
    if off_policy:
        options["init_random_frames"] = read("init_random_frames")
    in_each: int | None = read("env_per_collector", None)
    if in_each is not None and in_each < 1:
        raise read.refusal("env_per_collector", "has to be 1 or more, or None.")
    kwargs = dict(env_kwargs or {})
    if isinstance(make_env, str):
        spec = copy.deepcopy(find_spec(make_env))
        own = kwargs.pop("max_episode_steps", spec.max_episode_steps)
        own = None if own == -1 else own  # which switches it off
        options["frame_skip"] = read("frame_skip", 1)
        spec.kwargs |= kwargs
        spec.max_episode_steps = _lower_limit(read, own, options["frame_skip"]) or own
        return _gymnasium_collector(spec, read, in_each, options)
    is_built = _is_built(make_env)
    env = make_env if is_built else make_env(**kwargs)  # to look at
    try:
        is_gymnasium = isinstance(env, gym.Env)
        if is_gymnasium:
            # A function repeats actions itself, as one that builds a TorchRL environment does.
            own = env.spec.max_episode_steps if env.spec else None
        else:
            counts_steps = "step_count" in env.observation_spec.keys(True, True)
    finally:
        if not is_built:
            env.close()
    if is_gymnasium:
        made = partial(_build_limited, make_env, kwargs, _lower_limit(read, own, 1))
        return _gymnasium_collector(made, read, in_each, options)
    # An environment that counts its steps, as the builders make it, has its limit itself.
    limit = 0 if counts_steps else read("max_frames_per_traj", 0)
    options["max_frames_per_traj"] = limit if limit > 0 else None
    return _torchrl_collector(make_env, read, kwargs, is_built, in_each, options)


def _lower_limit(read: Reader, own: int | None, frame_skip: int) -> int | None:
    """The configuration's limit of an episode in frames, if it is below ``own``."""
    limit = int(read("max_frames_per_traj", 0)) * frame_skip
    return None if limit <= 0 or (own is not None and own <= limit) else limit


def _gymnasium_collector(
    env: Any, read: Reader, in_each: int | None, options: dict[str, Any]
) -> VectorCollector:
    _refuse_torchrl_options(
        read, "needs a TorchRL environment: let make_env build one, GymEnv for instance."
    )
    devices = set(read.devices("collector_device"))
    if len(devices) > 1:
        raise read.refusal(
            "collector_device", "are several, but a VectorCollector has one device: give that."
        )
    computes = device_of(options["policy"])
    if read("pin_memory", False) and computes.type != "cuda":
        raise read.refusal(
            "pin_memory", f"is for a policy on a CUDA device, not on {computes}: set it to False."
        )
    number = read("num_workers")
    return VectorCollector(
        env,
        num_envs=number,
        seed=read("seed"),
        device=devices.pop(),
        workers=0 if in_each is None or in_each >= number else -(-number // in_each),
        **options,
    )


def _torchrl_collector(
    make_env: Any,
    read: Reader,
    kwargs: Mapping[str, Any],
    is_built: bool,
    in_each: int | None,
    options: dict[str, Any],
) -> Any:
    if read("multi_step", False):
        from torchrl.data import MultiStep

        options["postproc"] = MultiStep(gamma=read("gamma"), n_steps=read("n_steps_return"))
    number = -(-read("num_workers") // (in_each or 1))
    if is_built and number > 1:
        raise ConfigError(
            f"make_env={make_env} is built already, but cfg.num_workers={read('num_workers')} are "
            f"{number} collectors: give a function that builds the environments of each."
        )
    devices = read.devices("collector_device")
    device = devices if len(devices) > 1 else devices[0]
    kind = sync_async_collector if read("async_collection", False) else sync_sync_collector
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
    collector.set_seed(read("seed"))
    return collector


def _refuse_torchrl_options(read: Reader, why: str) -> None:
    """Refuse what only TorchRL's collectors do, and only off-policy."""
    for option in ("async_collection", "multi_step"):
        if read(option, False):
            raise read.refusal(option, why)


def _grouped(
    env_fns: EnvFns,
    env_kwargs: EnvKwargs,
    num_env_per_collector: int | None,
    num_collectors: int | None,
) -> list[Callable[[], Any]]:
    """For each collector, a function that builds its environments as one."""
    if callable(env_fns):
        if num_env_per_collector is None or num_collectors is None:
            raise ConfigError(
                "one env_fns for all environments: pass num_env_per_collector and num_collectors."
            )
        env_fns = [env_fns] * (num_env_per_collector * num_collectors)
    number = len(env_fns)
    if num_env_per_collector is None and num_collectors is None:
        raise ConfigError("pass num_env_per_collector or num_collectors.")
    size = num_env_per_collector or -(-number // (num_collectors or 1))
    if num_collectors not in (None, groups := -(-number // size)):
        raise ConfigError(
            f"{number} environments, {size} to a collector, make {groups} collectors, but "
            f"num_collectors={num_collectors}."
        )
    if env_kwargs is None or isinstance(env_kwargs, Mapping):
        env_kwargs = [dict(env_kwargs or {})] * number
    if len(env_kwargs) != number:
        raise ConfigError(f"env_kwargs has {len(env_kwargs)} entries for {number} environments.")
    starts = range(0, number, size)
    return [partial(_build, env_fns[i : i + size], env_kwargs[i : i + size]) for i in starts]


def _build(env_fns: Sequence[Callable[..., Any]], kwargs: Sequence[Mapping[str, Any]]) -> Any:
    """Build the environments of one collector: one unchanged, several in processes."""
    if len(env_fns) == 1:
        return env_fns[0] if _is_built(env_fns[0]) else env_fns[0](**kwargs[0])
    from torchrl.envs import ParallelEnv

    return ParallelEnv(len(env_fns), list(env_fns), create_env_kwargs=list(kwargs))


def _build_limited(
    make_env: Callable[..., gym.Env[Any, Any]], kwargs: Mapping[str, Any], limit: int | None
) -> gym.Env[Any, Any]:
    env = make_env(**kwargs)
    return env if limit is None else gym.wrappers.TimeLimit(env, limit)


def _is_built(make_env: Any) -> bool:
    from torchrl.envs import EnvBase

    return isinstance(make_env, EnvBase)  # which can be called, as every module can
