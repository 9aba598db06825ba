from __future__ import annotations

import pytest
import segment_trees


@pytest.fixture
def trees(monkeypatch):
    """TorchRL's prioritized samplers work."""
    segment_trees.use(monkeypatch)
