"""`Run`: the directory, loggers, checkpoints, placement and resume of one run of a recipe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
import yaml

from ..base.checks import check_count
from ..base.cores import pin
from ..base.imports import check_may_train, import_named
from ..base.kernels import pin_kernels
from ..base.plain import to_yaml
from ..base.words import printable, shell_word, which, without_password
from ..errors import CheckpointError, ConfigError
from ..hooks.policy_snapshot import PolicySnapshot
from ..hooks.profiler import Profiler, Tracer
from ..hooks.run_recorder import RunRecorder
from ..log.sink import DEFAULT_LOGGERS, check_kinds
from ..loop.hook import TrainerHookBase
from ..loop.state import branched
from ..networks.layers import Network
from ..store import Best, Checkpoint, CheckpointManager, Last, Mirror, fetch, find, list_checkpoints
from ..store.backends import backend_name, get_backend
from ..store.lookup import find_runs, run_of
from ..store.mirror import is_url
from ..store.run_dir import RunDir, new_directory
from ..trainer import Trainer
from .config import Mark, RunConfig, check_ranges, marked
from .get_logger import get_logger
from .placement import Machine, Place, places_of
from .ranks.data_parallel import DataParallel
from .ranks.gradients import shard_parameters
from .ranks.rank_state import GatheredCheckpoints, rank_state
from .ranks.ranks import RankControl, Ranks

# -- `Layout`: the placement of a run's parts.


class Layout:
    """Places the learner, the collectors and the evaluation of a run by its options.

    Pins this process to the learner's cores, or selects its GPU.

    Args:
        args: The options of a run.
        ranks: The learners.
        collects: Whether the run has environments to collect from, not a data set.

    Attributes:
        engine: ``"local"`` or ``"ray"``.
        collectors: Place and number of the collecting processes.
        device: Where the learner computes.

    Raises:
        ConfigError: If a device does not exist, or the options contradict each other.
    """

    def __init__(self, args: RunConfig, ranks: Ranks, *, collects: bool = True) -> None:
        asked = f"--placement {args.placement!r}"
        places = {} if args.placement is None else places_of(args.placement, Machine.here())
        learner, place = places.get("learner", Place()), places.get("collectors", Place())
        if args.collectors is not None:
            if place.count is None and not place.numbers:
                place = replace(place, count=args.collectors)
            elif args.collectors != place.processes:
                raise ConfigError(f"--collectors {args.collectors} contradicts {asked}.")
        needs_ray = place.processes > 1 or any(
            part.kind == "node"
            or (part.numbers and part.kind == "cpu")
            or part.kind != learner.kind
            for name, part in places.items()
            if name != "learner"
        )
        self.engine = args.engine or ("ray" if needs_ray else "local")
        counted = args.shards is None and (learner.kind == "gpu" or learner.count is not None)
        processes = args.overlap or args.workers or self.engine == "ray" or ranks.world_size > 1
        contradictions = {
            "this recipe trains on a data set and collects nothing: leave out --overlap, "
            "--workers, --collectors, --engine ray, a placement of collectors, --shards and "
            "torchrun.": (bool(processes) and not collects),
            f"{asked}, --collectors {args.collectors}: these need processes of their own; use "
            "--engine ray.": needs_ray and self.engine == "local",
            "--engine ray has one learner; torchrun and --shards start several: leave it out.": (
                self.engine == "ray" and ranks.world_size > 1
            ),
            f"{asked} needs as many learners, and there are {ranks.world_size} processes: start it "
            "with torchrun --nproc-per-node.": counted and learner.processes != ranks.world_size,
            f"--device {args.device} and {asked} both place the learner: leave one out.": (
                args.device is not None and "learner" in places
            ),
            f"--timeout {args.timeout:g}: give more than 0 seconds.": not args.timeout > 0,
            f"--stages {args.stages}: stages need processes; add --workers 2.": (
                args.stages > 1 and not args.workers
            ),
        }
        for message, is_true in contradictions.items():
            if is_true:
                raise ConfigError(message)
        self.collectors = place
        self._args = args
        self._places = places
        self._overlap = args.overlap if collects else None
        self.device = torch.device("cpu")
        if args.device is not None:
            try:
                self.device = torch.device(args.device)
                torch.empty(0, device=self.device)
            except (RuntimeError, AssertionError, TypeError) as error:
                reason = str(error).split("\n", 1)[0]
                raise ConfigError(f"device={args.device!r} is not available: {reason}") from None
        elif learner.kind == "gpu":
            self.device = torch.device("cuda", learner.number(ranks.local_rank) or 0)
            torch.cuda.set_device(self.device)
        elif learner.numbers:
            share = args.shards is None and len(learner.numbers) >= ranks.world_size > 1
            pin([learner.number(ranks.local_rank)] if share else learner.numbers)

    def apply(self, trainer: Trainer) -> None:
        """Place the collector and the evaluation of ``trainer``.

        Raises:
            ConfigError: If networks are not on the learner's device.
        """
        if self.device.type != "cpu" and isinstance(trainer.loss_module, torch.nn.Module):
            kinds = {parameter.device.type for parameter in trainer.loss_module.parameters()}
            if elsewhere := kinds - {self.device.type}:
                raise ConfigError(
                    f"the learner belongs on {self.device}, and networks of this recipe are on "
                    f"{', '.join(sorted(elsewhere))}: move them with .to(run.device)."
                )
        timeout = self._args.timeout
        if workers := self._args.workers:
            trainer.source.use_workers(workers, self._args.stages, timeout=timeout)
            timeout *= 2  # so that the process that waits for a silent worker can name it
        if self.engine == "ray":
            from .ray.ray_collector import use_ray

            evaluation = self._places.get("eval", Place())
            use_ray(
                trainer, self.collectors, evaluation, overlap=self._overlap or 0, timeout=timeout
            )
        elif self._overlap is not None:
            from ..collect.overlap import OverlappedCollector

            overlapped = OverlappedCollector(trainer.collector, self._overlap, timeout=timeout)
            trainer.collector = overlapped
            overlapped.register_alone(trainer)


class Run:
    """One run of a recipe.

    Under ``torchrun`` every process has a `Run`; the one of rank 0 finds, makes, logs and saves.

    Args:
        args: The recipe's options.
        experiment: Name of the recipe.
        collects: Whether the recipe collects from environments, not from a data set.
        keep: Whether it has a directory; a new one is made if ``run_dir`` is ``None``.
        loggers: Further loggers, in addition to those of the options.
        report: Whether to print a summary of times and results at the end.
        best: Which checkpoint to keep as the best, in addition to the latest; by default by
            ``eval/return``.

    Attributes:
        device: Where the learner computes.

    Raises:
        ConfigError: If the options contradict each other.
    """

    def __init__(
        self,
        args: RunConfig,
        experiment: str,
        *,
        collects: bool = True,
        keep: bool = True,
        loggers: Sequence[Any] = (),
        report: bool = True,
        best: Best | None = None,
    ) -> None:
        check_may_train()
        check_kinds(args.logger)
        check_ranges(experiment, args)
        if args.snapshots:
            check_count("snapshots", args.snapshots, least=2)
        if args.deterministic:
            pin_kernels()
        self.args = args
        self._config = {"name": experiment, **args.as_dict()}
        self._ranks = Ranks.join(args.timeout, args.shards)
        self._leads = self._ranks.rank == 0
        self._layout = Layout(args, self._ranks, collects=collects)
        self.device = self._layout.device
        self._checkpoints: Any = None
        self._state: Any = None
        self._parent: Checkpoint | None = None
        self._changed = False  # whether accepted options differ from those of the state
        self._experiment = experiment
        self._keep = keep
        self._loggers = list(loggers)
        self._report = report
        self._best = best or Best(1, "eval/return")
        if not keep:
            for name in ("resume", "fork", "logger", "snapshots", "trace", "profile", "mirror"):
                if value := getattr(args, name):
                    raise ConfigError(f"{name}={without_password(repr(value))} needs a run_dir.")

    @cached_property
    def dir(self) -> RunDir:
        """The run's directory, opened at the first use.

        Only then is a run to resume found and checked, or a new one made: a network or environment
        that cannot be built leaves no directory.

        Raises:
            ConfigError: If options differ from those of the run that is resumed, or the run keeps
                nothing.
            CheckpointError: If there is no checkpoint to resume.
            TakenError: If the directory holds a run already.
        """
        if not self._keep:
            raise ConfigError("this run has no directory: give it a run_dir.")
        try:
            opened = self._ranks.first(self._open)
        except ConfigError:
            raise
        except OSError as error:
            raise ConfigError(
                f"{error.filename}: {error.strerror}. A run writes to its directory: make room for "
                "it, or choose another --run-dir."
            ) from error
        if self._ranks.world_size > 1:
            self._checkpoints = GatheredCheckpoints(
                self._ranks, self._checkpoints, opened.checkpoints
            )
        return opened

    @property
    def holds_state(self) -> bool:
        """Whether the state of a run that is resumed or forked is restored; opens the directory.

        Not so with ``resume="latest"`` if the run was killed before its first checkpoint.
        """
        if not self._keep:
            return False
        self.dir  # noqa: B018 - all ranks open it together
        return self._ranks.first(lambda: self._state is not None)

    @cached_property
    def trainer_options(self) -> dict[str, Any]:
        """Arguments of the `Trainer` that follow from the options. Opens the run's directory."""
        args, leads = self.args, self._leads
        loggers = list(self._loggers) if leads else []
        if self._keep:
            place = self.dir  # all ranks open it together
            if leads:
                kinds = args.logger or DEFAULT_LOGGERS
                loggers.insert(0, get_logger(kinds, place, self._experiment))
        return {
            "logger": loggers,
            "log_interval": args.log_interval,
            "save_trainer_interval": args.save_interval,
            "checkpoints": self._checkpoints,
            "progress_bar": args.progress_bar and leads,
            "grace": args.grace,
            "seed": args.seed,
            "threads": args.threads,
        }

    def _open(self) -> RunDir:
        """Find and check the run to resume, or make a new one."""
        args, experiment = self.args, self._experiment
        get_backend(backend_name())  # an unknown one is refused before anything is made
        place, resume = args.run_dir, args.resume
        mirror = None
        if args.mirror is not None:
            mirror = Mirror(args.mirror, keep=args.mirror_keep or args.keep_last)
        if is_url(resume) or (mirror is not None and resume == "latest"):
            place, resume = fetched(args, experiment)
        elif resume is not None or args.fork is not None:
            place, resume = directory_of(args, experiment)
        run = RunDir.create(
            place, experiment=experiment, seed=args.seed, resume=resume is not None, begin=False
        )
        keep = Last(args.keep_last) | self._best
        self._checkpoints = CheckpointManager(  # refuses a run that another process trains
            run.checkpoints, keep=keep, config=self._config, run_id=run.run_id, mirror=mirror
        )
        try:
            fork = args.fork if resume is None else self._resume(run, resume)
            if fork is not None:
                self._fork(run, Checkpoint.open(find(fork)[0]))
            elif self._state is None:  # a resumed run begins when its state is known to fit
                run.begin(experiment=experiment, seed=args.seed)
        except BaseException:
            self._checkpoints.close()
            raise
        return run

    def _resume(self, run: RunDir, spec: str) -> str | None:
        """Load the state to resume; without one, return the checkpoint that the run forked from."""
        listing = list_checkpoints(run.checkpoints, run_id=run.run_id)
        if spec == "latest" and not (listing.checkpoints or listing.damaged or listing.foreign):
            check_unchanged(self.args, self._config, run.read_config(), run.path)
            run.forget_logs()  # the start without a checkpoint is repeated
            parent = run.forked_from
            return None if parent is None else str(parent["path"])
        checkpoint, self._state = self._checkpoints.load(spec)
        saved = checkpoint.manifest.config
        self._changed = check_unchanged(self.args, self._config, saved, run.path)
        print(f"resumed from {printable(checkpoint.path)}")
        return None

    def _fork(self, run: RunDir, parent: Checkpoint) -> None:
        """Begin a run that branches off another; ``run.json`` records this before loading."""
        seed, origin = self.args.seed, parent.as_parent()
        run.begin(experiment=self._experiment, seed=seed, forked_from=origin)
        self._parent, self._state = self._checkpoints.fork(parent.path)
        self._changed = True
        here = f"this is run {run.run_id} in {printable(run.path)}"
        print(f"forked from {printable(parent.path)}: {here}")

    def fully_shard(self, network: Network) -> Network:
        """Shard a network's parameters over the processes that ``torchrun`` started (FSDP2).

        For networks too large for one device. Call it before the optimizer, the policy or the value
        network is made; use a torch optimizer, not `FlatAdam`. One process leaves it unchanged.

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

    def attach(self, trainer: Trainer, *, more: str | None = None) -> None:
        """Record what ``trainer`` does, and restore the run that is resumed.

        Args:
            trainer: The trainer.
            more: How to continue a run that has ended; by default by ``hooktrainer resume``.
        """
        try:
            self._record(trainer)
            is_shared = self._ranks.world_size > 1
            is_resumed = (is_shared or self._state is not None) and self._restore(trainer)
            if isinstance(trainer.control, RankControl):
                trainer.control.agree("the start of the run")
            if self._parent is not None:
                if trainer.has_ended:
                    has = f"{trainer.progress.frames:,} {trainer.source.unit}"
                    why = trainer.stop_reason or f"it has all its {has}"
                    raise ConfigError(
                        f"--fork {self._parent.path}: nothing is left to do, {why}. Give a larger "
                        "--total-frames, or another value of the option that ended it."
                    )
                self._checkpoints.resume(self._state)  # saved here: a kill from now on resumes it
            elif is_resumed and self._leads and trainer.has_ended:
                why = trainer.stop_reason or "the run is finished"
                if more is None:
                    frames = f"--total-frames {2 * trainer.progress.frames}"
                    frames = "with more epochs" if trainer.source.ended else frames
                    more = (
                        f"More {trainer.source.unit}: hooktrainer resume "
                        f"{shell_word(self.dir.path)} -- {frames}; another option that ended it: "
                        "give it another value, and --allow-change."
                    )
                print(f"nothing left to do: {why}. {more}")
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """Release the directory of a run that cannot begin, for another run."""
        if self._checkpoints is None:
            return
        if self._leads and self.args.resume is None and "dir" in vars(self):
            self.dir.update(status="failed", reason="it could not begin")
        self._checkpoints.close()

    def _record(self, trainer: Trainer) -> None:
        leads, args = self._leads, self.args
        if leads and self._keep:
            RunRecorder(self.dir, self._config, report=self._report).register(trainer)
            if args.snapshots:
                PolicySnapshot.of(trainer, self.dir, snapshots=args.snapshots).register(trainer)
            if args.trace:
                Tracer(self.dir.trace, args.trace).register(trainer)
            if args.profile:
                Profiler(self.dir.profile, active=args.profile).register(trainer)
        for name in args.hook:
            _made(name).register(trainer)
        if args.stop_when is not None:
            from ..hooks.stop_when import StopWhen  # which not every run needs

            StopWhen(args.stop_when, debug=args.debug).register(trainer)
        if args.total_minutes is not None:
            trainer.register_op("post_steps", partial(_stop_in_time, trainer, args.total_minutes))
        self._layout.apply(trainer)
        if self._ranks.world_size > 1:
            DataParallel(self._ranks).register(trainer)

    def _restore(self, trainer: Trainer) -> bool:
        """Load the state of this rank; return whether there is one."""
        if self._leads and self._parent is not None:
            reseed = self._parent.manifest.config.get("seed") != self.args.seed
            self._state = branched(self._state, trainer.components(), reseed=reseed)
        found = rank_state(trainer, self._ranks, self._state, changed=self._changed)
        if found is None:
            return False
        state, note = found
        trainer.load_state_dict(state, strict=self.args.strict, copy=False)
        if self.args.total_minutes is not None:
            _stop_in_time(trainer, self.args.total_minutes)
        if self._leads and self._parent is None:
            self.dir.begin(forked_from=self._checkpoints.forked_from)
        if self._leads and note is not None:
            print(note)
        return True


def _made(name: str) -> TrainerHookBase:
    """Make the hook of the class that ``--hook`` names; one without state is not saved."""
    kind = import_named(name)
    if not (isinstance(kind, type) and issubclass(kind, TrainerHookBase)):
        raise ConfigError(
            f"--hook {name}: {kind!r:.80} is no class derived from TrainerHookBase: derive one, "
            "with the hook point as at = ... and the function as __call__."
        )
    try:
        hook = kind()
    except TypeError as error:
        raise ConfigError(
            f"--hook {name}: {error}. It is made without arguments: give them defaults, or derive "
            "a class that passes them."
        ) from error
    if not hook.state_dict():
        hook.is_saved = False
    return hook


def _stop_in_time(trainer: Trainer, minutes: float) -> None:
    if trainer.progress.seconds >= 60 * minutes:
        trainer.request_stop(f"{minutes:g} minutes of training are over", status="finished")


# -- The run or checkpoint that ``--resume`` and ``--fork`` name; options that differ from its own.


def directory_of(args: RunConfig, experiment: str) -> tuple[Path | None, str | None]:
    """Find the directory of the run to make or to resume.

    ``--resume latest`` begins a run in a ``--run-dir`` that holds none, so that the same command
    starts and continues it.

    Returns:
        The directory, ``None`` for a new one, and what to resume there.

    Raises:
        CheckpointError: If there is no such run or checkpoint.
        ConfigError: If the options contradict each other.
    """
    given, resume = args.run_dir, args.resume
    if args.fork is not None:
        if resume is not None:
            raise ConfigError(
                f"--fork {args.fork} begins a new run, and --resume {resume} continues one: "
                "give one of them."
            )
        find(args.fork)  # before anything is made
    if resume is None:
        return None if given is None else Path(given), None
    if which(resume) is not None:
        if given is None and not (runs := find_runs("runs", experiment)):
            raise CheckpointError(
                f"there is no run of {experiment} below runs/ to resume; name one with --run-dir."
            )
        place = runs[-1].path if given is None else Path(given)
        if not RunDir(place).holds_run:
            if resume != "latest":
                raise CheckpointError(f"--resume {resume}: {place} holds no run.")
            print(f"{printable(place)} holds no run: it begins.")
            return place, None
        if resume != "latest":
            find(resume, place)
        return place, resume
    checkpoint = find(resume)[0]
    run = run_of(checkpoint) if given is None else Path(given)
    if run is None or not RunDir(run).holds_run:
        raise ConfigError(
            f"--resume {resume}: {run or 'its directory'} holds no run. Name its run with "
            f"--run-dir, or begin a new one from it: --fork {checkpoint}"
        )
    return run, resume


def fetched(args: RunConfig, experiment: str) -> tuple[Path, str | None]:
    """Fetch the checkpoint to resume from a mirror, if need be.

    With ``--resume latest``, a run whose directory has checkpoints resumes from those. One that has
    none anywhere begins, so that the same command starts and continues it.

    Returns:
        The run's directory, and what to resume there: ``None`` if the run begins.

    Raises:
        CheckpointError: If the mirror cannot be read, or ``--resume URL`` has no checkpoint.
        ConfigError: If the options contradict each other.
    """
    is_latest, place = args.resume == "latest", args.run_dir
    url = (args.mirror if is_latest else args.resume) or ""
    name = without_password(url)
    if args.fork is not None:
        raise ConfigError(f"--resume {name} continues a run: leave out --fork {args.fork}.")
    if place is None:
        runs = find_runs("runs", experiment) if is_latest else []
        place = runs[-1].path if runs else new_directory(Path("runs") / experiment, args.seed)
    run = RunDir(place)
    if is_latest and any(run.checkpoints.glob("step_*")):
        return run.path, "latest"
    found = fetch(url, run.path)
    if found is not None:
        print(f"fetched {printable(found.path)} from {printable(name)}")
        return run.path, str(found.path)
    if not is_latest:
        raise CheckpointError(f"--resume {name}: there is no checkpoint.")
    print(f"neither {printable(run.path)} nor {printable(name)} has a checkpoint: the run begins.")
    return run.path, "latest" if run.holds_run else None


def check_unchanged(
    args: RunConfig, config: Mapping[str, Any], saved: Mapping[str, Any], place: Path
) -> bool:
    """Refuse options that differ from ``saved``, those of the run in ``place``, unless allowed.

    Returns:
        Whether options that ``allow_change`` names differ.

    Raises:
        ConfigError: If other options differ; it lists them all.
    """
    free = marked(type(args), Mark.MEANS, Mark.ON_RESUME)
    before, now = yaml.safe_load(to_yaml(saved)), yaml.safe_load(to_yaml(config))
    names = (before.keys() | now.keys()) - free if before else set()
    allowed = {name.replace("-", "_") for name in args.allow_change}
    differing = {name for name in names if before.get(name) != now.get(name)}
    if refused := differing - allowed:
        lines = [f"  {k}: {before.get(k)!r} before, {now.get(k)!r} now" for k in sorted(refused)]
        flags = " ".join(f"--allow-change {k.replace('_', '-')}" for k in sorted(refused))
        raise ConfigError(
            f"{place} was run with other options:\n" + "\n".join(lines) + "\n"
            f"Give the old values, or accept the new ones: {flags}. Or leave this run unchanged, "
            "and begin a new one from it with --fork in place of --resume."
        )
    return bool(differing)
