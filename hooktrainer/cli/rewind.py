"""`hooktrainer rewind`, `bisect` and `branch`: replays of a run from its checkpoints."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from ..base.checks import check_count
from ..base.child_program import ChildProgram
from ..base.words import did_you_mean, listed, printable
from ..errors import CheckpointError, ConfigError, TakenError
from ..store import list_checkpoints
from ..store.run_dir import RunDir
from . import output, scripts
from .arguments import Directory, Flag, OptionalCount, RunPath, SavedSpec, ScriptArgs, shown_as
from .verify_resume import workplace

if TYPE_CHECKING:
    from ..hooks.stop_when import Condition
    from ..store import Checkpoint

_LEFT_OUT = ("trace.json", "profile", "exception.pt", "mlflow.json", "wandb.json")
"""The last two name the run on a server, which the copy must not continue."""
Where = Annotated[str, shown_as("CONDITION")]


def rewind(
    checkpoint: SavedSpec,
    args: ScriptArgs = (),
    /,
    *,
    to: OptionalCount = None,
    into: Directory = None,
    trust: Flag = False,
) -> Callable[[], None]:
    """Replay a run from one of its checkpoints, in a copy, bit for bit.

    Stops after any optimizer step, with the state of that step in the copy's last checkpoint. What
    only watches may be added: --trace N, --profile N, a hook of yours (--hook FILE.py:Name), a
    debugger (--stop-when CONDITION --debug).
    To go back in the run itself: hooktrainer ckpt rollback, then hooktrainer resume.

    Example: hooktrainer rewind runs/a@51200 --to 1234 -- --trace 10

    Args:
        checkpoint: RUN@FRAMES or RUN@best; with --to, also RUN, for the last checkpoint before
        args: after --, further arguments of the script; they come last
        to: the optimizer step after which it stops; by default the end of the run
        into: directory of the copy, or for one of several seeds, of all; by default next to the run
        trust: run the command although the run was begun by another user, or on another machine
    """
    check_count("--to", to, none="to its end", least=0)
    run, target = _target(checkpoint, to)
    scripts.refuse_run_options(args)
    parent = None if target else _parent(run)
    if parent is not None and to is not None and to < (first := parent.manifest.optim_steps):
        raise ConfigError(
            f"--to {to}: {run} branched off {parent.path} after optimizer step {first:,}. Rewind "
            "the run of that checkpoint."
        )
    copy = _beside(run, f"-from-{target.frames if target else 0}", into)
    words = [*args]
    if scripts.value_of(args, "--hook") is not None:
        words += ["--allow-change", "hook"]
    if to is not None:
        if scripts.value_of(args, "--total-frames") is None:
            _check_reached(run, to)
        other = scripts.value_of(args, "--stop-when")
        either = f"({other}) | " if other else ""
        words += ["--stop-when", f"{either}optim_steps > {to}"]
    words, copy = _words(run, target, copy, words), _absolute(copy)
    scripts.command_again(run, words, trust=trust, other=True)  # refused before anything is copied
    _copy(run, target, copy)
    replay = scripts.run_again(run, words, trust=trust, other=True)
    return partial(_replay, replay, copy)


def _replay(replay: Callable[[], None], copy: Path) -> None:
    """Replay, and remove the copy if an option was wrong, so that nothing was trained."""
    before = RunDir(copy).read(strict=False)
    try:
        replay()
    except SystemExit as end:
        if end.code == 2 and RunDir(copy).read(strict=False) == before:
            shutil.rmtree(copy, ignore_errors=True)
        raise


def branch(
    checkpoint: SavedSpec, args: ScriptArgs = (), /, *, trust: Flag = False
) -> Callable[[], None]:
    """Begin a new run from a checkpoint of another, with options changed, named by them.

    hooktrainer report shows where runs branched off. --run-dir DIR gives the new one another name.

    Example: hooktrainer branch runs/a@51200 --lr 1e-4   # runs/a-51200-lr-1e-4

    Args:
        checkpoint: RUN@FRAMES, RUN@best, RUN (its latest), or the path of a checkpoint
        args: the options that differ
        trust: run the command although the run was begun by another user, or on another machine
    """
    run, target = _target(checkpoint, None)
    assert target is not None
    if scripts.value_of(args, "--resume") or scripts.value_of(args, "--fork"):
        raise ConfigError("leave out --resume and --fork: this command passes --fork.")
    words = ["--fork", str(target.path.absolute()), *args]
    if (given := scripts.value_of(args, "--run-dir")) is not None:
        place = Path(given).absolute()
    else:
        changed = re.sub(r"[^\w.]+", "-", " ".join(args)).strip("-")[:80]
        place = _beside(run, f"-{target.frames}-{changed or 'again'}")
    if scripts.is_one_of_many(run):
        words = ["--seeds", "None", "--seed", str(RunDir(run).read().get("seed")), *words]
    words += ["--run-dir", str(place)]
    return scripts.run_again(run, words, trust=trust, other=True)


def bisect(
    run: RunPath,
    /,
    *,
    where: Where,
    keep: Directory = None,
    trust: Flag = False,
    json: Flag = False,
) -> int:
    """Find the first optimizer step at which a condition holds, by a replay.

    The metrics in the checkpoints tell between which two it began to hold, for good; that stretch
    is replayed once, to the step. Prints the numbers, the parameter and the entry of the batch
    that are not finite, and the hook that ran before. A condition compares metrics with numbers,
    such as 'train/return < 100', or is 'not finite(loss)'; conditions are joined by & and |.

    The exit code is 0 if the step was found, 1 if the condition never held.

    Example: hooktrainer bisect runs/a --where "not finite(loss) | train/return < 100"

    Args:
        run: directory of the run
        where: the condition
        keep: keep the replay in this directory: its last checkpoint is of the step before
        trust: run the command although the run was begun by another user, or on another machine
        json: print JSON: the step, the frames, and what was found
    """
    from ..hooks.stop_when import Condition

    condition = Condition(where)
    held = output.open_run(run)
    checkpoints, state = list_checkpoints(held.checkpoints).checkpoints, held.read(strict=False)
    _check_names(condition, run, checkpoints, state)
    stopped = str(state.get("reason")).startswith(f"{where} holds")
    good, until = _last_good(condition, checkpoints, stopped=stopped)
    last = checkpoints[-1].frames if checkpoints else -1
    went_on = state.get("status") == "failed" or int(state.get("frames") or 0) > last
    if until is None and not went_on:
        output.line(f"{where} does not hold at the last checkpoint of {run}.")
        return 1
    begins = f"{good.frames:,} frames" if good else "the start"
    ends = f"{until.frames:,} frames" if until else "its end"
    output.note(f"replaying {run} from {begins} to {ends}")
    with workplace("bisect", keep) as (place, _):
        copy = place / _absolute(run).name
        _copy(run, good, copy)
        words = ["--stop-when", where, "--debug", "--no-progress-bar"]
        words = _words(run, good, copy, words)
        command, directory = scripts.command_again(run, words, trust=trust, other=True)
        log = place / "replay.log"
        with log.open("wb") as printed:
            child = ChildProgram(command[1:], directory, printed, printed)
            try:
                child.wait()
            finally:
                child.kill()
        state = RunDir(copy).read(strict=False)
        reason = str(state.get("reason") or "")
        found = reason.startswith(f"{where} holds")
        if json:
            steps, frames = state.get("optim_steps"), state.get("frames")
            output.print_json(
                {"found": found, "optim_steps": steps, "frames": frames, "reason": reason}
            )
        elif found:
            output.line(printable(reason))
        else:
            lines = log.read_text(errors="replace").rstrip().splitlines()[-3:]
            output.line(f"{where} did not hold in the replay: {reason or ' '.join(lines)}")
    return 0 if found else 1


def _check_names(
    condition: Condition, run: Path, checkpoints: Sequence[Checkpoint], state: Mapping[str, Any]
) -> None:
    """Refuse a name of no metric; before the first optimizer steps not all metrics are known."""
    trained = [one.metrics for one in checkpoints if one.manifest.optim_steps]
    known = sorted({name for metrics in (*trained, state.get("metrics", {})) for name in metrics})
    if trained and (unknown := condition.unknown(known)):
        shown = [name for name in known if not name.startswith("time/")]
        near = did_you_mean(unknown[0], known) or f" It has {listed(shown, most=30)}."
        raise ConfigError(f"--where: {run} has no metric {unknown[0]}.{near}")


def _last_good(
    condition: Condition, checkpoints: Sequence[Checkpoint], *, stopped: bool
) -> tuple[Checkpoint | None, Checkpoint | None]:
    """Return the last checkpoint at which the condition does not hold, and the one after it.

    If the condition ``stopped`` the run, it holds at the last checkpoint: that is of the step
    before.
    """
    following = None
    for one in reversed(checkpoints):
        counts = {"frames": one.frames, "optim_steps": one.manifest.optim_steps}
        if condition.reads("batches"):  # which only the state has
            counts["batches"] = one.load()["components"]["progress"]["batches"]
        is_last = one is checkpoints[-1]
        if not (stopped and is_last) and not condition({**one.metrics, **counts}):
            return one, following
        following = one
    return None, following


# -- The copy, and the command of a run.


def _target(spec: str, to: int | None) -> tuple[Path, Checkpoint | None]:
    """Return the run of a specification and its checkpoint; None for the run's start."""
    from ..store.lookup import run_of

    if to is not None and Path(spec).is_dir() and RunDir(spec).holds_run:
        run = Path(spec)
        found = list_checkpoints(RunDir(run).checkpoints).checkpoints
        return run, next((c for c in reversed(found) if c.manifest.optim_steps <= to), None)
    target = output.open_checkpoint(spec)
    owner = run_of(target.path)
    if owner is None or not RunDir(owner).holds_run:
        raise CheckpointError(f"{target.path} is in no run: give RUN@FRAMES.")
    if to is not None and to < target.manifest.optim_steps:
        raise ConfigError(
            f"--to {to}: {spec} is of optimizer step {target.manifest.optim_steps:,}. Give RUN "
            "alone, for the last checkpoint before it."
        )
    return owner, target


def _check_reached(run: Path, to: int) -> None:
    """Refuse an optimizer step after the last one of a run that is finished."""
    state = RunDir(run).read(strict=False)
    if state.get("status") == "finished" and to > (last := int(state.get("optim_steps") or 0)):
        raise ConfigError(
            f"--to {to}: {run} ended after optimizer step {last:,}. To train longer, add: "
            "-- --total-frames FRAMES"
        )


def _absolute(run: Path) -> Path:
    """Return an absolute path without ``..``, so that it ends in the run's name."""
    return Path(os.path.abspath(run))


def _beside(run: Path, suffix: str, into: Path | None = None) -> Path:
    """Return a directory next to the run, or next to that of all seeds for one of them."""
    run = _absolute(run)
    if scripts.is_one_of_many(run):
        return (into or run.parent.with_name(run.parent.name + suffix)) / run.name
    return into or run.with_name(run.name + suffix)


def _copy(run: Path, target: Checkpoint | None, copy: Path) -> None:
    """Copy a run as it was at a checkpoint; nothing for its start."""
    if copy.exists() and any(copy.iterdir()):
        raise TakenError(f"{copy} is there already: delete it, or choose another directory.")
    if copy.resolve().is_relative_to(run.resolve()):
        raise ConfigError(f"{copy} is inside the run {run}: choose another directory.")
    if target is None:
        return
    checkpoints = RunDir(run).checkpoints.name

    def left_out(directory: str, names: list[str]) -> list[str]:
        return [*_LEFT_OUT, checkpoints] if Path(directory) == run else []

    shutil.copytree(run, copy, ignore=left_out, dirs_exist_ok=True)
    shutil.copytree(target.path, copy / checkpoints / target.path.name)


def _words(run: Path, target: Checkpoint | None, copy: Path, args: Sequence[str]) -> list[str]:
    begins = ["--resume", "latest"] if target else []
    if target is None and (parent := _parent(run)) is not None:
        begins = ["--fork", str(parent.path)]
    return [*scripts.place_of(run, copy), *begins, *_options_since(run, target), *args]


def _options_since(run: Path, target: Checkpoint | None) -> list[str]:
    """Return the options after a checkpoint that the run was resumed with other values of."""
    from ..run.config import Mark, RunConfig, marked

    after = -1 if target is None else target.manifest.sequence
    saved = list_checkpoints(RunDir(run).checkpoints).checkpoints
    configs = (one.manifest.config for one in saved if one.manifest.sequence > after)
    now, words = RunDir(run).read_config(), list[str]()
    for name, value in (next(configs, None) or {}).items():
        is_free = name in marked(RunConfig, Mark.MEANS) or name not in now
        if is_free or value == now[name] or isinstance(value, (list, tuple, dict)):
            continue
        option = name.replace("_", "-")
        is_switch = isinstance(value, bool)
        words += [f"--no-{option}"] if value is False else [f"--{option}"]
        words += [] if is_switch else [str(value)]
    return words


def _parent(run: Path) -> Checkpoint | None:
    """Return the checkpoint at which a run was forked, if it was."""
    parent = RunDir(run).forked_from
    return None if parent is None else output.open_checkpoint(str(parent["path"]))
