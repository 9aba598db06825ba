"""`RunConfig`: the run configuration, with each option of a run as one field.

The Python signature, the command line, ``config.yaml`` and the comparison at a resume are derived
from the fields. Algorithms and recipes derive from it and add fields.
"""

from __future__ import annotations

import argparse
import json
import math
import types
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, dataclass, fields, is_dataclass
from enum import Enum, auto
from functools import cache, partial
from itertools import zip_longest
from numbers import Real
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    Literal,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import tyro
from tyro.conf import UseAppendAction

from ..base.checks import (
    check_choice,
    check_count,
    check_fraction,
    check_positive,
    check_rate,
    check_training_seed,
)
from ..base.endings import GRACE, TIMEOUT
from ..base.plain import to_plain, without_omegaconf
from ..base.untrusted import one_line, shown
from ..base.words import did_you_mean, printable, whole_number, without_password
from ..errors import ConfigError, NotFoundError
from ..policies.trust import code_of
from ..store.run_dir import read_config
from . import command_line
from .seeds import OWN

# -- Metadata of a run's field: marks and ranges.

T = TypeVar("T")


class Mark(Enum):
    """When a field may have another value: on a resume, among seeds, or (`MEANS`) in both cases."""

    MEANS = auto()
    ON_RESUME = auto()
    AMONG_SEEDS = auto()


Means = Annotated[T, Mark.MEANS]
"""A field for where the run is kept or how it is executed, not for what it computes."""
FreeOnResume = Annotated[T, Mark.ON_RESUME]
"""A field that may change when the run is resumed."""
FreeAmongSeeds = Annotated[T, Mark.AMONG_SEEDS]
"""A field in which runs may differ and still be seeds of one experiment."""


@dataclass(frozen=True)
class Range:
    """The values that a field can have: ``check(name, value)`` refuses any other."""

    check: Callable[[str, Any], Any]


@dataclass(frozen=True)
class Needs:
    """What a field has an effect with: another field that is set, or has one of some values."""

    field: str
    values: tuple[Any, ...] = ()


@dataclass(frozen=True, init=False)
class Without:
    """What a field does not work together with: other fields, unless they have these values."""

    others: tuple[tuple[str, Any], ...]

    def __init__(self, **others: Any) -> None:
        object.__setattr__(self, "others", tuple(others.items()))


@dataclass(frozen=True)
class Between:
    """A search range of numbers: from ``low`` to ``high``, on a ``log`` scale or not."""

    low: float
    high: float
    log: bool = False


@dataclass(frozen=True)
class OneOf:
    """A search range of listed values, at least two."""

    values: tuple[Any, ...]


Candidates = Between | OneOf
"""The search range of a field."""
Count = Annotated[int, Range(check_count)]
"""An integer of 1 or more."""
Number = Annotated[int, Range(partial(check_count, least=0))]
"""An integer of 0 or more."""
Seed = Annotated[int, Range(check_training_seed)]
"""An integer that every generator accepts as a seed and evaluations do not use."""
Fraction = Annotated[float, Range(check_fraction)]
"""A number between 0 and 1."""
Rate = Annotated[float, Range(check_rate)]
"""A finite number of 0 or more."""


def marked(kind: type[Any], *marks: Mark) -> frozenset[str]:
    """Return the names of the fields of a dataclass that have one of the marks."""
    return frozenset(
        name
        for name, metadata in _metadata(kind).items()
        if any(mark in metadata for mark in marks)
    )


def worth_trying(described: Any) -> dict[str, Candidates]:
    """Return the search ranges of a dataclass by field; those of a subclass take precedence.

    Fields that have no effect with the other values of ``described`` are left out.
    """
    return {
        name: one
        for name, metadata in _metadata(type(described)).items()
        for one in reversed(metadata)
        if isinstance(one, (Between, OneOf))
        if all(_is_met(described, mark) for mark in metadata if isinstance(mark, Needs))
    }


def check_together(subject: str, described: Any, free: Collection[str] = ()) -> None:
    """Raise ConfigError for fields that exclude each other, and for one that has no effect.

    Fields in ``free`` may have no effect.
    """
    metadata = _metadata(type(described))
    for field in fields(described):
        given = getattr(described, field.name)
        is_given = field.name not in free and given != field.default
        for mark in metadata[field.name]:
            if isinstance(mark, Without) and given is not None:
                _check_without(subject, described, field.name, mark)
            elif isinstance(mark, Needs) and is_given and not _is_met(described, mark):
                wanted = " or ".join(f"{mark.field}={value!r}" for value in mark.values)
                raise ConfigError(
                    f"{subject}: {field.name}={given!r} has no effect without "
                    f"{wanted or mark.field}: set that, or leave {field.name} out."
                )


def _check_without(subject: str, described: Any, name: str, mark: Without) -> None:
    for other, allowed in mark.others:
        if (there := getattr(described, other, allowed)) != allowed:
            raise ConfigError(
                f"{subject}: {name}={getattr(described, name)!r:.80} and {other}={there!r} do not "
                f"work together: set {other}={allowed!r}, or leave {name} out."
            )


def _is_met(described: Any, mark: Needs) -> bool:
    there = getattr(described, mark.field)
    return there in mark.values if mark.values else there not in (None, False)


def check_ranges(subject: str, described: Any) -> None:
    """Raise ConfigError for a dataclass's value that its field does not take, and for NaN."""
    for name, metadata in _metadata(type(described)).items():
        given = getattr(described, name)
        kinds = list(_with_members(hints_of(type(described))[name]))
        choices = [word for kind in kinds if get_origin(kind) is Literal for word in get_args(kind)]
        if choices and isinstance(given, (str, bool)) and type(given) not in kinds:
            check_choice(f"{subject}: {name}", given, choices)
        if given is None and not any(kind in (Any, type(None)) for kind in kinds):
            raise ConfigError(f"{subject}: {name}=None: pass a value, or leave it out.")
        types_of = {*choices, *(kind for kind in kinds if isinstance(kind, type))} - {type(None)}
        for value in given if isinstance(given, tuple) else (given,):
            if types_of == {bool} and value not in (True, False, None):  # "false" would be true
                raise ConfigError(f"{subject}: {name}={value!r:.80}: pass True or False.")
            if types_of == {float} and not isinstance(value, (Real, type(None))):
                raise ConfigError(f"{subject}: {name}={value!r:.80}: pass a number.")
            for one in metadata:
                if isinstance(one, Range) and value is not None:
                    one.check(f"{subject}: {name}", value)
            if isinstance(value, float) and math.isnan(value):
                raise ConfigError(f"{subject}: {name}={value!r}: pass a number.")


# Callables of Any, since mypy takes the class of a dataclass for unhashable.
hints_of: Callable[[Any], Mapping[str, Any]] = cache(partial(get_type_hints, include_extras=True))
"""The annotations of a class by field, with their marks and ranges."""


def _with_members(hint: Any) -> Iterator[Any]:
    """Yield a type, and its arguments at every depth."""
    yield hint
    for member in get_args(hint):
        yield from _with_members(member)


def _find_metadata(kind: type[Any]) -> Mapping[str, Sequence[Any]]:
    metadata: dict[str, list[Any]] = {}
    for base in filter(is_dataclass, kind.__mro__):
        for field in fields(base):
            for hint in _with_members(hints_of(base)[field.name]):
                metadata.setdefault(field.name, []).extend(getattr(hint, "__metadata__", ()))
    return metadata


_metadata: Callable[[Any], Mapping[str, Sequence[Any]]] = cache(_find_metadata)
"""Metadata of the annotations of a class by field, base classes included."""


if TYPE_CHECKING:  # Python also accepts these; `__post_init__` converts them
    Names = str | Sequence[str]
    Loggers = Any  # an algorithm also takes loggers themselves
    Directory = str | Path
else:
    Names = Loggers = UseAppendAction[tuple[str, ...]]
    Directory = Path


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """Run configuration: length, seed, logging, directory, checkpoints, placement and collection.

    `hooktrainer.run.run.Run` applies the fields, and `hooktrainer.run.run.Layout` those that place
    parts of the run.
    """

    total_frames: FreeOnResume[Count]
    """frames after which the run ends; tuned settings may give them"""
    total_minutes: FreeOnResume[Annotated[float, Range(check_positive)] | None] = None
    """minutes of training, those before a resume included, after which the run ends; None: none"""
    stop_when: Means[str | None] = None
    """condition at which the run stops, such as 'not finite(loss)'; None: none"""
    debug: Means[Annotated[bool, Needs("stop_when")]] = False
    """with stop_when, name the hook after which a parameter is not finite, and open a debugger"""
    hook: Names = ()
    """register a hook of your own, made without arguments: file.py:Name; may be repeated"""
    seed: FreeAmongSeeds[Seed] = 0
    """seed of the networks, the environments and the exploration"""

    logger: Means[Loggers] = ()
    """csv, tensorboard, mlflow, wandb, prometheus; may be repeated; by default csv, tensorboard"""
    log_interval: FreeAmongSeeds[Count] = 5_000
    """frames in a log window"""
    progress_bar: Means[bool] = True
    """whether to show a progress bar"""
    trace: Means[Number] = 0
    """record the first N batches as trace.json, for chrome://tracing and Perfetto"""
    profile: Means[Number] = 0
    """profile N batches with torch.profiler, after two to warm up"""

    run_dir: Means[Directory | None] = None
    """directory of the run; by default runs/<name>/<timestamp>_seed<seed>"""
    resume: Means[str | None] = None
    """resume from a checkpoint: latest, best, its frames, PATH, RUN@FRAMES, or a mirror's URL"""
    fork: Means[str | None] = None
    """begin a new run from a checkpoint: PATH, RUN (its latest), RUN@best or RUN@FRAMES"""
    allow_change: Means[Names] = ()
    """an option that may differ from the run that is resumed; may be repeated"""
    strict: Means[bool] = True
    """whether a resume is refused where hooks, shapes or versions differ, or only warns of it"""
    save_interval: FreeAmongSeeds[Count] = 5_000
    """frames between two checkpoints"""
    keep_last: Means[Count] = 3
    """how many of the latest checkpoints to keep, in addition to the best one"""
    mirror: Means[str | None] = None
    """copy checkpoints to file:///DIR, s3://BUCKET/DIR, ...; --resume latest fetches them"""
    mirror_keep: Means[Annotated[Count, Needs("mirror")] | None] = None
    """how many of the latest checkpoints the mirror keeps; by default as many as the run"""
    snapshots: Means[Number] = 0
    """policies to save, evenly spaced over the run, to play and to look at: 0, or at least 2"""

    grace: Means[Rate] = GRACE
    """seconds from SIGTERM, SIGINT or SIGHUP to the end of the process, its checkpoint first"""

    device: Means[str | None] = None
    """where the networks are, such as cpu or cuda:1; by default where the placement has them"""
    placement: Means[str | None] = None
    """where the parts run, such as 'learner: gpu:0, collectors: 4@cpu, eval: cpu'"""
    engine: Means[Literal["local", "ray"] | None] = None
    """what collects and evaluates: this process, or Ray's; by default what the placement needs"""
    collectors: Means[Count | None] = None
    """how many processes collect, with --engine ray; by default 1"""
    workers: Means[Number] = 0
    """how many processes step the environments of a collector; 0 for its own"""
    stages: Means[Count] = 1
    """with --workers, parts of the environments that step while the policy acts for the others"""
    overlap: Number | None = None
    """batches collected ahead, in a process next to the learner's; by default, and with 0, none"""
    shards: Count | None = None
    """learners, each a process, whatever number of processes torchrun starts to run them"""

    timeout: Means[Rate] = TIMEOUT
    """seconds after which another process of the run that does not answer ends it"""
    threads: Means[Count | None] = None
    """threads of the CPU that torch computes with; by default one for small networks"""
    deterministic: bool = False
    """compute the same bits on all AMD processors with AVX2, or all Intel ones, in one thread"""

    def __post_init__(self) -> None:
        """Accept one in place of several, a path as text, and lists in place of tuples."""
        for one in fields(self):
            value = without_omegaconf(getattr(self, one.name))
            is_one = isinstance(value, str) or not isinstance(value, (Iterable, type(None)))
            if is_one and isinstance(one.default, tuple):
                value = (value,)
            elif isinstance(value, list):
                value = tuple(value)
            object.__setattr__(self, one.name, value)
        if self.run_dir is not None:
            object.__setattr__(self, "run_dir", Path(self.run_dir))

    @classmethod
    def code_in(cls, values: Mapping[str, Any]) -> str | None:
        """Describe what the values of an untrusted file would import, run or read, if anything."""
        if values.get("hook"):
            return f"the hooks {shown(values['hook'])}"
        wrappers: Any = [(name, {}) for name in values.get("wrappers") or ()]
        return code_of(str(values.get("env", "")), values.get("env_kwargs") or {}, wrappers)

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as plain values, as ``config.yaml`` holds them."""
        plain = to_plain({one.name: getattr(self, one.name) for one in fields(self)})
        hidden = {n: without_password(plain[n]) for n in ("mirror", "resume") if plain[n]}
        return {**plain, **hidden}


FREE_AMONG_SEEDS: Final = marked(RunConfig, Mark.MEANS, Mark.AMONG_SEEDS).union(
    ("total_frames", "total_minutes", "seeds", "tuned", "eval_interval", "eval_episodes", "stop_at")
)
"""Fields in which runs may differ and still be one curve, the mean of their seeds.

The fields of algorithms and recipes among them are listed by name: the length of a run, its
evaluation and the source of its defaults do not change how it learns.
"""

# -- A run's ``config.yaml`` as values: ``--config FILE`` makes the run again.

OPTION: Final = "--config"
TRUST: Final = "--trust"
"""With `OPTION`: import and run what the file names."""
NAME: Final = "name"
"""The entry with the name of the recipe or algorithm."""
_NOT_AGAIN: Final = (NAME, "run_dir", "resume", "fork", "allow_change", "mirror")
"""Entries that belong to the former run and are not applied to the new one."""


def read_named(file: Path) -> dict[str, Any]:
    """Read a configuration; of a run's directory its ``config.yaml``."""
    try:
        return read_config(file / "config.yaml", file) if file.is_dir() else read_config(file)
    except FileNotFoundError:
        raise NotFoundError(f"there is no configuration {file}.") from None


def take_config(words: Sequence[str]) -> tuple[Path | None, bool, list[str]]:
    """Return the file of ``--config``, whether ``--trust`` is given, and the other words."""
    end = words.index("--") if "--" in words else len(words)
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument(OPTION)
    parser.add_argument(TRUST, action="store_true")
    try:
        found, rest = parser.parse_known_args(list(words[:end]))
        if found.config is None:
            return None, False, list(words)
        if found.config:
            return Path(found.config), found.trust, [*rest, *words[end:]]
    except argparse.ArgumentError:
        pass
    raise ConfigError(f"{OPTION}: name the config.yaml of a run.")


def parse_run(
    kind: type[Any],
    words: Sequence[str],
    *,
    default: Callable[[Mapping[str, Any], Sequence[str]], Any] | None = None,
    prog: str | None = None,
    description: str | None = None,
) -> Any:
    """Parse a command line into a run of class ``kind``; see `command_line.parse`.

    The file of ``--config`` has the values of fields that the words do not give.
    ``default`` makes the run that the words modify, from both; by default ``kind(**values)``.

    Raises:
        ConfigError: If the file is no configuration of ``kind``, or an option of several words is
            repeated.
        SystemExit: With 2, if the words do not fit the fields.
        FileNotFoundError: If there is no such file.
    """
    file, trust, rest = take_config(_spelled_out(kind, words))
    options = [field_of(word) for word in rest if word.startswith("--")]
    for name, hint in hints_of(kind).items():
        if hint == tuple[str, ...] and options.count(name) > 1:
            option = f"--{name.replace('_', '-')}"
            raise ConfigError(f"{option} is repeated: write {option} once, and all words after it.")
    saved: Mapping[str, Any] = {}
    if file is not None:
        saved = values_in(kind, file, set(options), trust=trust)
    if default is not None:
        made = default(saved, rest)
    else:
        made = filled(kind, saved) if saved else tyro.MISSING
    return command_line.parse(kind, rest, prog=prog, description=description, default=made)


def _spelled_out(kind: type[Any], words: Sequence[str]) -> list[str]:
    """Give ``--x`` and ``--no-x`` of fields that are ``bool | None`` the values that they mean."""
    switches = {name for name, hint in hints_of(kind).items() if bool | None in _with_members(hint)}
    spelled = []
    for word, following in zip_longest(words, words[1:], fillvalue="-"):
        if word.startswith("--") and "=" not in word and field_of(word) in switches:
            spelled.append(word.replace("--no-", "--", 1))
            if word.startswith("--no-"):
                spelled.append("False")
            elif following.startswith("-"):
                spelled.append("True")
        else:
            spelled.append(word)
    return spelled


def filled(kind: type[Any], values: Mapping[str, Any], known: Mapping[str, Any] = {}) -> Any:
    """Make a run with these values; the command line has to give the other required fields.

    Fields in ``known`` are not required either.
    """
    missing = {
        one.name: tyro.MISSING
        for one in fields(kind)
        if MISSING is one.default is one.default_factory and one.name not in {**known, **values}
    }
    return kind(**values, **missing)


def from_plain(kind: type[Any], plain: Mapping[str, Any], subject: str) -> dict[str, Any]:
    """Convert plain values to those of the fields: lists to tuples, texts to numbers.

    Raises:
        ConfigError: If a field does not exist, or its value is invalid; begins with ``subject``.
    """
    hints = hints_of(kind)
    names = {one.name for one in fields(kind)}
    known = [name for name in names if tyro.conf.Suppress not in get_args(hints[name])]
    made = {}
    for name, value in plain.items():
        if name not in known:
            hint = did_you_mean(name[:80], sorted(known))
            raise ConfigError(f"{subject}: there is no option {one_line(name, 80)}.{hint}")
        try:
            made[name] = _value(value, hints[name])
        except (TypeError, ValueError, OverflowError, RecursionError):
            raise ConfigError(f"{subject}: {name}: {shown(value)} is not a valid value.") from None
    return made


def values_in(
    kind: type[Any], file: Path, given: Collection[str] = (), *, trust: bool = False
) -> dict[str, Any]:
    """Return the values of fields in a file, except those that are ``given`` otherwise.

    Raises:
        ConfigError: If it is no configuration of ``kind``, or imports or runs something that needs
            ``trust``.
        NotFoundError: If there is no such file.
    """
    subject = printable(file)
    plain = {n: v for n, v in read_named(file).items() if n not in {*_NOT_AGAIN, *given}}
    if "seed" in given and plain.get("seeds") == OWN:  # it is not that one of several runs
        del plain["seeds"]
    values = from_plain(kind, plain, subject)
    code = kind.code_in(values) if issubclass(kind, RunConfig) else None
    if code is not None and not trust:
        raise ConfigError(
            f"{subject} needs {code}, which may do anything: look at that, then pass {TRUST}, or "
            "give that option yourself."
        )
    return values


def _value(value: Any, hint: Any) -> Any:
    """Convert a plain value to an annotated type; raise TypeError or ValueError if it is none."""
    kind, arguments = get_origin(hint), get_args(hint)
    if kind is Annotated:
        return _value(value, arguments[0])
    if kind in (Union, types.UnionType):
        if value is None and type(None) in arguments:
            return None
        for member in arguments[:-1]:
            with suppress(TypeError, ValueError):
                return _value(value, member)
        return _value(value, arguments[-1])
    if kind is tuple:
        items = value if isinstance(value, (list, tuple)) else [value]
        if any(isinstance(item, str) and item.startswith("-") for item in items):
            raise ValueError  # as on a command line, no item begins with a dash
        return tuple(_value(item, arguments[0]) for item in items)
    if kind is Literal and isinstance(value, str) and value in arguments:
        return value
    if isinstance(value, dict) and isinstance(kind, type) and issubclass(kind, Mapping):
        return json.loads(json.dumps(value))  # only values of JSON, as on the command line
    if hint is Any and (value is None or type(value) is int):
        return value
    if isinstance(value, str) and hint in (str, Any) and "\0" not in value:
        return value
    if isinstance(value, str) and hint in (float, Path):
        return hint(value)
    if hint is int and type(value) in (str, int, float):
        return whole_number(value if isinstance(value, str) else repr(value))
    if hint is float and type(value) in (int, float):
        return float(value)
    if type(value) is hint is bool:
        return value
    raise TypeError


def field_of(option: str) -> str:
    """Return the field of an option on a command line: ``lr`` for ``--lr=0.1``."""
    name = option[2:].split("=", 1)[0].replace("-", "_")
    return name.removeprefix("no_")
