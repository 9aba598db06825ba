"""What every recipe needs beside its algorithm: options, directory, loggers, checkpoints, resume.

A recipe derives its options from `RunArgs`, makes a `Run` of them, gives the run's options to its
`Trainer`, and lets the run train it::

    def main(args: Args) -> None:
        run = Run(args, "ppo_cartpole")
        ...
        trainer = Trainer(collector=..., **run.trainer_options)
        ...
        run.train(trainer)

    if __name__ == "__main__":
        launch(main)
"""

from __future__ import annotations

import inspect
import shutil
import sys
import typing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import tyro
import yaml
from torch import nn

from .checkpoint import Best, CheckpointManager, Latest, find, list_checkpoints
from .checkpoint.backends import backend_name, get_backend
from .distributed import (
    DataParallel,
    GatheredCheckpoints,
    RankControl,
    Ranks,
    rank_state,
    shard_parameters,
)
from .errors import CheckpointError, ConfigError, StateMismatchError
from .hooks.policy_snapshot import PolicySnapshot, check_snapshots
from .hooks.profiler import Profiler
from .hooks.run_recorder import RunRecorder
from .hooks.tracer import Tracer
from .layout import Layout
from .loggers import get_logger
from .loggers.hparams import to_plain, to_yaml
from .run_dir import RunDir, find_runs
from .trainer import Trainer

Network = TypeVar("Network", bound=nn.Module)

# Options that say where and how long to run, not what: they may change when a run is resumed.
_FREE = {
    *("run_dir", "resume", "allow_change", "logger", "progress_bar", "total_frames", "keep_last"),
    *("placement", "engine", "collectors", "workers", "stages", "trace", "profile", "snapshots"),
}


@dataclass
class RunArgs:
    """Options that every recipe has."""

    seed: int = 0
    """seed of the networks, the environments and the exploration"""
    run_dir: Path | None = None
    """directory of the run; by default runs/<recipe>/<timestamp>_seed<seed>"""
    resume: str | None = None
    """go on from a checkpoint: latest, best, its frames, PATH or RUN@FRAMES"""
    allow_change: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """an option that may differ from the run that is resumed; may be repeated"""
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
    placement: str | None = None
    """where the parts run, such as 'learner: gpu:0, collectors: 4@cpu, eval: cpu'"""
    engine: Literal["local", "ray"] | None = None
    """what collects and evaluates: this process, or Ray's; by default what the placement needs"""
    collectors: int | None = None
    """how many processes collect, with --engine ray; by default 1"""
    snapshots: int = 0
    """how many policies to save over the run, to play and to look at; at least 2, or 0 for none"""
    workers: int = 0
    """how many processes step the environments of a collector; 0 for its own"""
    stages: int = 1
    """with --workers, parts of the environments that step while the policy acts for the others"""
    overlap: int | None = None
    """batches collected ahead, in a process beside the learner's; by default, and with 0, none"""
    trace: int = 0
    """record the first batches, so many, as trace.json, for chrome://tracing and Perfetto"""
    profile: int = 0
    """profile so many batches with torch.profiler, after two to warm up"""


class Run:
    """One run of a recipe.

    What is resumed is found and checked before anything is made. Under ``torchrun`` every process
    has a `Run`; the one of rank 0 finds, makes, logs and saves.

    Args:
        args: The recipe's options.
        experiment: Name of the recipe.

    Attributes:
        dir: The run's directory.
        device: Where the learner computes.

    Raises:
        ConfigError: If options differ from those of the run that is resumed.
        CheckpointError: If there is nothing to resume.
        FileExistsError: If the directory holds a run already.
    """

    def __init__(self, args: RunArgs, experiment: str) -> None:
        self.args = args
        self._ranks = Ranks.join()
        self._layout = Layout.of(args, self._ranks)
        self.device = self._layout.settle()
        self._checkpoints: Any = None
        self._state: Any = None
        self.dir = RunDir(self._ranks.first(lambda: self._open(experiment)))
        if self._ranks.world_size > 1:
            self._checkpoints = GatheredCheckpoints(
                self._ranks, self._checkpoints, self.dir.checkpoints
            )
        leads = self._ranks.rank == 0
        logger_types = args.logger or ("csv", "tensorboard")
        self.trainer_options: dict[str, Any] = {
            "logger": get_logger(logger_types, self.dir, experiment) if leads else None,
            "log_interval": args.log_interval,
            "save_trainer_interval": args.save_interval,
            "checkpoints": self._checkpoints,
            "progress_bar": args.progress_bar and leads,
            "seed": args.seed,
        }

    def _open(self, experiment: str) -> Path:
        """Find and check what is resumed, or make what is new; return the run's directory."""
        args = self.args
        get_backend(backend_name())  # an unknown one is refused before anything is made
        if args.snapshots:
            check_snapshots(args.snapshots)
        for option in ("trace", "profile"):
            if (batches := getattr(args, option)) < 0:
                raise ConfigError(f"--{option} {batches}: give 0 or more.")
        place = _resolve(args, experiment)
        if args.resume is not None and place is not None:
            _check_unchanged(args, RunDir(place))
        run = RunDir.create(
            place, experiment=experiment, seed=args.seed, resume=args.resume is not None
        )
        best = Best(1, "eval/return")
        self._checkpoints = CheckpointManager(
            run.checkpoints, keep=Latest(args.keep_last) | best, config=to_plain(args)
        )
        if args.resume is not None:
            listing = list_checkpoints(run.checkpoints)
            if listing.checkpoints or listing.damaged:
                checkpoint, self._state = self._checkpoints.load(args.resume)
                print(f"resumed from {checkpoint.path}")
            else:
                _forget_logs(run)
        return run.path

    def fully_shard(self, network: Network) -> Network:
        """Share a network's parameters out among the processes that ``torchrun`` started (FSDP2).

        For networks too large for one device. Call it before the optimizer, the policy or the value
        network is made; use a torch optimizer, not `FlatAdam`. One process leaves it as it is.

        Args:
            network: A module that is called through its ``forward``.

        Returns:
            The same network.
        """
        shard_parameters(network, self._ranks)
        return network

    def train(self, trainer: Trainer) -> None:
        """Record, resume and train."""
        self.attach(trainer)
        trainer.train()

    def attach(self, trainer: Trainer) -> None:
        """Record what ``trainer`` does, and restore the run that is resumed."""
        leads = self._ranks.rank == 0
        if leads:
            RunRecorder(self.dir, self.args).register(trainer)
            self._instrument(trainer)
        self._layout.apply(trainer)
        if self._ranks.world_size > 1:
            DataParallel(self._ranks).register(trainer)
        resumed = rank_state(trainer, self._ranks, self._state)
        if resumed is not None:
            trainer.load_state_dict(resumed.state)
            if leads and resumed.note is not None:
                print(resumed.note)
        if isinstance(trainer.control, RankControl):
            trainer.control.agree("the start of the run")
        if resumed is not None and leads:
            if trainer.stop_reason is not None:
                print(
                    f"nothing left to do, the run has ended: {trainer.stop_reason}. To go on, give "
                    "the option that ended it another value, and accept that with --allow-change."
                )
            elif trainer.collected_frames >= trainer.total_frames:
                print("nothing left to do, the run is finished; a larger --total-frames goes on.")

    def _instrument(self, trainer: Trainer) -> None:
        """Record what ``--snapshots``, ``--trace`` and ``--profile`` ask for."""
        if self.args.snapshots:
            PolicySnapshot.of(trainer, self.dir, snapshots=self.args.snapshots).register(trainer)
        if self.args.trace:
            Tracer(self.dir.trace, self.args.trace).register(trainer)
        if self.args.profile:
            Profiler(self.dir.profile, active=self.args.profile).register(trainer)


def launch(main: Callable[[Any], None]) -> None:
    """Run a recipe from the command line: parse its options, and say mistakes in one line.

    Args:
        main: Takes the recipe's options, a dataclass named by its annotation.

    Raises:
        SystemExit: With code 2 if the options cannot work, 130 if a second signal aborts the run.
    """
    (parameter,) = inspect.signature(main).parameters
    args_type = typing.get_type_hints(main)[parameter]
    args = tyro.cli(args_type, description=inspect.getmodule(main).__doc__)
    with mistakes_in_one_line():
        main(args)


@contextmanager
def mistakes_in_one_line() -> Iterator[None]:
    """In the block, an error that is the user's is said in one line instead of a traceback.

    Raises:
        SystemExit: With code 2, in place of such an error; 130, in place of an interruption.
    """
    try:
        yield
    except (ConfigError, CheckpointError, StateMismatchError, FileExistsError) as error:
        print(f"error: {error}", file=sys.stderr)
        for note in getattr(error, "__notes__", []):
            print(f"  {note}", file=sys.stderr)
        raise SystemExit(2) from None
    except (FileNotFoundError, ModuleNotFoundError) as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    except KeyboardInterrupt as error:
        print(f"aborted by {str(error) or 'SIGINT'}; --resume latest goes on.", file=sys.stderr)
        raise SystemExit(130) from None


def _resolve(args: RunArgs, experiment: str) -> Path | None:
    """The directory of the run to make or to resume; ``None`` for a new one of the usual name."""
    if args.resume is None:
        return args.run_dir
    if args.resume in ("latest", "best") or args.resume.isdecimal():
        place = args.run_dir or _newest_run(experiment)
        if not RunDir(place).holds_run:
            raise CheckpointError(f"--resume {args.resume}: {place} holds no run.")
        if args.resume != "latest":
            find(args.resume, place)
        return place
    place = find(args.resume)[0].parent.parent
    if args.run_dir is not None and args.run_dir.resolve() != place:
        raise ConfigError(
            f"--resume {args.resume} is a checkpoint of {place}, but --run-dir is {args.run_dir}; "
            "leave out --run-dir."
        )
    return place


def _newest_run(experiment: str) -> Path:
    runs = find_runs("runs", experiment)
    if not runs:
        raise CheckpointError(
            f"there is no run of {experiment} below runs/ to resume; name one with --run-dir."
        )
    return runs[-1].path


def _check_unchanged(args: RunArgs, run: RunDir) -> None:
    """Refuse options that differ from those of the run, unless each was allowed to."""
    saved = run.read_config()
    now = yaml.safe_load(to_yaml(to_plain(args)))
    allowed = _FREE | {name.replace("-", "_") for name in args.allow_change}
    changed = {k for k in saved.keys() | now.keys() if saved.get(k) != now.get(k)} - allowed
    if saved and changed:
        lines = [f"  {k}: {saved.get(k)!r} before, {now.get(k)!r} now" for k in sorted(changed)]
        flags = " ".join(f"--allow-change {k.replace('_', '-')}" for k in sorted(changed))
        raise ConfigError(
            f"{run.path} was run with other options:\n" + "\n".join(lines) + "\n"
            f"Give the old values, or accept the new ones: {flags}"
        )


def _forget_logs(run: RunDir) -> None:
    """Delete the logs of a start that committed nothing; it is about to be repeated."""
    run.metrics.unlink(missing_ok=True)
    shutil.rmtree(run.logs, ignore_errors=True)
