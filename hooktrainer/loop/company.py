"""How loops that run side by side have done together what each would do by itself."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final, Protocol, TypeVar, runtime_checkable

from .ambient import Ambient

STEPPING: Final = 0
"""Rank of what computes optimizer steps."""
EVALUATING: Final = 1
"""Rank of what plays evaluations."""
COLLECTING: Final = 2
"""Rank of what collects batches."""

T = TypeVar("T", bound="Server")


class Server(Protocol):
    """Does for several loops at once what each of them has asked for.

    Attributes:
        rank: Who asks for something of a higher rank waits until nobody asks for a lower one.
    """

    rank: int

    def serve(self, requests: Sequence[Any]) -> Sequence[Any]:
        """The answers, one for each request; an exception is raised where it was asked.

        What a loop is answered does not depend, bit for bit, on who else asks.
        """


class Company(Protocol):
    """The loops beside one, as that one sees them.

    Attributes:
        ambient: The loop's own random generators, for whoever computes something in its place.
    """

    ambient: Ambient

    @property
    def size(self) -> int:
        """How many loops there are, with this one."""

    def server(self, name: Hashable, make: Callable[[], T]) -> T:
        """The server of that name, the same for all loops; made when it is first asked for."""

    def ask(self, server: Server, request: Any) -> Any:
        """Wait until the others have asked, and return the server's answer."""

    def say(self, line: str) -> None:
        """Say something to the user, once, however many loops say it."""


@runtime_checkable
class Joins(Protocol):
    """A collector or a hook that can have its work done together with that of others.

    One that cannot works by itself, which is as right and slower.
    """

    def join(self, company: Company) -> None:
        """Do so from now on; called before training starts."""
