"""`AgentsCollector`: steps environments of several agents and yields TorchRL's layout of them."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from tensordict import TensorDict
from tensordict.nn import InteractionType, set_interaction_type

from ...base.checks import check_count, share_equally
from ...errors import ConfigError, StateMismatchError, no_quiet_end
from ...loop.timing import Timing
from ..collector import TIMEOUT, Resumes
from ..episodes_collector import WorldsCollector
from ..info import check_info_keys
from ..seeding import random_action_seed
from ..vector_arguments import check_counts, device_of, steps_per_batch
from .actor import AgentsActor, RandomAgents
from .agents_rollout import AgentsRollout
from .groups import AgentGroup, Grouping
from .worker_world import WorkerWorld, check_agents_workers
from .world import World
from .worlds import make_world

_TRIED = 500  # steps in which an environment is asked for its infos


class AgentsCollector(WorldsCollector):
    """Collects batches ``[num_envs, time]`` from environments of several agents.

    The agents of a group are a dimension, and a group is a TensorDict ``[num_envs, time, agents]``
    within the batch, as in TorchRL. Of a group called ``"agents"`` a batch holds:

    - ``("agents", "observation")`` ``[num_envs, time, agents, ...]``, for a dict observation one
      entry for each of its parts; ``("agents", "action_mask")``, where there are masks;
      ``("agents", "mask")`` ``[num_envs, time, agents]``, where agents may leave before the episode
      ends: which of them still act. What stands at the others means nothing.
    - ``("agents", "action")`` and everything else that the policy writes.
    - ``("next", "agents", ...)``: the observation that the actions led to, the true final one where
      an episode ends; ``"reward"`` and ``"episode_reward"`` (float32), ``"done"``, ``"terminated"``
      and ``"truncated"`` (bool), ``[num_envs, time, agents, 1]``, of each agent.
    - ``("next", "done")``, ``"terminated"`` and ``"truncated"``, ``[..., 1]``, of the whole
      environment; ``("next", "reward")`` and ``("next", "episode_reward")``, the **mean over all
      agents** of all groups, an agent that has left counting 0; ``("next", "step_count")``.
    - what ``info_keys`` names: ``("next", "agents", key)``, ``[num_envs, time, agents, 1]``, and
      ``("next", key)``, ``[..., 1]``, the mean over the agents that say it.
    - ``"state"`` and ``("next", "state")`` ``[num_envs, time, ...]``, where the environment says
      what state it is in as a whole.

    All counts are of transitions of an environment, however many agents act in it.

    Args:
        env: ``"vmas/<scenario>"``, or a scenario class of VMAS; ``"pettingzoo/<family>/<name>"``,
            or a function that makes a parallel environment of PettingZoo.
        policy: What acts; ``None`` for random actions. An object with ``in_keys`` and ``act``,
            which takes these entries and returns a dict with ``(group, "action")`` for each group,
            such as `hooktrainer.networks.AgentsPolicy`; or a TensorDict module.
        num_envs: How many environments.
        frames_per_batch: Transitions of a batch, a multiple of ``num_envs``.
        total_frames: Transitions after which iteration ends; -1 for no end.
        seed: The run's seed, 0 or more.
        init_random_frames: So many transitions are collected with random actions first.
        env_kwargs: Arguments of the environment.
        groups: By a group's name, its agents. By default agents with equal spaces are a group; a
            single one is called ``"agents"``, several are called as their agents' names begin.
        frame_skip: Has to be 1: no action is repeated.
        info_keys: What agents say in their ``info`` and batches hold in ``"next"``, float32: a
            number or an array of one. It may come at every step or only at an episode's end, where
            one agent at least has to give it; of agents that say nothing the entry is NaN.
        exploration_type: How the policy's distributions are sampled.
        workers: How many processes step the environments of PettingZoo, an equal share each; 0 for
            this one. It does not change the data.
        device: Where batches are, and where environments that are tensors are simulated; by default
            where the policy computes.

    Raises:
        ConfigError: If the arguments cannot work.

    Examples:
        >>> collector = AgentsCollector("vmas/balance", num_envs=4, frames_per_batch=40)
        >>> collector.collect()["agents", "observation"].shape
        torch.Size([4, 10, 3, 16])
    """

    num_envs: int
    frames_per_batch: int
    frame_skip: int
    device: torch.device
    seed: int
    world: World

    def __init__(
        self,
        env: Any,
        policy: Any = None,
        *,
        num_envs: int,
        frames_per_batch: int,
        total_frames: int = -1,
        seed: int = 0,
        init_random_frames: int = 0,
        env_kwargs: Mapping[str, Any] | None = None,
        groups: Grouping | None = None,
        frame_skip: int = 1,
        info_keys: Sequence[str] = (),
        exploration_type: InteractionType = InteractionType.RANDOM,
        workers: int = 0,
        device: torch.device | str | None = None,
    ) -> None:
        check_counts(frames_per_batch, total_frames, init_random_frames, 1)
        check_count("num_envs", num_envs)
        if frame_skip != 1:
            raise ConfigError(
                f"AgentsCollector(frame_skip={frame_skip}): actions of several agents are not "
                "repeated; leave it out."
            )
        if policy is not None and not hasattr(policy, "in_keys"):
            raise ConfigError(
                f"policy={policy!r:.80} cannot act for several agents: give it in_keys, such as "
                "[('agents', 'observation')], and act(); or use AgentsPolicy."
            )
        self.policy = policy
        self.frames_per_batch = frames_per_batch
        self.total_frames = total_frames
        self.init_random_frames = init_random_frames
        self.frame_skip = 1
        self.exploration_type = exploration_type
        self.seed = seed
        self.timing = Timing()
        self._computes = device_of(policy)
        self.device = self._computes if device is None else torch.device(device)
        keys = check_info_keys(info_keys)
        self._made: dict[str, Any] = {"env_kwargs": env_kwargs, "groups": groups, "info_keys": keys}
        self._env = env
        self._first_env = 0
        self._warm_up_frames = init_random_frames
        self._workers = 0
        self._open(num_envs)
        if keys:
            self._try_infos()
        if workers:
            self.use_workers(workers)
        if self.world.lost:
            warnings.warn(
                f"A resumed run cannot restore the running episodes: {self.world.lost}. It begins "
                "new ones; all else is exact.",
                stacklevel=2,
            )

    def _open(self, num_envs: int) -> None:
        """Make the world, of which nothing is played yet."""
        self.num_envs = num_envs
        self._horizon = steps_per_batch(self.frames_per_batch, self.num_envs)
        self.world = self._make_world()
        self._actor: AgentsActor | None = None
        self.frames = 0
        self._closed = False
        self.set_seed(self.seed)

    def _make_world(self, workers: int = 0) -> World:
        """The environments, in this process or in others."""
        make = partial(_make_share, self._env, self._made)
        if workers:
            return WorkerWorld(
                make, self.num_envs, workers, self._first_env, self.device, self._timeout
            )
        return make(self.num_envs, self._first_env, self.device)

    def use_workers(
        self, workers: int, stages: int = 1, *, at_once: bool = True, timeout: float = TIMEOUT
    ) -> None:
        """Step the environments in other processes from now on; before the first batch.

        Args:
            workers: As in the constructor.
            stages: Has to be 1: all environments step at once.
            at_once: Whether the processes start now; else with `start` or the first batch.
            timeout: Seconds after which a process that does not answer ends the run.

        Raises:
            ConfigError: If the environments cannot be shared among so many.
        """
        check_agents_workers(self.world, self.num_envs, workers, stages)
        self._workers, self._timeout = workers, timeout
        if at_once:
            self.start()

    def start(self) -> None:
        """Start the processes that `use_workers` asked for, if they are still to be started."""
        self._check_open()
        if bool(self._workers) == isinstance(self.world, WorkerWorld):
            return
        here, state = self.world, self.state_dict()
        self.world = self._make_world(self._workers)
        here.close()
        self.load_state_dict(state)

    def _try_infos(self) -> None:
        """Play an episode, or its beginning, in an environment of its own, whose step checks."""
        world = _make_share(self._env, self._made, 1, 0)
        try:
            random = RandomAgents(world.groups, random_action_seed(self.seed, 0))
            entries = world.reset()
            for _ in range(_TRIED):
                actions = random.act(entries)
                step = world.step({g.name: actions[g.name, "action"] for g in world.groups})
                if bool((step.terminated | step.truncated).any()):
                    break
                entries = step.entries
        finally:
            world.close()

    @property
    def groups(self) -> tuple[AgentGroup, ...]:
        """The agents, by group."""
        return self.world.groups

    @property
    def resumes(self) -> Resumes:  # type: ignore[override]
        """``"exactly"``, unless running episodes cannot be restored."""
        return "partly" if self.world.lost else "exactly"

    def collect(self) -> TensorDict:
        """Collect one batch, whatever ``total_frames`` says.

        If it fails, the running episodes are abandoned: the next batch begins with new ones.

        Raises:
            RuntimeError: If the collector is shut down, or the policy or an environment raises
                ``StopIteration``.
        """
        self.start()
        actor: AgentsActor | RandomAgents = self._random
        if self.policy is not None and self.frames >= self._warm_up_frames:
            actor = self._ask()
        try:
            with torch.no_grad(), set_interaction_type(self.exploration_type):
                batch = self._rollout.collect(self._horizon, actor.act, actor.complete, self.timing)
        except StopIteration as error:  # else whoever iterates would take it for the end
            raise no_quiet_end(error, self.frames) from error
        self.frames += self.frames_per_batch
        return batch

    def _ask(self) -> AgentsActor:
        if self._actor is None:
            self._actor = AgentsActor(self.policy, self.groups, self.num_envs, self._computes)
        return self._actor

    def set_seed(self, seed: int, static_seed: bool = False) -> int:
        """Start over with new episodes, those of this seed.

        Args:
            seed: The run's seed, 0 or more.
            static_seed: Whether to return the same seed again.
        """
        check_count("seed", seed, least=0)
        self.seed = seed
        self.world.seed(seed)
        self._random = RandomAgents(self.groups, random_action_seed(seed, self._first_env))
        self._rollout = AgentsRollout(self.world)
        return seed if static_seed else seed + 1

    def reset(self) -> None:
        """Abandon the running episodes: the next batch begins with new ones."""
        self._rollout.abandon()

    def check_shares(self, number: int) -> None:
        """Refuse environments that share one stream of random numbers, or cannot be divided."""
        if not self.world.shares:
            raise ConfigError(
                f"{self.world.name} draws the random numbers of all its environments from one "
                f"stream, so {number} processes cannot share them: train in one process, with more "
                "environments."
            )
        share = share_equally(self.num_envs, number, "num_envs")
        check_agents_workers(self.world, share, self._workers)

    def reshard(self, states: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """A state by which each environment begins an episode that was not played yet."""
        return super().reshard(states) | {"random": self._random.generator.get_state()}

    def state_dict(self) -> dict[str, Any]:
        """The running episodes, random states and counters: all that a resumed run needs."""
        return {
            **self.position(),
            "random": self._random.generator.get_state(),
            "rollout": self._rollout.state_dict(),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore what `state_dict` returned.

        Raises:
            StateMismatchError: If it comes from other environments.
        """
        if not {"random", "episodes", "rollout"} <= state_dict.keys():
            raise StateMismatchError("The saved collector is no AgentsCollector.")
        for line in self.mismatches(state_dict):
            raise StateMismatchError(line)
        self.set_seed(state_dict["seed"])
        self.frames = state_dict["frames"]
        self._random.generator.set_state(state_dict["random"].cpu())
        if state_dict["rollout"] is None:
            self.world.episodes = list(state_dict["episodes"])
        else:
            self._rollout.load_state_dict(state_dict["rollout"])

    def __getstate__(self) -> dict[str, Any]:
        live = {"world": None, "_rollout": None, "_random": None, "_actor": None}
        return self.__dict__ | live | {"_timing": Timing(), "saved": self.state_dict()}

    def __repr__(self) -> str:
        agents = ", ".join(f"{len(group.agents)} {group.name}" for group in self.groups)
        return (
            f"{type(self).__name__}({self.world.name}, {agents}, num_envs={self.num_envs}, "
            f"frames_per_batch={self.frames_per_batch}, total_frames={self.total_frames}, "
            f"seed={self.seed}, frames={self.frames}"
            f"{f', workers={self._workers}' if self._workers else ''})"
        )


def _make_share(
    env: Any, made: Mapping[str, Any], num_envs: int, first_env: int, device: Any = "cpu"
) -> World:
    """Environments, of which a process may have a share."""
    return make_world(env, num_envs, first_env=first_env, device=device, **made)
