"""`Task`: what follows from an algorithm's fields, and the parts that every algorithm has."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from tensordict import NestedKey, TensorDictBase
from torch import nn

from ..base.space_parts import MASK, parts_of
from ..collect import VectorCollector
from ..collect.action_format import action_format_of
from ..collect.make_group import find_spec
from ..collect.probe import spaces_of
from ..errors import ConfigError
from ..hooks import Evaluate, LogEpisodes, ObservationNormalizer
from ..loop.cadence import Every
from ..networks import (
    DeterministicPolicy,
    NetworkFactory,
    TanhGaussianPolicy,
    ValueNetwork,
)
from ..objectives.common import Loss
from ..replay import PrioritizedSampler, ReplayBuffer
from ..run.run import Run
from ..trainer import Trainer
from .check_spaces import check_actions, check_env, check_mask, check_observations, name_of
from .config import AlgorithmConfig


class Task:
    """What follows from an algorithm's fields, and the parts that every algorithm has.

    Nothing is written before `trainer` is called: a field that cannot work leaves nothing behind.

    Args:
        algorithm: The fields.
        keep: Whether the run has a directory, which is made if ``run_dir`` names none.

    Attributes:
        observation_space: The environment's.
        action_space: The environment's.
        mask_key: Where the environment's action mask is; ``None`` if it gives none.
        networks: Makes networks of the observation, as the fields want them.
        device: Where the learner computes.

    Raises:
        ConfigError: If the environment cannot be made, or the algorithm is not for its spaces.
    """

    def __init__(self, algorithm: AlgorithmConfig, keep: bool) -> None:
        self.name = algorithm.name()
        self._fields = algorithm
        check_env(self.name, algorithm.env)
        if algorithm.collector is not None and not algorithm.collects:
            raise ConfigError(
                f"{self.name}: collector={algorithm.collector!r}, but it learns from a data set "
                "and collects nothing: leave that out."
            )
        train, play, env_kwargs = algorithm.env, algorithm.env, algorithm.env_kwargs or None
        if wrapped := algorithm.wrapped():
            train, play, env_kwargs = wrapped.train, wrapped.play, None
        self.observation_space, self.action_space, mask_size = spaces_of(train, env_kwargs)
        check_observations(self.name, self.env_name, self.observation_space, algorithm.observations)
        check_actions(self.name, self.env_name, self.action_space, algorithm.actions)
        choices = action_format_of(self.action_space).mask_size
        check_mask(self.name, self.env_name, self.action_space, mask_size, choices)
        self.mask_key: str | None = MASK if mask_size else None
        self.networks = NetworkFactory(
            self.observation_space,
            algorithm.num_cells,
            algorithm.activation,
            encoder=algorithm.network,
            normalize=algorithm.normalize_observations,
        )
        self._made: dict[str, Any] = {"env": train, "env_kwargs": env_kwargs}
        self._played: dict[str, Any] = {"env": play, "env_kwargs": env_kwargs}
        if algorithm.clips() and _has_box(self.action_space):
            self._made = {"env": _clipped(train, env_kwargs)}
            self._played = {"env": _clipped(play, env_kwargs)}
        self._run = Run(
            algorithm,
            self.name,
            collects=algorithm.collects,
            keep=keep,
            loggers=algorithm.loggers,
        )
        self.device = self._run.device
        torch.manual_seed(algorithm.seed)  # before the networks are made

    @property
    def env_name(self) -> str:
        """What the environment is called in messages and in the run's options."""
        return name_of(self._fields.env)

    @property
    def in_keys(self) -> list[NestedKey]:
        """The entries that the networks read."""
        return self.networks.in_keys

    def squashed_policy(self) -> TanhGaussianPolicy:
        """A policy over continuous actions within their bounds, a normal distribution's by tanh."""
        shape, low, high = self.bounds()
        network = self.networks.network(2 * math.prod(shape))
        return TanhGaussianPolicy(network, shape, low, high, self.in_keys).to(self.device)

    def deterministic_policy(self) -> DeterministicPolicy:
        """A policy of one continuous action, within its bounds, for each observation."""
        shape, low, high = self.bounds()
        network = self.networks.network(math.prod(shape))
        return DeterministicPolicy(network, shape, low, high, self.in_keys).to(self.device)

    def bounds(self) -> tuple[tuple[int, ...], torch.Tensor, torch.Tensor]:
        """Shape of a continuous action, and its bounds."""
        space = self.action_space
        assert isinstance(space, spaces.Box)
        return tuple(space.shape), torch.from_numpy(space.low), torch.from_numpy(space.high)

    def value(self) -> ValueNetwork:
        """The value of an observation."""
        return ValueNetwork(self.networks.network(1), self.in_keys)

    def qvalue(self) -> ValueNetwork:
        """A Q-function of an observation and a continuous action."""
        network = self.networks.q_network(self.action_space)
        return ValueNetwork(network, [*self.in_keys, "action"])

    def collector(
        self, policy: Any, num_envs: int, steps: int, **kwargs: Any
    ) -> Iterable[TensorDictBase]:
        """What collects batches ``[num_envs, steps]``, made by the field ``collector``."""
        make = self._fields.collector or VectorCollector
        return make(
            policy=policy,
            num_envs=num_envs,
            frames_per_batch=num_envs * steps,
            **self._made,
            **self._infos(),
            **kwargs,
        )

    def _infos(self) -> dict[str, Any]:
        """What asks for infos, if the fields do: a collector of another kind may know of none."""
        keys = self._fields.info_keys
        return {"info_keys": keys} if keys else {}

    def replay_buffer(
        self,
        loss_module: Loss,
        size: int,
        batch_size: int,
        sampler: PrioritizedSampler | None = None,
    ) -> ReplayBuffer:
        """A replay buffer of what the loss reads."""
        return ReplayBuffer(
            size,
            batch_size=batch_size,
            sampler=sampler,
            keys=loss_module.in_keys,
            device=self.device,
        )

    def trainer(
        self,
        collector: Iterable[TensorDictBase],
        loss_module: nn.Module,
        optimizer: torch.optim.Optimizer,
        **kwargs: Any,
    ) -> Trainer:
        """The trainer, with its loggers and checkpoints, but without the algorithm's hooks."""
        if self._fields.compile:
            loss_module.compile()
        trainer = Trainer(
            collector=collector,
            total_frames=self._fields.total_frames,
            loss_module=loss_module,
            optimizer=optimizer,
            **self._run.trainer_options,
            **kwargs,
        )
        if self._fields.collects:
            LogEpisodes(info_keys=self._fields.info_keys).register(trainer)
        for key, norm in self.networks.norms.items():
            name = "observation_normalizer"
            if len(self.networks.norms) > 1:
                name += "_" + "_".join([key] if isinstance(key, str) else key)
            ObservationNormalizer(norm, key).register(trainer, name)
        return trainer

    def finish(self, trainer: Trainer, policy: Any) -> Trainer:
        """Add the hooks that every algorithm has, and those of the caller; then restore the run."""
        fields = self._fields
        if fields.eval_episodes:
            made = self._played["env"]
            several = isinstance(made, Sequence) and not isinstance(made, str)
            Evaluate(
                policy=policy,
                every=Every(frames=fields.eval_interval),
                episodes=fields.eval_episodes,
                stop_at=fields.stop_at,
                **self._played | ({"env": made[0]} if several else {}),
                **self._infos(),
            ).register(trainer)
        for hook in fields.hooks:
            hook.register(trainer)
        self._run.attach(trainer)
        return trainer


def _clipped(env: Any, env_kwargs: Mapping[str, Any] | None) -> Any:
    """A factory, or a list of factories, of environments that clip actions to their bounds."""
    if isinstance(env, (str, EnvSpec)):
        return partial(_make_clipped, find_spec(env) if isinstance(env, str) else env, env_kwargs)
    if isinstance(env, Sequence):
        return [partial(_make_clipped, factory) for factory in env]
    return partial(_make_clipped, env)


def _make_clipped(env: Any, env_kwargs: Mapping[str, Any] | None = None) -> gym.Env[Any, Any]:
    if isinstance(env, EnvSpec):
        made = gym.make(env, disable_env_checker=True, **(env_kwargs or {}))
    else:
        made = env()
    if isinstance(made.action_space, spaces.Box):
        return gym.wrappers.ClipAction(made)
    space = made.action_space
    return gym.wrappers.TransformAction(made, partial(_clip, space), space)


def _clip(space: spaces.Space[Any], action: Any) -> Any:
    """An action of a Dict or Tuple with all its continuous parts within their bounds."""
    if isinstance(space, spaces.Dict):
        return {key: _clip(part, action[key]) for key, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_clip(part, each) for part, each in zip(space.spaces, action, strict=True))
    return np.clip(action, space.low, space.high) if isinstance(space, spaces.Box) else action


def _has_box(space: spaces.Space[Any]) -> bool:
    return any(isinstance(part, spaces.Box) for _, part in parts_of(space))
