"""`RunConfig`: the one description of a run, from which everything else about it is read.

Each field is written once, with its type, its default and its help: the Python signature, the
command line, ``config.yaml`` and the comparison at a resume are read off it. An algorithm adds its
own fields (`hooktrainer.algorithms.Algorithm`), and so does a recipe.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from tyro.conf import UseAppendAction

from ..base.plain import to_plain, without_omegaconf
from ..loop.signals import GRACE
from ..policies.trust import code_of
from .fields import Count, FreeAmongSeeds, FreeOnResume, Mark, Means, Number, Rate, Seed, marked

if TYPE_CHECKING:  # what may be given in Python, and is made what the command line gives
    Names = str | Sequence[str]
    Loggers = Any  # an algorithm also takes loggers themselves
    Directory = str | Path
else:
    Names = Loggers = UseAppendAction[tuple[str, ...]]
    Directory = Path


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """What a run is: how long, from which seed, how it is watched, kept, placed and collected.

    A field does nothing by itself: `hooktrainer.run.run.Run` acts on it, or
    `hooktrainer.run.layout.Layout` if it says where something computes.
    """

    total_frames: FreeOnResume[Count]
    """frames after which the run ends"""
    seed: FreeAmongSeeds[Seed] = 0
    """seed of the networks, the environments and the exploration"""

    logger: Means[Loggers] = ()
    """csv, tensorboard, mlflow or wandb; may be repeated; by default csv and tensorboard"""
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
    """go on from a checkpoint: latest, best, its frames, PATH or RUN@FRAMES"""
    fork: Means[str | None] = None
    """begin a new run from a checkpoint: PATH, RUN (its latest), RUN@best or RUN@FRAMES"""
    allow_change: Means[Names] = ()
    """an option that may differ from the run that is resumed; may be repeated"""
    strict: Means[bool] = True
    """whether a resume is refused where hooks, shapes or versions differ, or only warns of it"""
    save_interval: FreeAmongSeeds[Count] = 5_000
    """frames between two checkpoints"""
    keep_last: Means[Count] = 3
    """how many of the latest checkpoints to keep, beside the best one"""
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
    """batches collected ahead, in a process beside the learner's; by default, and with 0, none"""

    timeout: Means[Rate] = 600.0
    """seconds after which another process of the run that does not answer ends it"""
    threads: Means[Count | None] = None
    """threads of the CPU that torch computes with; by default one for small networks"""

    def __post_init__(self) -> None:
        """Accept one name in place of several, a path as text, and lists, which become tuples."""
        for one in fields(self):
            value = without_omegaconf(getattr(self, one.name))
            if one.name in ("logger", "allow_change") and isinstance(value, str):
                value = (value,)
            elif isinstance(value, list):
                value = tuple(value)
            object.__setattr__(self, one.name, value)
        if self.run_dir is not None:
            object.__setattr__(self, "run_dir", Path(self.run_dir))

    @classmethod
    def code_in(cls, values: Mapping[str, Any]) -> str | None:
        """Say what an environment and its arguments would import, run or read; see `code_of`.

        Args:
            values: Values that a file of unknown origin gives, by field.

        Returns:
            That, in words; ``None`` if it is nothing.
        """
        return code_of(str(values.get("env", "")), values.get("env_kwargs") or {}, ())

    def as_dict(self) -> dict[str, Any]:
        """The fields as plain values, as ``config.yaml`` holds them."""
        return to_plain({one.name: getattr(self, one.name) for one in fields(self)})


FREE_AMONG_SEEDS: Final = marked(RunConfig, Mark.MEANS, Mark.AMONG_SEEDS).union(
    ("total_frames", "seeds", "tuned", "eval_interval", "eval_episodes", "stop_at")
)
"""Fields in which runs may differ and still be one curve, the mean of their seeds.

Those that are not of every run are named here, as they are in algorithms and recipes: how long a
run is, how it is evaluated, and where its defaults come from change nothing in how it learns.
"""
