"""How an environment's running episode is brought back after a resume, found by trying it out."""

from __future__ import annotations

import base64
import copy
import enum
import itertools
import json
import re
import types
import warnings
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium.envs.registration import EnvSpec
from gymnasium.wrappers.utils import RunningMeanStd

from ..base.space_parts import MASK
from ..base.untrusted import MalformedError, parse_json, refusing, shown
from ..base.untrusted.array_file import check_bit_generator, check_shape, plain_dtype
from ..errors import ConfigError

_STEPS = 12
_MAX_CHARACTERS = 4096  # replaying an episode is better than storing tables of the dynamics


class Restore(NamedTuple):
    """How a running episode comes back.

    Attributes:
        method: ``"state"``: the environment's state is saved and put back. ``"replay"``: the
            episode is played again from its seed with its actions. ``"none"``: neither works; the
            environment begins a new episode, and the run is not the one that was interrupted.
        reason: Why, in words.
    """

    method: Literal["state", "replay", "none"]
    reason: str

    def __str__(self) -> str:
        return f"{self.method} ({self.reason})"


NOT_ASKED = Restore("none", "restore_episodes=False")


def choose_restore(env: gym.Env[Any, Any]) -> Restore:
    """Find out how the episodes of ``env`` can be restored; ``env`` itself is left alone.

    A copy of the environment goes on from a state saved in mid-episode, and plays an episode again
    from its seed, with another one in between. The first that agrees bit for bit is taken. An
    environment with parts in C or C++ is not copied: its episodes are replayed, and held against
    what was saved when that happens.
    """
    if env.spec is not None and env.spec.nondeterministic:
        return Restore("none", "registered as nondeterministic")
    layer, foreign = _layers(env)[-1], foreign_part(env)
    if says_its_state(layer) and not foreign:
        return Restore("state", f"{type(layer).__name__} says the state of its episodes")
    if env.render_mode is not None:
        return _replayed(env, "an environment that renders is not copied to try out more")
    if foreign:
        return _replayed(env, foreign)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _try_out(copy.deepcopy(env))
    except Exception as error:
        return _replayed(env, f"cannot be tried out: {type(error).__name__}: {error}")


def _replayed(env: gym.Env[Any, Any], reason: str) -> Restore:
    """Replay without a trial, unless a wrapper is known to gather statistics over episodes."""
    if gathering := layer_with_moments(env):
        return Restore("none", f"{gathering} gathers statistics over episodes, and {reason}")
    return Restore("replay", reason)


def _try_out(env: gym.Env[Any, Any]) -> Restore:
    actions, whole = _explore(env, 1)
    reason = _state_fails(env, actions, max(len(actions) - 1, 0) // 2)
    if not reason:
        return Restore("state", "all of its attributes are plain data")
    _explore(env, 2)
    if _same(_play(env, 1, actions), whole):
        return Restore("replay", reason)
    return Restore("none", "an episode played again from its seed takes another course")


def _state_fails(env: gym.Env[Any, Any], actions: list[Any], middle: int) -> str:
    """Why the attributes of ``env``, taken in mid-episode, do not bring it back; or nothing."""
    _play(env, 1, actions[:middle])
    try:
        state = snapshot(env)
    except NotPlainError as error:
        return str(error)
    if len(state) > _MAX_CHARACTERS:
        return f"its attributes take {len(state)} characters"
    rest = _steps(env, actions[middle:])
    _explore(env, 2)
    restore(env, state)
    return "" if _same(_steps(env, actions[middle:]), rest) else "its attributes are not enough"


def _explore(env: gym.Env[Any, Any], seed: int) -> tuple[list[Any], list[Any]]:
    """The actions of an episode played at random, and what came of them."""
    actions, outcomes = [], []
    for action, outcome in random_episode(env, seed, _STEPS):
        outcomes.append(copy.deepcopy(outcome[0] if action is None else outcome[:4]))
        if action is not None:
            actions.append(action)
    return actions, outcomes


def _play(env: gym.Env[Any, Any], seed: int, actions: list[Any]) -> list[Any]:
    observation, _ = env.reset(seed=seed)
    return [copy.deepcopy(observation), *_steps(env, actions)]


def _steps(env: gym.Env[Any, Any], actions: list[Any]) -> list[Any]:
    return [copy.deepcopy(env.step(action)[:4]) for action in actions]


def _same(a: Any, b: Any) -> bool:
    """Whether two outcomes are equal bit for bit."""
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(_same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(_same, a, b))
    left, right = np.asarray(a), np.asarray(b)
    return (
        left.dtype == right.dtype
        and left.shape == right.shape
        and left.tobytes() == right.tobytes()
    )


TRIAL_STEPS = 500
"""Of an episode that is played to see what its infos say."""


def random_episode(env: Any, seed: int, steps: int) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """Play an episode, or its beginning, with random actions, allowed ones where there is a mask.

    Args:
        env: An environment; or a vector environment of one.
        seed: What it is reset with, and the actions are drawn from.
        steps: After how many it is left.

    Yields:
        ``None`` and what ``reset`` returned; then each action and what ``step`` returned.
    """
    space = copy.deepcopy(env.action_space)
    space.seed(seed)
    observation, info = begun(env, seed)
    yield None, (observation, info)
    for _ in range(steps):
        mask = info.get(MASK)
        if mask is None and isinstance(observation, dict):
            mask = observation.get(MASK)
        allowed = None if mask is None else np.asarray(mask, np.int8)
        action = space.sample() if allowed is None else space.sample(allowed)
        outcome = whole_step(env.step(action), env)
        yield action, outcome
        observation, _, terminated, truncated, info = outcome
        if terminated or truncated:
            return


def begun(env: Any, seed: int, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
    """Begin an episode."""
    try:
        found = env.reset(seed=seed) if options is None else env.reset(seed=seed, options=options)
    except TypeError as error:
        if not re.search(
            r"reset\(\) got an unexpected keyword argument '(seed|options)'", str(error)
        ):
            raise
        raise ConfigError(
            f"{env}: {error}. Define reset(self, *, seed=None, options=None), as gymnasium.Env has."
        ) from error
    if not isinstance(found, tuple) or len(found) != 2:
        raise ConfigError(
            f"reset() of {env} returned {_returned(found)}; let it return (observation, info)."
        )
    return found


def whole_step(outcome: Any, env: Any) -> tuple[Any, ...]:
    """What ``step`` returned."""
    if not isinstance(outcome, tuple) or len(outcome) != 5:
        old = ", as the old Gym did" if isinstance(outcome, tuple) and len(outcome) == 4 else ""
        raise ConfigError(
            f"step() of {env} returned {_returned(outcome)}{old}; let it return (observation, "
            "reward, terminated, truncated, info)."
        )
    return outcome


def _returned(value: Any) -> str:
    several = isinstance(value, (tuple, list))
    return f"{len(value)} values" if several else f"a {type(value).__name__}"


def infos_of(env: Any, seed: int) -> Iterator[tuple[Mapping[str, Any], bool]]:
    """What an environment says in an episode, and whether it ended with it."""
    for action, outcome in random_episode(env, seed, TRIAL_STEPS):
        yield outcome[-1], action is not None and bool(outcome[2] or outcome[3])
    env.reset(seed=seed)  # an episode may go on in the one before; what follows is to begin anew


# Never part of an episode's state, and not to be copied.
_CONSTANTS = (
    gym.Space,
    EnvSpec,
    type,
    enum.Enum,
    np.dtype,
    types.ModuleType,
    types.FunctionType,
    types.BuiltinFunctionType,
)
_DATA = (
    type(None),
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    np.ndarray,
    np.generic,
    np.random.Generator,
    np.random.RandomState,
)


# A Gymnasium environment is a chain of wrappers around a base. Where every attribute of every layer
# is plain (numbers, strings, NumPy arrays and generators, containers of these) or a constant (a
# space, a class, a function), these attributes and the generators are the whole state. A layer may
# give the state of itself and of all within it by ``episode_state()``, returning plain data, and
# take it by ``set_episode_state(state)``.
def snapshot(env: gym.Env[Any, Any]) -> str:
    """The state of ``env`` and all its wrappers."""
    layers = _layers(env)
    states = [
        layer.episode_state()
        if says_its_state(layer)
        else {name: value for name, value in vars(layer).items() if not _is_constant(value, layers)}
        for layer in layers
    ]
    try:
        return dumps(states)
    except NotPlainError:
        for layer, state in zip(layers, states, strict=True):
            for name, value in state.items():
                try:
                    dumps(value)
                except NotPlainError as error:
                    raise NotPlainError(f"{type(layer).__name__}.{name} is {error}") from None
        raise


def restore(env: gym.Env[Any, Any], text: str) -> None:
    """Give ``env`` the state that `snapshot` took of one that was built the same way."""
    layers = _layers(env)
    states = loads(text, [{} if says_its_state(layer) else vars(layer) for layer in layers])
    if len(states) != len(layers):
        raise ValueError(f"the saved environment has {len(states)} layers, this one {len(layers)}")
    for layer, state in zip(layers, states, strict=True):
        if says_its_state(layer):
            layer.set_episode_state(state)
            continue
        for name, value in state.items():
            setattr(layer, name, value)


def says_its_state(layer: Any) -> bool:
    """Whether a layer says the state of itself and of all within it."""
    return hasattr(type(layer), "episode_state")


def foreign_part(env: gym.Env[Any, Any]) -> str:
    """The first part of ``env`` that a copy in Python may not copy; empty if there is none."""
    seen: set[int] = set()
    for layer in _layers(env):
        if says_its_state(layer):
            break
        for name, value in vars(layer).items():
            if not (_is_constant(value, _layers(env)) or _is_copyable(value, seen)):
                return f"{type(layer).__name__}.{name} is a {_type_name(value)}"
    return ""


def layer_with_moments(env: gym.Env[Any, Any]) -> str:
    """The name of the first wrapper that keeps running moments; empty if there is none."""
    for layer in _layers(env):
        if any(isinstance(value, RunningMeanStd) for value in vars(layer).values()):
            return type(layer).__name__
    return ""


class _Reference:
    """An object that is nothing but its attributes."""


def _is_copyable(value: Any, seen: set[int]) -> bool:
    if id(value) in seen:
        return True
    seen.add(id(value))
    if isinstance(value, dict):
        return all(_is_copyable(part, seen) for item in value.items() for part in item)
    if isinstance(value, list | tuple | set | frozenset | deque):
        return all(_is_copyable(item, seen) for item in value)
    if isinstance(value, (*_CONSTANTS, *_DATA)):
        return True
    # An object with memory of its own, beside its attributes, comes from an extension.
    plain = type(value).__basicsize__ == _Reference.__basicsize__ and hasattr(value, "__dict__")
    return plain and all(_is_copyable(part, seen) for part in vars(value).values())


def _type_name(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _layers(env: gym.Env[Any, Any]) -> list[Any]:
    """The wrappers and the base, from without; what a layer speaks for is not looked into."""
    layers: list[Any] = [env]
    while isinstance(layers[-1], gym.Wrapper) and not says_its_state(layers[-1]):
        layers.append(layers[-1].env)
    return layers


def _is_constant(value: Any, layers: list[Any]) -> bool:
    owner = value.__self__ if isinstance(value, types.MethodType) else value
    return isinstance(value, _CONSTANTS) or any(owner is layer for layer in layers)


Array = npt.NDArray[Any]


class NotPlainError(TypeError):
    """A value is neither plain data nor a known constant."""


# Plain values as JSON and back, exactly, with what they share: that two names are one list or
# that two arrays have one memory is kept, since an environment may rely on it.
def dumps(value: Any) -> str:
    """``value`` as text."""
    return json.dumps(_Encoder().code(value), separators=(",", ":"))


def loads(text: str, current: Any = None) -> Any:
    """The value of ``text``."""
    with refusing("the state of an environment"):
        return _Decoder().value(parse_json(text, nan=True), current)


class _Encoder:
    """Scalars unchanged, everything else as ``{kind: content}``; known objects as numbers."""

    def __init__(self) -> None:
        # With the objects themselves: an id is reused once its object is gone.
        self._objects: dict[int, tuple[int, Any]] = {}
        self._memories: dict[int, tuple[int, Any]] = {}

    def code(self, value: Any) -> Any:
        if isinstance(value, np.generic):  # first: np.float64 is a float
            return {"scalar": [value.dtype.str, _text(np.asarray(value))]}
        if value is None or type(value) in (bool, int, float, str):
            return value
        if type(value) is tuple:
            return {"tuple": [self.code(item) for item in value]}
        if id(value) in self._objects:
            return {"same": self._objects[id(value)][0]}
        self._objects[id(value)] = (len(self._objects), value)
        if isinstance(value, np.ndarray):
            return {"array": self._array(value)}
        if type(value) is list:
            return {"list": [self.code(item) for item in value]}
        if type(value) is deque:
            return {"deque": [value.maxlen, *(self.code(item) for item in value)]}
        if type(value) is dict:
            return {"dict": [[self.code(key), self.code(item)] for key, item in value.items()]}
        if isinstance(value, np.random.Generator):
            return {"generator": _Encoder().code(value.bit_generator.state)}
        if isinstance(value, RunningMeanStd):
            return {"moments": self.code(vars(value))}
        raise NotPlainError(f"a {_type_name(value)}")

    def _array(self, array: Array) -> list[Any]:
        """An array as a window on the memory of the array that owns it."""
        if array.dtype.hasobject:
            raise NotPlainError("an array of objects")
        owner = array
        while isinstance(owner.base, np.ndarray):
            owner = owner.base
        if owner.base is not None:
            raise NotPlainError(f"an array in the memory of a {type(owner.base).__qualname__}")
        offset = array.__array_interface__["data"][0] - owner.__array_interface__["data"][0]
        memory: Any
        if id(owner) in self._memories:
            memory = self._memories[id(owner)][0]
        else:
            self._memories[id(owner)] = (len(self._memories), owner)
            memory = _text(owner.ravel("K"))  # as it lies in memory
        return [array.dtype.str, list(array.shape), offset, list(array.strides), memory]


class _Decoder:
    """The inverse: objects get the same numbers in the same order."""

    def __init__(self) -> None:
        self._objects: list[Any] = []
        self._memories: list[Array] = []

    def value(self, code: Any, current: Any = None) -> Any:
        if not isinstance(code, dict):
            return code
        ((kind, content),) = code.items()
        if kind == "same":
            return self._objects[content]
        if kind == "scalar":
            dtype, text = content
            return _memory(text).view(plain_dtype(dtype))[0]
        if kind == "tuple":
            return tuple(map(self.value, content))
        number = len(self._objects)
        self._objects.append(None)
        self._objects[number] = found = self._object(kind, content, current, number)
        return found

    def _object(self, kind: str, content: Any, current: Any, number: int) -> Any:
        found: Any  # containers are known before they are filled: they may hold themselves
        if kind == "array":
            return self._array(*content)
        if kind == "list":
            known = current if isinstance(current, list) else []
            self._objects[number] = found = []
            for item, old in itertools.zip_longest(content, known[: len(content)]):
                found.append(self.value(item, old))
            return found
        if kind == "deque":
            self._objects[number] = found = deque(maxlen=content[0])
            found.extend(map(self.value, content[1:]))
            return found
        if kind == "dict":
            before = current if isinstance(current, dict) else {}
            self._objects[number] = found = {}
            for key_code, item in content:
                key = self.value(key_code)
                found[key] = self.value(item, before.get(key))
            return found
        if kind == "generator":
            state = check_bit_generator(_Decoder().value(content))
            if not isinstance(current, np.random.Generator):
                current = np.random.Generator(getattr(np.random, state["bit_generator"])())
            current.bit_generator.state = state
            return current
        if kind == "moments":
            if not isinstance(current, RunningMeanStd):
                current = RunningMeanStd()  # type: ignore[no-untyped-call]
            moments = self.value(content, vars(current))
            if type(moments) is not dict or moments.keys() != vars(current).keys():
                raise MalformedError("running moments are a mean, a variance and a count")
            vars(current).update(moments)
            return current
        raise MalformedError(f"{shown(kind)} is no kind of value")

    def _array(self, dtype: str, shape: Any, offset: int, strides: Any, memory: Any) -> Array:
        check_shape(shape)
        if not isinstance(memory, str):
            return np.ndarray(shape, plain_dtype(dtype), self._memories[memory], offset, strides)
        whole = _memory(memory)
        window = np.ndarray(shape, plain_dtype(dtype), whole, offset, strides)
        if 0 < window.nbytes == len(whole) and not offset:  # maybe the owner: resize() needs one
            owner = window.copy("K")
            if owner.strides == window.strides:
                window, whole = owner, owner.ravel("K").view(np.uint8)
        self._memories.append(whole)
        return window


def _text(array: Array) -> str:
    return base64.b85encode(array.tobytes()).decode()


def _memory(text: str) -> Array:
    return np.frombuffer(base64.b85decode(text), np.uint8).copy()
