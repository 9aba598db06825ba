"""`Task`: values derived from an algorithm's fields, and the parts that all algorithms share."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from tensordict import NestedKey, TensorDictBase
from torch import nn

from ..base.space_parts import CRITIC, MASK, groups_of, parts_of
from ..collect import VectorCollector
from ..collect.action_format import clipped
from ..collect.families import in_wrappers
from ..collect.make_envs import Wrapped, find_spec, is_several, make_one, spaces_of
from ..collect.worlds import is_world
from ..errors import ConfigError
from ..hooks import (
    CompiledStep,
    Evaluate,
    LogEpisodes,
    ObservationNormalizer,
    TargetNetUpdaterHook,
)
from ..loop.cadence import Every
from ..loop.hook import TrainerHookBase, register_all
from ..networks import (
    DeterministicPolicy,
    NetworkFactory,
    Policy,
    QNetwork,
    RunningNorm,
    TanhGaussianPolicy,
    ValueNetwork,
    distribution_for,
    mlp,
)
from ..networks.network_factory import Layers
from ..run.run import Run
from ..trainer import Trainer
from .check_spaces import check_actions, check_env, check_observations, name_of
from .config import AlgorithmConfig, EnvConfig

# -- `AlgorithmTask`: the parts that all algorithms share.


class AlgorithmTask:
    """The run of an algorithm: its directory, where it computes, and its last hooks.

    Attributes:
        device: Where the learner computes.
    """

    def _begin(self, algorithm: AlgorithmConfig, keep: bool) -> None:
        """Make the run, and seed the global generators, before networks are made."""
        self._run = Run(
            algorithm,
            algorithm.name(),
            collects=algorithm.collects,
            keep=keep,
            loggers=algorithm.loggers,
            report=algorithm.seeds is None,
        )
        self.device = self._run.device
        torch.manual_seed(algorithm.seed)

    def release(self) -> None:
        """Release the run's directory, if the trainer cannot be built."""
        self._run.release()

    def _begins(self) -> bool:
        """Whether the run starts without saved state."""
        fields = self._run.args
        return (fields.resume is None and fields.fork is None) or not self._run.holds_state

    def _attached(self, trainer: Trainer, hooks: Sequence[TrainerHookBase]) -> Trainer:
        """Register the hooks of the caller; then restore the run."""
        register_all(hooks, trainer)
        self._run.attach(trainer)
        return trainer


# -- `RunTask`: the parts that all algorithms with an environment share.


class RunTask(AlgorithmTask, ABC):
    """The parts that all algorithms with an environment share; a subclass inspects it.

    Nothing is written before `trainer` is called: an invalid field leaves no files.

    Args:
        algorithm: The fields.
        keep: Whether the run has a directory, which is made if ``run_dir`` names none.

    Attributes:
        name: The algorithm's.
        env_name: The environment's name in messages.
        device: Where the learner computes.
    """

    def __init__(self, algorithm: EnvConfig, keep: bool) -> None:
        self.name = algorithm.name()
        self.env_name = name_of(algorithm.env)
        self._fields = algorithm
        env = algorithm.environment
        check_env(self.name, env, algorithm.eval_episodes)
        if algorithm.collector is not None and not algorithm.collects:
            raise ConfigError(
                f"{self.name}: collector={algorithm.collector!r}, but it collects nothing: leave "
                "that out."
            )
        # The environment, as arguments of the collector and of the evaluation.
        self._made: dict[str, Any] = {"env": env}
        self._made["env_kwargs"] = algorithm.env_kwargs or None
        if algorithm.info_keys:  # not every collector takes it
            self._made["info_keys"] = algorithm.info_keys
        self._played: dict[str, Any] = dict(self._made)
        self._options: dict[str, Any] = {}  # of the VectorCollector that collects
        self._plays: Callable[..., Any] | None = None  # in evaluations; None: a VectorCollector
        self._agents: Mapping[str, Sequence[str]] = {}
        self._compiles = False  # whether collecting can be compiled

        self._inspect()
        self._begin(algorithm, keep)

    @abstractmethod
    def _inspect(self) -> None:
        """Check the environment, and set how it is made and played."""

    @abstractmethod
    def norms(self) -> Mapping[NestedKey, RunningNorm]:
        """The layers that normalize observations, by key of the observation."""

    def collector(
        self, policy: Any, num_envs: int, steps: int, **kwargs: Any
    ) -> Iterable[TensorDictBase]:
        """The collector of batches ``[num_envs, steps]``, made by the field ``collector``.

        Raises:
            ConfigError: If it is to be compiled, and cannot be.
        """
        if self._fields.compile == "all":
            self._check_compiling()
        make = self._fields.collector or partial(VectorCollector, **self._options)
        return make(
            policy=policy,
            num_envs=num_envs,
            frames_per_batch=num_envs * steps,
            **self._made,
            **kwargs,
        )

    def _check_compiling(self) -> None:
        problem = None
        for name, without in {"memory": None, "sde": False, "sigma_max": None}.items():
            if given := getattr(self._fields, name, without):
                problem = f"{name}={given!r:.80} is carried from step to step", f"{name}={without}"
        if not self._compiles:
            problem = f"{self.env_name} is no tensor world", "a world such as torch/CartPole-v1"
        if problem is not None:
            what, other = problem
            raise ConfigError(
                f"{self.name}: compile='all', but {what}: pass compile='step', or {other}."
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
        if self._fields.compile is not None:
            CompiledStep().register(trainer)
        if self._fields.collects:
            LogEpisodes(info_keys=self._fields.info_keys, agents=self._agents).register(trainer)
        norms = self.norms()
        for key, norm in norms.items():
            name = "observation_normalizer"
            if len(norms) > 1:
                name += "_" + "_".join([key] if isinstance(key, str) else key)
            mask = (key[0], "mask") if key[0] in self._agents else None
            ObservationNormalizer(norm, key, mask).register(trainer, name)
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
                deterministic=fields.eval_deterministic,
                collector=self._plays,
                **self._played | ({"env": made[0]} if several else {}),
            ).register(trainer)
        if fields.init_policy is not None and self._begins():
            self._initialize(policy, trainer)
        return self._attached(trainer, fields.hooks)

    def _initialize(self, policy: nn.Module, trainer: Trainer) -> None:
        """Begin with the weights of a saved policy, in target networks as well."""
        from ..policies import copy_weights  # which not every run needs

        init = self._fields.init_policy
        try:
            frames = copy_weights(policy, init)
        except ConfigError as error:
            raise ConfigError(f"{self.name}: init_policy={init!s:.200}: {error}") from None
        for norm in policy.modules():
            if isinstance(norm, RunningNorm):
                norm.take_up(frames)
        for hook in trainer.registry.hooks():
            if isinstance(hook, TargetNetUpdaterHook):
                hook.target_params_updater.reset()


class Task(RunTask):
    """Values derived from an algorithm's fields, and the parts that all algorithms share.

    Attributes:
        observation_space: The environment's.
        action_space: The environment's.
        mask_key: Where the environment's action mask is; ``None`` if it gives none.
        networks: Makes networks of the observation, configured by the fields.
        value_networks: The same for values, whose observation may be another; see
            `hooktrainer.base.space_parts.groups_of`.
        in_keys: The entries that policies read.
        is_asymmetric: Whether values have another observation than policies.
        device: Where the learner computes.
    """

    def _inspect(self) -> None:
        fields, name, env_name = self._fields, self.name, self.env_name
        env = self._made["env"]
        if is_several(env):
            raise ConfigError(
                f"{name} trains one agent, and {env_name} has several: train them with mappo or "
                "ippo, or, if their actions are discrete, with vdn or qmix, if continuous, with "
                "maddpg or masac."
            )
        train, play, env_kwargs = env, env, fields.env_kwargs or None
        if wrapped := fields.wrapped():
            train, play = wrapped.train, wrapped.play
        if fields.wrappers:
            train, play = (in_wrappers(one, fields.wrappers) for one in (train, play))
        self.observation_space, self.action_space, mask_size = spaces_of(train, env_kwargs)
        check_observations(name, env_name, self.observation_space, fields.observations)
        actions = self.action_space
        check_actions(name, env_name, actions, fields.actions, mask_size, fields.collects)
        self.mask_key = MASK if mask_size else None
        groups = groups_of(self.observation_space)
        self.is_asymmetric = groups.value is not groups.policy
        self.networks = self.value_networks = self._factory(groups.policy)
        self.in_keys = self.networks.in_keys
        if self.is_asymmetric:
            self.value_networks = self._factory(groups.value, of_value=True)
        self._made |= {"env": train, "env_kwargs": env_kwargs}
        self._played |= {"env": play, "env_kwargs": env_kwargs}
        clips = fields.clip_actions and fields.action_distribution == "gaussian"
        clips &= any(isinstance(part, spaces.Box) for _, part in parts_of(self.action_space))
        if is_world(train):
            self._compiles = fields.collector is None
            compiles = fields.compile == "all"
            self._options = {"clip_actions": clips, "compile": compiles}
            if not isinstance(train, str):  # what an id stands for is played by Gymnasium
                self._plays = partial(VectorCollector, compile=compiles)
                self._played["clip_actions"] = clips
        elif clips:
            self._made |= {"env": _wrapped(clipped, train, env_kwargs), "env_kwargs": None}
        if clips and self._plays is None:
            self.evaluate_in(clipped)

    def evaluate_in(self, wrapper: Wrapper) -> None:
        """Evaluate policies, and save them, as those of the environment in a wrapper.

        Raises:
            ConfigError: If it is a tensor world, which has no wrappers of Gymnasium.
        """
        if self._plays is not None:
            raise ConfigError(
                f"{self.name}: policies are evaluated in {self.env_name} with a wrapper, and a "
                "tensor world has none: pass the id of an environment of Gymnasium."
            )
        env, env_kwargs = self._played["env"], self._played["env_kwargs"]
        self._played |= {"env": _wrapped(wrapper, env, env_kwargs), "env_kwargs": None}

    def _factory(self, space: spaces.Space[Any], of_value: bool = False) -> NetworkFactory:
        fields = self._fields
        encoder = fields.network
        if of_value and isinstance(encoder, nn.Module):
            encoder = None  # it is for what the policy sees
        elif isinstance(encoder, Mapping) and self.is_asymmetric:
            own = [key for key in encoder if (CRITIC in (key, key[0])) is of_value]
            encoder = {key: encoder[key] for key in own} or None
        normalize = fields.normalize_observations
        return NetworkFactory(
            space, fields.num_cells, fields.activation, encoder=encoder, normalize=normalize
        )

    def squashed_policy(
        self, networks: NetworkFactory | None = None, make: Layers = mlp
    ) -> TanhGaussianPolicy:
        """A policy over bounded continuous actions: a normal distribution squashed by tanh."""
        return self._bounded(TanhGaussianPolicy, 2, networks, make)

    def mixed_policy(self, networks: NetworkFactory, make: Layers = mlp) -> Policy:
        """A policy over any actions, whose continuous parts are those of `squashed_policy`."""
        if isinstance(self.action_space, spaces.Box):
            return self.squashed_policy(networks, make)
        distribution = distribution_for(self.action_space, "squashed")
        network = networks.network(distribution.parameter_features, make)
        policy = Policy(
            network,
            distribution,
            networks.in_keys,
            ["action"],
            action_mask_key=self.mask_key,
            trunk=networks.shared,
        )
        return policy.to(self.device)

    def deterministic_policy(self, networks: NetworkFactory | None = None) -> DeterministicPolicy:
        """A deterministic policy of bounded continuous actions."""
        return self._bounded(DeterministicPolicy, 1, networks)

    def _bounded(
        self, kind: Callable[..., Any], outputs: int, networks: Any, make: Layers = mlp
    ) -> Any:
        made = networks or self.networks
        shape, low, high = self.bounds()
        network = made.network(outputs * math.prod(shape), make)
        return kind(network, shape, low, high, made.in_keys, trunk=made.shared).to(self.device)

    @property
    def num_actions(self) -> int:
        """Number of discrete actions."""
        assert isinstance(self.action_space, spaces.Discrete)
        return int(self.action_space.n)

    def bounds(self) -> tuple[tuple[int, ...], torch.Tensor, torch.Tensor]:
        """Shape of a continuous action, and its bounds."""
        space = self.action_space
        assert isinstance(space, spaces.Box)
        return tuple(space.shape), torch.from_numpy(space.low), torch.from_numpy(space.high)

    def value(self) -> ValueNetwork:
        """The value of an observation."""
        return ValueNetwork(self.value_networks.network(1), self.value_networks.in_keys)

    def qvalue(self, networks: NetworkFactory | None = None, make: Layers = mlp) -> ValueNetwork:
        """A Q-function of an observation, or of the memory of ``networks``, and an encoded action.

        Args:
            networks: Make the policy, and may share a memory.
            make: As for `NetworkFactory.q_network`.

        Raises:
            ConfigError: If it is to share a memory, and has another observation than the policy.
        """
        made = self._q_factory(networks)
        shape = distribution_for(self.action_space).encoded_shape
        network = made.q_network(shape, make)
        return ValueNetwork(network, [*made.in_keys, "action"], trunk=made.shared)

    def action_values(self, networks: NetworkFactory | None = None) -> QNetwork:
        """A Q-function of all discrete actions; for ``networks`` and errors see `qvalue`."""
        made = self._q_factory(networks)
        return QNetwork(made.network(self.num_actions), made.in_keys, trunk=made.shared)

    def _q_factory(self, networks: NetworkFactory | None) -> NetworkFactory:
        """The factory of Q-functions: that of the policy if it has a memory."""
        if networks is None or networks.shared is None:
            return self.value_networks
        if self.is_asymmetric:
            raise ConfigError(
                f"{self.name}: {self.env_name} has observations {CRITIC!r} for values, but "
                f"with a memory they share the policy's: leave memory out, or {CRITIC!r}."
            )
        return networks

    def goal_functions(self) -> tuple[Callable[..., Any], Callable[..., Any] | None]:
        """``compute_reward`` of one more environment with goals, and its ``compute_terminated``.

        Rewards are those after the environment's reward wrappers.

        Raises:
            ConfigError: If the environment has no goals, or does not compute rewards for them.
        """
        env: Any = None
        if not is_world(self._made["env"]):
            env = make_one(self._made["env"], self._made["env_kwargs"])
        space = self.observation_space
        keys = set(space.spaces if isinstance(space, spaces.Dict) else ())
        problem = None
        if env is None or not {"achieved_goal", "desired_goal"} <= keys:
            problem = "the observation is no Dict with achieved_goal and desired_goal"
        elif not callable(getattr(env.unwrapped, "compute_reward", None)):
            problem = "the environment has no compute_reward(achieved_goal, desired_goal, info)"
        if problem is not None:
            raise ConfigError(
                f"{self.name}: the option her needs an environment with goals, and "
                f"{self.env_name} has none: {problem}. Leave the option out."
            )
        return _rewards_in(env), getattr(env.unwrapped, "compute_terminated", None)

    def norms(self) -> dict[NestedKey, RunningNorm]:
        """The layers that normalize observations, by key of the observation."""
        return {**self.networks.norms, **self.value_networks.norms}


Wrapper = Callable[[gym.Env[Any, Any]], gym.Env[Any, Any]]


def _rewards_in(env: Any) -> Callable[..., Any]:
    """``compute_reward`` of an environment, followed by its reward wrappers."""
    if not isinstance(env, gym.Wrapper):
        return env.compute_reward
    inner = _rewards_in(env.env)
    if not isinstance(env, gym.RewardWrapper):
        return inner
    reward = np.vectorize(env.reward, otypes=[float])
    return lambda *goals: reward(inner(*goals))


def _wrapped(wrapper: Wrapper, env: Any, env_kwargs: Mapping[str, Any] | None) -> Any:
    """A factory, or a list of factories, of environments in a wrapper."""
    if isinstance(env, Sequence) and not isinstance(env, str):
        return [Wrapped(wrapper, factory) for factory in env]
    return Wrapped(wrapper, find_spec(env) if isinstance(env, str) else env, env_kwargs)
