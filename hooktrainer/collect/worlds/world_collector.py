"""`WorldCollector`: steps a tensor world and yields the batches that `VectorCollector` yields."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from tensordict import TensorDict
from tensordict.nn import InteractionType, set_interaction_type

from ...base.checks import check_count, share_equally
from ...errors import ConfigError, StateMismatchError, no_quiet_end
from ...loop.timing import Timing
from ..actors import Policy
from ..collector import Resumes
from ..episodes_collector import WorldsCollector
from ..info import check_info_keys
from ..vector_arguments import check_counts, check_policy, device_of, steps_per_batch
from .tensor_world import TensorWorld
from .world_actions import WorldActions
from .world_ids import check_can_share, make_tensor_world
from .world_rollout import WorldRollout


class WorldCollector(WorldsCollector):
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

    num_envs: int
    frames_per_batch: int
    frame_skip: int
    device: torch.device
    seed: int
    world: TensorWorld

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
        self.policy = policy
        self.frames_per_batch = frames_per_batch
        self.total_frames = total_frames
        self.init_random_frames = init_random_frames
        self.exploration_type = exploration_type
        self.seed = seed
        self.timing = Timing()
        self._env = env
        self._env_kwargs = env_kwargs
        self._first_env = first_env
        self._attributes: dict[str, Any] = {}  # set since the world was made
        self._warm_up_frames = init_random_frames
        self._categorical_actions = categorical_actions
        self._clip_actions = clip_actions
        self._compile = compile
        self._info_keys = check_info_keys(info_keys)
        self._computes = device_of(policy)
        self._device = self._computes if device is None else torch.device(device)
        self._open(num_envs)
        if frame_skip not in (None, self.frame_skip):
            raise ConfigError(
                f"frame_skip={frame_skip}: {self.world.name} counts {self.frame_skip} frames a "
                "step, and actions are not repeated: leave it out."
            )
        if self.world.lost:
            warnings.warn(
                f"A resumed run cannot restore the running episodes: {self.world.lost}. It begins "
                "new ones; all else is exact.",
                stacklevel=2,
            )

    def _open(self, num_envs: int | None) -> None:
        """Make the world, of which nothing is played yet."""
        self.world = make_tensor_world(
            self._env,
            num_envs,
            device=self._device,
            first_env=self._first_env,
            env_kwargs=self._env_kwargs,
        )
        self.num_envs = self.world.num_envs
        self.frame_skip = self.world.frame_skip
        self.device = self.world.device
        self._horizon = steps_per_batch(self.frames_per_batch, self.num_envs)
        self._actions = WorldActions(
            self.world.action_space, self._categorical_actions, self._clip_actions, self.device
        )
        self._closed = False
        self._rollout: WorldRollout | None = None
        self.frames = 0
        self.set_seed(self.seed)

    @property
    def resumes(self) -> Resumes:  # type: ignore[override]
        """``"exactly"``, unless running episodes cannot be restored."""
        return "partly" if self.world.lost else "exactly"

    def register(self, trainer: Any) -> None:
        """Log what the world says in its log."""
        trainer.register_op("pre_steps_log", self.log_of_world)

    def log_of_world(self, batch: Any = None) -> dict[str, Any] | None:
        """What the world said in the last batch, by the names of metrics; ``None`` for nothing."""
        if self._rollout is None or not self._rollout.log:
            return None
        said = self._rollout.log
        return {name if "/" in name else f"world/{name}": value for name, value in said.items()}

    def collect(self) -> TensorDict:
        """Collect one batch, whatever ``total_frames`` says.

        If it fails, the running episodes are abandoned: the next batch begins with new ones.

        Raises:
            RuntimeError: If the collector is shut down, or the policy or the world raises
                ``StopIteration``.
        """
        rollout = self._begun()
        warm_up = self.frames < self._warm_up_frames
        try:
            with torch.no_grad(), set_interaction_type(self.exploration_type):
                batch = rollout.collect(self.timing, self.frames // self.num_envs, warm_up)
        except StopIteration as error:  # else whoever iterates would take it for the end
            raise no_quiet_end(error, self.frames) from error
        self.frames += self.frames_per_batch
        return batch

    def _begun(self) -> WorldRollout:
        self._check_open()
        if self._rollout is None:
            self._rollout = WorldRollout(
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
        return self._rollout

    def set_seed(self, seed: int, static_seed: bool = False) -> int:
        """Start over with new episodes, those of this seed.

        Args:
            seed: The run's seed, 0 or more.
            static_seed: Whether to return the same seed again.
        """
        check_count("seed", seed, least=0)
        self.seed = seed
        self.world.seed(seed)
        self._rollout = None  # with it go hidden states
        return seed if static_seed else seed + 1

    def reset(self) -> None:
        """Abandon the running episodes: the next batch begins with new ones."""
        if self._rollout is not None:
            self._rollout.abandon()

    def set_attribute(self, name: str, value: Any) -> None:
        """Set an attribute of every environment, which begins a new episode; part of the state.

        Args:
            name: Its name, in the world; a tensor is filled.
            value: A plain value.

        Raises:
            ConfigError: If there is none of this name.
        """
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
        self._attributes[name] = value
        self.reset()

    def check_shares(self, number: int) -> None:
        """Refuse worlds whose environments depend on each other, or cannot be divided."""
        check_can_share(self._env)
        if not self.world.shares:
            raise ConfigError(
                f"{number} processes cannot share the environments of {self.world.name}, which "
                "depend on each other: train in one process, with more environments."
            )
        share_equally(self.num_envs, number, "num_envs")

    def state_dict(self) -> dict[str, Any]:
        """Everything a resumed run needs to go on with the same data, bit for bit."""
        rollout = self._rollout and self._rollout.state_dict()
        return {**self.position(), "rollout": rollout}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore what `state_dict` returned, in this process or another.

        Raises:
            StateMismatchError: If it comes from another world or another policy.
        """
        for line in self.mismatches(state_dict):
            raise StateMismatchError(line)
        saved = state_dict["rollout"]
        if saved is not None:
            self._begun().check(saved)
        for name, value in state_dict["attributes"].items():
            self.set_attribute(name, value)
        self.set_seed(state_dict["seed"])
        self.frames = state_dict["frames"]
        self.world.episodes = list(state_dict["episodes"])
        if saved is not None:
            self._begun().load_state_dict(saved)

    def __getstate__(self) -> dict[str, Any]:
        live = {"world": None, "_rollout": None, "_actions": None, "_timing": Timing()}
        return self.__dict__ | live | {"saved": self.state_dict()}

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.world.name}, num_envs={self.num_envs}, "
            f"frames_per_batch={self.frames_per_batch}, total_frames={self.total_frames}, "
            f"seed={self.seed}, frames={self.frames})"
        )
