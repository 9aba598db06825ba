"""`hooktrainer sweep`: search the options of an algorithm."""

from __future__ import annotations

import contextlib
import inspect
import itertools
import sys
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import OmitArgPrefixes, Positional

from ..base.checks import check_count
from ..base.fs import write_atomically
from ..base.words import listed
from ..errors import ConfigError
from ..sweep.options import SweepOptions
from . import output
from .arguments import Count, Flag, Patterns, shown_as

if TYPE_CHECKING:
    from ..algorithms import Algorithm
    from ..sweep import Sweep
    from ..sweep.confirm import Confirmation
    from ..sweep.ledger import Trial

Words = Annotated[tuple[str, ...], Positional, shown_as("NAME [ARGS ...]")]
File = Annotated[Path | None, shown_as("FILE")]
_DEFAULTS = SweepOptions()


def sweep(
    words: Words,
    /,
    *,
    study: Annotated[SweepOptions, OmitArgPrefixes] = _DEFAULTS,
    space: File = None,
    search: Patterns = (),
    confirm: Count = 10,
    json: Flag = False,
) -> int:
    """Search for better options of an algorithm, with Optuna.

    NAME is an algorithm, followed by its options: hooktrainer train NAME --help lists them. Given
    options are the same in all trials; fields with a search range are searched. A trial trains
    several seeds, each in its own process. The same command continues an interrupted sweep; run it
    in several terminals or on several machines to share the work.

    The best trials are compared on further seeds. The winner is trained from fresh seeds, and so
    are the default settings, before it is called better.

    Example: hooktrainer sweep ppo --env CartPole-v1 --total-frames 20000 --trials 12 --seeds 2

    Args:
        words: an algorithm, and options of it that are the same in all trials
        study: its trials, and how they are scored
        space: YAML, by option {low: ..., high: ..., log: true}, a list of values, or null
        search: an entry of it, 'lr={low: 1e-4, high: 1e-2, log: true}'; may be repeated
        confirm: from how many fresh seeds winner and default settings are trained; 0 for none
        json: print JSON: the trials, the winner, the importances, the confirmation
    """
    from ..loop.signals import ending_cleanly

    check_count("--confirm", confirm, least=0)
    with ending_cleanly():
        from ..sweep import Sweep

        algorithm, fixed = _algorithm(words)
        made = Sweep(algorithm, study, fixed=fixed, space=_space(space, search))
        try:
            return _run(made, confirm, as_json=json)
        finally:
            made.close()


def separate_arguments(words: list[str]) -> list[str]:
    """Move the command's own options to the front, the algorithm and its options after ``--``."""
    if words[:1] != ["sweep"] or "--" in words:
        return words
    flags = {"--help", "-h", "--json"}
    names = {*inspect.signature(sweep).parameters, *(one.name for one in fields(SweepOptions))}
    with_value = {"--" + name.replace("_", "-") for name in names - {"words", "study"}} - flags
    own, others = list[str](), list[str]()
    rest = iter(words[1:])
    for word in rest:
        option, equals, value = word.partition("=")
        option = option.replace("_", "-")
        if option in with_value:
            own += [option + equals + value, *([] if equals else itertools.islice(rest, 1))]
        else:
            (own if option in flags else others).append(word)
    return ["sweep", *own, *(["--", *others] if others else [])]


def _algorithm(words: tuple[str, ...]) -> tuple[Algorithm, set[str]]:
    """Return the configuration that trials vary, and the fields that were given."""
    from .. import algorithms
    from ..algorithms.algorithm import parse
    from ..run.config import field_of, take_config

    if not words or words[0].startswith("-"):
        raise ConfigError(f"name an algorithm first, one of {', '.join(algorithms.names())}.")
    name, *options = words
    if name.partition(":")[0].endswith(".py"):
        raise ConfigError(
            f"{name}: this command sweeps the algorithms of hooktrainer. Sweep those of yours in "
            "Python, with hooktrainer.sweep.Sweep."
        )
    kind = algorithms.get(name)
    _, _, rest = take_config(options)
    fixed = {field_of(word) for word in rest if word.startswith("--")}
    return parse(kind, options, f"hooktrainer train {kind.name()}"), fixed


def _space(file: Path | None, entries: tuple[str, ...]) -> dict[str, Any]:
    import yaml

    from ..run.config import read_named

    found = {} if file is None else read_named(file)
    for entry in entries:
        name, equals, text = entry.partition("=")
        try:
            if not equals:
                raise ValueError
            found[name.strip().replace("-", "_")] = yaml.safe_load(text)
        except (ValueError, yaml.YAMLError):
            raise ConfigError(
                f"--search {entry!r}: give OPTION=VALUES, such as 'num_epochs=[4, 10]' or "
                "'lr={low: 1e-4, high: 1e-2, log: true}'."
            ) from None
    return found


def _run(made: Sweep, fresh: int, *, as_json: bool) -> int:
    from ..show import report_page
    from ..sweep.page import best_command, importances, importances_text, sweep_page, trial_rows
    from .report import print_section

    done, names = sum(not one.is_open for one in made.trials), listed(made.space.candidates)
    page = made.place / "sweep.html"
    output.note(f"{made.place}: {done} of {made.options.trials} trials are done; searched: {names}")

    def tell(trial: Trial) -> None:
        output.note(_line(made, trial))
        best_command(made)
        write_atomically(page, sweep_page(made, "the sweep is not done"), durable=False)

    with contextlib.redirect_stdout(sys.stderr):  # runs print when they begin
        made.run(tell)
    best, found, verdict = _decided(made, fresh)
    section = None if found is None else found.section
    code = int(best is None and not made.ledger.elsewhere)
    command = best_command(made)
    write_atomically(page, sweep_page(made, verdict, found), durable=False)
    if found is not None and section is not None:
        confirmed = report_page(found.study, [section], made.options.objective)
        write_atomically(made.place / "confirm.html", confirmed)
    if as_json:
        output.print_json(
            {
                "objective": made.options.objective,
                "trials": [_trial_json(made, one) for one in made.trials],
                "best": best and best.number,
                "command": command,
                "importance": importances(made),
                "confirmed": found and found.better,
                "confirmation": section,
                "verdict": verdict,
            }
        )
        return code
    heads, rows = trial_rows(made)
    output.print_table(heads, rows)
    if mattered := importances_text(made):
        output.line(mattered)
    if found is not None and section is not None:
        print_section(section, made.options.objective, found.study.metric)
    output.line(f"{verdict}.")
    if best is not None:
        output.line(f"trial {best.number}: {command}")
    output.note(f"wrote {page}")
    return code


def _decided(made: Sweep, fresh: int) -> tuple[Trial | None, Confirmation | None, str]:
    """Run finals and confirmation; return the winner, the confirmation and the verdict."""
    from ..sweep.confirm import confirm, play_finals, words_of
    from ..sweep.ledger import file_lock

    if others := made.ledger.elsewhere:
        numbers = listed(one.number for one in others)
        return made.best, None, f"the sweep is not done: another process works on trial {numbers}"
    if made.best is None:
        return None, None, "no trial has finished"
    found = None
    # Another process that does the same is waited for.
    with contextlib.redirect_stdout(sys.stderr), file_lock(made.place / ".finals"):
        if len(made.finalists) > 1:
            numbers = listed(one.number for one in made.finalists)
            output.note(f"finals: trials {numbers} on further seeds")
            play_finals(made)
        if fresh and made.winner is not None:
            output.note(f"confirming trial {made.winner.number} on {fresh} fresh seeds")
            found = confirm(made, fresh)
    return made.winner, found, words_of(found, fresh)


def _line(made: Sweep, trial: Trial) -> str:
    from ..show.report.grouping import short

    settings = made.space.settings(trial.params).items()
    pairs = ", ".join(f"{name}={short(value)}" for name, value in settings)
    value = "failed" if trial.value is None else f"{trial.value:,.5g}"
    how = {"pruned": ", ended early", "fail": f": {trial.failure}"}.get(trial.state, "")
    return f"trial {trial.number}: {value}{how} ({pairs})"


def _trial_json(made: Sweep, trial: Trial) -> dict[str, Any]:
    return {
        "trial": trial.number,
        **{name: getattr(trial, name) for name in ("state", "value", "frames", "cpu_seconds")},
        "finals": trial.final,
        "settings": made.space.settings(trial.params),
        "evaluations": trial.reports,
    }
