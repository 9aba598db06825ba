"""Hooks that log: episodes, frames, batch entries, TorchRL's timers, the update-to-data ratio."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from tensordict import NestedKey, TensorDictBase

from ..base.checks import check_choice, check_count
from ..base.tensordicts import count_valid, valid
from ..collect.info import check_info_keys
from ..errors import HookError
from ..loop.hook import TrainerHookBase
from ..loop.loop import Loop
from ..loop.metrics import Latest, Samples, TensorTotal, Total


@dataclass(eq=False, repr=False)
class LogEpisodes(TrainerHookBase):
    """Logs the mean return and length of the episodes that ended in a log window.

    Every episode has the same weight. The hook reads ``("next", "done")``, ``("next",
    "episode_reward")`` and ``("next", "step_count")``, which `VectorCollector` and torchrl's
    ``RewardSum`` and ``StepCounter`` write.

    Args:
        group: Group of the metrics: ``<group>/return``, ``<group>/length``, ``<group>/episodes``.
        log_pbar: Whether ``<group>/return`` is shown in the progress bar.
        info_keys: The collector's ``info_keys``: the mean of each over the last steps of the
            episodes is logged as ``<group>/<key>``.
        agents: With several agents, maps each group of agents to its agents' names. Logs
            ``<group>/<agents>/return``, the mean over the agents, and
            ``<group>/<agents>/<agent>/return``, from ``("next", <agents>, "episode_reward")``,
            which `VectorCollector` writes.

    Raises:
        ConfigError: If a key collides with another metric.
    """

    at = "pre_steps_log"
    saved_attributes = ("_episodes",)

    group: str = "train"
    log_pbar: bool = True
    info_keys: Sequence[str] = ()
    agents: Mapping[str, Sequence[str]] | None = None

    def __post_init__(self) -> None:
        self.info_keys = check_info_keys(self.info_keys)
        self.agents = {name: tuple(members) for name, members in (self.agents or {}).items()}
        self._episodes: torch.Tensor | int = 0

    @property
    def episodes(self) -> int:
        """Number of episodes that ended. Synchronizes with an accelerator."""
        return int(self._episodes)

    def __call__(self, batch: TensorDictBase) -> dict[str, Any] | None:
        """Return the metrics, or ``None`` if no episode ended; always metrics on an accelerator."""
        done = batch.get(("next", "done"))
        returns = batch.get(("next", "episode_reward"), None)
        if returns is None:
            raise HookError(
                "LogEpisodes found no ('next', 'episode_reward'): collect with VectorCollector, or "
                "add torchrl's RewardSum."
            )
        if done.is_cpu and not np.count_nonzero(done.numpy()):  # far faster than done.any()
            return None
        self._episodes = self._episodes + (int(done.sum()) if done.is_cpu else done.sum())
        episodes, group = self._episodes, self.group
        total = TensorTotal(episodes) if isinstance(episodes, torch.Tensor) else Total(episodes)
        metrics: dict[str, Any] = {
            f"{group}/return": Samples(returns, done),
            f"{group}/episodes": total,
            "log_pbar": [f"{group}/return"] if self.log_pbar else False,
        }
        lengths = batch.get(("next", "step_count"), None)
        if lengths is not None:
            metrics[f"{group}/length"] = Samples(lengths, done)
        for key in self.info_keys:
            metrics[f"{group}/{key}"] = Samples(batch["next", key].float(), done)
        for name, members in (self.agents or {}).items():
            ended = batch["next", name, "episode_reward"].squeeze(-1)  # [*batch, agents]
            metrics[f"{group}/{name}/return"] = Samples(ended.mean(-1), done.squeeze(-1))
            for member, own in zip(members, ended.unbind(-1), strict=True):
                metrics[f"{group}/{name}/{member}/return"] = Samples(own, done.squeeze(-1))
        return metrics


# -- `CountFramesLog`: collected environment frames.


@dataclass(eq=False, repr=False)
class CountFramesLog(TrainerHookBase):
    """Counts environment frames and logs the count as ``n_frames``.

    Args:
        frame_skip: Environment frames per collected step.
        log_pbar: Whether the count is shown in the progress bar.
    """

    at = "pre_steps_log"
    saved_attributes = ("frame_count",)

    frame_skip: int
    log_pbar: bool = False

    def __post_init__(self) -> None:
        check_count("frame_skip", self.frame_skip)
        self.frame_count = 0

    def __call__(self, batch: TensorDictBase) -> dict[str, Any]:
        """Count the frames of ``batch`` without padding."""
        self.frame_count += count_valid(batch) * self.frame_skip
        return {"n_frames": Total(self.frame_count), "log_pbar": self.log_pbar}


# -- `LogScalar`: one entry of the batch.

_REDUCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "mean": torch.mean,
    "sum": torch.sum,
    "min": torch.amin,
    "max": torch.amax,
}


@dataclass(eq=False, repr=False)
class LogScalar(TrainerHookBase):
    """Logs a reduction of one entry of every collected batch, without padding.

    Args:
        key: The entry.
        logname: Name of the metric; by default the key.
        log_pbar: Whether the metric is shown in the progress bar.
        include_std: Whether ``<logname>_std`` is logged as well.
        reduction: ``"mean"``, ``"sum"``, ``"min"`` or ``"max"``.
    """

    at = "pre_steps_log"

    key: NestedKey = ("next", "reward")
    logname: str | None = None
    log_pbar: bool = False
    include_std: bool = True
    reduction: str = "mean"

    def __post_init__(self) -> None:
        check_choice("LogScalar: reduction", self.reduction, _REDUCTIONS)
        self.logname = str(self.key) if self.logname is None else self.logname
        self.default_name = f"log_{self.logname}"

    def __call__(self, batch: TensorDictBase) -> dict[str, Any]:
        """Return the metric; values stay tensors on the batch's device."""
        values = valid(batch, self.key).detach().float()
        name, value = str(self.logname), _REDUCTIONS[self.reduction](values)
        result: dict[str, Any] = {name: value, "log_pbar": self.log_pbar}
        if self.include_std and values.numel() > 1:
            result[f"{name}_std"] = values.std()
        return result


# -- `LogTiming`: TorchRL's timers.


@dataclass(eq=False, repr=False)
class LogTiming(TrainerHookBase):
    """Logs the times that `torchrl.timeit` collected, such as those of custom code.

    The trainer times and logs its own phases and hooks without this hook.

    Args:
        prefix: Group of the metrics: ``<prefix>/<timer>``.
        percall: Whether to log the mean per call instead of the total, in seconds.
        erase: Whether to reset the timers after logging.
    """

    at = "post_steps_log"

    prefix: str = "time"
    percall: bool = True
    erase: bool = False

    def __call__(self, batch: TensorDictBase) -> dict[str, Any]:
        """Return the times as metrics."""
        from torchrl import timeit

        times: dict[str, Any] = timeit.todict(percall=self.percall, prefix=self.prefix)
        if self.erase:
            timeit.erase()
        return times


# -- `UTDRHook`: the update-to-data ratio.


class UTDRHook(TrainerHookBase):
    """Logs the update-to-data ratio: transitions trained on per transition collected.

    Metrics: ``utd_ratio``, ``write_count`` (transitions collected) and ``update_count`` (optimizer
    steps). An update has the replay buffer's batch size, or size 1 without one.

    Args:
        trainer: The trainer.
    """

    at = "pre_steps_log"

    def __init__(self, trainer: Loop) -> None:
        self.trainer = trainer

    def __call__(self, batch: TensorDictBase) -> dict[str, Any]:
        """Return the metrics; none before the first transition."""
        trainer = self.trainer
        written, batch_size = trainer.progress.frames // trainer.frame_skip, 1
        for module in trainer.registry.modules.values():
            if (buffer := getattr(module, "replay_buffer", None)) is not None:
                size = getattr(module, "batch_size", None) or getattr(buffer, "batch_size", None)
                written, batch_size = int(buffer.write_count), size or 1
                break
        if not written:
            return {}
        updates = trainer.progress.optim_steps
        return {
            "utd_ratio": Latest(batch_size * updates / written),
            "write_count": Latest(written),
            "update_count": Latest(updates),
        }
