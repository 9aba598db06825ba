"""The rows of the results page: their commands, and what their seeds computed."""

from __future__ import annotations

import hashlib
import json
import math
import platform
import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from ...base.fs import write_atomically
from ...base.untrusted import one_line
from ...base.words import listed
from ...errors import ConfigError
from ...log import read_csv
from ...store.run_dir import RunDir

SCORE: Final = "eval/return"
"""The metric that scores a run, unless its row says otherwise."""
DIRECTORY: Final = Path(__file__).parent
"""The directory of `rows.yaml`, with a file for each row in ``computed/``."""
OUT: Final = "out"
"""The directory that the commands of the page write to."""


@dataclass(frozen=True)
class RowRecipe:
    """The recipe of a row: the arguments of ``hooktrainer train``, and of one that must run before.

    Its seeds train `together` in one command, by ``--seeds``, or each by ``--seed``. If it is
    `deterministic`, only the processor's vendor changes its bits. They depend on the distributions
    `packages`, besides those of every row. `score` is the metric of its evaluations, and
    `published` what others report.
    """

    name: str
    train: tuple[str, ...]
    prepare: tuple[str, ...] = ()
    together: bool = True
    deterministic: bool = True
    packages: tuple[str, ...] = ()
    score: str = SCORE
    published: str = ""

    def words(self, first: int, last: int) -> list[str]:
        """Return the arguments of ``hooktrainer train`` for seeds, without the directory.

        Several seeds only if they train `together`.
        """
        option = ["--seeds", f"{first}-{last}"] if self.together else ["--seed", str(first)]
        return [*self.train, *["--deterministic"] * self.deterministic, *option]

    def command(self, seeds: Sequence[int]) -> str:
        """Return one shell command that trains consecutive seeds."""
        words = shlex.join(("hooktrainer", "train", *self.train))
        words += " --deterministic" * self.deterministic
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
    digests: Mapping[int, RunDigest]
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
        return [digest.score for digest in self.digests.values()]

    @property
    def frames(self) -> list[int]:
        """The frames of each seed."""
        return [digest.frames for digest in self.digests.values()]

    @property
    def command(self) -> str:
        """The shell command that makes it again."""
        return self.recipe.command(list(self.digests))


def read_recipes(directory: Path | None = None) -> dict[str, RowRecipe]:
    """Read how the rows are made, in the order of the page.

    Raises:
        ConfigError: If ``rows.yaml`` does not describe rows.
    """
    import yaml

    file = (directory or DIRECTORY) / "rows.yaml"
    try:
        return {
            name: RowRecipe(
                **entry
                | {"name": name, "train": tuple(shlex.split(entry["train"]))}
                | {"prepare": tuple(shlex.split(entry.get("prepare", "")))}
                | {"packages": tuple(entry.get("packages", ()))}
            )
            for name, entry in yaml.safe_load(file.read_text(encoding="utf-8")).items()
        }
    except (*_MALFORMED, yaml.YAMLError) as error:
        raise ConfigError(
            f"{file} does not describe rows ({_in_a_line(error)}): write a line for each, such as "
            "'walker: {train: \"ppo --env Walker2d-v5\"}'."
        ) from error


def read_rows(directory: Path | None = None) -> dict[str, ResultRow]:
    """Read the rows that were computed, in the order of the page.

    Raises:
        ConfigError: If a file of ``computed/`` does not describe what seeds computed.
    """
    place = directory or DIRECTORY
    rows = (read_row(recipe, place) for recipe in read_recipes(place).values())
    return {row.name: row for row in rows if row}


def read_row(recipe: RowRecipe, directory: Path) -> ResultRow | None:
    """Read what the seeds of a row computed; ``None`` if there is nothing yet.

    Raises:
        ConfigError: If its file of ``computed/`` does not describe what seeds computed.
    """
    file = _file(directory, recipe.name)
    if not file.is_file():
        return None
    try:
        return _parse_row(recipe, json.loads(file.read_text(encoding="utf-8")))
    except _MALFORMED as error:
        raise ConfigError(
            f"{file} is damaged ({_in_a_line(error)}): delete it, or restore it from its "
            "repository."
        ) from error


_MALFORMED: Final = (AttributeError, IndexError, KeyError, TypeError, ValueError)


def _in_a_line(error: Exception) -> str:
    return f"{type(error).__name__}: {one_line(error, 1_000)}"


def _parse_row(recipe: RowRecipe, plain: dict[str, Any]) -> ResultRow:
    names = plain.pop("metrics")
    digests = {
        int(seed): RunDigest(
            tuple((at, float(value)) for at, value in one["curve"]),
            dict(zip(names, one["metrics"], strict=True)),
            one["parameters"],
        )
        for seed, one in plain.pop("seeds").items()
    }
    if not all(one.curve and math.isfinite(one.score) for one in digests.values()) or not digests:
        raise ValueError("it has no seeds, or one without a finite score")
    return ResultRow(recipe, digests, **plain)


def write_row(row: ResultRow, directory: Path) -> Path:
    """Write what the seeds of a row computed, a line for each of them."""
    names = list(next(iter(row.digests.values())).metrics)
    head = {
        "commit": row.commit,
        "cpu_seconds": round(row.cpu_seconds, 1),
        "surroundings": dict(row.surroundings),
        "metrics": names,
    }
    lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in head.items()]
    seeds = [
        f'"{seed}": '
        + json.dumps(vars(one) | {"metrics": [*one.metrics.values()]}, separators=(",", ":"))
        for seed, one in sorted(row.digests.items())
    ]
    text = "{" + ",\n".join([*lines, '"seeds": {\n' + ",\n".join(seeds) + "\n}"]) + "}\n"
    file = _file(directory, row.name)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(file, text)
    return file


def _file(directory: Path, name: str) -> Path:
    return directory / "computed" / f"{name}.json"


PACKAGES: Final = ("torch", "tensordict", "torchrl", "numpy", "gymnasium")


def surroundings(packages: Iterable[str] = (), deterministic: bool = False) -> dict[str, str]:
    """Return what the bits of a run depend on: processor, system with its C library, packages.

    The processor selects kernels in numerical libraries; in a `deterministic` run only its vendor
    does. The number of threads is not included: set it to one to compare bits.
    """
    import torch

    library, instructions = " ".join(platform.libc_ver()), torch.backends.cpu.get_cpu_capability()
    pinned = deterministic and instructions in ("AVX2", "AVX512")  # by `hooktrainer.pin_kernels`
    vendor, model = _processor()
    return {
        "processor": f"any {vendor} with AVX2" if pinned else f"{model}, {instructions}",
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


def _processor() -> tuple[str, str]:
    """Return the processor's vendor, and its model with the name, which others may share."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:  # not Linux
        text = f"model name: {platform.processor() or platform.machine()}"
    pattern = r"^(vendor_id|model name|cpu family|model)\s*:\s*(.*?)\s*$"
    facts: dict[str, str] = dict(re.findall(pattern, text, re.MULTILINE))
    name = facts.get("model name", platform.machine())
    kind = [f"{k.removeprefix('cpu ')} {facts[k]}" for k in ("cpu family", "model") if k in facts]
    vendor = next((v for v in ("Intel", "AMD") if v in facts.get("vendor_id", name)), name)
    return vendor, ", ".join([name, *kind])


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


# -- Digests of what a run computed, small enough to be shipped, and the first difference of two.


@dataclass(frozen=True)
class RunDigest:
    """The digest of the run of a seed: evaluations, and digests of all values but times.

    `curve` has frames and score of its evaluations, `metrics` a digest for each name, and
    `parameters` one of those in the last checkpoint.
    """

    curve: tuple[tuple[int, float], ...]
    metrics: Mapping[str, str]
    parameters: str

    @property
    def frames(self) -> int:
        """Frames of the last evaluation."""
        return self.curve[-1][0]

    @property
    def score(self) -> float:
        """The score of the last evaluation."""
        return self.curve[-1][1]

    def first_difference(self, other: RunDigest, score: str = SCORE) -> str | None:
        """Describe the first difference from a run with the same metrics, if there is one."""
        names = [name for name, digest in self.metrics.items() if other.metrics[name] != digest]
        if not names:
            return "the parameters differ" if self.parameters != other.parameters else None
        text = f"{listed(names, most=3)} {'differs' if len(names) == 1 else 'differ'}"
        evaluated = dict(other.curve)
        for at, value in self.curve:
            if (found := evaluated.get(at)) != value:
                instead = "is not there" if found is None else f"is {found!r}"
                return f"{text}; {score} at frame {at:,} {instead}, was {value!r}"
        return text


def read_digest(run: Path, names: Collection[str] | None = None, score: str = SCORE) -> RunDigest:
    """Read the digest of a run from its directory.

    ``names`` are the metrics to read, by default all except times. A missing metric has the digest
    of nothing. ``score`` is the metric of its evaluations.

    Raises:
        ConfigError: If the run has no finite score.
    """
    series = read_csv(RunDir(run).metrics)
    if not series.get(score) or not math.isfinite(series[score][-1][1]):
        others = listed(name for name in series if name.startswith("eval/")) or "none"
        raise ConfigError(
            f"{run} has no score: the last {score} in its metrics.csv is missing or not finite. "
            f"Metrics of evaluations: {others}."
        )
    if names is None:
        names = sorted(name for name in series if not name.startswith("time/"))
    kept = {name: series.get(name, ()) for name in names}
    return RunDigest(
        curve=tuple(series[score]),
        metrics={
            name: _digest("\n".join(f"{at},{value!r}" for at, value in rows))
            for name, rows in kept.items()
        },
        parameters=_of_parameters(run),
    )


def _of_parameters(run: Path) -> str:
    from ...store import Checkpoint, find

    state = Checkpoint.open(find("latest", run)[0]).load()
    made = hashlib.blake2b(digest_size=8)
    for part in _parts(state["components"]["loss_module"]):
        made.update(part)
    return made.hexdigest()


def _parts(tree: Any, path: str = "") -> Iterator[bytes]:
    """Yield the values of a state tree, each after its path."""
    if isinstance(tree, Mapping):
        for key in sorted(tree, key=str):
            yield from _parts(tree[key], f"{path}/{key}")
    elif hasattr(tree, "detach"):
        yield f"{path} {tree.dtype} {list(tree.shape)}\n".encode()
        yield tree.detach().cpu().contiguous().numpy().tobytes()
    else:
        yield f"{path} {tree!r}\n".encode()


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=4).hexdigest()
