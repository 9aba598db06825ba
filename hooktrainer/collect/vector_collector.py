"""`VectorCollector`: steps environments of any kind and yields TorchRL's batch layout."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from gymnasium.envs.registration import EnvSpec
from tensordict import TensorDict
from tensordict.nn import InteractionType, set_interaction_type

from ..base.checks import check_count, share_equally
from ..base.endings import TIMEOUT
from ..base.space_parts import leaves_of
from ..base.words import ranges
from ..errors import ConfigError, StateMismatchError, as_failure
from ..loop.timing import Timing
from .actors import Policy
from .batched_env import BatchedEnv, EnvOptions, EpisodeSeeds
from .collector import OVERLAP, Collector, Resumes
from .compiled_rollout import CompiledRollout
from .info import check_info_keys
from .make_envs import VectorizationMode, check_shares, envs_to_share, is_tensors, make_envs
from .rollout import GappedRollout, Rollout
from .worker_envs import NO_WORKERS, Workers, checked_workers

_TRIAL_STEPS = 500


class VectorCollector(Collector):
    """Collects batches ``[num_envs, time]`` from environments of any kind, fast and resumable.

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
    - the entries of ``info_keys``, in ``"next"``.
    - ``("collector", "traj_ids")``, int64, if asked for: ``episode * num_envs + environment``,
      counted over all environments of the run.
    - for a recurrent policy its hidden states, at the root and in ``"next"``, and ``"is_init"``.

    **Gymnasium's environments.** Every episode is seeded from the run's seed, the environment's
    index and the episode's index alone. The data do not depend on how environments are grouped, nor
    on whether CartPole is stepped by its own vectorised implementation. A vector environment that
    seeds itself is seeded once and cannot be restored.

    A running episode is part of the state, as the actions that lead there from its seed, or as what
    a method ``episode_state`` of the environment returns, which ``set_episode_state`` takes back.
    Running moments of wrappers are saved as well. Anything else that outlasts episodes, as the
    Box2D world of BipedalWalker does, shows when a state is loaded: that is refused unless
    ``restore_episodes=False``.

    **Tensor environments** (``"torch/CartPole-v1"``, a `FunctionalWorld`, another `TensorWorld`):
    nothing passes through NumPy, and no step waits for the device. If the simulator does not return
    final observations, ``("next", <observation>)`` holds the last known one at an episode's end,
    the policy's last input, and ``("collector", "final_hidden")``, bool ``[..., 1]``, is true. The
    simulator's log is averaged over each batch and logged as ``world/<name>``, or by its own name
    if that has a group.

    **Several agents** (PettingZoo, VMAS): each group of agents is a TensorDict
    ``[num_envs, time, agents]`` within the batch, as in TorchRL, with keys such as ``("agents",
    "action")`` and ``("next", "agents", "reward")``. Keys without a group are of the whole
    environment: ``("next", "done")``, ``"state"``, and as ``("next", "reward")`` the **mean over
    all agents** of all groups, where an agent that has left counts 0. If agents may leave before
    the episode ends, ``("agents", "mask")`` is true of those that still act; the values of the
    others are padding.

    Random actions are a function of the seed, the environment's index and its step.

    All counts are of transitions, however many agents act in each; with ``frame_skip`` each is that
    many frames of the environment.

    Args:
        env: An environment id or `gymnasium.envs.registration.EnvSpec`, a factory of environments,
            a list of factories, or a `gymnasium.vector.VectorEnv`. A tensor environment: an id such
            as ``"torch/CartPole-v1"``, a class or function that takes ``num_envs``, or a
            `TensorWorld`, which cannot be divided among processes. Or several agents:
            ``"vmas/<scenario>"``, a scenario class of VMAS, ``"pettingzoo/<family>/<name>"``, or a
            factory of parallel environments of PettingZoo.
        policy: The policy; ``None`` for random actions. Either an object with a method ``act``, the
            fastest way: it takes the observations as a tensor ``[num_envs, ...]`` (for a dict space
            a dict of tensors; ``action_mask=`` too if it has such a parameter; one tensor for each
            of its ``in_keys`` if it has these) and returns a dict of tensors or arrays with
            ``"action"``; it must not keep or change what it takes. Or a TensorDict module,
            exploration modules and recurrent networks included. Or any function of the observations
            that returns the actions. Of several agents it needs ``in_keys``, and writes ``(group,
            "action")`` for each group, as `hooktrainer.networks.AgentsPolicy` does. It runs without
            gradients.
        num_envs: How many environments; with an id or one factory.
        frames_per_batch: Transitions of a batch, a multiple of the number of environments.
        total_frames: Transitions after which iteration ends, those of earlier runs included; -1 for
            no end. The last batch is a whole one.
        seed: The run's seed, 0 or more.
        init_random_frames: So many transitions are collected with random actions first.
        frame_skip: How many times each action is repeated; rewards are added up. Only 1 goes with a
            vector entry point, a vector environment that is no ``SyncVectorEnv``, or several
            agents; only the simulator's own with tensors.
        env_kwargs: Keyword arguments of the environment, with an id or one factory.
        vectorization_mode: With an id: ``None`` prefers CartPole's own vector entry point for
            several environments; ``"sync"`` steps scalar ones, which can be quicker for up to about
            5; ``"vector_entry_point"`` takes any, and is refused with a ``frame_skip`` above 1.
        categorical_actions: Whether discrete actions are indices; one-hot vectors otherwise.
        clip_actions: Whether the environments receive continuous actions clipped to their bounds,
            as those of several agents always are. Batches hold the policy's actions.
        traj_ids: Whether batches hold ``("collector", "traj_ids")``. The environments have to count
            their episodes, as VMAS and most simulators of others do not.
        info_keys: Entries of ``info``, or of the simulator's log, that batches hold in ``"next"``:
            a number, a bool or an array of one, as float32 ``[..., 1]``. It may come at every step
            or only at an episode's end, where it must; in other steps without it the entry is NaN.
            Of several agents one has to report it; it is NaN for those that do not.
        exploration_type: How the policy's distributions are sampled.
        reset_options: The ``options`` of every ``reset`` of the environments.
        first_env: Index of the first environment among all those of the run, on which the seeds of
            episodes depend. `shard` sets it.
        restore_episodes: Whether running episodes are part of the state and restored from it. If
            not, a resumed run begins new ones, and no environment is played before the first batch,
            not even to see whether ``info_keys`` work: for a robot, which would move.
        groups: Names of the agents by group. By default agents with equal spaces form a group: a
            single group is called ``"agents"``, several by the common prefix of their agents.
        workers: How many processes step the environments, an equal share each; 0 for this one.
            Tensors are stepped in this one.
        stages: With workers, into how many parts the environments are divided: while those of one
            step, the policy acts for the next. Neither changes the data.
        device: Where batches live, and tensor environments; by default where the policy computes.
        policy_device: Where the policy computes; by default where its first parameter is.
        compile: Whether several steps of environment and policy are one compiled graph. This needs
            a `FunctionalWorld`, and a policy without memory that has ``sample`` and ``complete``,
            such as those of `hooktrainer.networks`.

    Attributes:
        envs: The environments.

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

    envs: BatchedEnv
    num_envs: int
    frames_per_batch: int
    frame_skip: int
    device: torch.device
    seed: int

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
        vectorization_mode: VectorizationMode | None = None,
        categorical_actions: bool = True,
        clip_actions: bool = False,
        traj_ids: bool = False,
        info_keys: Sequence[str] = (),
        exploration_type: InteractionType = InteractionType.RANDOM,
        restore_episodes: bool = True,
        reset_options: Mapping[str, Any] | None = None,
        groups: Mapping[str, Sequence[str]] | None = None,
        first_env: int = 0,
        workers: int = 0,
        stages: int = 1,
        device: torch.device | str | None = None,
        policy_device: torch.device | str | None = None,
        compile: bool = False,
    ) -> None:
        check_count("frames_per_batch", frames_per_batch)
        check_count("init_random_frames", init_random_frames, least=0)
        if total_frames != -1:
            check_count("total_frames", total_frames)
        if frame_skip is not None:
            check_count("frame_skip", frame_skip)
        self._workers = checked_workers(workers, stages)  # requested; see `start`
        if policy is not None and not (callable(policy) or hasattr(policy, "act")):
            raise ConfigError(
                f"policy={policy!r} cannot act: give a function, a module, or an object with act()."
            )
        self.policy = policy
        self.frames_per_batch = frames_per_batch
        self.total_frames = total_frames
        self.init_random_frames = init_random_frames
        self.exploration_type = exploration_type
        self.seed = seed
        if policy_device is None and isinstance(policy, torch.nn.Module):
            policy_device = next((parameter.device for parameter in policy.parameters()), None)
        self._computes = torch.device(policy_device or "cpu")
        self.device = self._computes if device is None else torch.device(device)
        self._env = env
        self._make_envs = partial(
            make_envs, env_kwargs=env_kwargs, vectorization_mode=vectorization_mode
        )
        self._traj_ids, self._compile = traj_ids, compile
        self._options = EnvOptions(
            EpisodeSeeds(seed, first_env),
            frame_skip,
            restore_episodes,
            check_info_keys(info_keys),
            reset_options,
            categorical_actions,
            clip_actions,
            groups,
            self.device,
        )
        self._first_env = first_env
        self._warm_up_frames = init_random_frames  # those to be collected here
        self._shares = 1  # how many collectors have as many environments, this one included
        self._attributes: dict[str, Any] = {}  # set since the environments were made
        self._rollout: Rollout | None = None
        self._open(num_envs, self._workers)
        can_make_more = callable(env) or isinstance(env, (str, EnvSpec, Sequence))
        is_world = self.envs.is_tensors and not self.envs.groups  # whose log may lack any entry
        if restore_episodes and info_keys and can_make_more and not is_world:
            self._try_infos()

    def _open(self, num_envs: int | None, workers: Workers = NO_WORKERS) -> None:
        """Make environments that have played nothing yet."""
        options = replace(self._options, seeds=EpisodeSeeds(self.seed, self._first_env))
        self.envs = self._make_envs(self._env, num_envs, options, workers=workers)
        try:
            self.num_envs, self.frame_skip = self.envs.num_envs, self.envs.frame_skip
            if self.envs.is_tensors:
                self.device = self.envs.device
            leaves = leaves_of(self.envs.observation_space)
            check_info_keys(options.info_keys, (leaf.key[0] for leaf in leaves))
            if self.envs.groups and self.policy is not None and not hasattr(self.policy, "in_keys"):
                raise ConfigError(
                    f"policy={self.policy!r:.80} cannot act for several agents: give it in_keys, "
                    "such as [('agents', 'observation')], and act(); or use AgentsPolicy."
                )
            if options.groups and not self.envs.groups:
                raise ConfigError(f"groups: {self.envs.name} has a single agent: leave them out.")
            if self.envs.groups and not options.categorical:
                raise ConfigError(
                    f"categorical_actions=False: the discrete actions of the agents of "
                    f"{self.envs.name} are indices: leave it out."
                )
            self._horizon, rest = divmod(self.frames_per_batch, self.num_envs)
            if rest:
                raise ConfigError(
                    f"frames_per_batch={self.frames_per_batch} is not a multiple of num_envs="
                    f"{self.num_envs}: the next one is {(self._horizon + 1) * self.num_envs}."
                )
            self._started = workers  # those that step the environments
            self._closed = False
            self.frames = 0
            for name, value in self._attributes.items():
                self.envs.set_attribute(name, value)
            self.set_seed(self.seed)
        except BaseException:
            self.envs.close()
            raise

    @property
    def unsaved(self) -> str | None:
        if not (self.envs.lost and self._options.restore_episodes):
            return None
        return (
            f"A resumed run cannot restore the running episodes: {self.envs.lost}. It begins new "
            "ones; all else is exact."
        )

    def _try_infos(self) -> None:
        """Play an episode of one environment, or its beginning: a missing info key is refused."""
        trial = object.__new__(type(self))
        alone = {"policy": None, "frames_per_batch": 1, "_workers": NO_WORKERS, "_compile": False}
        vars(trial).update(vars(self), **alone, _env=self._env_of(1))
        trial._open(1)
        try:
            for _ in range(_TRIAL_STEPS):
                if bool(trial.collect()["next", "done"].any()):
                    break
        finally:
            trial.shutdown()

    def _ready(self) -> Rollout:
        self.start()
        if self._rollout is None:
            make: Any = GappedRollout if self.envs.has_gaps else Rollout
            make = CompiledRollout if self._compile else make
            self._rollout = make(
                self.envs,
                self.policy,
                self._horizon,
                seed=self.seed,
                first_env=self._first_env,
                device=self.device,
                computes=self._computes,
                traj_ids=self._shares * self.num_envs if self._traj_ids else 0,
            )
        return self._rollout

    def register(self, trainer: Any) -> None:
        if self.envs.is_tensors:
            trainer.register_op("pre_steps_log", self.log_of_world)

    def log_of_world(self, batch: Any = None) -> dict[str, Any] | None:
        """The simulator's log of the last batch, by metric name; ``None`` if it is empty."""
        log = self.world_log.items()
        return {name if "/" in name else f"world/{name}": value for name, value in log} or None

    @property
    def resumes(self) -> Resumes:  # type: ignore[override]
        """``"exactly"``, unless there are episodes that cannot be restored."""
        return "partly" if self.envs.lost else "exactly"

    @property
    def sets_rng(self) -> bool:  # type: ignore[override]
        return self._workers.stages > 1 or self.envs.sets_rng

    def collect(self) -> TensorDict:
        """Collect one batch, even beyond ``total_frames``.

        If it fails, the running episodes are abandoned: the next batch begins with new ones.
        """
        rollout = self._ready()
        steps, warm_up = self.frames // self.num_envs, self.frames < self._warm_up_frames
        try:
            with torch.no_grad(), set_interaction_type(self.exploration_type):
                batch = rollout.collect(self.timing, steps, warm_up)
        except StopIteration as error:  # else iterating would end quietly
            raise as_failure(error, self.frames) from error
        self.world_log = self.envs.take_log()
        self.frames += self.frames_per_batch
        return batch

    def set_seed(self, seed: int, static_seed: bool = False) -> int:
        check_count("seed", seed, least=0)
        self.seed = seed
        self.envs.seed(seed)
        # With it go the generator of random actions and hidden states.
        self._rollout = None
        return seed if static_seed else seed + 1

    def reset(self) -> None:
        if self._rollout is not None:
            self._rollout.is_running = False

    def start(self) -> None:
        """Start the processes that `use_workers` requested, if they have not started yet."""
        self._check_open()
        if self._started != self._workers:
            state = self.state_dict()
            self.envs.close()
            self._open(self.num_envs, self._workers)
            self.load_state_dict(state)

    def use_workers(self, workers: int, stages: int = 1, *, timeout: float = TIMEOUT) -> None:
        wanted = checked_workers(workers, stages, timeout)
        if workers:
            envs_to_share(self._env, self.num_envs, wanted)
        self._workers = wanted

    def check_shares(self, number: int) -> None:
        share = share_equally(self.num_envs, number, "num_envs")
        check_shares(self._env_of(share), share, number, self._workers, self.envs.shares)

    def _env_of(self, num_envs: int) -> Any:
        return self._env[:num_envs] if self._is_list else self._env

    @property
    def _is_list(self) -> bool:
        """Whether each environment has a factory of its own."""
        return isinstance(self._env, (list, tuple)) and not is_tensors(self._env)

    def shard(self, rank: int, world_size: int) -> None:
        """Keep only the environments of one of several processes that collect together.

        Each has as many; together they play the episodes that one process would play with all of
        them. ``init_random_frames`` stays that of all of them together.
        """
        self.check_shares(world_size)
        self.shutdown()
        self.num_envs //= world_size
        self._first_env += rank * self.num_envs
        self._shares *= world_size
        # Rounded up, as batches are whole.
        self._warm_up_frames = -(-self._warm_up_frames // world_size)
        self.frames_per_batch //= world_size
        if self.total_frames > 0:
            self.total_frames = -(-self.total_frames // world_size)
        if self._is_list:
            self._env = self._env[rank * self.num_envs :][: self.num_envs]
        self._open(self.num_envs)

    def reshard(self, states: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """A state to resume from when the environments are shared out otherwise than before."""
        states = [share for state in states for share in shares_of(state)]
        episodes: list[int] = [episode for state in states for episode in state["episodes"]]
        number = self._shares * self.num_envs
        if len(episodes) != number:
            raise StateMismatchError(
                f"The saved collector has {len(episodes)} environments, this one {number}."
            )
        frames = sum(state["frames"] for state in states)
        return {
            "frames": frames // self._shares,
            "seed": states[0]["seed"],
            "episodes": episodes[self._first_env :][: self.num_envs],
            "attributes": dict(states[0]["attributes"]),
            "rollout": None,
        }

    def mismatches(self, saved: Mapping[str, Any]) -> list[str]:
        """List whether the state is of another number of environments, or was collected ahead."""
        if lines := super().mismatches(saved):
            return lines
        if "episodes" not in saved:
            return ["the state is that of a collector of another kind"]
        number = len(saved["episodes"])
        here = self.num_envs
        return [] if number == here else [f"num_envs is {here} here and {number} in the state"]

    def fitting(self, saved: Mapping[str, Any]) -> dict[str, Any] | None:
        """The state by which this many environments resume; each begins a new episode.

        ``None`` for one share of several, since the others' episodes are unknown, and where
        episodes are not counted.
        """
        own = collector_state(saved)
        if "episodes" not in own or self._shares > 1 or not self.envs.shares:
            return None
        begun = [*own["episodes"], *[-1] * self.num_envs]
        return {**own, "episodes": begun[: self.num_envs], "rollout": None}

    def state_dict(self) -> dict[str, Any]:
        return {
            "frames": self.frames,
            "seed": self.seed,
            "episodes": list(self.envs.episodes),
            "attributes": dict(self._attributes),
            "rollout": self._rollout and self._rollout.state_dict(),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore what `state_dict` returned, in this process or another.

        Environments that cannot be restored begin a new episode, with a warning.
        """
        for line in self.mismatches(state_dict):
            raise StateMismatchError(line)
        for name, value in state_dict["attributes"].items():
            self.set_attribute(name, value)
        saved = state_dict["rollout"]
        if saved is not None:
            self._ready().check(saved)
        self.set_seed(state_dict["seed"])
        self.frames = state_dict["frames"]
        self.envs.episodes = list(state_dict["episodes"])
        lost = [] if saved is None else self._ready().load_state_dict(saved)
        if lost and self._options.restore_episodes:
            warnings.warn(
                f"The environments {ranges(lost)} begin a new episode, since their state cannot be "
                "restored: the resumed run differs from one that was never interrupted.",
                stacklevel=2,
            )

    def set_attribute(self, name: str, value: Any) -> None:
        """Set an attribute of every environment, which begins a new episode; part of the state."""
        self.start()
        self.envs.set_attribute(name, value)
        self._attributes[name] = value
        self.reset()

    def _close(self) -> None:
        self.envs.close()

    def __getstate__(self) -> dict[str, Any]:
        # The rows of the buffers are views, and environments may hold what cannot be copied.
        live = dict.fromkeys(("envs", "_rollout"))
        return self.__dict__ | live | {"timing": Timing(), "saved": self.state_dict()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        saved, closed = state.pop("saved"), state["_closed"]
        self.__dict__.update(state)
        self._open(self.num_envs)
        self.load_state_dict(saved)
        if closed:
            self.shutdown()

    def __repr__(self) -> str:
        number, stages, _ = self._workers
        workers = f", workers={number}" if number else ""
        workers += f", stages={stages}" if stages > 1 else ""
        return (
            f"{type(self).__name__}({self.envs.name}, num_envs={self.num_envs}, frames_per_batch="
            f"{self.frames_per_batch}, total_frames={self.total_frames}, seed={self.seed}, "
            f"frames={self.frames}{workers})"
        )


def shares_of(state: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The states of the shares in a state; the state itself if it has none."""
    if "workers" in state:
        return [share["collector"] for share in state["workers"]]
    return [collector_state(state)]


def collector_state(state: Mapping[str, Any]) -> Mapping[str, Any]:
    """The collector's own state, counting only delivered batches.

    Batches that were collected ahead are left out: their episodes are not played again.
    """
    if OVERLAP not in state:
        return state
    own = dict(state["collector"])
    if "frames" in own:
        own["frames"] = state[OVERLAP]["frames"]
    return own
