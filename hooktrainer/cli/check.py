"""`hooktrainer check`: score a trainer by small trainings whose results are known."""

from __future__ import annotations

from dataclasses import asdict
from importlib import metadata
from typing import Annotated

from tyro.conf import Positional, UseAppendAction

from ..base.checks import check_positive
from . import output
from .arguments import Flag, Seconds, shown_as

Trainer = Annotated[str, Positional, shown_as("TRAINER")]
Probes = Annotated[UseAppendAction[tuple[str, ...]], shown_as("PROBE")]


def check(
    trainer: Trainer, /, *, only: Probes = (), timeout: Seconds = 120.0, json: Flag = False
) -> int:
    """Score a trainer by small trainings whose results are known.

    Each probe trains in tiny environments, in its own process: are time limits bootstrapped,
    are reported returns true means, is a killed and resumed run the undisturbed one, is NaN
    refused, and so on. A table has what was expected, what was seen, and where the trainer's source
    or documentation shows it.

    TRAINER is hooktrainer, stable_baselines3, torchrl, skrl, rsl_rl or tianshou, where that is
    installed; cleanrl, with CLEANRL_PPO=path/to/ppo.py in the environment; or an adapter of yours,
    as path/to/file.py:Class or module:Class, whose code is run.

    The exit code is 0 if every probe that applies passes, or differs as the trainer documents; else
    1.

    Example: hooktrainer check stable_baselines3

    Args:
        trainer: the trainer, or your adapter
        only: run this probe only; may be repeated
        timeout: time limit of each training
        json: print JSON
    """
    from ..conformance import check as run_probes
    from ..conformance import load_adapter

    check_positive("--timeout", timeout)
    adapter = load_adapter(trainer)
    findings = []
    for finding in run_probes(adapter, only, timeout):
        output.note(f"{finding.probe}: {finding.result}")
        findings.append(finding)
    packages = {name: metadata.version(name) for name in (*adapter.packages, "torch", "gymnasium")}
    if json:
        facts = {"trainer": trainer, "packages": packages}
        output.print_json(facts | {"findings": [asdict(one) for one in findings]})
    else:
        color = {"pass": output.good, "fail": output.bad}
        rows = [
            (
                *(one.probe, color.get(one.result, str)(one.result)),
                *(one.expected, one.seen, one.reference),
            )
            for one in findings
        ]
        output.print_table(("probe", "result", "expected", "seen", "reference"), rows)
        output.line(", ".join(f"{name} {version}" for name, version in packages.items()))
    return int(any(one.result == "fail" for one in findings))
