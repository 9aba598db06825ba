from __future__ import annotations

from collections.abc import Callable

from hooktrainer import Trainer


def whole_and_resumed(make: Callable[[], Trainer]) -> tuple[Trainer, Trainer]:
    """A run without interruption, and one that was resumed after its first batch."""
    whole = make()
    whole.train()
    first = make()
    first.register_op("post_steps", lambda: first.request_stop("interrupted"))
    first.train()
    state = first.state_dict()
    rest = make()
    rest.load_state_dict(state)
    rest.train()
    return whole, rest
