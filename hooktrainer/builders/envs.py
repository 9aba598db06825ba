"""TorchRL environments with their usual transforms."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import torch

from ..collect.make_group import find_spec
from ..errors import ConfigError
from .configs import Reader

FRAME_COUNTS = (
    "max_frames_per_traj",
    "total_frames",
    "frames_per_batch",
    "record_frames",
    "annealing_frames",
    "init_random_frames",
    "init_env_steps",
    "noops",
)
"""Fields that count frames; see `correct_for_frame_skip`."""

OBSERVATION_KEY = "observation_vector"
"""Where transformed environments put their observation, unless it is a picture."""


def correct_for_frame_skip(cfg: Any) -> Any:
    """A copy of ``cfg`` with the counts of frames in `FRAME_COUNTS` divided by ``frame_skip``.

    They are rounded down, but not to 0. Numbers that are not positive, such as -1 for no limit,
    stay.
    """
    skip = Reader(cfg, "correct_for_frame_skip")("frame_skip")
    corrected = copy.deepcopy(cfg)
    for name in FRAME_COUNTS:
        frames = getattr(cfg, name, None)
        if frames is not None and frames > 0:
            setattr(corrected, name, max(frames // skip, 1))
    return corrected


def transformed_env_constructor(
    cfg: Any,
    video_tag: str = "",
    logger: Any = None,
    stats: Mapping[str, Any] | None = None,
    norm_obs_only: bool = False,
    use_env_creator: bool = False,
    custom_env_maker: Callable[..., Any] | None = None,
    custom_env: Any = None,
    return_transformed_envs: bool = True,
    action_dim_gsde: int | None = None,
    state_dim_gsde: int | None = None,
    batch_dims: int = 0,
    obs_norm_state_dict: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """Return a function that builds a TorchRL environment with its transforms.

    Observations are joined into ``"observation_vector"`` (pictures stay ``"pixels"``), normalized
    and converted to float32; steps are counted, and the first step of an episode marked.

    Args:
        cfg: An `EnvConfig`, or an object with its attributes and ``collector_device``.
        video_tag: If given, episodes are filmed for ``logger`` under this name.
        logger: Where the films go.
        stats: ``"loc"`` and ``"scale"`` to normalize observations by, from
            `get_stats_random_rollout`. Without them, and without ``vecnorm``, call ``init_stats``
            of the environment's ``ObservationNorm``.
        norm_obs_only: Whether rewards are left alone.
        use_env_creator: Whether to return an ``EnvCreator``, which shares running statistics
            between processes.
        custom_env_maker: Builds the environment instead of ``cfg.env_library``.
        custom_env: The environment, instead.
        return_transformed_envs: Whether to apply the transforms.
        action_dim_gsde: Size of the action, for state-dependent noise (``cfg.gSDE``).
        state_dim_gsde: Size of the state, likewise.
        batch_dims: Ignored: the transforms see the batch dimensions.
        obs_norm_state_dict: ``"loc"`` and ``"scale"``, used if ``stats`` is not given.

    Raises:
        ConfigError: If two environments are given, or the configuration cannot work.
    """
    if custom_env is not None and custom_env_maker is not None:
        raise ConfigError(
            "transformed_env_constructor: pass custom_env or custom_env_maker, not both."
        )
    read = Reader(cfg, "transformed_env_constructor")

    def make_transformed_env(**kwargs: Any) -> Any:
        if custom_env is not None:
            env = custom_env
        elif custom_env_maker is not None:
            env = custom_env_maker(**kwargs)
        else:
            env = _library_env(read, film=bool(video_tag), **kwargs)
        if read("noops", 0) and custom_env is None:  # a given one is a batch of such
            from torchrl.envs import NoopResetEnv, TransformedEnv

            env = TransformedEnv(env, NoopResetEnv(read("noops")))
        if not return_transformed_envs:
            return env
        known = stats if stats is not None else obs_norm_state_dict
        gsde = (action_dim_gsde, state_dim_gsde) if read("gSDE", False) else None
        return _transformed(env, read, known, norm_obs_only, video_tag, logger, gsde)

    if use_env_creator:
        from torchrl.envs import EnvCreator

        return EnvCreator(make_transformed_env)
    return make_transformed_env


def parallel_env_constructor(cfg: Any, **kwargs: Any) -> Any:
    """Build the environments of one collector, each in a process of its own.

    Args:
        cfg: An `EnvConfig` and `OnPolicyCollectorConfig` in one, or an object with their fields.
        **kwargs: For `transformed_env_constructor`.

    Returns:
        With ``env_per_collector=1`` a function that builds the one environment; otherwise a
        ``ParallelEnv``, transformed as a whole (``batch_transform``), or of transformed ones.
    """
    read = Reader(cfg, "parallel_env_constructor")
    number = read("env_per_collector", None) or 1
    if number == 1:
        return transformed_env_constructor(cfg, use_env_creator=True, **kwargs)
    from torchrl.envs import ParallelEnv

    together = read("batch_transform", True)
    make_env = transformed_env_constructor(
        cfg, use_env_creator=True, return_transformed_envs=not together, **kwargs
    )
    envs = ParallelEnv(number, make_env, pin_memory=read("pin_memory", False))
    if not together:
        return envs
    return transformed_env_constructor(cfg, custom_env=envs, **kwargs)()


@torch.no_grad()
def get_stats_random_rollout(
    cfg: Any, proof_environment: Any = None, key: str | None = None
) -> dict[str, torch.Tensor]:
    """Measure the mean and deviation of an observation under random actions.

    Args:
        cfg: An object with ``init_env_steps``, the number of steps; and the fields of
            `transformed_env_constructor`, if there is no ``proof_environment``.
        proof_environment: The environment; by default one is built, and closed.
        key: Entry to measure; may be left out if the environment has one observation only.

    Returns:
        ``"loc"`` and ``"scale"``, for every element of the observation; of pixels over all. A
        constant element gets 0 and 1.

    Raises:
        ConfigError: If ``key`` is needed, or a result is not finite.
    """
    read = Reader(cfg, "get_stats_random_rollout")
    least = read("init_env_steps")
    env = proof_environment
    if env is None:
        env = transformed_env_constructor(cfg, stats={"loc": 0.0, "scale": 1.0})()
    try:
        key = _only_observation(env) if key is None else key
        pieces, steps = [], 0
        while steps < least:
            rollout = env.rollout(max_steps=least - steps)
            pieces.append(rollout.get(key).reshape(-1, *rollout.get(key).shape[rollout.ndim :]))
            steps += rollout.numel()
    finally:
        if proof_environment is None:
            env.close(raise_if_closed=False)
    values = torch.cat(pieces).cpu().float()
    std, mean = torch.std_mean(values) if key == "pixels" else torch.std_mean(values, 0)
    constant = (std == 0) | (std.isnan() if len(values) == 1 else torch.zeros_like(std).bool())
    loc, scale = mean.masked_fill(constant, 0.0), std.masked_fill(constant, 1.0)
    if not (loc.isfinite().all() and scale.isfinite().all()):
        raise ConfigError(f"get_stats_random_rollout: {key!r} holds NaN or infinite values.")
    return {"loc": loc, "scale": scale}


def _only_observation(env: Any) -> Any:
    keys = _observations(env, {"step_count", "is_init"})  # written by transforms
    if len(keys) != 1:
        raise ConfigError(f"get_stats_random_rollout: pass key=, one of {sorted(map(str, keys))}.")
    return keys[0]


def _observations(env: Any, others: set[str]) -> list[Any]:
    others = others | set(env.state_spec.keys(True, True))
    return [key for key in env.observation_spec.keys(True, True) if key not in others]


def _library_env(read: Reader, film: bool, **kwargs: Any) -> Any:
    """The environment that ``cfg`` names."""
    library = read.one_of("env_library", ("gym", "dm_control"))
    pixels, categorical = read("from_pixels", False), read("categorical_action_encoding", False)
    arguments = {
        "device": read.devices("collector_device")[0],
        "frame_skip": read("frame_skip", 1),
        "from_pixels": pixels or film,
        "pixels_only": pixels,
    }
    if library == "gym":
        from torchrl.envs import GymEnv

        if read("env_task", ""):
            raise read.refusal("env_task", "is for env_library='dm_control'.")
        name = read("env_name")
        find_spec(name)  # whose error lists the nearest ids
        return GymEnv(name, categorical_action_encoding=categorical, **arguments | kwargs)
    if categorical:
        raise ConfigError("cfg.categorical_action_encoding=True works with env_library='gym' only.")
    from torchrl.envs import DMControlEnv

    return DMControlEnv(read("env_name"), read("env_task"), **arguments | kwargs)


def _transformed(
    env: Any,
    read: Reader,
    stats: Mapping[str, Any] | None,
    norm_obs_only: bool,
    video_tag: str,
    logger: Any,
    gsde: tuple[int | None, int | None] | None,
) -> Any:
    """``env`` with the usual transforms."""
    from torchrl.envs import transforms as t

    env = t.TransformedEnv(env, auto_unwrap=False)
    add = env.append_transform
    pixels, vecnorm, frames = read("from_pixels", False), read("vecnorm"), read("catframes", 0)
    scaling = read("reward_scaling", None)
    norm_rewards = read("norm_rewards", False)
    for field, is_wrong, why in (
        ("vecnorm", vecnorm and pixels, "is for vectors, not for pictures (cfg.from_pixels=True)."),
        ("norm_rewards", norm_rewards and not vecnorm, "needs cfg.vecnorm=True."),
        ("norm_rewards", norm_rewards and scaling is not None, "excludes cfg.reward_scaling."),
        ("reward_loc", read("reward_loc", 0.0) and scaling is None, "needs cfg.reward_scaling."),
    ):
        if is_wrong:
            raise read.refusal(field, why)
    norm_rewards = norm_rewards and not norm_obs_only
    norm = {**(stats or {}), "standard_normal": True}
    if video_tag:
        from torchrl.record import VideoRecorder

        tag = f"{video_tag}_{read('env_name', 'env')}_video"
        add(VideoRecorder(logger=logger, tag=tag))
    if pixels:
        add(t.ToTensorImage())
        if crop := read("center_crop", ()):
            add(t.CenterCrop(*crop))
        size = read("image_size")
        add(t.Resize(size, size))
        if read("grayscale"):
            add(t.GrayScale())
        add(t.FlattenObservation(0, -3, allow_positive_dim=True))
        if frames > 1:
            add(t.CatFrames(N=frames, in_keys=["pixels"], dim=-3))
        add(t.ObservationNorm(**norm, in_keys=["pixels"]))
    if scaling is not None and not norm_obs_only:
        add(t.RewardScaling(read("reward_loc", 0.0), scaling))
    if not pixels:
        keys = _observations(env, {"pixels"})
        add(t.CatTensors(in_keys=keys, out_key=OBSERVATION_KEY))
        if vecnorm:
            normalized = [OBSERVATION_KEY, "reward"] if norm_rewards else [OBSERVATION_KEY]
            add(t.VecNormV2(in_keys=normalized, decay=0.9999))
        else:
            add(t.ObservationNorm(**norm, in_keys=[OBSERVATION_KEY]))
    add(t.DoubleToFloat())
    if not pixels and frames > 1:
        add(t.CatFrames(N=frames, in_keys=[OBSERVATION_KEY], dim=-1))
    if gsde is not None:
        add(t.gSDENoise(action_dim=gsde[0], state_dim=gsde[1]))
    limit = read("max_frames_per_traj", 0)
    add(t.StepCounter(max_steps=limit if limit > 0 else None))
    add(t.InitTracker())
    return env
