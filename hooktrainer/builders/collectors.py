"""Collectors, in this process or in several."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium as gym

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
    """Build collectors that wait for each other, whose environments do too.

    Args:
        env_fns: Builds an environment, or several such functions, one for each.
        env_kwargs: Keyword arguments of those functions, the same for all or one for each.
        num_env_per_collector: Environments of one collector. May be left out if ``env_fns`` is a
            list and ``num_collectors`` is given.
        num_collectors: Number of collectors, each a process; likewise. One collector lives in this
            process.
        **kwargs: For TorchRL's collector: ``policy``, ``frames_per_batch``, ``total_frames``, ….

    Returns:
        A ``torchrl.collectors.Collector``, or a ``MultiSyncCollector`` of several.

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
    """Build collectors that do not wait for each other, whose environments do.

    Args:
        env_fns: As for `sync_sync_collector`, like the other arguments.
        env_kwargs: Keyword arguments of those functions.
        num_env_per_collector: Environments of one collector.
        num_collectors: Number of collectors, each a process.
        **kwargs: For TorchRL's collector.

    Returns:
        A ``torchrl.collectors.MultiAsyncCollector``.

    Raises:
        ConfigError: If the numbers do not fit together.
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
        make_env: A Gymnasium environment id, a function that builds a Gymnasium environment, or one
            that builds a TorchRL environment. The first two make a `VectorCollector` of
            ``cfg.num_workers`` environments, several times as fast as the TorchRL collector that
            the third makes. What `parallel_env_constructor` returns will do as well.
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

    Args:
        make_env: As for `make_collector_onpolicy`. Multi-step rewards and asynchronous collection
            need a TorchRL environment.
        actor_model_explore: The policy, with its exploration.
        cfg: An `OffPolicyCollectorConfig`, or an object with its attributes; and as for
            `make_collector_onpolicy`.
        make_env_kwargs: Keyword arguments of ``make_env``, or of the environment with an id.

    Raises:
        ConfigError: If the configuration cannot work.
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
    options: dict[str, Any] = {
        "policy": policy,
        "frames_per_batch": read("frames_per_batch"),
        "total_frames": read("total_frames"),
        "exploration_type": _exploration_type(read("exploration_type")),
    }
    if off_policy:
        options["init_random_frames"] = read("init_random_frames")
    looked_at = look_at(make_env, env_kwargs)
    if looked_at.is_gymnasium:
        return _gymnasium_collector(make_env, read, env_kwargs, looked_at, options)
    return _torchrl_collector(make_env, read, env_kwargs, looked_at, options)


def _gymnasium_collector(
    make_env: Any,
    read: Reader,
    env_kwargs: Mapping[str, Any] | None,
    looked_at: LookedAt,
    options: Mapping[str, Any],
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
    number, in_each = read("num_workers"), _envs_per_collector(read)
    # A function repeats actions itself, as one that builds a TorchRL environment does.
    frame_skip = read("frame_skip", 1) if isinstance(make_env, str) else 1
    limit = read("max_frames_per_traj", 0) * frame_skip
    return VectorCollector(
        limited(make_env, env_kwargs, looked_at, limit),
        num_envs=number,
        seed=read("seed"),
        frame_skip=frame_skip,
        device=devices.pop(),
        workers=0 if in_each is None or in_each >= number else -(-number // in_each),
        **options,
    )


def _torchrl_collector(
    make_env: Any,
    read: Reader,
    env_kwargs: Mapping[str, Any] | None,
    looked_at: LookedAt,
    options: Mapping[str, Any],
) -> Any:
    options = dict(options)
    if read("multi_step", False):
        from torchrl.data import MultiStep

        options["postproc"] = MultiStep(gamma=read("gamma"), n_steps=read("n_steps_return"))
    number = -(-read("num_workers") // (_envs_per_collector(read) or 1))
    if looked_at.is_built and number > 1:
        raise ConfigError(
            f"make_env={make_env} is built already, but cfg.num_workers={read('num_workers')} with "
            f"cfg.env_per_collector={read('env_per_collector', None)} are {number} collectors, "
            "each with environments of its own: give a function that builds them."
        )
    devices = read.devices("collector_device")
    # An environment that counts its steps, as the builders make it, has its limit itself.
    limit = 0 if looked_at.counts_steps else read("max_frames_per_traj", 0)
    kind = sync_async_collector if read("async_collection", False) else sync_sync_collector
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "split_trajs=True")  # which multi-step rewards need
        collector = kind(
            make_env if not looked_at.is_built else [make_env],
            env_kwargs,
            num_env_per_collector=1,  # make_env builds all environments of a collector
            num_collectors=number,
            device=devices if len(devices) > 1 else devices[0],
            storing_device=devices if len(devices) > 1 else devices[0],
            max_frames_per_traj=limit if limit > 0 else None,
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


def _envs_per_collector(read: Reader) -> int | None:
    number: int | None = read("env_per_collector", None)
    if number is not None and number < 1:
        raise read.refusal("env_per_collector", "has to be 1 or more, or None.")
    return number


def _exploration_type(name: Any) -> Any:
    from torchrl.envs import ExplorationType

    if isinstance(name, ExplorationType):
        return name
    known = {kind.name.lower(): kind for kind in ExplorationType}
    if str(name).lower() not in known:
        raise ConfigError(f"cfg.exploration_type={name!r} is not one of {', '.join(known)}.")
    return known[str(name).lower()]


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
                "one env_fns for all environments: pass num_env_per_collector and num_collectors "
                f"(given: {num_env_per_collector} and {num_collectors})."
            )
        env_fns = [env_fns] * (num_env_per_collector * num_collectors)
    number = len(env_fns)
    if num_env_per_collector is None and num_collectors is None:
        raise ConfigError("pass num_env_per_collector or num_collectors.")
    size = num_env_per_collector or -(-number // (num_collectors or 1))
    groups = -(-number // size)
    if num_collectors is not None and groups != num_collectors:
        raise ConfigError(
            f"{number} environments, {size} to a collector, make {groups} collectors, but "
            f"num_collectors={num_collectors}."
        )
    if env_kwargs is None or isinstance(env_kwargs, Mapping):
        env_kwargs = [dict(env_kwargs or {})] * number
    if len(env_kwargs) != number:
        raise ConfigError(f"env_kwargs has {len(env_kwargs)} entries for {number} environments.")
    pairs = list(zip(env_fns, env_kwargs, strict=True))
    return [_Envs(pairs[start : start + size]) for start in range(0, number, size)]


class _Envs:
    """Builds the environments of one collector: one as it is, several in processes of their own."""

    def __init__(self, pairs: Sequence[tuple[Callable[..., Any], Mapping[str, Any]]]) -> None:
        self._pairs = list(pairs)

    def __call__(self) -> Any:
        if len(self._pairs) == 1:
            env_fn, kwargs = self._pairs[0]
            return build(env_fn, kwargs)
        from torchrl.envs import ParallelEnv

        env_fns, kwargs_of_all = zip(*self._pairs, strict=True)
        return ParallelEnv(len(env_fns), list(env_fns), create_env_kwargs=list(kwargs_of_all))


# -- What ``make_env`` may be, and what it builds.


@dataclass(frozen=True)
class LookedAt:
    """What is known of the environments that ``make_env`` builds.

    Attributes:
        is_gymnasium: Whether they are Gymnasium's, not TorchRL's.
        is_built: Whether ``make_env`` is an environment itself.
        counts_steps: Whether a transform counts their steps, and may limit them.
        max_steps: Steps after which Gymnasium truncates an episode; ``None`` for no limit.
    """

    is_gymnasium: bool
    is_built: bool = False
    counts_steps: bool = False
    max_steps: int | None = None


def look_at(make_env: Any, env_kwargs: Mapping[str, Any] | None) -> LookedAt:
    """What ``make_env`` builds; unless it is an id, one is built to see, and closed."""
    if isinstance(make_env, str):
        spec = find_spec(make_env)
        own = (env_kwargs or {}).get(_LIMIT, spec.max_episode_steps)
        return LookedAt(True, max_steps=None if own == -1 else own)  # -1 switches it off
    is_built = _is_built(make_env)
    env = build(make_env, env_kwargs)
    try:
        if isinstance(env, gym.Env):
            return LookedAt(True, max_steps=env.spec.max_episode_steps if env.spec else None)
        counts_steps = "step_count" in env.observation_spec.keys(True, True)
        return LookedAt(False, is_built, counts_steps)
    finally:
        if not is_built:
            env.close()


def build(make_env: Any, env_kwargs: Mapping[str, Any] | None) -> Any:
    """Call ``make_env``, unless it is a TorchRL environment itself."""
    return make_env if _is_built(make_env) else make_env(**(env_kwargs or {}))


def limited(
    make_env: str | Callable[..., gym.Env[Any, Any]],
    env_kwargs: Mapping[str, Any] | None,
    looked_at: LookedAt,
    limit: int,
) -> Any:
    """What builds the same Gymnasium environments, their episodes limited to ``limit`` steps.

    A limit of 0 or less is none; a lower one of the environment itself stays.
    """
    own = looked_at.max_steps
    needs_limit = limit > 0 and (own is None or own > limit)
    if not isinstance(make_env, str):
        return partial(_build_limited, make_env, env_kwargs, limit if needs_limit else None)
    spec = copy.deepcopy(find_spec(make_env))
    spec.kwargs |= {k: v for k, v in (env_kwargs or {}).items() if k != _LIMIT}
    spec.max_episode_steps = limit if needs_limit else own
    return spec


_LIMIT = "max_episode_steps"


def _build_limited(
    make_env: Callable[..., gym.Env[Any, Any]],
    env_kwargs: Mapping[str, Any] | None,
    limit: int | None,
) -> gym.Env[Any, Any]:
    env = make_env(**(env_kwargs or {}))
    return env if limit is None else gym.wrappers.TimeLimit(env, limit)


def _is_built(make_env: Any) -> bool:
    from torchrl.envs import EnvBase

    return isinstance(make_env, EnvBase)  # which can be called, as every module can
