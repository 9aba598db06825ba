"""`RunTask`: the parts that every algorithm has, whatever its environment is like."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from tensordict import NestedKey, TensorDictBase
from torch import nn

from ..collect import VectorCollector
from ..errors import ConfigError
from ..hooks import CompiledStep, Evaluate, LogEpisodes, ObservationNormalizer
from ..loop.cadence import Every
from ..networks import RunningNorm
from ..objectives.common import Loss
from ..replay import DevicePrioritizedSampler, PrioritizedSampler, ReplayBuffer
from ..run.run import Run
from ..trainer import Trainer
from .check_spaces import check_env, name_of
from .config import AlgorithmConfig


class RunTask(ABC):
    """The parts that every algorithm has.

    Who derives from it finds out about the environment, says how it is made, and calls `_begin`.

    Args:
        algorithm: The fields.

    Attributes:
        name: The algorithm's.
        device: Where the learner computes.

    Raises:
        ConfigError: If a field cannot work.
    """

    device: torch.device

    def __init__(self, algorithm: AlgorithmConfig) -> None:
        self.name = algorithm.name()
        self._fields = algorithm
        check_env(self.name, algorithm.env, algorithm.eval_episodes)
        if algorithm.collector is not None and not algorithm.collects:
            raise ConfigError(
                f"{self.name}: collector={algorithm.collector!r}, but it learns from a data set "
                "and collects nothing: leave that out."
            )
        env_kwargs = algorithm.env_kwargs or None
        # The environment, as arguments of what collects and of the evaluation.
        self._made: dict[str, Any] = {"env": algorithm.env, "env_kwargs": env_kwargs}
        self._played: dict[str, Any] = dict(self._made)
        self._collects: Callable[..., Any] = VectorCollector
        self._plays: Callable[..., Any] | None = None  # in evaluations; None: a VectorCollector
        self._agents: Mapping[str, Sequence[str]] = {}
        self._compiles = False  # whether collecting can be compiled

    def _begin(self, keep: bool) -> None:
        """Open the run, as soon as nothing is wrong with the environment."""
        algorithm = self._fields
        self._run = Run(
            algorithm,
            self.name,
            collects=algorithm.collects,
            keep=keep,
            loggers=algorithm.loggers,
            report=algorithm.seeds is None,
        )
        self.device = self._run.device
        torch.manual_seed(algorithm.seed)  # before the networks are made

    @abstractmethod
    def norms(self) -> Mapping[NestedKey, RunningNorm]:
        """What normalizes observations, by the key of what it normalizes."""

    @property
    def env_name(self) -> str:
        """What the environment is called in messages and in the run's options."""
        return name_of(self._fields.env)

    def collector(
        self, policy: Any, num_envs: int, steps: int, **kwargs: Any
    ) -> Iterable[TensorDictBase]:
        """What collects batches ``[num_envs, steps]``, made by the field ``collector``.

        Raises:
            ConfigError: If it is to be compiled, and cannot be.
        """
        if self._fields.compile == "all" and not self._compiles:
            raise ConfigError(
                f"{self.name}: compile='all', but {self.env_name} is no tensor world whose steps "
                "can be compiled: pass compile='step', or a world such as torch/CartPole-v1."
            )
        make = self._fields.collector or self._collects
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
        sampler: PrioritizedSampler | DevicePrioritizedSampler | None = None,
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
        trainer = Trainer(
            collector=collector,
            total_frames=self._fields.total_frames,
            loss_module=loss_module,
            optimizer=optimizer,
            precision=self._fields.precision,
            **self._run.trainer_options,
            **kwargs,
        )
        compiles = self._fields.compile is not None
        if compiles:
            CompiledStep().register(trainer)
        if self._fields.collects:
            LogEpisodes(info_keys=self._fields.info_keys, agents=self._agents).register(trainer)
        norms = self.norms()
        for key, norm in norms.items():
            name = "observation_normalizer"
            if len(norms) > 1:
                name += "_" + "_".join([key] if isinstance(key, str) else key)
            ObservationNormalizer(norm, key).register(trainer, name)
        return trainer

    def release(self) -> None:
        """Let go of the run's directory, where the trainer cannot be built."""
        self._run.release()

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
                collector=self._plays,
                **self._played | ({"env": made[0]} if several else {}),
                **self._infos(),
            ).register(trainer)
        for hook in fields.hooks:
            hook.register(trainer)
        self._run.attach(trainer)
        return trainer
