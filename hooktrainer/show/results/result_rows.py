"""The rows of the results page: how each is made, and what its seeds computed."""

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
"""Where `rows.yaml` is, and in ``computed/`` a file for each row."""
OUT: Final = "out"
"""The directory that the commands of the page write to."""


@dataclass(frozen=True)
class RowRecipe:
    """How a row is made.

    Attributes:
        name: What it is called.
        train: What follows ``hooktrainer train``, without seeds and directory.
        prepare: Likewise, of what has to be run before; empty for nothing.
        together: Whether its seeds train side by side, by ``--seeds``, or each by ``--seed``.
        packages: Distributions that its bits depend on, beside those of every row.
        published: What others report for it, and in how many frames.
    """

    name: str
    train: tuple[str, ...]
    prepare: tuple[str, ...] = ()
    together: bool = True
    packages: tuple[str, ...] = ()
    published: str = ""

    def of_seed(self, seed: int) -> list[str]:
        """What follows ``hooktrainer train`` for one of its seeds, without the directory."""
        said = ["--seeds", f"{seed}-{seed}"] if self.together else ["--seed", str(seed)]
        return [*self.train, *said]

    def command(self, seeds: Sequence[int]) -> str:
        """One command line, for a shell, that trains some seeds, without a gap between them."""
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
    """A row of the page.

    Attributes:
        recipe: How it is made.
        courses: What its seeds computed.
        surroundings: What that depended on; see `hooktrainer.show.results.result_rows`.
        commit: The state of hooktrainer that it was made with.
        cpu_seconds: Of all seeds together, from start to end of the command.
    """

    recipe: RowRecipe
    courses: Mapping[int, Course]
    surroundings: Mapping[str, str]
    commit: str
    cpu_seconds: float

    @property
    def name(self) -> str:
        """What it is called."""
        return self.recipe.name

    @property
    def scores(self) -> list[float]:
        """The last evaluation of each seed, as `hooktrainer report` takes it."""
        return [course.score for course in self.courses.values()]

    @property
    def frames(self) -> list[int]:
        """The frames of each seed."""
        return [course.frames for course in self.courses.values()]

    @property
    def command(self) -> str:
        """The command line that makes it again, for a shell."""
        return self.recipe.command(list(self.courses))


def read_recipes(directory: Path | None = None) -> dict[str, RowRecipe]:
    """Read how the rows are made, in the order of the page."""
    import yaml

    told: Mapping[str, Mapping[str, Any]] = yaml.safe_load(
        ((directory or DIRECTORY) / "rows.yaml").read_text(encoding="utf-8")
    )
    return {name: _recipe(name, entry) for name, entry in told.items()}


def read_rows(directory: Path | None = None) -> dict[str, ResultRow]:
    """Read the rows that were made, in the order of the page."""
    found = {}
    for name, recipe in read_recipes(directory).items():
        file = _file(directory, name)
        if file.is_file():
            found[name] = _row(recipe, json.loads(file.read_text(encoding="utf-8")))
    return found


def find_row(name: str, directory: Path | None = None) -> ResultRow:
    """Read one of the rows.

    Raises:
        ConfigError: If there is none of that name; it says which is near.
    """
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
    """Say what the bits of a run depend on here, by names that people read.

    That is the processor, from which numerical libraries choose their kernels, the system with its
    C library, and the versions of packages. The number of threads is no part of it: whoever
    compares bits sets it to one.

    Args:
        packages: Distributions beside `PACKAGES`, such as that of a simulator.
    """
    import torch

    library = " ".join(platform.libc_ver())
    return {
        "processor": f"{_processor()}, {torch.backends.cpu.get_cpu_capability()}",
        "system": " ".join(filter(None, (platform.system(), platform.machine(), library))),
        **{package: _version(package) for package in (*PACKAGES, *packages)},
    }


def changed(there: Mapping[str, str], here: Mapping[str, str]) -> list[str]:
    """Say what differs, such as ``torch 2.14.0 in place of 2.13.0``."""
    return [
        f"{name} {here.get(name, 'unknown')} in place of {value}"
        for name, value in there.items()
        if here.get(name) != value
    ]


def _processor() -> str:
    """Its name and kind: virtual machines give different ones the same name."""
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
