"""`WorldCollector`: steps a tensor world and yields the batches that `VectorCollector` yields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from tensordict.nn import InteractionType

from ...base.checks import share_equally
from ...errors import ConfigError
from ..actors import Policy
from ..episodes_collector import (
    EpisodesCollector,
    Workers,
    check_counts,
    check_policy,
    warn_of_lost,
)
from ..info import check_info_keys
from .tensor_world import TensorWorld
from .world_actions import WorldActions
from .world_ids import check_can_share, make_tensor_world
from .world_rollout import WorldRollout


class WorldCollector(EpisodesCollector):
    """Collects batches ``[num_envs, time]`` from a tensor world, on its device.

    A batch holds what one of `VectorCollector` holds, entry by entry. Nothing passes through NumPy,
    and **no step waits for the device**: the policy acts on tensors where the world is, and what
    both write goes into memory that is allocated once; a batch is a copy of it, and stays as it is.

    Where the world hides the observation that an episode ends with, ``("next", <observation>)``
    holds there the last one that is known, that from which the last action was chosen, and
    ``("collector", "final_hidden")``, bool ``[..., 1]``, is true.

    Random actions are a function of the seed, the environment's index and its step alone. What a
    world says in its log is averaged over each batch, and logged as ``world/<name>``, or by its own
    name if that has a group.

    Args:
        env: The id of a world, such as ``"torch/CartPole-v1"``; a class or function that takes
            ``num_envs`` and makes one, such as a subclass of `FunctionalWorld`; or a `TensorWorld`,
            which then cannot be shared among processes.
        policy: What acts, as for `VectorCollector`; ``None`` for random actions.
        num_envs: How many environments.
        frames_per_batch: Transitions of a batch, a multiple of ``num_envs``.
        total_frames: Transitions after which iteration ends; -1 for no end.
        seed: The run's seed, 0 or more.
        init_random_frames: So many transitions are collected with random actions first.
        frame_skip: Has to be the world's own, if it is given: no action is repeated.
        env_kwargs: Arguments of the world.
        categorical_actions: Whether discrete actions are indices; one-hot vectors otherwise.
        clip_actions: Whether the world gets continuous actions clipped to their bounds. Batches
            hold them as the policy wrote them.
        info_keys: What batches hold in ``"next"`` of the world's log: one number for each
            environment, as float32 ``[..., 1]``; NaN in steps in which it is not said.
        exploration_type: How the policy's distributions are sampled.
        first_env: Index of the first environment among all those of the run. `shard` sets it.
        device: Where the world is simulated and batches are; by default where the policy computes.
        compile: Whether several steps of world and policy are one graph of ``torch.compile``. That
            takes a `FunctionalWorld`, and a policy with ``sample`` and ``complete``, as those of
            `hooktrainer.networks` are, without a memory.

    Raises:
        ConfigError: If the arguments cannot work.

    Examples:
        >>> collector = WorldCollector("torch/CartPole-v1", num_envs=4, frames_per_batch=512)
        >>> collector.collect().batch_size
        torch.Size([4, 128])
    """

    world: TensorWorld
    _live = ("world", "_rollout", "_actions")

    def __init__(
        self,
        env: Any,
        policy: Policy | None = None,
        *,
        num_envs: int | None = None,
        frames_per_batch: int,
        total_frames: int = -1,
        seed: int = 0,
        init_random_frames: int = 0,
        frame_skip: int | None = None,
        env_kwargs: Mapping[str, Any] | None = None,
        categorical_actions: bool = True,
        clip_actions: bool = False,
        info_keys: Sequence[str] = (),
        exploration_type: InteractionType = InteractionType.RANDOM,
        first_env: int = 0,
        device: torch.device | str | None = None,
        compile: bool = False,
    ) -> None:
        check_counts(frames_per_batch, total_frames, init_random_frames, frame_skip or 1)
        check_policy(policy)
        super().__init__(
            policy,
            frames_per_batch,
            total_frames,
            seed,
            init_random_frames,
            exploration_type,
            device,
            first_env=first_env,
        )
        self._env = env
        self._env_kwargs = env_kwargs
        self._categorical_actions = categorical_actions
        self._clip_actions = clip_actions
        self._compile = compile
        self._info_keys = check_info_keys(info_keys)
        self._open(num_envs)
        if frame_skip not in (None, self.frame_skip):
            raise ConfigError(
                f"frame_skip={frame_skip}: {self.world.name} counts {self.frame_skip} frames a "
                "step, and actions are not repeated: leave it out."
            )
        warn_of_lost(self.world.lost)

    @property
    def _envs(self) -> TensorWorld:
        return self.world

    def _make(self, num_envs: int | None, workers: Workers) -> None:
        self.world = make_tensor_world(
            self._env,
            num_envs,
            device=self.device,
            first_env=self._first_env,
            env_kwargs=self._env_kwargs,
        )
        self.num_envs = self.world.num_envs
        self.frame_skip = self.world.frame_skip
        self.device = self.world.device
        self._actions = WorldActions(
            self.world.action_space, self._categorical_actions, self._clip_actions, self.device
        )

    def _make_rollout(self) -> WorldRollout:
        return WorldRollout(
            self.world,
            self.policy,
            self._horizon,
            actions=self._actions,
            seed=self.seed,
            first_env=self._first_env,
            policy_device=self._computes,
            info_keys=self._info_keys,
            compiles=self._compile,
        )

    def register(self, trainer: Any) -> None:
        """Log what the world says in its log."""
        trainer.register_op("pre_steps_log", self.log_of_world)

    def log_of_world(self, batch: Any = None) -> dict[str, Any] | None:
        """What the world said in the last batch, by the names of metrics; ``None`` for nothing."""
        said = getattr(self._rollout, "log", None)
        if not said:
            return None
        return {name if "/" in name else f"world/{name}": value for name, value in said.items()}

    def _set_in_envs(self, name: str, value: Any) -> None:
        if not hasattr(self.world, name):
            raise ConfigError(
                f"{self.world.name} has no attribute {name!r} to be set: name one that it has from "
                "the beginning."
            )
        now = getattr(self.world, name)
        if isinstance(now, torch.Tensor):
            now.copy_(torch.as_tensor(value))
        else:
            setattr(self.world, name, value)

    def check_shares(self, number: int) -> None:
        """Refuse worlds whose environments depend on each other, or cannot be divided."""
        check_can_share(self._env)
        if not self.world.shares:
            raise ConfigError(
                f"{number} processes cannot share the environments of {self.world.name}, which "
                "depend on each other: train in one process, with more environments."
            )
        share_equally(self.num_envs, number, "num_envs")
