"""`VectorCollector`: steps Gymnasium environments and yields TorchRL's batch layout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from gymnasium.envs.registration import EnvSpec
from tensordict.nn import InteractionType

from ..base.checks import check_count, share_equally
from .action_format import action_format_of
from .actors import Policy
from .episodes_collector import EpisodesCollector, Workers
from .group import EnvGroup, EpisodeSeeds, GroupOptions, Restore
from .info import check_info_keys
from .make_group import Envs, VectorizationMode, make_group
from .rollout import GappedRollout, Rollout
from .spaces import ObservationLayout
from .worker_group import WorkerGroup, envs_to_share


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

    Every episode is seeded from the run's seed, the environment's index and the episode's index
    alone. The data do not depend on how environments are grouped, nor on whether CartPole is
    stepped by its own vectorised implementation. A vector environment that seeds itself is seeded
    once and cannot be restored.

    A running episode is part of the state, as the actions that lead there from its seed, or as what
    a method ``episode_state`` of the environment returns, which ``set_episode_state`` takes back.
    Running moments of wrappers are saved as well. Anything else that outlasts episodes, as the
    Box2D world of BipedalWalker does, shows when a state is loaded: that is refused unless
    ``restore_episodes=False``.

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
        frame_skip: How many times each action is repeated; rewards are added up. Only 1 goes
            with a vector entry point, or a vector environment that is no ``SyncVectorEnv``.
        env_kwargs: Keyword arguments of the environment, with an id.
        vectorization_mode: With an id: ``None`` prefers CartPole's own vector entry point for
            several environments; ``"sync"`` steps scalar ones, which can be quicker for up to about
            5; ``"vector_entry_point"`` takes any, and is refused with a ``frame_skip`` above 1.
        categorical_actions: Whether discrete actions are indices; one-hot vectors otherwise.
        traj_ids: Whether batches hold ``("collector", "traj_ids")``.
        info_keys: Entries of ``info`` that batches hold in ``"next"``: a number, a
            bool or an array of one, as float32 ``[..., 1]``. It may come at every step or only at
            an episode's end, where it must; in other steps without it the entry is NaN.
        exploration_type: How the policy's distributions are sampled.
        reset_options: What every ``reset`` of the environments is given as ``options``.
        first_env: Index of the first environment among all those of the run, on which the seeds of
            episodes depend. `shard` sets it.
        restore_episodes: Whether running episodes are part of the state and restored from it. If
            not, a resumed run begins new ones, and no environment is played before the first batch,
            not even to see whether ``info_keys`` work: for a robot, which would move.
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

    _envs: EnvGroup
    _live = ("_envs", "_rollout")

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
        first_env: int = 0,
        workers: int = 0,
        stages: int = 1,
        device: torch.device | str | None = None,
        policy_device: torch.device | str | None = None,
    ) -> None:
        check_count("frame_skip", frame_skip)
        check_count("workers", workers, least=0)
        check_count("stages", stages)
        super().__init__(
            policy,
            frames_per_batch,
            total_frames,
            seed,
            init_random_frames,
            exploration_type,
            device,
            policy_device,
            first_env,
        )
        self.frame_skip = frame_skip
        self._env = env
        self._env_kwargs = env_kwargs
        self._mode: VectorizationMode | None = vectorization_mode
        self._restore_episodes = restore_episodes
        self._reset_options = reset_options
        self._categorical_actions = categorical_actions
        self._traj_ids = traj_ids
        self._info_keys = check_info_keys(info_keys)
        if workers:
            self._workers = Workers(workers, stages)
        self._open(num_envs, self._workers)
        check_info_keys(self._info_keys, (leaf.key[0] for leaf in self._leaves))
        can_make_more = callable(env) or isinstance(env, (str, EnvSpec, Sequence))
        if restore_episodes and self._info_keys and can_make_more:
            self._try_infos(_env=self._env_of(1))

    def _make(self, num_envs: int | None, workers: Workers) -> None:
        options = GroupOptions(
            EpisodeSeeds(self.seed, self._first_env),
            self.frame_skip,
            self._restore_episodes,
            self._info_keys,
            self._reset_options,
        )
        made = (self._env, num_envs, options, self._env_kwargs, self._mode)
        self._envs = WorkerGroup(*made, workers) if workers.number else make_group(*made)
        self._make_rollout = GappedRollout if self._envs.has_gaps else Rollout
        self.num_envs = self._envs.num_envs
        self._leaves = ObservationLayout(self._envs.observation_space).leaves
        self._action_format = action_format_of(self._envs.action_space, self._categorical_actions)

    def _set_in_envs(self, name: str, value: Any) -> None:
        self._envs.set_attribute(name, value)

    def check_shares(self, number: int) -> None:
        share = share_equally(self.num_envs, number, "num_envs")
        envs_to_share(
            self._env_of(share), share, max(self._workers.number, 1), self._workers.stages
        )

    def _check_workers(self, num_envs: int, workers: int, stages: int) -> None:
        if workers:
            envs_to_share(self._env_of(num_envs), num_envs, workers, stages)

    def _env_of(self, num_envs: int) -> Envs:
        return self._env[:num_envs] if isinstance(self._env, (list, tuple)) else self._env

    def _take_share(self, rank: int) -> None:
        if isinstance(self._env, (list, tuple)):
            self._env = self._env[rank * self.num_envs :][: self.num_envs]

    def describe_restore(self) -> list[Restore]:
        """For each environment how its running episode comes back after a resume, and why so."""
        return list(self._envs.restores)
