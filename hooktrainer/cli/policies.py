"""`hooktrainer policies list|show|evaluate`: the saved policies of a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..base.checks import EVALUATION_SEED, check_count
from ..base.words import plural, shell_word
from . import output
from .arguments import Count, Flag, RunPath, SavedSpec, Seed

if TYPE_CHECKING:
    from ..policies import Evaluation, SavedPolicy


def list_(run: RunPath, /, *, json: Flag = False) -> int:
    """List the saved policies of a run, and the returns of those that were evaluated.

    A run saves policies with --snapshots N, or with the hook PolicySnapshot.

    Example: hooktrainer policies list runs/a

    Args:
        run: directory of the run
        json: print JSON: a list with one object per policy
    """
    policies, damaged = read_policies(run)
    if not policies and not damaged and not json:
        output.line(f"{run} has no saved policy: train with --snapshots N.")
        return 0
    entries = _entries(policies)
    if json:
        broken = ({"state": "damaged", "path": p, "reason": why} for p, why in damaged.items())
        output.print_json([*entries, *broken])
        return 0
    rows: list[tuple[object, ...]] = [
        (
            saved.frames,
            output.duration(saved.seconds),
            _return(saved),
            saved.evaluation and round(saved.evaluation.mean_length),
            saved.evaluation and saved.evaluation.episodes,
            output.size(saved.nbytes),
            ", ".join(note for note in ("latest", "best") if entry[note]),
        )
        for entry, saved in zip(entries, policies, strict=True)
    ]
    rows += [(path.name, *[None] * 5, output.bad(why)) for path, why in damaged.items()]
    columns = ("frames", "trained", "return", "length", "episodes", "size", "note")
    output.print_table(columns, rows)
    names = ", ".join(sorted({saved.environment.name for saved in policies}))
    count = plural(len(policies), "policy", "policies")
    option = max((saved.environment.option for saved in policies), default="")
    play = f"hooktrainer play {shell_word(run)}@FRAMES{option}"
    output.line(f"{count} of {names} in {run}; {play} plays one")
    if unplayed := sum(saved.evaluation is None for saved in policies):
        command = f"hooktrainer policies evaluate {shell_word(run)}{option}"
        output.line(f"{unplayed:,} not played yet; {command} plays the rest")
    return 0


def show(policy: SavedSpec, /, *, json: Flag = False) -> int:
    """Show the properties of a saved policy: its inputs and outputs, and its evaluation.

    Args:
        policy: RUN (its latest), RUN@best, RUN@FRAMES, or the path of a saved policy
        json: print JSON: the content of its policy.json
    """
    from ..policies import find_policy
    from ..policies.interface import Interface
    from ..policies.policy_files import read_facts

    saved = find_policy(policy)
    facts = read_facts(saved.path)
    if json:
        output.print_json({"path": saved.path, **facts})
        return 0
    interface = Interface.of(saved.path, facts)
    kwargs = ", ".join(f"{name}={value!r}" for name, value in saved.env_kwargs.items())
    rows = {
        "path": saved.path,
        "saved": output.when(saved.time),
        "frames": saved.frames,
        "optimizer steps": saved.optim_steps,
        "trained": output.duration(saved.seconds),
        "environment": f"{saved.environment.name}({kwargs})" if kwargs else saved.environment.name,
        "code it needs": saved.environment.code or "none that is not installed",
        "reads": interface.reads,
        "action": interface.acts,
        "memory": "recurrent" if saved.recurrent else "none",
        "size": output.size(saved.nbytes),
        "versions": ", ".join(f"{name} {v}" for name, v in saved.versions.items() if v),
        "commit": saved.git_commit or "none",
    }
    output.print_table(("policy", saved.path.name), rows.items())
    if saved.evaluation is None:
        run = f"{shell_word(saved.path.parent.parent)}{saved.environment.option}"
        output.line(f"not played yet: hooktrainer policies evaluate {run}")
    else:
        print_episodes(saved.evaluation)
        output.line(f"return {_return(saved)}, seed {saved.evaluation.seed}")
    return 0


def evaluate(
    run: RunPath,
    /,
    *,
    seed: Seed = EVALUATION_SEED,
    episodes: Count = 10,
    again: Flag = False,
    trust: Flag = False,
    json: Flag = False,
) -> int:
    """Evaluate the saved policies of a run that were not evaluated yet, and record the returns.

    A run does so itself; this evaluates the rest after an interruption. The exit code is 1 if a
    policy could not be played.

    Args:
        run: directory of the run
        seed: seed of the episodes; by default that of all evaluations
        episodes: how many episodes each plays, by default 10
        again: evaluate all policies again
        trust: run the code that the environment needs, if that is not installed
        json: print JSON: a list with one object per policy that was played
    """
    from ..policies.evaluation import evaluate_run

    check_count("--episodes", episodes)
    check_count("--seed", seed, least=0)
    read_policies(run)  # refuses what is no run
    output.step_aside()
    failed = 0
    played: list[SavedPolicy] = []
    for saved, error in evaluate_run(run, seed=seed, episodes=episodes, again=again, trust=trust):
        if error is None:
            played.append(saved)
            output.note(f"{saved.path.name}: return {_return(saved)}")
        else:
            failed += 1
            output.note(f"{saved.path.name} could not be played: {error}")
    if not played and not failed:
        output.note(f"nothing to play: {run} has no saved policy that was not played already.")
    if json:
        output.print_json(_entries(played))
    return 1 if failed else 0


def print_episodes(evaluation: Evaluation) -> None:
    """Print a table of the episodes."""
    rows = zip(range(evaluation.episodes), evaluation.returns, evaluation.lengths, strict=True)
    output.print_table(("episode", "return", "length"), rows)


def read_policies(run: Path) -> tuple[list[SavedPolicy], dict[Path, str]]:
    """Read the saved policies of a run, and the damaged ones with the reason."""
    from ..policies.saved import policy_directory, scan_policies

    directory = policy_directory(run)
    if not directory.is_dir():
        output.open_run(run)
    return scan_policies(directory)


def _entries(policies: list[SavedPolicy]) -> list[dict[str, Any]]:
    from ..policies.saved import best_policy

    best = best_policy(policies)
    return [
        {
            "state": "saved",
            **vars(saved),
            "evaluation": saved.evaluation and saved.evaluation.encode(),
            "latest": saved is policies[-1],
            "best": saved is best,
        }
        for saved in policies
    ]


def _return(saved: SavedPolicy) -> str:
    from ..show.html import return_text

    return "not played" if saved.evaluation is None else return_text(saved.evaluation)
