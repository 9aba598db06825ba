"""Numbers as people say them."""

from __future__ import annotations

from hooktrainer.words import plural


def test_one_and_several():
    assert [plural(n, "run") for n in (0, 1, 2)] == ["0 runs", "1 run", "2 runs"]
    assert [plural(n, "policy", "policies") for n in (1, 1000)] == ["1 policy", "1,000 policies"]
