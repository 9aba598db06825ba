"""Hooks that score completions: `Rewards` and `GroupAdvantage`."""

from __future__ import annotations

import inspect
import math
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from multiprocessing.connection import wait
from time import monotonic
from typing import Any, Literal

import torch
from tensordict import TensorDictBase

from ..base.checks import check_count, check_positive
from ..base.words import listed, plural
from ..base.worker import Channel, ChildError, Worker
from ..errors import ConfigError, HookError
from ..loop.hook import AFTER, TrainerHookBase
from ..loop.metrics import Samples
from ..objectives.tokens import group_advantage
from .encoding import is_chat, prompt_of

Reward = Callable[..., Sequence[float | None]]
"""Maps lists of prompts, completions and columns of the data to a reward for each completion."""


@dataclass(eq=False, repr=False)
class Rewards(TrainerHookBase):
    """Scores the completions of a batch by functions, and writes ``"reward"``, their weighted sum.

    A function is called with keyword arguments, those of these that it names, or all of them if it
    has ``**kwargs``: ``prompts``, as in the data; ``completions``, texts, of a chat a list with a
    message, or tokens without a tokenizer; ``completion_ids``, lists of their tokens; ``trainer``;
    and a list for every key of the first row of the data, such as ``answer``. It returns a number
    for each completion, or ``None`` where it does not apply. Functions written for TRL fit.

    Each function's mean is logged as ``reward/<name>``, the sum's as ``train/reward``.

    With ``processes`` a function scores one completion a call, in processes of their own, without
    ``trainer``. A call that takes more than ``timeout`` seconds is ended and scores ``on_timeout``,
    and so does one whose process dies; ``reward/timeouts`` counts both.

    Args:
        functions: A function, several by name, or several, named after themselves.
        data: The prompts of the collector, whose rows have the columns.
        tokenizer: Makes texts of tokens.
        weights: Factor of each function by name, 1 by default.
        processes: Number of processes; 0 for this one.
        timeout: Seconds that a call in a process may take.
        on_timeout: Reward of a call that takes longer.

    Raises:
        ConfigError: If a function needs an argument that there is not, a name is taken, or an
            option has no effect.
        HookError: If a function raises, or returns something else than a finite number each.
    """

    at = "batch_process"

    functions: Reward | Sequence[Reward] | Mapping[str, Reward]
    data: Any
    tokenizer: Any = None
    _: KW_ONLY
    weights: Mapping[str, float] | None = None
    processes: int = 0
    timeout: float | None = None
    on_timeout: float = 0.0

    def __post_init__(self) -> None:
        check_count("processes", self.processes, least=0)
        functions = self.functions
        if callable(functions) or isinstance(functions, str):
            functions = [functions]
        if not functions:
            raise ConfigError(f"rewards={functions!r}: pass at least one function.")
        if not isinstance(functions, Mapping):
            names = [getattr(one, "__name__", type(one).__name__) for one in functions]
            if twice := {name for name in names if names.count(name) > 1}:
                raise ConfigError(
                    f"several rewards are called {listed(sorted(twice), 4)}: pass a mapping of "
                    "names to functions."
                )
            functions = dict(zip(names, functions, strict=True))
        self._functions: dict[str, Reward] = dict(functions)
        for name, function in self._functions.items():
            if not callable(function):
                raise ConfigError(
                    f"reward {function!r:.60} is not callable: pass a function, which may call a "
                    "model."
                )
            if name in _OTHERS:
                raise ConfigError(
                    f"reward/{name} is another metric: give the reward {name!r} another name, as "
                    "in {'mine': function}."
                )
        self._weights = dict.fromkeys(self._functions, 1.0) | dict(self.weights or {})
        if unknown := self._weights.keys() - self._functions.keys():
            raise ConfigError(
                f"weights for {listed(sorted(unknown), 4)}: the rewards are "
                f"{listed(self._functions, 8)}."
            )
        for name, weight in self._weights.items():
            if not (_is_number(weight) and math.isfinite(weight)):
                raise ConfigError(f"the weight of {name!r} is {weight!r:.60}: pass a number.")
        check_positive("timeout", self.timeout, none="no end")
        for name, value, default in (
            ("timeout", self.timeout, None),
            ("on_timeout", self.on_timeout, 0.0),
        ):
            if value != default and not self.processes:
                raise ConfigError(
                    f"{name}={value} needs processes: what runs in this process cannot be ended. "
                    "Pass processes=1 or more."
                )
        if not len(self.data):
            raise ConfigError("the data is empty: pass the prompts of the collector.")
        row = self.data[0]
        columns = set(row) if isinstance(row, Mapping) else set()
        self._columns = sorted(columns - {"prompt"})
        given = {"prompts", "completions", "completion_ids", "trainer"}
        if twice := given & columns:
            raise ConfigError(
                f"the data has a column {min(twice)!r}, the name of another argument of rewards: "
                "rename the column."
            )
        given |= {*self._columns}
        if self.processes:
            given.remove("trainer")
        self._taken = {
            name: _taken_by(name, function, given) for name, function in self._functions.items()
        }
        self._judges: list[_Judge] = []

    def __call__(self, batch: TensorDictBase) -> TensorDictBase:
        """Return the batch with ``"reward"``, float32 ``[completions]``."""
        total, rewards = self.score(batch, self.trainer)
        metrics = {f"reward/{name}": Samples(r, ~r.isnan()) for name, r in rewards.items()}
        self.trainer.log({**metrics, "train/reward": Samples(total), "log_pbar": ["train/reward"]})
        return batch.set("reward", total.to(batch["tokens"].device))

    def score(
        self, batch: TensorDictBase, trainer: Any = None
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """Return the weighted sum, and each function's rewards, NaN where one does not apply."""
        arguments = self._arguments(batch)
        if not self.processes:
            arguments["trainer"] = trainer
        found = {}
        for name, function in self._functions.items():
            taken = {key: arguments[key] for key in self._taken[name]}
            if self.processes:
                values = self._in_processes(name, taken, len(batch))
            else:
                values = _called(name, function, taken)
            found[name] = _checked(name, values, len(batch))
        weighted = [self._weights[name] * r.nan_to_num() for name, r in found.items()]
        return torch.stack(weighted).sum(0), found

    def _arguments(self, batch: TensorDictBase) -> dict[str, Any]:
        """The arguments of the functions, each a list with an item for every completion."""
        indices = batch["prompt"].tolist()
        rows = {index: self.data[index] for index in set(indices)}
        prompts = {index: prompt_of(row, index) for index, row in rows.items()}
        starts, lengths = batch["sampled"].int().argmax(-1).tolist(), batch["length"].tolist()
        places = zip(batch["tokens"].tolist(), starts, lengths, strict=True)
        tokens = [row[start:length] for row, start, length in places]
        completions: list[Any] = tokens
        if self.tokenizer is not None:
            texts = [self.tokenizer.decode(one, skip_special_tokens=True) for one in tokens]
            completions = [
                [{"role": "assistant", "content": text}] if is_chat(prompts[index]) else text
                for index, text in zip(indices, texts, strict=True)
            ]
        return {
            "prompts": [prompts[index] for index in indices],
            "completions": completions,
            "completion_ids": tokens,
            **{name: [rows[index].get(name) for index in indices] for name in self._columns},
        }

    def _in_processes(self, name: str, taken: Mapping[str, Any], number: int) -> list[Any]:
        """Score each completion in a process that is free."""
        if not self._judges:
            self._judges = [_Judge(self._functions, place) for place in range(self.processes)]
        values: list[Any] = [None] * number
        left = [(row, {key: [value[row]] for key, value in taken.items()}) for row in range(number)]
        left.reverse()
        lost = 0
        try:
            while left or any(judge.row is not None for judge in self._judges):
                for judge in self._judges:
                    if left and judge.row is None:
                        judge.start(name, *left.pop(), self.timeout)
                for judge in self._finished():
                    row, value = judge.finish(name)
                    lost += value is _LOST
                    values[row] = self.on_timeout if value is _LOST else value
        except BaseException:
            self.close()  # others are still scoring rows of this batch
            raise
        if self.is_registered:
            self.trainer.log({"reward/timeouts": float(lost)})
        return values

    def _finished(self) -> list[_Judge]:
        """Wait for judges that are done, or out of time."""
        busy = [judge for judge in self._judges if judge.row is not None]
        least = max(0.0, min(judge.deadline for judge in busy) - monotonic())
        done = wait(
            [judge.worker.connection for judge in busy], None if least == math.inf else least
        )
        return [
            judge
            for judge in busy
            if judge.worker.connection in done or judge.deadline <= monotonic()
        ]

    def close(self) -> None:
        """End the processes."""
        for judge in self._judges:
            judge.worker.close(0)
        self._judges = []


_LOST = object()
_OTHERS = ("deviation", "equal", "timeouts")  # metrics of the group ``reward``


class _Judge:
    """A process that scores one completion at a time."""

    def __init__(self, functions: Mapping[str, Reward], place: int) -> None:
        self._functions, self._place = functions, place
        self.row: int | None = None
        self.deadline = math.inf
        self._begin()

    def _begin(self) -> None:
        self.worker = Worker(f"reward process {self._place}", _judge, dict(self._functions))
        self._is_ready = False

    def start(self, name: str, row: int, arguments: Any, timeout: float | None) -> None:
        """Send a completion."""
        if not self._is_ready:  # its start does not count as time of the reward
            self.worker.receive_object()
            self._is_ready = True
        self.row = row
        self.deadline = math.inf if timeout is None else monotonic() + timeout
        self.worker.send_object((name, arguments))

    def finish(self, name: str) -> tuple[int, Any]:
        """Return the row and its reward; `_LOST` if the process has to be replaced."""
        assert self.row is not None
        row, self.row = self.row, None
        if self.worker.connection.poll():
            try:
                return row, self.worker.receive_object()
            except ChildError:
                pass
            except Exception as error:
                raise _failed(name, error) from error
        self.worker.close(0)
        self._begin()
        return row, _LOST


def _judge(channel: Channel, functions: Mapping[str, Reward]) -> None:
    """Score completions in a process until the connection ends."""
    channel.send_object("ready")
    while True:
        name, arguments = pickle.loads(channel.receive())
        try:
            values = functions[name](**arguments)
            channel.send_object(values[0] if len(values) == 1 else values)
        except Exception as error:
            channel.send_error(error)


def _taken_by(name: str, function: Reward, given: set[str]) -> list[str]:
    """The arguments of those given that a function takes."""
    parameters = inspect.signature(function).parameters.values()
    for one in parameters:
        is_named = one.kind not in (one.VAR_KEYWORD, one.VAR_POSITIONAL)
        if is_named and one.name not in given and one.default is one.empty:
            raise ConfigError(
                f"reward {name!r} takes {one.name!r}, which is none of "
                f"{listed(sorted(given), 8)}: name a column of the data."
            )
    if any(one.kind is one.VAR_KEYWORD for one in parameters):
        return sorted(given)
    return [one.name for one in parameters if one.name in given]


def _called(name: str, function: Reward, arguments: Mapping[str, Any]) -> Any:
    try:
        return function(**arguments)
    except Exception as error:
        raise _failed(name, error) from error


def _failed(name: str, error: Exception) -> HookError:
    return HookError(f"reward {name!r} failed: {type(error).__name__}: {error}")


def _checked(name: str, values: Any, number: int) -> torch.Tensor:
    """The rewards as float32, NaN where they do not apply."""
    try:
        values = list(values.tolist() if isinstance(values, torch.Tensor) else values)
    except TypeError:
        raise HookError(
            f"reward {name!r} returned {values!r:.60}: return a list with a number for each "
            "completion."
        ) from None
    if len(values) != number:
        raise HookError(
            f"reward {name!r} returned {plural(len(values), 'number')} for "
            f"{plural(number, 'completion')}: return one for each."
        )
    for row, value in enumerate(values):
        if value is not None and not (_is_number(value) and math.isfinite(value)):
            raise HookError(
                f"reward {name!r} is {value!r:.60} for completion {row} of the batch: return a "
                "finite number, or None where it does not apply."
            )
    return torch.tensor([math.nan if value is None else float(value) for value in values])


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return not isinstance(value, str)


@dataclass(eq=False, repr=False)
class GroupAdvantage(TrainerHookBase):
    """Writes ``"advantage"``: each completion's reward, compared with the others of its group.

    Logs ``reward/deviation``, the mean standard deviation in groups, and ``reward/equal``, the
    fraction of groups whose rewards are all equal, which teach nothing.

    Args:
        baseline: ``"mean"`` of the group (GRPO, arXiv:2402.03300), ``"leave_one_out"``, that of the
            others (RLOO, arXiv:2402.14740), or ``None``.
        scale: Whether to divide by the standard deviation of the group. Dr. GRPO leaves it out
            (arXiv:2503.20783).
    """

    at = "batch_process"
    priority = AFTER

    baseline: Literal["mean", "leave_one_out"] | None = "mean"
    scale: bool = True

    def __post_init__(self) -> None:
        alone = torch.zeros(2)
        group_advantage(alone, alone.int(), baseline=self.baseline, scale=self.scale)  # checks

    def __call__(self, batch: TensorDictBase) -> TensorDictBase:
        """Return the batch with ``"advantage"``, float32 ``[completions]``."""
        reward, group = batch["reward"], batch["group"]
        advantage = group_advantage(reward, group, baseline=self.baseline, scale=self.scale)
        difference = group_advantage(reward, group, scale=False).cpu()  # 0 if all are equal
        _, of, sizes = group.cpu().unique(return_inverse=True, return_counts=True)
        variances = difference.new_zeros(len(sizes)).index_add(0, of, difference.square()) / sizes
        self.trainer.log(
            {
                "reward/deviation": Samples(variances.sqrt()),
                "reward/equal": Samples((variances == 0).float()),
            }
        )
        return batch.set("advantage", advantage)
