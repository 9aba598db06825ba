"""`VectorCollector`: steps Gymnasium environments and yields TorchRL's batch layout."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import torch
from tensordict import TensorDict
from tensordict.nn import InteractionType, set_interaction_type

from ..base.words import ranges
from ..errors import StateMismatchError, no_quiet_end
from ..loop.timing import Timing
from .action_format import action_format_of
from .actors import Policy
from .buffers import StepBuffers
from .collector import TIMEOUT, Resumes
from .episodes_collector import EpisodesCollector
from .gapped_rollout import GappedRollout
from .group import GroupOptions
from .group_spec import GroupSpec
from .info import check_info_keys
from .make_group import Envs, VectorizationMode
from .overlap.overlap_state import OVERLAP
from .restore import Restore
from .rollout import Rollout
from .seeding import EpisodeSeeds
from .spaces import ObservationLayout
from .staged_rollout import StagedRollout
from .vector_arguments import (
    check_counts,
    check_policy,
    check_workers,
    device_of,
    steps_per_batch,
    warn_of_loss,
)
from .worker_group import WorkerGroup


class VectorCollector(EpisodesCollector):
    """Collects batches ``[num_envs, time]`` from Gymnasium environments, fast and resumable.

    Each batch is a TensorDict in TorchRL's layout. Per transition it holds:

    - the observation: ``"observation"`` for a plain space, the space's own keys for a dict space;
      float64 becomes float32, discrete values are int64 and count from 0. An action mask, given as
      an observation or in ``info["action_mask"]``, is ``"action_mask"``, boolean.
    - ``"action"`` and everything else the policy writes (log-probabilities, values, …).
    - ``"done"``, ``"terminated"``, ``"truncated"``, bool ``[..., 1]``: false, as in TorchRL, since
      no transition starts at an episode's end.
    - ``"next"``: the observation the action led to (at an episode's end the **true final one**, not
      that of the next episode), ``"reward"`` (float32 ``[..., 1]``), ``"done"``, ``"terminated"``,
      ``"truncated"``; ``"episode_reward"`` (float32) and ``"step_count"`` (int64), ``[..., 1]``, of
      the episode so far, as TorchRL's ``RewardSum`` and ``StepCounter`` write them: where
      ``("next", "done")`` is true they are the episode's return and length.
    - what ``info_keys`` names, in ``"next"``.
    - ``("collector", "traj_ids")``, int64, if asked for: ``episode * num_envs + environment``.
    - for a recurrent policy its hidden states, at the root and in ``"next"``, and ``"is_init"``.

    A batch is made of fresh tensors and stays as it is for as long as it is held.

    Every episode is seeded from the run's seed, the environment's index and the episode's index
    alone. The data do not depend on how environments are grouped, nor on whether CartPole is
    stepped by its own vectorised implementation. An environment with a vector entry point is used
    so if its sub-environments turn out to be independent of each other: an episode then begins in a
    second instance with one sub-environment, and its state is copied. A vector environment that
    seeds itself is seeded once and cannot be restored.

    A running episode is part of the state: as the environment's state where all of that is plain
    Python and NumPy data, else as the actions that lead there from the episode's seed.
    `describe_restore` says which, and a warning names at once those for which neither is known to
    work. What outlasts episodes out of Python's sight, as the Box2D world of BipedalWalker does,
    shows when a state is loaded: that is refused unless ``restore_episodes=False``.

    All counts are of transitions; with ``frame_skip`` each is that many frames of the environment.

    Args:
        env: An environment id or `gymnasium.envs.registration.EnvSpec`, a factory of environments,
            a list of factories, or a `gymnasium.vector.VectorEnv`.
        policy: What acts; ``None`` for random actions. Either an object with a method ``act``, the
            fastest way: it takes the observations as a tensor ``[num_envs, ...]`` (for a dict space
            a dict of tensors; ``action_mask=`` too if it has such a parameter; one tensor for each
            of its ``in_keys`` if it has these) and returns a dict of tensors or arrays with
            ``"action"``; it must not keep or change what it takes. Or a TensorDict module,
            exploration modules and recurrent networks included. Or any function of the observations
            that returns the actions. It runs without gradients.
        num_envs: How many environments; with an id or one factory.
        frames_per_batch: Transitions of a batch, a multiple of the number of environments.
        total_frames: Transitions after which iteration ends, those of earlier runs included; -1 for
            no end. The last batch is a whole one.
        seed: The run's seed, 0 or more.
        init_random_frames: So many transitions are collected with random actions first.
        frame_skip: How many times each action is repeated; rewards are added up.
        env_kwargs: Keyword arguments of the environment, with an id.
        vectorization_mode: With an id: ``None`` prefers its own vector entry point for several
            environments; ``"sync"`` steps scalar ones, which can be quicker for up to about 5;
            ``"vector_entry_point"``.
        categorical_actions: Whether discrete actions are indices; one-hot vectors otherwise.
        traj_ids: Whether batches hold ``("collector", "traj_ids")``.
        info_keys: What the environments say in ``info`` and batches hold in ``"next"``: a number, a
            bool or an array of one, as float32 ``[..., 1]``. It may come at every step or only at
            an episode's end, where it must; in other steps without it the entry is NaN.
        exploration_type: How the policy's distributions are sampled.
        reset_options: What every ``reset`` of the environments is given as ``options``.
        probe: Whether environments are played before the first batch, up to some 50 steps each, to
            find out how their episodes are restored and whether ``info_keys`` and a vector entry
            point work. If not, they are only reset, running episodes are not restored, and an id is
            stepped as scalar environments: for a robot, which would move.
        first_env: Index of the first environment among all those of the run, on which the seeds of
            episodes depend. `shard` sets it.
        restore_episodes: Whether running episodes are part of the state and restored from it. If
            not, a resumed run begins new ones, and nothing is kept to play episodes again.
        workers: How many processes step the environments, an equal share each; 0 for this one.
        stages: With workers, into how many parts the environments are divided: while those of one
            step, the policy acts for the next. Neither changes the data.
        device: Where batches live; by default where the policy computes.
        policy_device: Where the policy computes; by default where its first parameter is.

    Raises:
        ConfigError: If the arguments cannot work.

    Examples:
        >>> collector = VectorCollector(
        ...     "CartPole-v1", num_envs=4, frames_per_batch=512, total_frames=1024
        ... )
        >>> [tuple(batch.shape) for batch in collector]
        [(4, 128), (4, 128)]
        >>> collector.shutdown()
    """

    num_envs: int
    frames_per_batch: int
    frame_skip: int
    device: torch.device
    seed: int
    remedy: Final = "make the collector as it was"

    def __init__(
        self,
        env: Envs,
        policy: Policy | None = None,
        *,
        num_envs: int | None = None,
        frames_per_batch: int,
        total_frames: int = -1,
        seed: int = 0,
        init_random_frames: int = 0,
        frame_skip: int = 1,
        env_kwargs: Mapping[str, Any] | None = None,
        vectorization_mode: VectorizationMode | None = None,
        categorical_actions: bool = True,
        traj_ids: bool = False,
        info_keys: Sequence[str] = (),
        exploration_type: InteractionType = InteractionType.RANDOM,
        restore_episodes: bool = True,
        reset_options: Mapping[str, Any] | None = None,
        probe: bool = True,
        first_env: int = 0,
        workers: int = 0,
        stages: int = 1,
        device: torch.device | str | None = None,
        policy_device: torch.device | str | None = None,
    ) -> None:
        check_counts(frames_per_batch, total_frames, init_random_frames, frame_skip)
        check_workers(workers, stages)
        check_policy(policy)
        self.policy = policy
        self.frames_per_batch = frames_per_batch
        self.total_frames = total_frames
        self.init_random_frames = init_random_frames
        self.frame_skip = frame_skip
        self.exploration_type = exploration_type
        self.seed = seed
        self.timing = Timing()
        self._spec = GroupSpec(env, num_envs, env_kwargs, vectorization_mode, workers, stages)
        self._first_env = first_env
        self._restore_episodes = restore_episodes and probe
        self._reset_options = reset_options
        self._probe = probe
        self._categorical_actions = categorical_actions
        self._traj_ids = traj_ids
        self._info_keys = check_info_keys(info_keys)
        self._device = device
        self._policy_device = policy_device
        self._warm_up_frames = init_random_frames
        self._attributes: dict[str, Any] = {}  # set since the environments were made
        self._open_group(self._spec)
        try:
            check_info_keys(self._info_keys, (leaf.key[0] for leaf in self._leaves))
            if probe:
                self._group.check_info()
        except BaseException:
            self._group.close()
            raise
        warn_of_loss(self._group.restores, self._group.names)

    def _open_group(self, spec: GroupSpec) -> None:
        """Build environments that have played nothing yet."""
        self._group = spec.open(self._group_options())
        try:
            self.num_envs = self._group.num_envs
            self._horizon = steps_per_batch(self.frames_per_batch, self.num_envs)
            self._leaves = ObservationLayout(self._group.observation_space).leaves
            self._action_format = action_format_of(
                self._group.action_space, self._categorical_actions
            )
        except BaseException:
            self._group.close()
            raise
        given = self._policy_device
        self._computes = device_of(self.policy) if given is None else torch.device(given)
        self.device = self._computes if self._device is None else torch.device(self._device)
        self.frames = 0
        self._rollout: Rollout | None = None
        self._fresh = True
        self._closed = False

    def _group_options(self) -> GroupOptions:
        seeds = EpisodeSeeds(self.seed, self._first_env)
        return GroupOptions(
            seeds,
            self.frame_skip,
            self._restore_episodes,
            self._info_keys,
            self._reset_options,
            self._probe,
        )

    @property
    def resumes(self) -> Resumes:  # type: ignore[override]
        """``"exactly"``, unless there are environments whose episodes cannot be restored."""
        lost = any(restore.method == "none" for restore in self._group.restores)
        return "partly" if lost else "exactly"

    @property
    def unsaved(self) -> None:
        """Nothing: what cannot be restored was said when the collector was made."""

    @property
    def episodes(self) -> list[int]:
        """For each environment the index of its running episode; -1 before the first."""
        return list(self._group.episodes)

    @property
    def buffer_bytes(self) -> int:
        """Bytes of the buffers for observations and rewards, allocated once.

        A batch takes up to twice as much. The policy's outputs add to both.
        """
        infos = len(self._info_keys)
        return StepBuffers.size(self._leaves, self.num_envs, self._horizon, infos)

    def collect(self) -> TensorDict:
        """Collect one batch, whatever ``total_frames`` says.

        If it fails, the running episodes are abandoned: the next batch begins with new ones.

        Returns:
            A TensorDict of batch size ``[num_envs, frames_per_batch // num_envs]``.

        Raises:
            RuntimeError: If the collector is shut down, or an environment or the policy raises
                ``StopIteration``.
        """
        rollout = self._open()
        begins_anew, self._fresh = self._fresh, True  # what an exception leaves behind
        try:
            with torch.no_grad(), set_interaction_type(self.exploration_type):
                if begins_anew:
                    rollout.begin_episodes()
                batch = rollout.collect(self.timing, warm_up=self.frames < self._warm_up_frames)
        except StopIteration as error:  # else whoever iterates would take it for the end
            raise no_quiet_end(error, self.frames) from error
        self._fresh = False
        self.frames += self.frames_per_batch
        return batch

    def set_seed(self, seed: int, static_seed: bool = False) -> int:
        """Start over: the first episode of every environment begins anew, seeded from ``seed``.

        Args:
            seed: The run's seed, 0 or more.
            static_seed: Whether to return the same seed again.

        Returns:
            A seed for whatever is seeded next.
        """
        self._group.seeds = EpisodeSeeds(seed, self._first_env)
        self.seed = seed
        self._group.episodes = [-1] * self.num_envs
        self._rollout = None  # with it go the generator of random actions and hidden states
        self._fresh = True
        return seed if static_seed else seed + 1

    def reset(self) -> None:
        """Abandon the running episodes: the next batch begins with new ones."""
        self._fresh = True

    def set_attribute(self, name: str, value: Any) -> None:
        """Set an attribute of every environment, which begins a new episode; part of the state.

        Args:
            name: Its name, in the environment or one of its wrappers.
            value: A plain value.

        Raises:
            ConfigError: If there is none of this name.
        """
        self.start()
        self._group.set_attribute(name, value)
        self._attributes[name] = value
        self.reset()

    def check_shares(self, number: int) -> None:
        """Refuse environments that cannot be shared equally, or were made already."""
        self._spec.share(self.num_envs, 0, number)

    def shard(self, rank: int, world_size: int) -> None:
        """Keep only the environments of one of several processes that collect together.

        Each has as many; together they play the episodes that one process would play with all of
        them. ``init_random_frames`` stays that of all of them together.

        Args:
            rank: Index of the share.
            world_size: Number of shares.

        Raises:
            ConfigError: If the environments cannot be shared equally, or are one vector
                environment that was made already.
        """
        share = self._spec.share(self.num_envs, rank, world_size)
        starts_later = self._starts_later
        self.shutdown()
        self._take_share(rank, world_size)
        self._spec = share
        self._open_group(share.here() if starts_later else share)

    def use_workers(
        self, workers: int, stages: int = 1, *, at_once: bool = True, timeout: float = TIMEOUT
    ) -> None:
        """Step the environments in other processes from now on; before the first batch.

        Args:
            workers: As in the constructor.
            stages: As in the constructor.
            at_once: Whether the processes start now; else with `start` or the first batch.
                If only a copy of the collector, or a share of it, ever collects, none start in
                vain.
            timeout: Seconds after which a process that does not answer ends the run.

        Raises:
            ConfigError: If there are too few environments, or they were made already.
        """
        check_workers(workers, stages)
        spec = replace(self._spec, workers=workers, stages=stages, timeout=timeout)
        spec.check()
        self._spec = spec
        if at_once or not workers:
            self.shutdown()
            self._open_group(spec)

    def start(self) -> None:
        """Start the processes that `use_workers` asked for, if they are still to be started."""
        if self._starts_later:
            here = self._group
            here.close()
            self._group = self._spec.open(self._group_options())
            self._group.episodes = here.episodes

    @property
    def _starts_later(self) -> bool:
        """Whether there are to be workers, but the environments are still in this process."""
        return bool(self._spec.workers) and not isinstance(self._group, WorkerGroup)

    def describe_restore(self) -> list[Restore]:
        """For each environment how its running episode comes back after a resume, and why so."""
        return list(self._group.restores)

    def state_dict(self) -> dict[str, Any]:
        """Everything a resumed run needs to go on with the same data, bit for bit.

        That is counters, seeds, current observations, hidden states, and every environment's state
        or the actions of its running episode. The policy's parameters and torch's random state are
        not the collector's to save.
        """
        return {
            **self.position(),
            "rollout": self._rollout and self._rollout.state_dict(is_running=not self._fresh),
        }

    def mismatches(self, saved: Mapping[str, Any]) -> list[str]:
        """Say if the state is that of another number of environments, or of one that was ahead."""
        if OVERLAP in saved:
            return [
                "the saved collector had collected ahead: give --overlap as before, or --overlap 0 "
                "and --allow-change overlap, which begins with the batches that it had in hand"
            ]
        return super().mismatches(saved)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore what `state_dict` returned, in this process or another.

        Environments that cannot be restored begin a new episode, with a warning.

        Raises:
            StateMismatchError: If the state comes from other environments or another policy, or an
                episode that was played again took another course.
        """
        for line in self.mismatches(state_dict):
            raise StateMismatchError(line)
        saved, episodes = state_dict["rollout"], state_dict["episodes"]
        for name, value in state_dict["attributes"].items():
            self.set_attribute(name, value)
        if saved is not None:
            self._open().check(saved)
        self.set_seed(state_dict["seed"])
        self.frames = state_dict["frames"]
        self._group.episodes = list(episodes)
        if saved is None:
            return
        lost = self._open().load_state_dict(saved, episodes)
        self._fresh = saved["running"] is None
        if lost and self._restore_episodes:
            warnings.warn(
                f"The environments {ranges(lost)} begin a new episode, since their state cannot be "
                "restored: the resumed run differs from one that was never interrupted.",
                stacklevel=2,
            )

    def shutdown(self) -> None:
        """Close the environments. Safe to call again."""
        if not self._closed:
            self._closed = True
            self._group.close()

    close = shutdown

    def __getstate__(self) -> dict[str, Any]:
        # The rows of the buffers are views, and environments may hold what cannot be copied.
        live = {"_group": None, "_rollout": None, "_timing": Timing()}
        return self.__dict__ | live | {"saved": self.state_dict(), "later": self._starts_later}

    def __setstate__(self, state: dict[str, Any]) -> None:
        saved, later, closed = state.pop("saved"), state.pop("later"), state["_closed"]
        self.__dict__.update(state)
        self._open_group(self._spec.here() if later else self._spec)
        self.load_state_dict(saved)
        if closed:
            self.shutdown()

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self._group.names[0]}, num_envs={self.num_envs}, "
            f"stepped as {self._group.kind}, frames_per_batch={self.frames_per_batch}, "
            f"total_frames={self.total_frames}, seed={self.seed}, frames={self.frames}"
            f"{self._workers()})"
        )

    def _workers(self) -> str:
        workers, stages = self._spec.workers, self._spec.stages
        return f", workers={workers}, stages={stages}" if workers else ""

    def _open(self) -> Rollout:
        self._check_open()
        if self._rollout is None:
            self.start()
            kind: Callable[..., Rollout] = StagedRollout if self._spec.workers else Rollout
            if self._group.has_gaps:
                kind = GappedRollout
            self._rollout = kind(
                self._group,
                self.policy,
                self._horizon,
                action_format=self._action_format,
                traj_ids=self._traj_ids,
                device=self.device,
                policy_device=self._computes,
            )
        return self._rollout
