"""`SavedPolicy`: a policy on disk, its evaluation, and finding the policies of a run."""

from __future__ import annotations

import dataclasses
import logging
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..base.checks import EVALUATION_SEED
from ..base.untrusted import decode_data, refusing
from ..base.words import listed, shell_word, which
from ..errors import CheckpointError, DamagedCheckpointError
from ..store.stored import NAME
from .environment import Environment
from .packed import PACKED, check_packed
from .policy_files import DIRECTORY, FACTS, LATEST, file_record, read_facts

_log = logging.getLogger(__name__)
METRIC = "eval/return"
"""The metric of a policy's evaluation."""
_MOST_SECONDS = 1e11


@dataclasses.dataclass(frozen=True)
class SavedPolicy:
    """A policy on disk: the content of its ``policy.json``.

    Attributes:
        path: Its directory.
        frames: Environment frames of the run when it was saved.
        optim_steps: Optimizer steps of the run so far.
        seconds: Seconds of training so far.
        time: When it was saved, in seconds since 1970.
        environment: How to make its environment again.
        frame_skip: How often each action is repeated.
        recurrent: Whether it has hidden states.
        evaluation: Its evaluation; ``None`` if there is none yet.
        nbytes: Size of its file, in bytes.
        versions: Versions of Python and the libraries that saved it.
        git_commit: Commit of the user's project.
        run_id: The run that saved it, if any.
    """

    path: Path
    frames: int
    optim_steps: int
    seconds: float
    time: float
    environment: Environment
    frame_skip: int = 1
    recurrent: bool = False
    evaluation: Evaluation | None = None
    nbytes: int = 0
    versions: Mapping[str, str | None] = dataclasses.field(default_factory=dict)
    git_commit: str | None = None
    run_id: str | None = None

    @property
    def env_id(self) -> str | None:
        """Id of the environment; ``None`` if a function makes it."""
        return self.environment.id

    @property
    def env_kwargs(self) -> dict[str, Any]:
        """Keyword arguments of the environment, with an id."""
        return dict(self.environment.kwargs)

    @property
    def mean(self) -> float:
        """Mean return of the evaluation; NaN if there is none."""
        return math.nan if self.evaluation is None else self.evaluation.mean

    @property
    def metrics(self) -> dict[str, float]:
        """The mean return as ``eval/return``, by which `Best` ranks; empty without one."""
        return {} if self.evaluation is None else {METRIC: self.mean}

    @property
    def sizes(self) -> dict[str, int]:
        """Bytes of its file."""
        return {str(self.path): self.nbytes}

    @classmethod
    def open(cls, path: Path) -> SavedPolicy:
        """Read the ``policy.json`` of a directory."""
        facts = read_facts(path)
        with refusing(f"{path} is damaged: {FACTS}", DamagedCheckpointError):
            given = {
                **facts,
                "path": path,
                "environment": Environment.decode(facts["env"]),
                "nbytes": file_record(facts)[0],
                "versions": facts.get("versions") or {},
            }
            found = decode_data(cls, given)
            times = found.seconds, found.time
            if not all(0 <= time < _MOST_SECONDS for time in times) or found.frame_skip < 1:
                raise ValueError(f"times {times}, {found.frame_skip} frames a step")
            return found


def policy_directory(run: str | os.PathLike[str]) -> Path:
    """Return a run's directory of policies; ``run`` may be that directory, or a copy of it."""
    path = Path(run)
    inside = path / DIRECTORY
    if not inside.is_dir() and (path.name == DIRECTORY or any(path.glob(f"step_*/{FACTS}"))):
        return path
    return inside


def scan_policies(directory: Path) -> tuple[list[SavedPolicy], dict[Path, str]]:
    """Return the policies in a directory by frames, and error messages of damaged ones by path.

    One that is deleted meanwhile is left out.
    """
    found, damaged = [], {}
    for path in sorted(directory.iterdir()) if directory.is_dir() else []:
        if NAME.fullmatch(path.name):
            if path.is_symlink():  # to what is not this run's
                damaged[path] = f"{path} is damaged: it is a link."
                continue
            try:
                found.append(SavedPolicy.open(path))
            except CheckpointError as error:
                if path.is_dir():
                    damaged[path] = str(error)
    return sorted(found, key=lambda saved: saved.frames), damaged


def list_policies(run: str | os.PathLike[str]) -> list[SavedPolicy]:
    """List the saved policies of a run's directory, the earliest first, without damaged ones."""
    return scan_policies(policy_directory(run))[0]


def best_policy(policies: list[SavedPolicy]) -> SavedPolicy | None:
    """Return the policy with the highest mean return, the later of equal ones, if any has one."""
    rated = [saved for saved in policies if not math.isnan(saved.mean)]
    return max(rated, key=lambda saved: (saved.mean, saved.frames), default=None)


def find_policy(spec: str | os.PathLike[str]) -> SavedPolicy:
    """Return the saved policy that a specification names, or raise a `CheckpointError`.

    Args:
        spec: The path of a policy or of a run (its latest), or ``RUN@latest``, ``RUN@best`` (the
            highest mean return) or ``RUN@FRAMES``; or a file of `hooktrainer pack`.
    """
    word, path = "latest", Path(spec)
    if path.is_file() and path.suffix == PACKED:
        check_packed(path)
        return SavedPolicy.open(path)
    if not path.exists():
        run, at, last = os.fspath(spec).rpartition("@")
        if at and (named := which(last)) is not None:
            word, path = named, Path(run)
        elif path.name == LATEST:
            path = path.parent
    if (path / FACTS).is_file() or NAME.fullmatch(path.resolve().name):
        if not path.is_dir():
            raise CheckpointError(f"there is no policy {path}. {_what_there_is(path.parent)}")
        return SavedPolicy.open(path)
    if not path.is_dir():
        from ..store.lookup import no_run

        raise CheckpointError(no_run(path))
    directory = policy_directory(path)
    from ..store.run_dir import RunDir

    if not directory.is_dir() and not RunDir(path).holds_run:
        raise CheckpointError(f"{path} holds no run: no run.json, no policies.")
    return _find_in(directory, word)


def _find_in(directory: Path, word: str) -> SavedPolicy:
    policies, damaged = scan_policies(directory)
    for path, reason in damaged.items() if policies else ():
        if word == "best" or (word == "latest" and path.name > policies[-1].path.name):
            _log.warning("left out: %s", reason)
    if word == "best":
        if (best := best_policy(policies)) is not None:
            return best
        if policies:
            raise CheckpointError(
                f"no policy in {directory} has been evaluated, so none is the best: run "
                f"hooktrainer policies evaluate {shell_word(directory.parent)}."
            )
    else:
        for saved in reversed(policies):
            if word == "latest" or saved.frames == int(word):
                return saved
        for path, reason in damaged.items():
            match = NAME.fullmatch(path.name)
            if word == "latest" or (match is not None and int(match[1]) == int(word)):
                raise DamagedCheckpointError(reason)
    raise CheckpointError(f"there is no policy {word!r}. {_what_there_is(directory)}")


def _what_there_is(directory: Path) -> str:
    frames = [saved.frames for saved in scan_policies(directory)[0]]
    if frames:
        return f"{directory} has those at frames {listed(frames)}."
    return f"{directory} has none: train with --snapshots N, or with the hook PolicySnapshot."


SEED = EVALUATION_SEED
EPISODES = 10


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Returns of episodes of the deterministic policy.

    Attributes:
        seed: The seed of all episodes; see `episode_seed`.
        returns: Undiscounted return of each episode, in order.
        lengths: Number of actions of each.
        seconds: Time that all of them took.
    """

    seed: int
    returns: tuple[float, ...]
    lengths: tuple[int, ...]
    seconds: float = 0.0

    @property
    def episodes(self) -> int:
        """Number of episodes."""
        return len(self.returns)

    @property
    def mean(self) -> float:
        """Mean of the returns; NaN if it is not finite."""
        return _mean(self.returns)

    @property
    def std(self) -> float:
        """Standard deviation of the returns (no Bessel correction)."""
        mean = self.mean
        return math.sqrt(_mean([(value - mean) * (value - mean) for value in self.returns]))

    @property
    def mean_length(self) -> float:
        """Mean of the lengths."""
        return sum(self.lengths) / len(self.lengths)

    def encode(self) -> dict[str, Any]:
        """Return plain data, with mean and deviation for readers of the file."""
        more = {"episodes": self.episodes, "mean": self.mean, "std": self.std}
        return {**dataclasses.asdict(self), **more}

    def __post_init__(self) -> None:
        if not self.returns or len(self.returns) != len(self.lengths):
            raise ValueError(f"{len(self.returns)} returns and {len(self.lengths)} lengths")


def _mean(values: Sequence[float]) -> float:
    try:
        return math.fsum(values) / len(values)
    except (ValueError, OverflowError):  # of infinities, or nearly
        return math.nan
