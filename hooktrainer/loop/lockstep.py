"""`Lockstep`: several loops in one process, which do together what costs less together."""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from greenlet import getcurrent, greenlet

from ..base.threads import compute_threads, threads_for
from .ambient import Ambient
from .company import Joins, Server, T
from .control import Control
from .loop import Loop
from .signals import GracefulSignals, SignalExit


class Asked(NamedTuple):
    """What a loop waits for."""

    server: Server
    request: Any


class Companion:
    """The `Company` of one loop, which runs in a greenlet of its own.

    Args:
        loop: The loop.
        group: The loops it runs beside.
    """

    def __init__(self, loop: Loop, group: Lockstep) -> None:
        self.loop = loop
        self.ambient = Ambient()  # as the making of the loop has left it
        self.error: Exception | None = None
        self.asked: Asked | None = None
        self._group = group
        self._greenlet = greenlet(loop.run)

    @property
    def size(self) -> int:
        """See `Company.size`."""
        return len(self._group.members)

    def server(self, name: Hashable, make: Callable[[], T]) -> T:
        """See `Company.server`."""
        servers = self._group.servers
        if name not in servers:
            servers[name] = make()
        return servers[name]  # type: ignore[return-value]

    def ask(self, server: Server, request: Any) -> Any:
        """See `Company.ask`."""
        if getcurrent() is not self._greenlet:  # before the loop runs, or behind it
            return _given(server.serve([request])[0])
        return getcurrent().parent.switch(Asked(server, request))

    def say(self, line: str) -> None:
        """See `Company.say`."""
        self._group.say(line)

    @property
    def is_done(self) -> bool:
        """Whether the loop has ended."""
        return self._greenlet.dead

    def go_on(self, answer: Any = None) -> None:
        """Let the loop run until it asks for something or ends."""
        self.asked = None
        self.ambient.enter()
        try:
            if isinstance(answer, BaseException):
                self.asked = self._greenlet.throw(answer)
            else:
                self.asked = self._greenlet.switch(*([answer] if self._greenlet else []))
        except Exception as error:
            self.error = error
        finally:
            self.ambient.leave()
        if self.is_done:
            self.asked = None


class Lockstep:
    """Runs loops side by side.

    Each loop is as it would be alone, with its own hooks, loggers, state and random numbers. Where
    a collector or a hook of all loops `Joins`, it waits at what it would compute until the others
    have come there too, and one `Server` computes it for all. What a loop computes does not depend,
    bit for bit, on which others run beside it: they can begin, end, fail and resume each by itself.

    Args:
        loops: The loops, none of which has begun. They are made one after another: each begins with
            the random generators as its making leaves them.
        say: Told what is worth a line.
    """

    def __init__(self, loops: Iterable[Loop], say: Callable[[str], None] = print) -> None:
        self.servers: dict[Hashable, Server] = {}
        self._say = say
        self._said: set[str] = set()
        self.members = [Companion(loop, self) for loop in loops]

    def say(self, line: str) -> None:
        """Say a line once."""
        if line not in self._said:
            self._said.add(line)
            self._say(line)

    def run(self, watch: Callable[[], object] = lambda: None) -> list[Exception | None]:
        """Run the loops until all have ended.

        Args:
            watch: Called from time to time, as for a progress bar.

        Returns:
            What each has raised; ``None`` where it ended well.

        Raises:
            SystemExit: With the code 128 + n, if signal n ended the loops, as `Loop.train` does.
        """
        for member in self.members:
            if member.loop.has_ended:
                member.loop.train()  # which closes it
        members = [member for member in self.members if not member.loop.has_ended]
        if not members:
            return [None for _ in self.members]
        loops = [member.loop for member in members]
        control = Controls([loop.control for loop in loops])
        grace = min(loop.grace for loop in loops)
        threads = loops[0].threads or threads_for(loops[0].loss_module)
        for member in members:
            _join(member)
        with (
            Ambient().kept(),
            GracefulSignals(control, grace, loops[0].bridge.only_cleans_up),
            compute_threads(threads),
        ):
            try:
                self._take_turns(members, watch)
            except BaseException as error:
                _end(members, error)
                raise
        if control.signal is not None:
            raise SignalExit(control.signal, deadline=control.deadline)
        return [member.error for member in self.members]

    def _take_turns(self, members: Sequence[Companion], watch: Callable[[], object]) -> None:
        for companion in members:
            companion.go_on()
        while waiting := [companion for companion in members if companion.asked is not None]:
            watch()
            asked = [companion.asked for companion in waiting if companion.asked is not None]
            server = min((one.server for one in asked), key=lambda server: server.rank)
            served = [companion for companion in waiting if _asks(companion, server)]
            requests = [c.asked.request for c in served if c.asked is not None]
            answers: Sequence[Any]
            try:
                answers = server.serve(requests)
            except Exception as error:  # of what they have in common
                answers = [copy.copy(error) for _ in requests]
            for companion, answer in zip(served, answers, strict=True):
                companion.go_on(answer)


class Controls(Control):
    """What signals ask of several loops.

    Args:
        controls: Those of the loops.
    """

    def __init__(self, controls: Sequence[Control]) -> None:
        self._controls = list(controls)
        super().__init__()

    @property
    def is_leaving(self) -> bool:
        """Whether all loops have done their last batch."""
        return all(control.is_leaving for control in self._controls)

    @is_leaving.setter
    def is_leaving(self, value: bool) -> None:
        """Do nothing: the loops say it."""

    def receive(self, number: int, grace: float) -> None:
        """Stop all."""
        super().receive(number, grace)
        for control in self._controls:
            control.receive(number, grace)

    def request_save(self) -> None:
        """Save all."""
        for control in self._controls:
            control.request_save()

    def break_off(self) -> None:
        """Break off what one of them is calling."""
        for control in self._controls:
            control.break_off()


def _join(companion: Companion) -> None:
    loop = companion.loop
    for part in (loop.source, *loop.registry.hooks()):
        if isinstance(part, Joins):
            part.join(companion)


def _asks(companion: Companion, server: Server) -> bool:
    return companion.asked is not None and companion.asked.server is server


def _end(members: Sequence[Companion], error: BaseException) -> None:
    """Have the loops that still run end as they do when this is raised in them."""
    for companion in members:
        if companion.asked is not None:
            with suppress(BaseException):
                companion.go_on(error)


def _given(answer: Any) -> Any:
    if isinstance(answer, BaseException):
        raise answer
    return answer
