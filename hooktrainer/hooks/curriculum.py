"""`Curriculum`: makes the environments harder during the run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import torch
from tensordict import NestedKey, TensorDictBase

from ..base.checks import check_count
from ..errors import ConfigError
from ..loop.hook import DEFAULT, EARLY
from ..loop.loop import Loop
from ..loop.metrics import Latest
from ..objectives.common import require
from .averaging import AveragingHook


@dataclass(eq=False, repr=False)
class Curriculum(AveragingHook):
    """Sets an attribute of the environments by level; levels rise by frames or by success.

    The level starts at 0. With ``frames`` it rises at these frames. With ``above`` it rises by one
    when the mean over the last ``episodes`` episodes reaches the level's threshold. A change of the
    attribute starts new episodes. Evaluation environments are not changed. The level is logged as
    ``curriculum/<attribute>``, and saved, so a resumed run continues exactly; with other values
    than before, with that of its level.

    Args:
        attribute: Name of the attribute, of the environment, a wrapper or the tensor environment.
        values: Its value at each level.
        frames: For each level but the last, the frames of the run at which it ends, ascending.
        above: Instead, for each level but the last, the mean at which it ends.
        episodes: Number of episodes of that mean.
        key: Entry that is averaged over the ends of episodes: a return, or an entry of
            ``info_keys`` such as ``("next", "success")``.

    Attributes:
        level: The level, from 0.

    Raises:
        ConfigError: If the numbers do not fit the values; at the start of training, if the
            collector cannot set attributes or its environments lack this one.
    """

    at = (("pre_steps_log", "observe", DEFAULT), ("post_steps", "__call__", EARLY))
    saved_attributes = ("level", "_set_value", "_last")

    attribute: str
    values: Sequence[Any]
    _: KW_ONLY
    frames: Sequence[int] | None = None
    above: Sequence[float] | None = None
    episodes: int = 100
    key: NestedKey = ("next", "episode_reward")

    def __post_init__(self) -> None:
        check_count("Curriculum: episodes", self.episodes)
        ends = self.frames if self.above is None else self.above
        if ends is None or (self.frames is not None and self.above is not None):
            raise ConfigError(f"Curriculum({self.attribute!r}): pass either frames or above.")
        if len(ends) != len(self.values) - 1 or (
            self.frames is not None and list(self.frames) != sorted(self.frames)
        ):
            raise ConfigError(
                f"Curriculum({self.attribute!r}): {list(ends)} for {len(self.values)} values: pass "
                "one for each but the last, frames rising."
            )
        self.level = 0
        self._last: list[float] = []  # of the last episodes
        self._set_value: str | None = None  # the level and value that were set, in words

    def observe(self, batch: TensorDictBase) -> dict[str, Any]:
        """Record the episodes that ended. Metric: the level."""
        if self.above is not None:
            done = batch.get(("next", "done"))
            hint = "Name an entry of info_keys, such as ('next', 'success')."
            values = require(batch, self.key, self, hint)
            if values.shape != done.shape:
                raise ConfigError(
                    f"Curriculum({self.attribute!r}): {self.key!r} is {list(values.shape)}, not a "
                    f"number for each step, {list(done.shape)}: name an entry of the environment, "
                    "such as ('next', 'episode_reward')."
                )
            self._last = [*self._last, *values[done].tolist()][-self.episodes :]
        return {f"curriculum/{self.attribute}": Latest(self.level)}

    def __call__(self) -> None:
        """Raise the level if due, for the next batch."""
        if self.frames is not None:
            self.level = sum(self.trainer.progress.frames >= end for end in self.frames)
        elif self.above is not None and self.level < len(self.above):
            full = len(self._last) == self.episodes
            mean = sum(self._last) / max(len(self._last), 1)
            state = torch.tensor([mean, float(full)], dtype=torch.float64)
            self._average([state])
            if state[1].item() == 1.0 and state[0].item() >= self.above[self.level]:
                self.level += 1
                self._last = []
        self._set(self.trainer)

    def on_train_start(self, trainer: Loop) -> None:
        """Set the value of the level, unless the collector was restored with it."""
        self.level = min(self.level, len(self.values) - 1)
        self._set(trainer)

    def _set(self, trainer: Loop) -> None:
        value = self.values[self.level]
        # Without addresses, which are others in each process.
        words = f"{self.level}: {re.sub(' at 0x[0-9a-f]+', '', repr(value))}"
        if words == self._set_value:
            return
        source: Any = trainer.source
        if not callable(getattr(source, "set_attribute", None)):
            raise ConfigError(
                f"Curriculum({self.attribute!r}): {type(source).__name__} sets no attributes of "
                "its environments: use a VectorCollector, without overlap."
            )
        source.set_attribute(self.attribute, value)
        self._set_value = words
