"""`StopWhen`: stops a run before the first optimizer step at which a condition holds."""

from __future__ import annotations

import math
import operator
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, Final

import torch
from tensordict import TensorDictBase, is_tensor_collection

from ..base.words import did_you_mean
from ..errors import ConfigError, SkipOptimStep
from ..loop.hook import FIRST, LAST
from ..loop.hook_points import HOOK_POINTS
from ..loop.loop import Loop
from ..loop.metrics import metric_of_loss
from ..loop.timing import Trace
from .averaging import AveragingHook

Values = Mapping[str, float]
Test = Callable[[Values], bool]
_COUNTS: Final = ("frames", "optim_steps", "batches")
_SUGGEST_AT: Final = (1, 10, 100)  # batches after which unknown names are reported


@dataclass(eq=False, repr=False)
class StopWhen(AveragingHook):
    """Stops before the first optimizer step at which a condition holds, or at the end of a batch.

    That step, and the others of its batch, are left out, so that the last checkpoint holds the
    parameters as they were before. The reason, in ``run.json``, names the step, the numbers, what
    is not finite, and the hook that ran before. Of several ranks, all stop where it holds for one.

    Args:
        condition: As for `Condition`. It reads all metrics by name, the losses of the current step,
            ``frames``, ``optim_steps`` (those made, and the current one), and ``batches``.
        debug: Whether to check all parameters after every hook, and to open Python's debugger
            where the condition holds, if there is a terminal.

    Raises:
        ConfigError: If the condition cannot be read.
    """

    at = (
        ("process_optim_batch", "_store_batch", LAST),
        ("optimizer", "_before_step", FIRST),
        ("post_steps_log", "__call__", LAST),
    )
    trains = False
    is_saved = False

    condition: str
    _: KW_ONLY
    debug: bool = False

    def __post_init__(self) -> None:
        self._condition = Condition(self.condition)
        self._held = False
        self._unseen = set(self._condition.unknown(()))
        self._batch: TensorDictBase | None = None
        self._watch: _Watch | None = None

    def on_train_start(self, trainer: Loop) -> None:
        """Begin to look for parameters that are not finite, to debug."""
        if self.debug and trainer.timing.trace is None:
            self._watch = trainer.timing.trace = _Watch(trainer)

    def __call__(self, batch: TensorDictBase) -> None:
        """Check the condition at the end of a batch."""
        self._batch = batch
        if not self._held:
            self._check({}, "post_steps_log", f"after optimizer step {self._step:,}")
        if self._unseen and self.trainer.progress.batches in _SUGGEST_AT:
            self._suggest_names(self.trainer.metrics.all_latest())
        self._batch = None

    def _suggest_names(self, there: Iterable[str]) -> None:
        """Print the similar metrics of names that were not logged, which may be mistyped."""
        for name in sorted(self._unseen):
            kind, _, _ = name.rpartition("/")
            if hint := did_you_mean(name, [one for one in there if one.rpartition("/")[0] == kind]):
                print(f"stop_when={self.condition!r}: {name!r} was not logged so far.{hint}")

    def _store_batch(self, batch: TensorDictBase) -> None:
        self._batch = batch

    def _before_step(self, losses: TensorDictBase, *_: Any) -> None:
        if not self._held:
            found = {
                name: float(loss.detach().float().mean())
                for key, loss in losses.items()
                if self._condition.reads(name := metric_of_loss(key))
            }
            self._check(found, "optimizer", f"at optimizer step {self._step:,}")
        if self._held:
            raise SkipOptimStep  # with the other steps of this batch

    @property
    def _step(self) -> int:
        return self.trainer.progress.optim_steps

    def _check(self, losses: Values, point: str, when: str) -> None:
        progress, reads = self.trainer.progress, self._condition.reads
        counts = {name: getattr(progress, name) for name in _COUNTS if reads(name)}
        values = {**self.trainer.metrics.all_latest(reads), **counts, **losses}
        self._unseen -= {name for name in self._unseen if any(_is_of(key, name) for key in values)}
        holds = self._condition(values)
        share = torch.tensor(float(holds))  # of the ranks, which must make the same steps
        self._average([share])
        self._held = bool(share)
        if holds:
            self._stop(values, point, when)

    def _stop(self, values: Values, point: str, when: str) -> None:
        frames, unit = self.trainer.progress.frames, self.trainer.source.unit
        numbers = ", ".join(f"{name} = {v:.6g}" for name, v in values.items())
        non_finite = [f"{key!r} of the batch" for key in _non_finite_entries(self._batch)]
        non_finite += [f"parameter {name}" for name in _non_finite_parameters(self.trainer)][:1]
        parts = [f"{self.condition} holds {when}, after {frames:,} {unit}: {numbers}"]
        if non_finite:
            parts.append(f"not finite: {', '.join(non_finite)}")
        if self._watch is not None and self._watch.found:
            parts.append(f"a parameter was not finite first after {self._watch.found}")
        parts.append(f"the hook before: {self._hook_before(point)}")
        reason = "; ".join(parts)
        self.trainer.request_stop(reason)
        if self.debug and sys.stdin is not None and sys.stdin.isatty():
            trainer, batch = self.trainer, self._batch  # noqa: F841 - to look at
            print(reason)
            breakpoint()

    def _hook_before(self, point: str) -> str:
        points = [str(one) for one in HOOK_POINTS]
        end = points.index(point) + (point != "optimizer")  # where this hook is the first
        for name in reversed(points[:end]):
            entries = self.trainer.registry.points[name].entries
            if others := [entry for entry in entries if entry.owner is not self]:
                return f"{others[-1].name} at {name}"
        return "none"

    def on_train_end(self, trainer: Loop) -> None:
        """Print a name that was never logged."""
        if self._unseen and not self._held:
            there = ", ".join(trainer.metrics.all_latest())
            print(
                f"stop_when={self.condition!r}: {sorted(self._unseen)[0]!r} was never logged; "
                f"there were {there or 'no metrics'}."
            )

    def close(self) -> None:
        """End looking at parameters."""
        if self._watch is not None and self.trainer.timing.trace is self._watch:
            self.trainer.timing.trace = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_batch": None, "_watch": None}


class _Watch(Trace):
    """A trace that only notes after which hook or phase a parameter was not finite first."""

    def __init__(self, trainer: Loop) -> None:
        super().__init__()
        self._trainer = trainer
        self.found = ""

    def add(self, name: str, start: float, end: float) -> None:
        """Look at the parameters."""
        if not self.found and (non_finite := next(_non_finite_parameters(self._trainer), None)):
            self.found = (
                f"{name} of optimizer step {self._trainer.progress.optim_steps:,} ({non_finite})"
            )


def _non_finite_parameters(trainer: Loop) -> Iterator[str]:
    loss = trainer.loss_module
    for name, parameter in loss.named_parameters() if isinstance(loss, torch.nn.Module) else ():
        if not parameter.isfinite().all():
            yield name


def _non_finite_entries(batch: TensorDictBase | None) -> list[str]:
    if batch is None or not is_tensor_collection(batch):
        return []
    leaves = batch.items(include_nested=True, leaves_only=True)
    return [
        key if isinstance(key, str) else "/".join(key)
        for key, value in leaves
        if value.is_floating_point() and not value.isfinite().all()
    ]


# -- Conditions.

_COMPARE: Final = {
    **{"<": operator.lt, "<=": operator.le, ">": operator.gt},
    **{">=": operator.ge, "==": operator.eq, "!=": operator.ne},
}
_TOKEN: Final = re.compile(
    r"\s*(?:(?P<number>[-+]?(?:inf\b|(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?))"
    r"|(?P<name>[A-Za-z_][\w./]*)|(?P<compare><=|>=|==|!=|[<>])|(?P<sign>[&|()]))"
)
_WORDS: Final = ("not", "and", "or")


class Condition:
    """A condition on numbers by name, such as ``not finite(loss) | train/return < 9``.

    It consists of comparisons of a name with a number and of ``finite(NAME)``, joined by ``not``,
    ``&`` (or ``and``), ``|`` (or ``or``) and parentheses. A name also stands for all that begin
    with it, as ``loss`` for ``loss/objective`` and ``loss/critic``: a comparison holds if it does
    for any of them, ``finite`` if it does for all. Without a value, no comparison holds.

    Args:
        text: The condition.

    Attributes:
        names: The names in it.

    Raises:
        ConfigError: If it cannot be read; names the place.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self.names: list[str] = []
        self._tokens = list(self._read())
        try:
            self._test = self._any()
        except RecursionError:
            raise self._error("it has too many parentheses") from None
        if self._tokens:
            raise self._error(f"{self._tokens[0][1]!r} is left over")

    def __call__(self, values: Values) -> bool:
        """Whether it holds for these numbers."""
        return self._test(values)

    def __reduce__(self) -> tuple[type[Condition], tuple[str]]:
        return Condition, (self._text,)  # functions do not pickle

    def reads(self, name: str) -> bool:
        """Whether it depends on the number of this name."""
        return any(_is_of(name, one) for one in self.names)

    def unknown(self, known: Iterable[str]) -> list[str]:
        """Return the names in it that stand for no known one, nor for a count of the run."""
        there = [*known, *_COUNTS]
        return [name for name in self.names if not any(_is_of(key, name) for key in there)]

    def _read(self) -> Iterator[tuple[str, str]]:
        place, text = 0, self._text.rstrip()
        while place < len(text):
            if (found := _TOKEN.match(text, place)) is None:
                raise self._error(f"{text[place:].strip()[:20]!r} is neither a name nor a number")
            kind = str(found.lastgroup)
            word = found[kind]
            # Words of the grammar are kinds of their own; a metric may be called "number".
            yield word if kind == "sign" or word in _WORDS else kind, word
            place = found.end()

    def _error(self, problem: str) -> ConfigError:
        return ConfigError(
            f"condition {self._text!r:.200}: {problem}. Write, for example, "
            "'not finite(loss) | train/return < 100'."
        )

    def _take(self, *kinds: str) -> str | None:
        """Take the next word if it is of one of these kinds."""
        return self._tokens.pop(0)[1] if self._tokens and self._tokens[0][0] in kinds else None

    def _need(self, what: str, kind: str) -> str:
        if (word := self._take(kind)) is None:
            there = repr(self._tokens[0][1]) if self._tokens else "its end"
            raise self._error(f"{what} is missing before {there}")
        return word

    def _any(self) -> Test:
        tests = [self._all()]
        while self._take("|", "or"):
            tests.append(self._all())
        return lambda values: any(test(values) for test in tests)

    def _all(self) -> Test:
        tests = [self._one()]
        while self._take("&", "and"):
            tests.append(self._one())
        return lambda values: all(test(values) for test in tests)

    def _one(self) -> Test:
        if self._take("not"):
            test = self._one()
            return lambda values: not test(values)
        if self._take("("):
            test = self._any()
            self._need("')'", ")")
            return test
        name = self._need("a name", "name")
        if name == "finite" and self._take("("):
            name = self._need("a name", "name")
            self._need("')'", ")")
            self.names.append(name)
            return lambda values: all(map(math.isfinite, _named(name, values)))
        self.names.append(name)
        compare = _COMPARE[self._need("a comparison such as '<'", "compare")]
        number = float(self._need("a number", "number"))
        return lambda values: any(compare(value, number) for value in _named(name, values))


def _named(name: str, values: Values) -> Iterator[float]:
    return (value for key, value in values.items() if _is_of(key, name))


def _is_of(key: str, name: str) -> bool:
    return key == name or key.startswith(f"{name}/")
