"""`places_of`: maps the components of a run to devices and machines.

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
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

import torch

from ..base.cores import available_cores
from ..base.words import ranges as words_of_ranges
from ..errors import ConfigError

_COMPONENTS: Final = {
    **dict.fromkeys(("learner", "actor"), "learner"),
    **dict.fromkeys(("collectors", "rollout", "env"), "collectors"),
    "eval": "eval",
}
_LIMIT: Final = 100_000  # of the numbers in a range, before they are compared with the machine
_RANGE = r"\d+(?:-\d+)?"
_RANGES = rf"all|{_RANGE}(?:\s*,\s*{_RANGE})*"
_ENTRY = re.compile(
    rf"\s*(?P<names>\w+(?:\s*,\s*\w+)*)\s*:\s*(?:(?P<count>\d+)@)?"
    rf"(?:(?P<kind>cpu|gpu|node)(?:\s*:\s*(?P<of>{_RANGES}))?|(?P<bare>{_RANGES}))"
    r"\s*(?:,(?=\s*\S)|$)"
)


@dataclass(frozen=True)
class Place:
    """Where the processes of a component run.

    Attributes:
        kind: What the numbers count: CPU cores, GPUs, or machines of a Ray cluster.
        numbers: Which of them; ``None`` if any will do.
        count: How many processes; ``None`` if the text does not give it.
    """

    kind: Literal["cpu", "gpu", "node"] = "cpu"
    numbers: tuple[int, ...] | None = None
    count: int | None = None

    @property
    def processes(self) -> int:
        """Number of processes: ``count`` if given, else one for each number."""
        return self.count or len(self.numbers or ()) or 1

    def number(self, process: int) -> int | None:
        """Return the core, GPU or machine of a process; ``None`` if any will do."""
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
        """Describe this machine."""
        return cls(tuple(sorted(available_cores())), torch.cuda.device_count())


def places_of(text: str, machine: Machine) -> dict[str, Place]:
    """Read the places of components; machines of a Ray cluster are checked when it is there.

    Raises:
        ConfigError: If the text does not follow the grammar or places a component twice, a core or
            GPU is not there, or a component cannot be where it is put.
    """
    places: dict[str, Place] = {}
    end = 0
    try:
        while end < len(text) or not places:
            entry = _ENTRY.match(text, end)
            if entry is None:
                raise ValueError(
                    f"{text[end:].strip()!r} is no component and its place; write 'learner: gpu:0, "
                    "collectors: 4@cpu, eval: cpu'; a place is cpu, cpu:0-3, gpu:0, node:1 or 4@cpu"
                )
            end = entry.end()
            for written in re.split(r"\s*,\s*", entry["names"]):
                if written not in _COMPONENTS:
                    raise ValueError(
                        f"{written!r} is no component; there are learner, collectors, eval"
                    )
                name = _COMPONENTS[written]
                place = _place(name, entry, machine)
                if places.setdefault(name, place) != place:
                    raise ValueError(f"{name} is placed twice, at {places[name]} and {place}")
    except ValueError as error:
        raise ConfigError(f"--placement {text!r}: {error}.") from None
    return places


def _place(name: str, entry: re.Match[str], machine: Machine) -> Place:
    kind: Any = entry["kind"] or "gpu"
    ranges = entry["of"] or entry["bare"] or ("0" if kind == "gpu" else None)
    there = {"cpu": machine.cores, "gpu": tuple(range(machine.gpus)), "node": None}[kind]
    if there is None and name == "learner":
        raise ValueError("the learner runs where it is started; give it cpu or gpu")
    if there is None and ranges == "all":
        raise ValueError(f"{name}: node:all; give the machines by number, such as node:0-3")
    if there == ():
        raise ValueError(f"{name}: {kind}, but this machine has no CUDA device")
    numbers = there if ranges == "all" else _numbers(ranges)
    count = entry["count"]
    place = Place(kind, numbers, None if count is None else int(count))
    if place.count == 0:
        raise ValueError("0 processes; give at least 1")
    if there is not None and set(numbers or ()) - set(there):
        what = "CPU cores" if kind == "cpu" else "GPUs"
        raise ValueError(
            f"{name}: {place}, but the {what} that this process may use are {_join(there)}"
        )
    if name == "eval" and place.processes > 1:
        raise ValueError(f"eval: {place}, but one process evaluates")
    return place


def _numbers(ranges: str | None) -> tuple[int, ...] | None:
    if ranges is None:
        return None
    numbers: list[int] = []
    for part in ranges.split(","):
        first, _, last = part.strip().partition("-")
        if not int(first) <= int(last or first) < _LIMIT:
            raise ValueError(f"the range {part.strip()} is empty, or more than any machine has")
        numbers += range(int(first), int(last or first) + 1)
    return tuple(numbers)


def _join(numbers: tuple[int, ...]) -> str:
    return words_of_ranges(numbers, len(numbers)).replace(", ", ",")
