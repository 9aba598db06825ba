"""`FunctionalWorld`: a tensor world whose physics are pure functions of tensors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import EllipsisType
from typing import Any, ClassVar, NamedTuple, TypeAlias, cast

import numpy as np
import torch
from gymnasium import spaces

from ...errors import ConfigError, StateMismatchError
from .tensor_world import Observations, Outcome

State: TypeAlias = torch.Tensor | dict[str, torch.Tensor]
"""What physics need to know of all environments: tensors ``[num_envs, ...]``."""
_RESETS = 0  # purpose of the random numbers


class Carry(NamedTuple):
    """All that one step of a `FunctionalWorld` hands to the next.

    Attributes:
        state: The physics' own.
        keys: Of the streams of random numbers, int64 ``[num_envs, num_uniforms]``; never changed.
        episode: Index of each environment's running episode, int64 ``[num_envs]``.
        length: Steps of it so far, int64 ``[num_envs]``.
    """

    state: State
    keys: torch.Tensor
    episode: torch.Tensor
    length: torch.Tensor


class FunctionalWorld(ABC):
    """A `TensorWorld` made of three pure functions: `initial`, `transition` and `observe`.

    Time limits, new episodes and their random numbers are made of these once for all, in `advance`.
    That function is pure as well, so it compiles: several steps, and a policy between them, can be
    one graph. How an episode begins is a function of the seed, the environment's index and the
    episode's index; a running one is its `Carry`. So any share of the environments plays the same
    episodes, and a resumed run goes on exactly.

    Derive from it and write the three functions. They take and return tensors on ``device``, each
    row of which is an environment by itself, however many there are. They use no random numbers but
    those they are given, change nothing in place, keep nothing in ``self``, and never look at what
    a tensor holds.

    Args:
        num_envs: How many environments.
        device: Where they are simulated.
        first_env: Index of the first among all environments of the run.
        max_episode_steps: The length at which an episode is truncated; ``None`` for no limit. By
            default that of the class.
        dtype: In which the physics are computed. Observations and rewards are float32.

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

    name: str
    observation_space: spaces.Space[Any]
    action_space: spaces.Space[Any]
    max_episode_steps: int | None = None
    num_uniforms: ClassVar[int] = 0
    """How many random numbers `initial` takes for each environment."""
    frame_skip = 1
    shares = True
    lost: str | None = None

    def __init__(
        self,
        num_envs: int,
        device: torch.device | str = "cpu",
        *,
        first_env: int = 0,
        max_episode_steps: int | EllipsisType | None = ...,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        if num_envs < 1:
            raise ConfigError(f"num_envs={num_envs}: there has to be at least 1.")
        if max_episode_steps is not ...:
            self.max_episode_steps = max_episode_steps
        if self.max_episode_steps is not None and self.max_episode_steps < 1:
            raise ConfigError(
                f"max_episode_steps={self.max_episode_steps}: pass 1 or more, or None for no limit."
            )
        self.num_envs = num_envs
        self.device = torch.device(device)
        self.dtype = dtype
        self._first_env = first_env
        self.seed(0)

    # -- the physics -----------------------------------------------------------------------------

    @abstractmethod
    def initial(self, uniform: torch.Tensor) -> State:
        """The state in which an episode begins.

        Args:
            uniform: Random numbers in [0, 1), ``[num_envs, num_uniforms]``, of type ``dtype``.
        """

    @abstractmethod
    def transition(
        self, state: State, action: torch.Tensor
    ) -> tuple[State, torch.Tensor, torch.Tensor]:
        """What an action leads to.

        Args:
            state: As `initial` and this function return it.
            action: As for `TensorWorld.step`.

        Returns:
            The state, the reward, ``[num_envs]``, and whether it is a terminal state, bool
            ``[num_envs]``.
        """

    def observe(self, state: State) -> torch.Tensor | Observations:
        """What is observed in a state: a tensor, or one for each entry of the observation space.

        By default the state itself.
        """
        return cast("torch.Tensor | Observations", state)

    # -- what is made of them --------------------------------------------------------------------

    def begin(self, keys: torch.Tensor, episode: torch.Tensor) -> Carry:
        """The first step of some episodes.

        Args:
            keys: As in `Carry`.
            episode: Their indices, int64 ``[num_envs]``.
        """
        return Carry(self._fresh(keys, episode), keys, episode, torch.zeros_like(episode))

    def advance(self, carry: Carry, action: torch.Tensor) -> tuple[Carry, Outcome]:
        """One step of all environments; a pure function.

        Args:
            carry: What `begin` or the step before returned.
            action: As for `TensorWorld.step`.

        Returns:
            What the next step needs, and what is to be seen of this one.
        """
        state, reward, terminated = self.transition(carry.state, action)
        length = carry.length + 1
        if self.max_episode_steps is None:
            truncated = torch.zeros_like(terminated)
            done = terminated
        else:
            truncated = length >= self.max_episode_steps
            done = terminated | truncated
        episode = carry.episode + done
        following = _where(done, self._fresh(carry.keys, episode), state)
        outcome = Outcome(
            observation=self._entries(following),
            reward=reward.to(torch.float32),
            terminated=terminated,
            truncated=truncated,
            final=self._entries(state),
        )
        return Carry(following, carry.keys, episode, length.masked_fill(done, 0)), outcome

    def observations(self, carry: Carry) -> Observations:
        """What is observed before the next step."""
        return self._entries(carry.state)

    def _fresh(self, keys: torch.Tensor, episode: torch.Tensor) -> State:
        return self.initial(uniforms(keys, episode).to(self.dtype))

    def _entries(self, state: State) -> Observations:
        observed = self.observe(state)
        if isinstance(observed, torch.Tensor):
            observed = {"observation": observed}
        if self.dtype is torch.float32:
            return observed
        return {key: x.float() if x.dtype is self.dtype else x for key, x in observed.items()}

    # -- the world -------------------------------------------------------------------------------

    def seed(self, seed: int) -> None:
        """Start over: the episodes that begin from now on are those of this seed."""
        self.keys = stream_keys(
            seed, _RESETS, self._first_env, self.num_envs, self.num_uniforms, self.device
        )
        self.carry: Carry | None = None
        self._begun: list[int] = [-1] * self.num_envs

    @property
    def episodes(self) -> list[int]:
        """For each environment the index of its running episode, -1 before the first."""
        if self.carry is None:
            return list(self._begun)
        found: list[int] = self.carry.episode.tolist()
        return found

    @episodes.setter
    def episodes(self, episodes: list[int]) -> None:
        self.carry, self._begun = None, list(episodes)

    def reset(self) -> Observations:
        """Begin the next episode of every environment."""
        if self.carry is None:
            episode = torch.tensor(self._begun, dtype=torch.int64).to(self.device)
        else:
            episode = self.carry.episode
        self.carry = self.begin(self.keys, episode + 1)
        return self.observations(self.carry)

    def step(self, actions: torch.Tensor) -> Outcome:
        """Step all environments, and begin the next episode of those that ended."""
        assert self.carry is not None, "reset comes before the first step"
        self.carry, outcome = self.advance(self.carry, actions)
        return outcome

    def state_dict(self) -> dict[str, Any]:
        """The running episodes, if they have begun."""
        if self.carry is None:
            return {"episodes": list(self._begun)}
        state, _, episode, length = self.carry
        return {"state": _copied(state), "episode": episode.clone(), "length": length.clone()}

    def load_state_dict(self, state: Mapping[str, Any]) -> bool:
        """Restore what `state_dict` returned; whether running episodes go on."""
        if "episodes" in state:
            self.episodes = list(state["episodes"])
            return False
        own, saved = self.initial(uniforms(self.keys, 0).to(self.dtype)), state["state"]
        if _shapes(own) != _shapes(saved):
            raise StateMismatchError(
                f"The saved state of {self.name} has the shapes {_shapes(saved)}, this one "
                f"{_shapes(own)}."
            )
        self.carry = Carry(
            _copied(saved, self.device),
            self.keys,
            state["episode"].to(self.device, copy=True),
            state["length"].to(self.device, copy=True),
        )
        return True

    def close(self) -> None:  # noqa: B027 - to be replaced only where there is something
        """There is nothing to close."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(num_envs={self.num_envs}, device={str(self.device)!r})"


def _where(envs: torch.Tensor, new: State, old: State) -> State:
    """``new`` in some environments, ``old`` in the others."""
    if isinstance(new, torch.Tensor):
        return torch.where(envs.view(-1, *[1] * (new.ndim - 1)), new, cast(torch.Tensor, old))
    olds = cast("dict[str, torch.Tensor]", old)
    return {key: cast(torch.Tensor, _where(envs, x, olds[key])) for key, x in new.items()}


def _copied(state: State, device: torch.device | None = None) -> State:
    if isinstance(state, torch.Tensor):
        return state.to(device or state.device, copy=True)
    return {key: value.to(device or value.device, copy=True) for key, value in state.items()}


def _shapes(state: State) -> Any:
    if isinstance(state, torch.Tensor):
        return list(state.shape)
    return {key: list(value.shape) for key, value in state.items()}


# `uniforms` is SplitMix64 (Steele, Lea and Flood, 2014, Fast splittable pseudorandom number
# generators), evaluated at any place: the n-th number of a stream is a hash of its key plus n times
# an odd constant. Streams begin at places hashed of the seed and the stream's index. All of it is
# int64 arithmetic that wraps around: the same numbers on every device, eager and compiled.
GAMMA = 0x9E3779B97F4A7C15 - 2**64  # as int64: 2⁶⁴ / the golden ratio, odd
_FIRST = 0xBF58476D1CE4E5B9 - 2**64
_SECOND = 0x94D049BB133111EB - 2**64
_BITS = 24  # that a float32 holds exactly


def stream_keys(
    seed: int, purpose: int, first: int, number: int, width: int, device: torch.device
) -> torch.Tensor:
    """Keys of streams, int64 ``[number, width]``: each of them is a stream of its own.

    Args:
        seed: The run's seed, 0 or more.
        purpose: What the numbers are for; other streams for each purpose.
        first: Index of the first row, on which its keys depend, not on how many there are.
        number: How many rows.
        width: How many streams each has.
        device: Where the keys are to be.
    """
    (word,) = np.random.SeedSequence([seed, purpose]).generate_state(1, np.uint64).view(np.int64)
    rows = torch.arange(first + 1, first + number + 1).unsqueeze(-1)
    columns = torch.arange(1, width + 1)
    keys = _mixed(_mixed(rows * GAMMA + int(word)) + columns * GAMMA)
    return (keys + GAMMA).to(device)  # where the first number of each is hashed from


def uniforms(keys: torch.Tensor, counter: torch.Tensor | int) -> torch.Tensor:
    """The numbers at one place of some streams, uniform in [0, 1), float32 like ``keys``.

    Args:
        keys: Those of the streams, from `stream_keys`.
        counter: Which number of each, from 0: int64 ``[rows]``, or one for all.
    """
    if isinstance(counter, torch.Tensor):
        place = torch.add(keys, counter.unsqueeze(-1), alpha=GAMMA)
    else:
        place = keys + _wrapped(counter * GAMMA)
    # The last step of the hash does not reach the bits that are used.
    bits = (_hashed(place) >> (64 - _BITS)) & (2**_BITS - 1)
    return bits.to(torch.float32) * 2.0**-_BITS


def _mixed(x: torch.Tensor) -> torch.Tensor:
    """SplitMix64's hash, one to one, of int64 as if they were unsigned."""
    x = _hashed(x)
    return x ^ _shifted(x, 31)


def _hashed(x: torch.Tensor) -> torch.Tensor:
    """The same but for its last step."""
    x = (x ^ _shifted(x, 30)) * _FIRST
    return (x ^ _shifted(x, 27)) * _SECOND


def _shifted(x: torch.Tensor, places: int) -> torch.Tensor:
    """``x`` to the right, with zeros from the left, as if it were unsigned."""
    return (x >> places) & (2 ** (64 - places) - 1)


def _wrapped(number: int) -> int:
    """An integer as int64 arithmetic would have it."""
    return (number + 2**63) % 2**64 - 2**63
