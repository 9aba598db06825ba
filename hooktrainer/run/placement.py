"""`Placement`: maps the components of a run to devices and machines.

The grammar, with ``learner: gpu:0, collectors: 4@cpu, eval: cpu`` as an example::

    placement   = entry, {",", entry}
    entry       = component, {",", component}, ":", place
    component   = "learner" | "collectors" | "eval"
    place       = [count, "@"], device | [count, "@"], ranges
    device      = ("cpu" | "gpu" | "node"), [":", ranges]
    ranges      = "all" | range, {",", range}
    range       = number, ["-", number]

Ranges without a device are GPUs: ``learner,eval: 0-3``. ``cpu:2`` pins a process to core 2; ``cpu``
leaves the choice to the system. ``node:1`` is a machine of a Ray cluster, counted from the
learner's. Without a count, one process is started for each number in the ranges.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, NamedTuple

from ..base.cores import available_cores
from ..base.words import ranges as words_of_ranges
from ..errors import ConfigError

Kind = Literal["cpu", "gpu", "node"]

_NAMES: Final = {
    "learner": ("learner", "actor"),
    "collectors": ("collectors", "collector", "rollout", "env"),
    "eval": ("eval", "evaluator", "evaluation"),
}
_COMPONENTS: Final = {name: part for part, names in _NAMES.items() for name in names}
_LIMIT: Final = 100_000  # of the numbers in a range, before they are compared with the machine
_RANGES = r"all|\d+(?:-\d+)?"
_PLACE = re.compile(
    rf"(?:(?P<count>\d+)@)?(?:(?P<kind>cpu|gpu|node)(?::(?P<of>{_RANGES}))?|(?P<bare>{_RANGES}))"
)
_RANGE = re.compile(r"\d+(?:-\d+)?")


@dataclass(frozen=True)
class Place:
    """Where the processes of a component run.

    Attributes:
        kind: What the numbers count: CPU cores, GPUs, or machines of a Ray cluster.
        numbers: Which of them; ``None`` if any will do, ``()`` for all.
        count: How many processes; ``None`` if the text does not say.
    """

    kind: Kind = "cpu"
    numbers: tuple[int, ...] | None = None
    count: int | None = None

    @property
    def processes(self) -> int:
        """How many processes: as many as said, else one for each number."""
        return self.count or len(self.numbers or ()) or 1

    def number(self, process: int) -> int | None:
        """The core, GPU or machine of a process; ``None`` if any will do."""
        return self.numbers[process % len(self.numbers)] if self.numbers else None

    def __str__(self) -> str:
        text = self.kind if self.numbers is None else f"{self.kind}:{_join(self.numbers)}"
        return text if self.count is None else f"{self.count}@{text}"


class Machine(NamedTuple):
    """The CPU cores that this process may use, and the number of CUDA devices."""

    cores: tuple[int, ...]
    gpus: int

    @classmethod
    def here(cls) -> Machine:
        """This machine."""
        import torch

        return cls(tuple(sorted(available_cores())), torch.cuda.device_count())


@dataclass(frozen=True)
class Placement:
    """The places of the components that were named in a text."""

    places: dict[str, Place] = field(default_factory=dict)
    text: str = ""

    @classmethod
    def parse(cls, text: str) -> Placement:
        """Read a line.

        Raises:
            ConfigError: If it does not follow the grammar, or places a component twice.
        """
        try:
            return cls(_parsed(text), text)
        except ValueError as error:
            raise _error(text, error) from None

    def check(self, machine: Machine) -> Placement:
        """Return the placement with ``all`` replaced by the numbers that are there.

        Machines of a Ray cluster are checked when it is there.

        Raises:
            ConfigError: If a core or GPU is not there, or a component cannot be where it is put.
        """
        try:
            checked = {name: _checked(name, place, machine) for name, place in self.places.items()}
        except ValueError as error:
            raise _error(self.text, error) from None
        return Placement(checked, self.text)

    def get(self, name: str) -> Place:
        """The place of a component; any CPU core if it was not named."""
        return self.places.get(name, Place())


def _error(text: str, problem: object) -> ConfigError:
    return ConfigError(f"--placement {text!r}: {problem}.")


def _parsed(text: str) -> dict[str, Place]:
    places: dict[str, Place] = {}
    waiting: list[str] = []  # components whose place is still to come
    placed: list[str] = []  # those of the entry before
    for token in (token.strip() for token in text.split(",")):
        head, colon, rest = (part.strip() for part in token.partition(":"))
        if not colon and _RANGE.fullmatch(token) and placed and not waiting:
            for name in placed:
                place = places[name]
                if place.numbers is None:
                    raise ValueError(f"{token!r} follows {place}, which has no numbers to add to")
                numbers = (*place.numbers, *_numbers(token))
                places[name] = replace(place, numbers=numbers)
        elif not colon:
            waiting.append(_component(token))
        else:
            placed, waiting = list(dict.fromkeys([*waiting, _component(head)])), []
            place = _place(rest)
            for name in placed:
                if places.setdefault(name, place) != place:
                    raise ValueError(f"{name} is placed twice, at {places[name]} and {place}")
    if waiting:
        raise ValueError(f"{waiting[0]} has no place; write {waiting[0]}: cpu")
    for name, place in places.items():
        (number, times), *_ = Counter(place.numbers or ()).most_common(1) or [(0, 0)]
        if times > 1:
            raise ValueError(
                f"{name}: {place} lists {number} twice; for several processes there, write how "
                f"many, as 2@{place.kind}:{number}"
            )
    return places


def _checked(name: str, place: Place, machine: Machine) -> Place:
    if place.kind == "node":
        if name == "learner":
            raise ValueError("the learner runs where it is started; give it cpu or gpu")
        if place.numbers == () and place.count is None:
            raise ValueError(
                f"{name}: node:all, but how many machines there are is known later; write which, "
                "as node:1-3, or how many processes, as 3@node"
            )
    else:
        there = machine.cores if place.kind == "cpu" else tuple(range(machine.gpus))
        if not there:
            raise ValueError(f"{name}: {place}, but this machine has no CUDA device")
        if set(place.numbers or ()) - set(there):
            what = "CPU cores" if place.kind == "cpu" else "GPUs"
            raise ValueError(
                f"{name}: {place}, but the {what} that this process may use are {_join(there)}"
            )
        if place.numbers == ():
            place = replace(place, numbers=there)
    if name == "eval" and place.processes > 1:
        raise ValueError(f"eval: {place}, but one process evaluates")
    return place


def _component(name: str) -> str:
    if name not in _COMPONENTS:
        what = f"{name!r} is no component" if name else "the name of a component is missing"
        raise ValueError(
            f"{what}; there are {', '.join(_NAMES)}, written as "
            "'learner: gpu:0, collectors: 4@cpu, eval: cpu'"
        )
    return _COMPONENTS[name]


def _place(written: str) -> Place:
    found = _PLACE.fullmatch(written.replace(" ", ""))
    if found is None:
        raise ValueError(
            f"{written!r} is no place; write cpu, cpu:0-3, gpu:0, node:1, 4@cpu or 0-3"
        )
    count = int(found["count"]) if found["count"] else None
    if count == 0:
        raise ValueError(f"{written!r}: 0 processes; give at least 1")
    kind: Any = found["kind"] or "gpu"
    ranges = found["of"] or found["bare"] or ("0" if kind == "gpu" else None)
    return Place(kind, None if ranges is None else _numbers(ranges), count)


def _numbers(ranges: str) -> tuple[int, ...]:
    if ranges == "all":
        return ()
    first, _, last = ranges.partition("-")
    numbers = range(int(first), int(last or first) + 1)
    if not numbers:
        raise ValueError(f"the range {ranges} is empty")
    if numbers[-1] >= _LIMIT:
        raise ValueError(f"{numbers[-1]} is more than any machine has")
    return tuple(numbers)


def _join(numbers: tuple[int, ...]) -> str:
    return words_of_ranges(numbers, len(numbers)).replace(", ", ",") or "all"
