"""Collectors, in this process or in several."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..collectors import VectorCollector
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
            ``cfg.num_workers`` environments in this process, several times as fast as the TorchRL
            collector that the third makes, in ``num_workers / env_per_collector`` processes.
        actor_model_explore: The policy.
        cfg: An `OnPolicyCollectorConfig`, or an object with its attributes.
        make_env_kwargs: Keyword arguments of ``make_env``, or of the environment with an id.

    Raises:
        ConfigError: If the configuration cannot work.
    """
    read = Reader(cfg, "make_collector_onpolicy")
    return _make_collector(make_env, actor_model_explore, read, make_env_kwargs, {})


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
        cfg: An `OffPolicyCollectorConfig`, or an object with its attributes.
        make_env_kwargs: Keyword arguments of ``make_env``, or of the environment with an id.

    Raises:
        ConfigError: If the configuration cannot work.
    """
    read = Reader(cfg, "make_collector_offpolicy")
    more: dict[str, Any] = {"init_random_frames": read("init_random_frames")}
    if read("multi_step"):
        from torchrl.data import MultiStep

        more["postproc"] = MultiStep(gamma=read("gamma"), n_steps=read("n_steps_return"))
    return _make_collector(make_env, actor_model_explore, read, make_env_kwargs, more)


def _make_collector(
    make_env: Any,
    policy: Any,
    read: Reader,
    env_kwargs: Mapping[str, Any] | None,
    more: dict[str, Any],
) -> Any:
    asynchronous = read("async_collection", False) and "init_random_frames" in more
    counts = {"frames_per_batch": read("frames_per_batch"), "total_frames": read("total_frames")}
    exploration = _exploration_type(read("exploration_type"))
    is_gymnasium, counts_steps = _probe(make_env, env_kwargs)
    if is_gymnasium:
        if asynchronous or "postproc" in more:
            raise ConfigError(
                "multi_step and async_collection need a TorchRL environment: let make_env build "
                "one, GymEnv for instance."
            )
        given: dict[str, Any] = {"env": make_env, "env_kwargs": env_kwargs}
        if not isinstance(make_env, str):
            given = {"env": lambda: make_env(**(env_kwargs or {}))}
        return VectorCollector(
            policy=policy,
            num_envs=read("num_workers"),
            seed=read("seed"),
            exploration_type=exploration,
            **given,
            **counts,
            **more,
        )
    device = read("collector_device", "cpu")
    if not isinstance(device, str) and len(device) == 1:
        device = device[0]
    # An environment that counts its steps, as the builders make it, has its limit itself.
    limit = 0 if counts_steps else read("max_frames_per_traj", 0)
    build = sync_async_collector if asynchronous else sync_sync_collector
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "split_trajs=True")  # which multi-step rewards need
        collector = build(
            make_env,
            env_kwargs,
            num_env_per_collector=1,  # make_env builds all environments of a collector
            num_collectors=-(-read("num_workers") // read("env_per_collector")),
            policy=policy,
            device=device,
            storing_device=device,
            max_frames_per_traj=limit if limit > 0 else None,
            split_trajs="postproc" in more,
            exploration_type=exploration,
            **counts,
            **more,
        )
    collector.set_seed(read("seed"))
    return collector


def _probe(make_env: Any, env_kwargs: Mapping[str, Any] | None) -> tuple[bool, bool]:
    """Whether environments are Gymnasium's, and whether they count steps; one is built to see."""
    if isinstance(make_env, str):
        return True, False
    import gymnasium as gym

    is_built = not callable(make_env)
    env = make_env if is_built else make_env(**(env_kwargs or {}))
    if isinstance(env, gym.Env):
        env.close()
        return True, False
    counts_steps = "step_count" in env.observation_spec.keys(True, True)
    if not is_built:
        env.close()
    return False, counts_steps


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
            return env_fn(**kwargs) if callable(env_fn) else env_fn
        from torchrl.envs import ParallelEnv

        env_fns, kwargs_of_all = zip(*self._pairs, strict=True)
        return ParallelEnv(len(env_fns), list(env_fns), create_env_kwargs=list(kwargs_of_all))
