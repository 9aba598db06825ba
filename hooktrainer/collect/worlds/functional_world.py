"""`FunctionalWorld`: a tensor environment whose physics are pure functions of tensors."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from types import EllipsisType
from typing import Any, ClassVar, NamedTuple, TypeAlias, cast

import torch
from torch.utils._pytree import tree_map

from ...base.checks import check_count
from ...errors import StateMismatchError
from ..random_streams import stream_keys, uniforms
from .tensor_world import Observations, Outcome, TensorWorld

State: TypeAlias = torch.Tensor | dict[str, torch.Tensor]
"""The state of all environments: tensors ``[num_envs, ...]``."""
Transition: TypeAlias = tuple[State, torch.Tensor, torch.Tensor]
"""A state, the reward ``[num_envs]``, and whether the state is terminal, bool ``[num_envs]``."""
_PURPOSE = 0  # of the random streams


class Carry(NamedTuple):
    """The state between two steps of a `FunctionalWorld`: that of the physics, and more.

    ``keys`` of the random streams are int64 ``[num_envs, num_uniforms + step_uniforms]`` and
    constant, ``episode`` is the index of each running episode and ``length`` its steps so far,
    int64 ``[num_envs]``.
    """

    state: State
    keys: torch.Tensor
    episode: torch.Tensor
    length: torch.Tensor


class EpisodicWorld(TensorWorld):
    """Environments whose episodes are functions of the seed, the environment's and their index.

    Attributes:
        carry: The running episodes; ``None`` before the first.
    """

    carry: Any
    frame_skip = 1
    shares = True
    lost = None

    def seed(self, seed: int) -> None:
        self._seed = seed
        self.episodes = [-1] * self.num_envs

    @property
    def episodes(self) -> list[int]:
        return list(self._begun) if self.carry is None else self._running()

    @episodes.setter
    def episodes(self, episodes: list[int]) -> None:
        self.carry, self._begun = None, list(episodes)

    def state_dict(self) -> dict[str, Any]:
        return {"episodes": list(self._begun)} if self.carry is None else self._saved()

    def load_state_dict(self, state: Mapping[str, Any]) -> bool:
        if "episodes" in state:
            self.episodes = list(state["episodes"])
            return False
        self._restore(state)
        return True

    @abstractmethod
    def _running(self) -> list[int]:
        """The indices of the running episodes."""

    @abstractmethod
    def _saved(self) -> dict[str, Any]:
        """The running episodes."""

    @abstractmethod
    def _restore(self, state: Mapping[str, Any]) -> None:
        """Restore what `_saved` returned."""

    def close(self) -> None:
        return

    def __repr__(self) -> str:
        return f"{type(self).__name__}(num_envs={self.num_envs}, device={str(self.device)!r})"


class FunctionalWorld(EpisodicWorld):
    """A `TensorWorld` made of three pure functions: `initial`, `transition` and `observe`.

    `advance` adds time limits, resets and their random numbers. It is pure as well, so several
    steps and a policy can be compiled to one graph. The start of an episode is a function of the
    seed, the environment's index and the episode's index, the random numbers of a step also of the
    step's index; a running episode is its `Carry`. So any share of the environments plays the same
    episodes, and a resumed run continues exactly.

    Subclasses write the three functions. They take and return tensors on ``device`` whose rows are
    independent environments. They use only the given random numbers, change nothing in place, store
    nothing in ``self``, and do not read a tensor's value in Python. ``render(state)``, if there is
    one, draws one environment for films: uint8 ``[height, width, 3]``.

    Args:
        num_envs: Number of environments.
        device: Device of the simulation.
        first_env: Index of the first environment in the run.
        max_episode_steps: The length at which an episode is truncated; ``None`` for no limit. By
            default that of the class.
        dtype: Type of the physics. Observations and rewards are float32.

    Raises:
        ConfigError: If ``num_envs`` or ``max_episode_steps`` is less than 1.

    Examples:
        >>> class Walk(FunctionalWorld):
        ...     "Go 10 steps to the right, with wind."
        ...     name = "walk"
        ...     observation_space = spaces.Box(-10, 10, (1,))
        ...     action_space = spaces.Discrete(2)
        ...     max_episode_steps = 100
        ...     num_uniforms = 1
        ...     def initial(self, uniform):
        ...         return uniform - 0.5
        ...     def transition(self, state, action):
        ...         state = state + 2.0 * action.unsqueeze(-1) - 1.2
        ...         place = state.squeeze(-1)
        ...         return state, place, place.abs() > 10
        >>> walk = Walk(num_envs=3)
        >>> walk.reset()["observation"].shape
        torch.Size([3, 1])
        >>> walk.step(torch.ones(3, dtype=torch.int64)).truncated
        tensor([False, False, False])
    """

    carry: Carry | None
    max_episode_steps: int | None = None
    num_uniforms: ClassVar[int] = 0
    """Random numbers that `initial` takes per environment."""
    step_uniforms: ClassVar[int] = 0
    """Random numbers that `transition` takes per environment and step, if it is random."""
    steps_per_graph: ClassVar[int] = 8
    """Steps that a compiled rollout makes in one graph; more take longer to compile."""
    # `advance` is given the carry and its keys.
    not_in_graphs: ClassVar = frozenset(("carry", "_begun", "_seed"))

    def __init__(
        self,
        num_envs: int,
        device: torch.device | str = "cpu",
        *,
        first_env: int = 0,
        max_episode_steps: int | EllipsisType | None = ...,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        check_count("num_envs", num_envs)
        if max_episode_steps is not ...:
            self.max_episode_steps = max_episode_steps
        check_count("max_episode_steps", self.max_episode_steps, none="for no limit")
        self.num_envs = num_envs
        self.device = torch.device(device)
        self.dtype = dtype
        self._first_env = first_env
        self.seed(0)

    # -- the physics -----------------------------------------------------------------------------

    @abstractmethod
    def initial(self, uniform: torch.Tensor) -> State:
        """The state at the start of an episode.

        Args:
            uniform: Random numbers in [0, 1), ``[num_envs, num_uniforms]``, of type ``dtype``.
        """

    @abstractmethod
    def transition(self, state: State, action: torch.Tensor, *uniform: Any, **_: Any) -> Transition:
        """The result of an action.

        Args:
            state: As `initial` and this function return it.
            action: As for `TensorWorld.step`.
            uniform: With ``step_uniforms``, a third argument: random numbers in [0, 1),
                ``[num_envs, step_uniforms]``, of type ``dtype``.
        """

    def observe(self, state: State) -> torch.Tensor | Observations:
        """The observation of a state: a tensor, or one for each entry of the observation space.

        By default the state itself.
        """
        return cast("torch.Tensor | Observations", state)

    # -- pure functions derived from the physics -------------------------------------------------

    def begin(self, keys: torch.Tensor, episode: torch.Tensor) -> Carry:
        return Carry(self._fresh(keys, episode), keys, episode, torch.zeros_like(episode))

    def advance(self, carry: Carry, action: torch.Tensor) -> tuple[Carry, Outcome]:
        """Step all environments, resets included; a pure function."""
        state, reward, terminated = self.moved(carry, action)
        length, limit = carry.length + 1, self.max_episode_steps
        truncated = torch.zeros_like(terminated) if limit is None else length >= limit
        done = terminated | truncated
        episode = carry.episode + done
        following = select(done, self._fresh(carry.keys, episode), state)
        outcome = Outcome(
            observation=self.observed(following),
            reward=reward.to(torch.float32),
            terminated=terminated,
            truncated=truncated,
            final=self.observed(state),
        )
        return Carry(following, carry.keys, episode, length.masked_fill(done, 0)), outcome

    def moved(self, carry: Carry, action: torch.Tensor) -> Transition:
        """The result of an action, before any reset."""
        drawn = (self._drawn(carry),) if self.step_uniforms else ()
        return self.transition(carry.state, action, *drawn)

    def _fresh(self, keys: torch.Tensor, episode: torch.Tensor) -> State:
        return self.initial(uniforms(keys[:, : self.num_uniforms], episode).to(self.dtype))

    def _drawn(self, carry: Carry) -> torch.Tensor:
        """The random numbers of a step."""
        place = (carry.episode << 32) + carry.length
        return uniforms(carry.keys[:, self.num_uniforms :], place).to(self.dtype)

    def observed(self, state: State) -> Observations:
        observed = self.observe(state)
        if isinstance(observed, torch.Tensor):
            observed = {"observation": observed}
        if self.dtype is torch.float32:
            return observed
        return {key: x.float() if x.dtype is self.dtype else x for key, x in observed.items()}

    # -- TensorWorld -----------------------------------------------------------------------------

    def seed(self, seed: int) -> None:
        super().seed(seed)
        width = self.num_uniforms + self.step_uniforms
        self.keys = stream_keys(seed, _PURPOSE, self._first_env, self.num_envs, width, self.device)

    def reset(self) -> Observations:
        if self.carry is None:
            episode = torch.tensor(self._begun, dtype=torch.int64).to(self.device)
        else:
            episode = self.carry.episode
        self.carry = self.begin(self.keys, episode + 1)
        return self.observed(self.carry.state)

    def step(self, actions: torch.Tensor) -> Outcome:
        assert self.carry is not None, "reset comes before the first step"
        self.carry, outcome = self.advance(self.carry, actions)
        return outcome

    def _running(self) -> list[int]:
        assert self.carry is not None
        return [int(episode) for episode in self.carry.episode.tolist()]

    def _saved(self) -> dict[str, Any]:
        assert self.carry is not None
        state, _, episode, length = self.carry
        return _copied({"state": state, "episode": episode, "length": length}, self.device)

    def _restore(self, state: Mapping[str, Any]) -> None:
        own, saved = self._fresh(self.keys, self.keys.new_zeros(())), state["state"]
        if _shapes(own) != _shapes(saved):
            raise StateMismatchError(
                f"The saved state of {self.name} has the shapes {_shapes(saved)}, this one "
                f"{_shapes(own)}."
            )
        copied = _copied(dict(state), self.device)
        self.carry = Carry(copied["state"], self.keys, copied["episode"], copied["length"])


def select(envs: torch.Tensor, new: Any, old: Any) -> Any:
    """A tree of tensors ``[num_envs, ...]``: ``new`` in the environments ``envs``, else ``old``."""
    return tree_map(lambda x, y: torch.where(envs.view(-1, *[1] * (x.ndim - 1)), x, y), new, old)


def _copied(state: dict[str, Any], device: torch.device) -> dict[str, Any]:
    copied: dict[str, Any] = tree_map(lambda x: x.to(device, copy=True), state)
    return copied


def _shapes(state: State) -> Any:
    return tree_map(lambda x: list(x.shape), state)
