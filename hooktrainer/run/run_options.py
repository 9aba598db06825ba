"""`RunArgs`: the options that every recipe has, and which of them say what is run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import tyro


@dataclass
class RunArgs:
    """Options that every recipe has."""

    seed: int = 0
    """seed of the networks, the environments and the exploration"""
    run_dir: Path | None = None
    """directory of the run; by default runs/<recipe>/<timestamp>_seed<seed>"""
    resume: str | None = None
    """go on from a checkpoint: latest, best, its frames, PATH or RUN@FRAMES"""
    fork: str | None = None
    """begin a new run from a checkpoint: PATH, RUN (its latest), RUN@best or RUN@FRAMES"""
    allow_change: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """an option that may differ from the run that is resumed; may be repeated"""
    strict: bool = True
    """whether a resume is refused where hooks, shapes or versions differ, or only warns of it"""
    logger: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """csv, tensorboard, mlflow or wandb; may be repeated; by default csv and tensorboard"""
    log_interval: int = 5_000
    """frames in a log window"""
    save_interval: int = 5_000
    """frames between two checkpoints"""
    keep_last: int = 3
    """how many of the latest checkpoints to keep, beside the best one"""
    progress_bar: bool = True
    """whether to show a progress bar"""
    grace: float = 30.0
    """seconds from SIGTERM, SIGINT or SIGHUP to the end of the process, its checkpoint first"""
    placement: str | None = None
    """where the parts run, such as 'learner: gpu:0, collectors: 4@cpu, eval: cpu'"""
    engine: Literal["local", "ray"] | None = None
    """what collects and evaluates: this process, or Ray's; by default what the placement needs"""
    collectors: int | None = None
    """how many processes collect, with --engine ray; by default 1"""
    snapshots: int = 0
    """policies to save, evenly spaced over the run, to play and to look at: 0, or at least 2"""
    workers: int = 0
    """how many processes step the environments of a collector; 0 for its own"""
    stages: int = 1
    """with --workers, parts of the environments that step while the policy acts for the others"""
    overlap: int | None = None
    """batches collected ahead, in a process beside the learner's; by default, and with 0, none"""
    timeout: float = 600.0
    """seconds after which another process of the run that does not answer ends it"""
    threads: int | None = None
    """threads of the CPU that torch computes with; by default one for small networks"""
    trace: int = 0
    """record the first N batches as trace.json, for chrome://tracing and Perfetto"""
    profile: int = 0
    """profile N batches with torch.profiler, after two to warm up"""


# Where a run is kept, with what means it runs and what is kept of it; not what it computes.
_MEANS: Final = frozenset(
    {
        *(
            "run_dir",
            "resume",
            "fork",
            "allow_change",
            "strict",
            "logger",
            "progress_bar",
            "keep_last",
            "grace",
        ),
        *("placement", "engine", "collectors", "workers", "stages"),
        *("snapshots", "threads", "timeout", "trace", "profile"),
    }
)

FREE_ON_RESUME: Final = _MEANS | {"total_frames"}
"""Options that may differ from those of the run that is resumed."""

FREE_AMONG_SEEDS: Final = _MEANS | {"seed", "log_interval", "save_interval"}
"""Options in which runs may differ that are shown as one curve, the mean of their seeds."""
