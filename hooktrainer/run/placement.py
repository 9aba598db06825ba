"""`Placement`: maps the components of a run to devices and machines.

The grammar, with ``learner: gpu:0, collectors: 4@cpu, eval: cpu`` as an example::

    placement   = entry, {",", entry}
    entry       = component, {",", component}, ":", place
    component   = "learner" | "collectors" | "eval"
    place       = [count, "@"], (device | ranges)
    device      = ("cpu" | "gpu" | "node"), [":", ranges]
    ranges      = "all" | range, {",", range}
    range       = number, ["-", number]

Ranges without a device are GPUs: ``learner,eval: 0-3``. ``cpu:2`` pins a process to core 2; ``cpu``
leaves the choice to the system. ``node:1`` is a machine of a Ray cluster, counted from the
learner's. Without a count, one process is started for each number in the ranges.
"""

from __future__ import annotations

import re
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
_RANGE = r"\d+(?:-\d+)?"
_RANGES = rf"all|{_RANGE}(?:\s*,\s*{_RANGE})*"
_ENTRY = re.compile(
    rf"\s*(?P<names>\w+(?:\s*,\s*\w+)*)\s*:\s*(?:(?P<count>\d+)@)?"
    rf"(?:(?P<kind>cpu|gpu|node)(?:\s*:\s*(?P<of>{_RANGES}))?|(?P<bare>{_RANGES}))\s*(?:,|$)"
)


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
    end = 0
    while end < len(text) or not places:
        entry = _ENTRY.match(text, end)
        if entry is None:
            raise ValueError(
                f"{text[end:].strip()!r} is no component and its place; write 'learner: gpu:0, "
                "collectors: 4@cpu, eval: cpu'; a place is cpu, cpu:0-3, gpu:0, node:1 or 4@cpu"
            )
        end = entry.end()
        place = _place(entry)
        for written in re.split(r"\s*,\s*", entry["names"]):
            if written not in _COMPONENTS:
                raise ValueError(f"{written!r} is no component; there are {', '.join(_NAMES)}")
            name = _COMPONENTS[written]
            if places.setdefault(name, place) != place:
                raise ValueError(f"{name} is placed twice, at {places[name]} and {place}")
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


def _place(entry: re.Match[str]) -> Place:
    kind: Any = entry["kind"] or "gpu"
    count = None if entry["count"] is None else int(entry["count"])
    if count == 0:
        raise ValueError("0 processes; give at least 1")
    ranges = entry["of"] or entry["bare"] or ("0" if kind == "gpu" else None)
    if ranges is None or ranges == "all":
        return Place(kind, None if ranges is None else (), count)
    numbers: list[int] = []
    for part in ranges.split(","):
        first, _, last = part.strip().partition("-")
        if not int(first) <= int(last or first) < _LIMIT:
            raise ValueError(f"the range {part.strip()} is empty, or more than any machine has")
        numbers += range(int(first), int(last or first) + 1)
    place = Place(kind, tuple(numbers), count)
    if len(set(numbers)) < len(numbers):
        raise ValueError(
            f"{place} lists a number twice; for several processes there, write how many, as "
            f"2@{kind}:1"
        )
    return place


def _join(numbers: tuple[int, ...]) -> str:
    return words_of_ranges(numbers, len(numbers)).replace(", ", ",") or "all"
