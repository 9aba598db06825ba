from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
import segment_trees


@pytest.fixture
def trees(monkeypatch):
    """TorchRL's prioritized samplers work."""
    segment_trees.use(monkeypatch)


@pytest.fixture(autouse=True)
def signal_handlers() -> Iterator[None]:
    """Take out the handlers that TorchRL's memory-mapped storages install."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
