"""What the algorithms share: the environment's sizes, the options, the trainer around it all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
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
from ..log.factory import check_kinds
from ..loop.cadence import Every
from ..loop.signals import GRACE
from ..loop.trainer import Trainer
from ..networks import ValueNetwork, mlp
from ..objectives.common import Loss
from ..replay import PrioritizedSampler, ReplayBuffer
from ..run.recipe import Run, RunArgs
from .checks import (
    Actions,
    check_actions,
    check_device,
    check_env,
    check_names,
    check_numbers,
    check_observations,
    name_of,
)
from .options import Options


class Bounds(TypedDict):
    """Arguments of a policy over continuous actions."""

    action_features: int
    low: torch.Tensor
    high: torch.Tensor


class Task:
    """An algorithm's arguments, checked, and what follows from them.

    Args:
        algorithm: Its name.
        arguments: What it was called with, the ``locals()`` of its first line: ``env``,
            ``total_frames``, its hyperparameters and, under ``"options"``, the `Options`.
        actions: Which actions it can take.
        unit: How many times longer than usual the default intervals are.
        clip: Whether continuous actions are clipped to their bounds by the environment, since the
            policy's have none.

    Attributes:
        observation_features: Size of an observation.
        discrete: Whether actions are discrete.
        action_features: Number of discrete actions, or size of a continuous one.

    Raises:
        ConfigError: If an argument cannot work.
        TypeError: If there is no option of a name.
    """

    def __init__(
        self,
        algorithm: str,
        arguments: Mapping[str, Any],
        actions: Actions,
        *,
        unit: float = 1,
        clip: bool = False,
    ) -> None:
        self.algorithm = algorithm
        self._unit = unit
        hyperparameters = dict(arguments)
        self._options: Options = hyperparameters.pop("options")
        check_names(algorithm, self._options, hyperparameters)
        check_kinds(self._logger_names())
        self._hyperparameters = hyperparameters
        self.env = arguments["env"]
        self.total_frames: int = arguments["total_frames"]
        check_numbers(algorithm, {**hyperparameters, **self._options})
        self.seed = self._options.get("seed", 0)
        self.device = check_device(algorithm, self._options.get("device", "cpu"))
        check_env(algorithm, self.env)
        observations, self._actions = spaces_of(self.env, self._options.get("env_kwargs"))
        self.discrete = isinstance(self._actions, spaces.Discrete)
        self.observation_features = check_observations(algorithm, self.env_name, observations)
        self.action_features = check_actions(algorithm, self.env_name, self._actions, actions)
        self._made: dict[str, Any] = {
            "env": self.env,
            "env_kwargs": self._options.get("env_kwargs"),
        }
        if clip and not self.discrete:
            self._made = {"env": _clipped(self.env, self._options.get("env_kwargs"))}
        self._intervals = {
            "log_interval": self._options.get("log_interval", int(5_000 * unit)),
            "save_interval": self._options.get("save_interval", int(10_000 * unit)),
        }
        self._run: Run | None = None
        torch.manual_seed(self.seed)  # before the networks are made

    @property
    def env_name(self) -> str:
        """What the environment is called in messages and in the run's options."""
        return name_of(self.env)

    @property
    def eval_interval(self) -> int:
        """Frames between two evaluations."""
        return self._options.get("eval_interval", int(5_000 * self._unit))

    def bounds(self) -> Bounds:
        """The size and the bounds of a continuous action, as arguments of a policy."""
        assert isinstance(self._actions, spaces.Box)
        return {
            "action_features": self.action_features,
            "low": torch.from_numpy(self._actions.low),
            "high": torch.from_numpy(self._actions.high),
        }

    def network(
        self,
        outputs: int,
        num_cells: Sequence[int],
        activation_class: type[nn.Module] = nn.ReLU,
    ) -> nn.Sequential:
        """A network of the observation."""
        return mlp(self.observation_features, outputs, num_cells, activation_class)

    def qvalue(self, num_cells: Sequence[int]) -> ValueNetwork:
        """A Q-function of an observation and a continuous action."""
        network = mlp(self.observation_features + self.action_features, 1, num_cells, nn.ReLU)
        return ValueNetwork(network, in_keys=["observation", "action"])

    def collector(self, policy: Any, num_envs: int, steps: int, **kwargs: Any) -> VectorCollector:
        """A collector of batches ``[num_envs, steps]``."""
        return VectorCollector(
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
        loss_module: Any,
        optimizer: torch.optim.Optimizer,
        **kwargs: Any,
    ) -> Trainer:
        """The trainer, with its loggers and checkpoints, but without the algorithm's hooks.

        Until then there is no run directory, so that an argument that cannot work leaves none.
        """
        self._run = self._open_run()
        if self._options.get("compile", False):
            loss_module.compile()
        settings: dict[str, Any] = {
            "log_interval": self._intervals["log_interval"],
            "save_trainer_interval": self._intervals["save_interval"],
            "progress_bar": self._options.get("progress_bar", True),
            "threads": self._options.get("threads"),
            "grace": self._options.get("grace", GRACE),
            "seed": self.seed,
        }
        if self._run is not None:
            settings |= self._run.trainer_options
        own = self._options.get("logger")
        if own is not None and not _is_names(own):
            own = list(own) if isinstance(own, (list, tuple)) else [own]
            settings["logger"] = [*filter(None, [settings.get("logger")]), *own]
        return Trainer(
            collector=collector,
            total_frames=self.total_frames,
            loss_module=loss_module,
            optimizer=optimizer,
            **settings,
            **kwargs,
        )

    def finish(self, trainer: Trainer, policy: Any, *, log_episodes: bool = True) -> Trainer:
        """Add the hooks that every algorithm has, and those of the caller; then restore the run."""
        options = self._options
        if log_episodes:
            LogEpisodes().register(trainer)
        if episodes := options.get("eval_episodes", 10):
            made = self._made["env"]
            several = isinstance(made, Sequence) and not isinstance(made, str)
            Evaluate(
                policy=policy,
                every=Every(frames=self.eval_interval),
                episodes=episodes,
                stop_at=options.get("stop_at"),
                **self._made | ({"env": made[0]} if several else {}),
            ).register(trainer)
        for hook in options.get("hooks", ()):
            hook.register(trainer)
        if self._run is not None:
            self._run.attach(trainer)
        return trainer

    def _logger_names(self) -> tuple[str, ...]:
        logger = self._options.get("logger", ())
        return (
            ((logger,) if isinstance(logger, str) else tuple(logger)) if _is_names(logger) else ()
        )

    def _open_run(self) -> Run | None:
        options = self._options
        run_dir, names = options.get("run_dir"), self._logger_names()
        if run_dir is None:
            for name in ("resume", "fork", "logger", "snapshots"):
                if options.get(name) and (name != "logger" or names):
                    raise ConfigError(
                        f"{self.algorithm}({name}={options.get(name)!r}) needs a run_dir."
                    )
            return None
        config = {
            **self._hyperparameters,
            "env": self.env_name,
            "env_kwargs": dict(options.get("env_kwargs") or {}),
            "algorithm": self.algorithm,
        }
        args = RunArgs(
            seed=self.seed,
            run_dir=Path(run_dir),
            resume=options.get("resume"),
            fork=options.get("fork"),
            allow_change=tuple(options.get("allow_change", ())),
            logger=names,
            **self._intervals,
            keep_last=options.get("keep_last", 3),
            snapshots=options.get("snapshots", 0),
            progress_bar=options.get("progress_bar", True),
            threads=options.get("threads"),
            grace=options.get("grace", GRACE),
        )
        return Run(args, self.algorithm, config=config)


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


def _is_names(logger: Any) -> bool:
    return isinstance(logger, str) or (
        isinstance(logger, Sequence) and all(isinstance(name, str) for name in logger)
    )
