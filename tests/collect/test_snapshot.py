"""States of environments as text."""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.wrappers.utils import RunningMeanStd
from toy_envs import Careless, Counter, Opaque

from hooktrainer.collect import restore as snapshot
from hooktrainer.collect.restore import NotPlainError, choose_restore, dumps, loads

VALUES: list[Any] = [
    None,
    True,
    3,
    2**127,
    0.1,
    float("inf"),
    -0.0,
    "text",
    [1, (2, [3.5])],
    {"a": 1, 2: (None,)},
    deque([1, 2], maxlen=5),
    np.float32(0.1),
    np.bool_(True),
    np.arange(6, dtype=np.int16).reshape(2, 3),
    np.zeros((0, 3)),
    np.array(2.5),
    np.asfortranarray(np.arange(6).reshape(2, 3)),
]


@pytest.mark.parametrize("value", VALUES, ids=str)
def test_plain_values_come_back_as_they_were(value: Any) -> None:
    found = loads(dumps(value))
    assert type(found) is type(value)
    assert repr(found) == repr(value)
    if isinstance(value, np.ndarray):
        assert found.dtype == value.dtype
        assert found.strides == value.strides
        assert found.flags.writeable
    if isinstance(value, deque):
        assert found.maxlen == value.maxlen
    assert dumps(loads(dumps(found))) == dumps(found)


def test_what_is_shared_stays_shared() -> None:
    base = np.arange(6.0).reshape(2, 3).T.copy(order="K")
    items = [1]
    first, view, again, one, two = loads(dumps([base, base[1:, 0], base, items, [items]]))
    assert again is first
    assert two[0] is one
    first[2, 0] = 9
    assert view.tolist() == [1, 9]
    view, first = loads(dumps([base[1:], base]))  # in whatever order
    first[1, 1] = 7
    assert view[0, 1] == 7
    assert first.strides == base.strides


@pytest.mark.parametrize("bits", [np.random.PCG64, np.random.MT19937, np.random.Philox])
def test_generators_go_on_where_they_were(bits: Any) -> None:
    generator = np.random.Generator(bits(3))
    generator.random(7)
    text = dumps(generator)
    expected = generator.random(5).tolist()
    assert loads(text).random(5).tolist() == expected
    assert loads(text, generator) is generator
    assert generator.random(5).tolist() == expected


def test_what_holds_itself_comes_back_so() -> None:
    root: dict[str, Any] = {"children": [], "recent": deque(maxlen=3)}
    root["children"].append({"parent": root, "siblings": root["children"]})
    root["recent"].append(root["recent"])
    found = loads(dumps(root))
    (child,) = found["children"]
    assert child["parent"] is found
    assert child["siblings"] is found["children"]
    assert found["recent"][0] is found["recent"]


def test_an_array_of_its_own_memory_may_grow() -> None:
    found = loads(dumps([np.arange(3)]))
    found[0].resize(5)
    assert found[0].tolist() == [0, 1, 2, 0, 0]


def test_running_moments_are_changed_in_place() -> None:
    moments = RunningMeanStd(shape=(2,))
    moments.update(np.array([[1.0, 2.0], [3.0, 5.0]]))
    other = RunningMeanStd(shape=(2,))
    assert loads(dumps({"a": moments}), {"a": other})["a"] is other
    assert other.mean.tolist() == moments.mean.tolist()
    assert other.count == moments.count


@pytest.mark.parametrize(
    "value", [object(), {1, 2}, np.array([None]), b"bytes", np.frombuffer(b"12345678")]
)
def test_other_values_are_refused(value: Any) -> None:
    with pytest.raises(NotPlainError):
        dumps({"a": [value]})


def test_the_attribute_that_is_not_plain_is_named() -> None:
    with pytest.raises(NotPlainError, match=r"Opaque.box is a toy_envs._Box"):
        snapshot.snapshot(Opaque())


def test_an_environment_with_other_wrappers_is_refused() -> None:
    env = Counter()
    env.reset(seed=0)
    with pytest.raises(ValueError, match="1 layers, this one 2"):
        snapshot.restore(gym.wrappers.TimeLimit(Counter(), 3), snapshot.snapshot(env))


class Closure(Counter):
    """Keeps its count where no attribute is."""

    def __init__(self) -> None:
        super().__init__(length=50)
        counts: list[int] = []
        self.advance = lambda: counts.append(0)
        self.restart = counts.clear
        self.elapsed = lambda: len(counts)

    def reset(self, **kwargs: Any) -> Any:
        self.restart()
        return super().reset(**kwargs)

    def step(self, action: Any) -> Any:
        self.advance()
        return super().step(action)

    def _observe(self) -> Any:
        return np.array([self.elapsed(), self.count], np.float64)


@pytest.mark.parametrize(
    ("env", "method", "reason"),
    [
        (Counter(), "state", "plain data"),
        (Counter(length=1), "state", "plain data"),
        (Opaque(), "replay", "Opaque.box is a"),
        (Careless(), "none", "another course"),
        (Closure(), "replay", "not enough"),
        (Counter(render_mode="human"), "replay", "renders"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, gym.Env) else None,
)
def test_the_method_is_found_by_trying(env: gym.Env[Any, Any], method: str, reason: str) -> None:
    before = vars(env).copy()
    restore = choose_restore(env)
    assert restore.method == method
    assert reason in restore.reason
    assert vars(env) == before  # the environment itself is left alone
    assert str(restore) == f"{method} ({restore.reason})"


class Extended(Counter):
    """Has a part that is no Python object; a copy of it could be the part itself."""

    def __init__(self) -> None:
        super().__init__(length=50)
        self.parts = {"lock": threading.Lock()}

    def __deepcopy__(self, memo: Any) -> Any:
        raise AssertionError("copied")


def test_an_environment_with_foreign_parts_is_never_copied() -> None:
    restore = choose_restore(Extended())
    assert restore == ("replay", "Extended.parts is a builtins.dict")
    assert snapshot.foreign_part(Opaque()) == ""


def test_statistics_over_episodes_cannot_be_replayed() -> None:
    restore = choose_restore(gym.wrappers.NormalizeObservation(Extended()))
    assert restore.method == "none"
    assert restore.reason.startswith("NormalizeObservation gathers statistics over episodes")
