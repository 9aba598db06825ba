"""`PythonGenerator`: what loops draw from Python's `random` in turns is what each draws alone."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hooktrainer.loop import python_generator
from hooktrainer.loop.python_generator import PythonGenerator

DRAWS: dict[str, Callable[[], Any]] = {
    "nothing": lambda: None,
    "one number": random.random,
    "half a pair": lambda: random.gauss(0.0, 1.0),
    "624 numbers": lambda: [random.getrandbits(32) for _ in range(624)],
    "an order": lambda: random.sample(range(9), 9),
    "a seed": lambda: random.seed(random.getrandbits(9)),
    "a state": lambda: random.setstate(random.Random(random.getrandbits(9)).getstate()),
}


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    state = random.getstate()
    yield
    random.setstate(state)


@pytest.mark.parametrize("is_known", [True, False])
@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
def test_each_goes_on_where_it_was_left(
    draw: Callable[[], Any], is_known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert python_generator._IS_KNOWN  # by the Python that tests this
    monkeypatch.setattr(python_generator, "_IS_KNOWN", is_known)
    alone = []
    for seed in range(2):
        random.seed(seed)
        alone.append([(draw(), random.getstate()) for _ in range(3)])

    generators = []
    for seed in range(2):
        random.seed(seed)
        generators.append(PythonGenerator())
    beside: list[list[Any]] = [[], []]
    for _ in range(3):
        for generator, drawn in zip(generators, beside, strict=True):
            generator.enter()
            drawn.append((draw(), random.getstate()))
            generator.leave()
    assert beside == alone
