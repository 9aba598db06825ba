"""The rows of the results page: their commands, and what their seeds computed."""

from __future__ import annotations

import json
import platform
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from ...base.text_file import write_atomically
from ...base.words import did_you_mean
from ...errors import ConfigError
from .course import Course, course_as_plain, course_from_plain

DIRECTORY: Final = Path(__file__).parent
"""The directory of `rows.yaml`, with a file for each row in ``computed/``."""
OUT: Final = "out"
"""The directory that the commands of the page write to."""


@dataclass(frozen=True)
class RowRecipe:
    """How a row is made.

    Attributes:
        train: Arguments of ``hooktrainer train``, without seeds and directory.
        prepare: Arguments of a ``hooktrainer train`` that must run before; empty for none.
        together: Whether its seeds train in one command, by ``--seeds``, or each by ``--seed``.
        packages: Distributions that its bits depend on, in addition to those of every row.
        published: What others report for it, and in how many frames.
    """

    name: str
    train: tuple[str, ...]
    prepare: tuple[str, ...] = ()
    together: bool = True
    packages: tuple[str, ...] = ()
    published: str = ""

    def of_seed(self, seed: int) -> list[str]:
        """Return the arguments of ``hooktrainer train`` for a seed, without the directory."""
        said = ["--seeds", f"{seed}-{seed}"] if self.together else ["--seed", str(seed)]
        return [*self.train, *said]

    def command(self, seeds: Sequence[int]) -> str:
        """Return one shell command that trains consecutive seeds."""
        words = shlex.join(("hooktrainer", "train", *self.train))
        place = f"{OUT}/{self.name}"
        if self.together:
            made = f"{words} --seeds {seeds[0]}-{seeds[-1]} --run-dir {place}"
        else:
            each = " ".join(map(str, seeds))
            made = f"for seed in {each}; do {words} --seed $seed --run-dir {place}/seed$seed; done"
        if not self.prepare:
            return made
        return f"{shlex.join(('hooktrainer', 'train', *self.prepare))} && {made}"


@dataclass(frozen=True)
class ResultRow:
    """A row of the page: how it is made, the digest of each seed, and what the bits depend on."""

    recipe: RowRecipe
    courses: Mapping[int, Course]
    surroundings: Mapping[str, str]
    commit: str
    cpu_seconds: float

    @property
    def name(self) -> str:
        """Its name."""
        return self.recipe.name

    @property
    def scores(self) -> list[float]:
        """The last evaluation of each seed, as in `hooktrainer report`."""
        return [course.score for course in self.courses.values()]

    @property
    def frames(self) -> list[int]:
        """The frames of each seed."""
        return [course.frames for course in self.courses.values()]

    @property
    def command(self) -> str:
        """The shell command that makes it again."""
        return self.recipe.command(list(self.courses))


def read_recipes(directory: Path | None = None) -> dict[str, RowRecipe]:
    """Read how the rows are made, in the order of the page."""
    import yaml

    told: Mapping[str, Mapping[str, Any]] = yaml.safe_load(
        ((directory or DIRECTORY) / "rows.yaml").read_text(encoding="utf-8")
    )
    return {name: _recipe(name, entry) for name, entry in told.items()}


def read_rows(directory: Path | None = None) -> dict[str, ResultRow]:
    """Read the rows that were computed, in the order of the page."""
    found = {}
    for name, recipe in read_recipes(directory).items():
        file = _file(directory, name)
        if file.is_file():
            found[name] = _row(recipe, json.loads(file.read_text(encoding="utf-8")))
    return found


def find_row(name: str, directory: Path | None = None) -> ResultRow:
    """Read the row of this name, or raise `ConfigError`."""
    rows = read_rows(directory)
    if name not in rows:
        raise ConfigError(
            f"the results have no row {name!r}.{did_you_mean(name, rows)} They have "
            f"{', '.join(rows)}; see hooktrainer verify-results."
        )
    return rows[name]


def write_row(row: ResultRow, directory: Path | None = None) -> Path:
    """Write what the seeds of a row computed, a line for each of them."""
    names = list(next(iter(row.courses.values())).metrics)
    head = {
        "commit": row.commit,
        "cpu_seconds": round(row.cpu_seconds, 1),
        "surroundings": dict(row.surroundings),
        "metrics": names,
    }
    lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in head.items()]
    seeds = [
        f'"{seed}": {json.dumps(course_as_plain(course), separators=(",", ":"))}'
        for seed, course in sorted(row.courses.items())
    ]
    text = "{" + ",\n".join([*lines, '"seeds": {\n' + ",\n".join(seeds) + "\n}"]) + "}\n"
    file = _file(directory, row.name)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(file, text)
    return file


def _file(directory: Path | None, name: str) -> Path:
    return (directory or DIRECTORY) / "computed" / f"{name}.json"


def _recipe(name: str, entry: Mapping[str, Any]) -> RowRecipe:
    return RowRecipe(
        name,
        tuple(shlex.split(entry["train"])),
        prepare=tuple(shlex.split(entry.get("prepare", ""))),
        together=entry.get("together", True),
        packages=tuple(entry.get("packages", ())),
        published=entry.get("published", ""),
    )


def _row(recipe: RowRecipe, plain: Mapping[str, Any]) -> ResultRow:
    names, seeds = plain["metrics"], plain["seeds"]
    return ResultRow(
        recipe,
        {int(seed): course_from_plain(one, names) for seed, one in seeds.items()},
        plain["surroundings"],
        str(plain["commit"]),
        float(plain["cpu_seconds"]),
    )


# -- What the bits of a run depend on beside its options and hooktrainer itself.

PACKAGES: Final = ("torch", "tensordict", "torchrl", "numpy", "gymnasium")


def surroundings(packages: Iterable[str] = ()) -> dict[str, str]:
    """Return what the bits of a run depend on: processor, system with its C library, packages.

    The processor selects kernels in numerical libraries. The number of threads is not included: set
    it to one to compare bits.
    """
    import torch

    library = " ".join(platform.libc_ver())
    return {
        "processor": f"{_processor()}, {torch.backends.cpu.get_cpu_capability()}",
        "system": " ".join(filter(None, (platform.system(), platform.machine(), library))),
        **{package: _version(package) for package in (*PACKAGES, *packages)},
    }


def changed(there: Mapping[str, str], here: Mapping[str, str]) -> list[str]:
    """Return the differences, such as ``torch 2.14.0 in place of 2.13.0``."""
    return [
        f"{name} {here.get(name, 'unknown')} in place of {value}"
        for name, value in there.items()
        if here.get(name) != value
    ]


def _processor() -> str:
    """Return name and kind of the processor: virtual machines give different ones the same name."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:  # not Linux
        return platform.processor() or platform.machine()
    told: dict[str, str] = {}
    for line in lines:
        key, _, value = line.partition(":")
        told[key.strip()] = value.strip()
    name = told.get("model name", platform.machine())
    kind = [
        f"{key.removeprefix('cpu ')} {told[key]}" for key in ("cpu family", "model") if key in told
    ]
    return ", ".join([name, *kind])


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"
