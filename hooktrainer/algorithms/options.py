"""The options that every algorithm takes, beside its own hyperparameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

from ..loop.hook import TrainerHookBase


class Options(TypedDict, total=False):
    """Options of every algorithm; all of them may be left out.

    Attributes:
        seed: Seed of the networks, the environments and the exploration. Default: 0.
        env_kwargs: Keyword arguments of the environment, if that is given by its id.
        run_dir: Directory of the run: its options, its metrics and its checkpoints. Default:
            ``None``, and nothing is written.
        resume: Go on from a checkpoint of ``run_dir``: ``"latest"``, ``"best"`` or its frames.
            Default: ``None``, a new run.
        fork: Begin a new run, in ``run_dir``, from a checkpoint of another: its path, ``"RUN"``,
            ``"RUN@best"`` or ``"RUN@FRAMES"``. Arguments may differ from that run's. Default:
            ``None``.
        allow_change: Names of arguments that may differ from the run that is resumed.
        logger: ``"csv"``, ``"tensorboard"``, ``"mlflow"`` or ``"wandb"``, or several of these,
            which need a ``run_dir``; or a logger of your own. Default: csv and tensorboard where
            there is a ``run_dir``.
        log_interval: Frames in a log window. Default: 5 000, offline 500
            optimizer steps' worth.
        save_interval: Frames between two checkpoints. Default: 10 000, offline 1 000
            optimizer steps' worth.
        keep_last: How many of the latest checkpoints to keep, beside the best one. Default: 3.
        snapshots: How many policies to save over the run, as `PolicySnapshot` does; needs a
            ``run_dir`` and evaluations. Default: 0, none.
        eval_interval: Frames between two evaluations. Default: 5 000, offline 500
            optimizer steps' worth.
        eval_episodes: Episodes per evaluation, played by the deterministic policy; 0 for no
            evaluation. Default: 10.
        stop_at: Mean evaluation return at which the run stops. Default: ``None``, never.
        hooks: Hooks of yours, registered behind the algorithm's. Only these are restored with
            ``resume``; those that are registered later begin anew.
        device: Where the networks are. Default: ``"cpu"``.
        compile: Whether to compile the loss: slower for seconds, faster for a long run. Default:
            false.
        threads: Threads of the CPU that torch computes with. Default: one for small networks, as
            many as torch has for large ones.
        progress_bar: Whether to show a progress bar. Default: true.
        grace: Seconds from SIGTERM, SIGINT or SIGHUP to the end of the process, its checkpoint
            first. Default: 30.
    """

    seed: int
    env_kwargs: Mapping[str, Any]
    run_dir: str | Path | None
    resume: str | None
    fork: str | None
    allow_change: Sequence[str]
    logger: Any
    log_interval: int
    save_interval: int
    keep_last: int
    snapshots: int
    eval_interval: int
    eval_episodes: int
    stop_at: float | None
    hooks: Sequence[TrainerHookBase]
    device: str
    compile: bool
    threads: int | None
    progress_bar: bool
    grace: float
