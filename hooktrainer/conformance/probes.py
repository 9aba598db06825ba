"""The probes: trainings whose results are known, and what a trainer's results say about it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

from ..base.checks import named
from ..base.words import listed, plural, ranges
from .adapter import Adapter
from .scripted_env import SCALE, Episode, Ledger
from .training import CrashedError, Lab, Outcome

Result = Literal["pass", "fail", "documented", "not applicable"]
Verdict = tuple[bool, str, str]
"""Whether a probe passed, what was expected, what was seen."""


@dataclass(frozen=True)
class Finding:
    """The result of a probe.

    Attributes:
        probe: Its name.
        result: The result; "documented": it failed, and the trainer's documentation says why.
        expected: What was expected.
        seen: What was seen.
        reference: Where the trainer's source or documentation shows it, if the adapter names it.
    """

    probe: str
    result: Result
    expected: str
    seen: str
    reference: str


def check(adapter: Adapter, only: Sequence[str] = (), seconds: float = 120.0) -> Iterator[Finding]:
    """Run the probes, one after the other.

    Args:
        adapter: Trains.
        only: The probes to run; by default all.
        seconds: The time limit of each training.

    Yields:
        The findings.

    Raises:
        ConfigError: If there is no such probe.
    """
    for name in only:
        named("only", name, PROBES)
    for name in only or PROBES:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
            yield _find(name, Lab(adapter, Path(directory), seconds))


def _find(name: str, lab: Lab) -> Finding:
    probe, adapter = PROBES[name], lab.adapter
    reference = adapter.references.get(name, "")
    try:
        passed, expected, seen = probe(lab)
    except NotImplementedError as error:
        return Finding(name, "not applicable", "", str(error), reference)
    except CrashedError as error:
        passed, expected, seen = False, "a training to its end", f"crashed: {error}"
    if not passed and name in adapter.documented:
        return Finding(name, "documented", expected, seen, adapter.documented[name])
    return Finding(name, "pass" if passed else "fail", expected, seen, reference)


def _has(value: Any, what: str) -> Any:
    if value is None:
        raise NotImplementedError(f"the adapter gives no {what}.")
    return value


# -- Values. Each mistake has a value of its own.

_VALUE_FRAMES: Final = 2048


def _value(outcome: Outcome, number: int, right: float, wrong: Mapping[str, float]) -> Verdict:
    """Compare a learned value with the right one, and with those of mistakes."""
    found = float(_has(outcome.trained.values, "values")[number])
    gap = min(abs(right - other) for other in wrong.values())
    near = [name for name, value in {"": right, **wrong}.items() if abs(found - value) <= gap / 4]
    others = ", ".join(f"{value:.2f}: {name}" for name, value in wrong.items())
    seen = ": ".join([f"{found:.2f}", *filter(None, near)])
    return near == [""], f"value {right:.2f} ({others})", seen


def truncation(lab: Lab) -> Verdict:
    """The value of the state after a time limit is bootstrapped."""
    # One state, so that its value is the same whenever the limit is.
    episode = Episode([0] * 5, [1.0] * 4, terminates=False)
    outcome = lab.train([episode], _VALUE_FRAMES)
    return _value(outcome, 0, 5.0, {"the time limit counts as the end": 2.25})


def termination(lab: Lab) -> Verdict:
    """The value of a terminal state is not bootstrapped."""
    episode = Episode([0, 1, 0], [1.0, 1.0], terminates=True)
    outcome = lab.train([episode], _VALUE_FRAMES)
    return _value(outcome, 0, 1.8, {"the terminal state is bootstrapped": 5.0})


def final_observation(lab: Lab) -> Verdict:
    """After a time limit the final observation is bootstrapped, not that of the reset."""
    episodes = [
        Episode([0, 1], [0.5], terminates=False),
        Episode([2, 2], [-1.0], terminates=True),
        Episode([1, 1], [1.0], terminates=True),
    ]
    outcome = lab.train(episodes, _VALUE_FRAMES)
    wrong = {
        "the observation of the reset": 0.5 - 0.8,
        "nothing is bootstrapped": 0.5,
        "the observation before the last step": 2.5,
    }
    passed, expected, seen = _value(outcome, 0, 0.5 + 0.8, wrong)
    if seen.endswith("nothing is bootstrapped"):
        raise NotImplementedError("time limits are not bootstrapped: see truncation.")
    return passed, expected, seen


# -- Reports.

_FOUR: Final = (Episode([0, 1, 2, 0, 1], [1.0, 0.0, 2.0, 1.0], terminates=True),)
"""Episodes that are all alike; batches end where they do."""


def returns(lab: Lab) -> Verdict:
    """Reported returns and lengths are means over episodes; each episode is in one of them."""
    lengths = (1, 7, 3, 2, 12, 5, 1, 9)
    episodes = [
        Episode([k % 3] * (length + 1), [float(k**2), *[0.5] * (length - 1)], terminates=True)
        for k, length in enumerate(lengths)
    ]
    outcome = lab.train(episodes)
    window, ended, before = lab.adapter.window, outcome.ledger.ended, 0
    expected = "the means over all episodes that ended"
    expected += f", the last {window} of them" if window else ""
    reported = _has(outcome.trained.returns, "returns")
    for frames, *found in reported:
        until = [one for one in ended if one[0] <= frames]
        new = sum(before < one[0] for one in until)
        if window and new > window:
            return False, expected, f"at {frames} frames {new - window} episodes are in no mean"
        if not window and not new:
            return False, expected, f"{found[0]:.4g} at {frames} frames, with no episode in it"
        covered = until[-(window or new) :]
        for what, column, value in zip(("return", "length"), (1, 2), found, strict=True):
            mean = np.mean([one[column] for one in covered]) if covered else np.nan
            if value is not None and not np.isclose(value, mean, rtol=1e-4, equal_nan=True):
                return False, expected, f"{what} {value:.4g} at {frames} frames, true {mean:.4g}"
        before = frames
    if missed := sum(one[0] > before for one in ended):
        return False, expected, f"the last {missed} of {len(ended)} episodes are in no mean"
    return True, expected, f"{len(ended)} episodes in {len(reported)} reports, all true"


def _cadence(found: Iterable[int]) -> Verdict:
    expected, seen = [256, 512, 768, 1024], sorted(set(found) - {0})
    return seen == expected, f"at {expected} frames", f"at {seen} frames"


def evaluations(lab: Lab) -> Verdict:
    """Evaluations every 256 frames happen then."""
    found = lab.train(_FOUR, every=256).ledger.evaluated
    if not found:
        raise NotImplementedError("the adapter evaluates nothing.")
    return _cadence(found)


def checkpoints(lab: Lab) -> Verdict:
    """Checkpoints every 256 frames are saved then."""
    lab.train(_FOUR, every=256)
    return _cadence(lab.adapter.saved(lab.directory / "run"))


# -- Repetitions.


def _differing(one: Outcome, other: Outcome) -> list[str]:
    """The names of the arrays that differ in a bit."""
    mine, theirs = (
        {name: np.asarray(array).tobytes() for name, array in outcome.trained.state.items()}
        for outcome in (one, other)
    )
    return sorted(name for name in {*mine, *theirs} if mine.get(name) != theirs.get(name))


def _named(differing: Sequence[str], outcome: Outcome) -> str:
    total = len(outcome.trained.state)
    return f"{len(differing)} of {total} arrays differ: {listed(differing, most=3)}"


def resume(lab: Lab) -> Verdict:
    """A run that is killed by SIGKILL and resumed ends like one that never was."""
    straight = lab.train(_FOUR, name="straight", every=256)
    try:
        lab.train(_FOUR, name="killed", every=256, ledger=Ledger(kill_at=600))
    except CrashedError as error:
        if "SIGKILL" not in str(error):
            raise
    else:
        raise NotImplementedError("the environments do not run in the process that trains.")
    if not (saved := lab.adapter.saved(lab.directory / "killed")):
        return False, "the same bits, from a checkpoint", "no checkpoint was saved"
    at, last = max(saved.items())
    resumed = lab.train(_FOUR, name="killed", every=256, checkpoint=last, collected=at)
    differing = _differing(straight, resumed)
    seen = _named(differing, straight) if differing else "the same bits"
    if resumed.ledger.frames >= straight.ledger.frames:
        return False, "the same bits, from a checkpoint", "it began again"
    if resumed.trained.frames != straight.trained.frames:
        differing, seen = ["frames"], f"{resumed.trained.frames} frames at the end; {seen}"
    return not differing, "the same bits", seen


def seeds(lab: Lab) -> Verdict:
    """A seed gives the same bits twice, and another seed gives others."""
    first, again, other = (
        lab.train(_FOUR, 512, name, seed=seed)
        for name, seed in (("first", 1), ("again", 1), ("other", 2))
    )
    expected = "the same bits with one seed, others with two"
    if differing := _differing(first, again):
        return False, expected, f"one seed: {_named(differing, first)}"
    if not _differing(first, other):
        return False, expected, "two seeds: the same bits"
    return True, expected, "as expected"


# -- Frames.


def frames(lab: Lab) -> Verdict:
    """The frames that were asked for are collected, and reported."""
    outcome = lab.train(_FOUR)
    collected, reported = outcome.ledger.frames, outcome.trained.frames
    passed = collected == 1024 and reported in (None, 1024)
    return passed, "1024 collected and reported", f"{collected} collected, {reported} reported"


def transitions(lab: Lab) -> Verdict:
    """Every transition is in a training batch."""
    episode = Episode([0] * 8, [1.0] * 7, terminates=True)
    outcome = lab.train([episode], 512, serial=True)
    batches = _has(outcome.trained.trained_on, "trained_on")
    used = {round(float(row[0] * SCALE)) for batch in batches for row in np.asarray(batch)}
    stepped = set(outcome.ledger.stepped)
    missed, invented = stepped - used, used - stepped
    seen = f"{len(stepped & used)} of {len(stepped)}"
    if missed:
        seen += f"; those of steps {ranges(missed)} are in none"
    if invented:
        seen += f"; {len(invented)} that no step began with"
    return not missed and not invented, "all, and no others, in training batches", seen


# -- What a trainer should refuse.


def _refusal(lab: Lab, fault: Any = None, **given: Any) -> Verdict:
    """Whether a training raises an exception with a message, and does not train on a fault."""
    # At the end: what is trained on is then in the parameters, not in a later exception.
    ledger = Ledger(fault=fault, fault_at=505)
    outcome = lab.train(_FOUR, 512, fails=True, ledger=ledger, **given)
    if fault is not None and outcome.ledger.frames < 505:
        raise CrashedError(outcome.error or f"it ended after {outcome.ledger.frames} of 512 frames")
    if outcome.error is None:
        arrays = outcome.trained.state.values()
        broken = sum(not np.isfinite(array).all() for array in arrays)
        spoilt = f"; {broken} of {plural(len(arrays), 'array')} not finite" if broken else ""
        return False, "an exception", f"trained on{spoilt}"
    words = " ".join(outcome.error.split())
    return ": " in words, "an exception with a message", words[:160]


def nan_observation(lab: Lab) -> Verdict:
    """An observation of NaN is refused."""
    return _refusal(lab, "nan-observation")


def nan_reward(lab: Lab) -> Verdict:
    """A reward of NaN is refused."""
    return _refusal(lab, "nan-reward")


def observation_shape(lab: Lab) -> Verdict:
    """An observation of another shape than that of its space is refused."""
    return _refusal(lab, "observation-shape")


def unknown_option(lab: Lab) -> Verdict:
    """An option that does not exist is refused."""
    return _refusal(lab, options={"no_such_option": 1})


PROBES: Final[Mapping[str, Callable[[Lab], Verdict]]] = {
    probe.__name__.replace("_", "-"): probe
    for probe in (
        *(truncation, termination, final_observation),
        *(returns, evaluations, checkpoints, resume, seeds, frames, transitions),
        *(nan_observation, nan_reward, observation_shape, unknown_option),
    )
}
"""The probes by name."""
