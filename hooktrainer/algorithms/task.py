"""`Task`: what follows from an algorithm's fields, and the parts that every algorithm has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypedDict

import gymnasium as gym
import torch
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from tensordict import TensorDictBase
from torch import nn

from ..collect import VectorCollector
from ..collect.make_group import find_spec
from ..collect.probe import spaces_of
from ..errors import ConfigError
from ..hooks import Evaluate, LogEpisodes
from ..loop.cadence import Every
from ..networks import ValueNetwork, mlp
from ..objectives.common import Loss
from ..replay import PrioritizedSampler, ReplayBuffer
from ..run.run import Run
from ..trainer import Trainer
from .check_spaces import check_actions, check_env, check_observations, name_of
from .config import AlgorithmConfig


class Bounds(TypedDict):
    """Arguments of a policy over continuous actions."""

    action_features: int
    low: torch.Tensor
    high: torch.Tensor


class Task:
    """What follows from an algorithm's fields, and the parts that every algorithm has.

    Nothing is written before `trainer` is called: a field that cannot work leaves nothing behind.

    Args:
        algorithm: The fields.
        keep: Whether the run has a directory, which is made if ``run_dir`` names none.

    Attributes:
        observation_features: Size of an observation.
        discrete: Whether actions are discrete.
        action_features: Number of discrete actions, or size of a continuous one.
        device: Where the learner computes.

    Raises:
        ConfigError: If the environment cannot be made, or the algorithm is not for its spaces.
    """

    def __init__(self, algorithm: AlgorithmConfig, keep: bool) -> None:
        self.name = algorithm.name()
        self._fields = algorithm
        env, env_kwargs = algorithm.env, algorithm.env_kwargs or None
        check_env(self.name, env)
        if algorithm.collector is not None and not algorithm.collects:
            raise ConfigError(
                f"{self.name}: collector={algorithm.collector!r}, but it learns from a data set "
                "and collects nothing: leave that out."
            )
        observations, self._actions = spaces_of(env, env_kwargs)
        self.discrete = isinstance(self._actions, spaces.Discrete)
        self.observation_features = check_observations(self.name, self.env_name, observations)
        self.action_features = check_actions(
            self.name, self.env_name, self._actions, algorithm.actions
        )
        self._made: dict[str, Any] = {"env": env, "env_kwargs": env_kwargs}
        if algorithm.clips() and not self.discrete:
            self._made = {"env": _clipped(env, env_kwargs)}
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

    def bounds(self) -> Bounds:
        """The size and the bounds of a continuous action, as arguments of a policy."""
        assert isinstance(self._actions, spaces.Box)
        return {
            "action_features": self.action_features,
            "low": torch.from_numpy(self._actions.low),
            "high": torch.from_numpy(self._actions.high),
        }

    def network(
        self, outputs: int, activation_class: type[nn.Module] = nn.ReLU, *, more_inputs: int = 0
    ) -> nn.Sequential:
        """A network of the observation, and of ``more_inputs`` features beside it."""
        inputs = self.observation_features + more_inputs
        return mlp(inputs, outputs, self._fields.num_cells, activation_class)

    def qvalue(self) -> ValueNetwork:
        """A Q-function of an observation and a continuous action."""
        network = self.network(1, more_inputs=self.action_features)
        return ValueNetwork(network, in_keys=["observation", "action"])

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
            **kwargs,
        )

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
            LogEpisodes().register(trainer)
        return trainer

    def finish(self, trainer: Trainer, policy: Any) -> Trainer:
        """Add the hooks that every algorithm has, and those of the caller; then restore the run."""
        fields = self._fields
        if fields.eval_episodes:
            made = self._made["env"]
            several = isinstance(made, Sequence) and not isinstance(made, str)
            Evaluate(
                policy=policy,
                every=Every(frames=fields.eval_interval),
                episodes=fields.eval_episodes,
                stop_at=fields.stop_at,
                **self._made | ({"env": made[0]} if several else {}),
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
    return gym.wrappers.ClipAction(made)
