"""`Team`: child processes that work side by side on shares of the same."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from .child import Child, close_all


class Team:
    """Child processes that work side by side, each of which may be told several things at once.

    Every message has one answer, and answers come in the order of the messages. Those that are
    still to come after a failure are taken by `settle`.
    """

    def __init__(self) -> None:
        self.children: list[Child] = []
        self._asked: list[int] = []

    def __len__(self) -> int:
        return len(self.children)

    def add(self, child: Child) -> None:
        """Take in one more, the last."""
        self.children.append(child)
        self._asked.append(0)

    def tell(self, place: int, message: bytes) -> None:
        """Send a message, whose answer is taken later."""
        self.children[place].send(message)
        self._asked[place] += 1

    def receive(self, place: int) -> bytes:
        """Wait for the next answer.

        Raises:
            Exception: What was raised there, which is an answer too.
        """
        self._asked[place] -= 1
        return self.children[place].receive()

    def ask_all(self, message: Callable[[int], bytes]) -> list[Any]:
        """The answers, unpickled, to a message for each."""
        places = range(len(self))
        for place in places:
            self.tell(place, message(place))
        return [pickle.loads(self.receive(place)) for place in places]

    def settle(self) -> None:
        """Take the answers that are still to come after a failure; nobody asks for them now."""
        for place in range(len(self)):
            while self._asked[place]:
                with suppress(Exception):
                    self.receive(place)

    def close(self) -> None:
        """End the processes. Safe to call again."""
        close_all(self.children)
