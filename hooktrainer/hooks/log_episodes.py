"""Log the returns and lengths of the episodes that ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from tensordict import TensorDictBase

from ..base.tensordicts import entries_of
from ..collect.info import check_info_keys
from ..errors import HookError
from ..loop.hook import TrainerHookBase
from ..loop.metrics import Samples, TensorTotal, Total

if TYPE_CHECKING:
    from ..loop.loop import Loop

_READ = (("next", "done"), ("next", "episode_reward"))


class LogEpisodes(TrainerHookBase):
    """Logs the mean return and length of the episodes that ended in a log window.

    Every episode counts once, however many end in a batch. It reads ``("next", "done")``,
    ``("next", "episode_reward")`` and ``("next", "step_count")``, which `VectorCollector` and
    torchrl's ``RewardSum`` and ``StepCounter`` write.

    Args:
        group: Group of the metrics: ``<group>/return``, ``<group>/length``, ``<group>/episodes``.
        log_pbar: Whether ``<group>/return`` is shown in the progress bar.
        info_keys: Those that `VectorCollector` was given: the mean of each over the episodes that
            ended, at their last steps, is ``<group>/<key>``.
        agents: Where there are several agents: by the name of each group of agents the names of
            those in it. For each such group there is ``<group>/<agents>/return``, the mean over its
            agents, and for each agent of it ``<group>/<agents>/<agent>/return``. They are read from
            ``("next", <agents>, "episode_reward")``, which `AgentsCollector` writes.

    Raises:
        ConfigError: If a key would be a metric of its own.
    """

    def __init__(
        self,
        group: str = "train",
        log_pbar: bool = True,
        info_keys: Sequence[str] = (),
        agents: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self.info_keys = check_info_keys(info_keys)
        self.group = group
        self.log_pbar = log_pbar
        self.agents = {name: tuple(members) for name, members in (agents or {}).items()}
        self._episodes: torch.Tensor | int = 0

    @property
    def episodes(self) -> int:
        """How many episodes ended. On an accelerator, asking waits for it."""
        return int(self._episodes)

    def __call__(self, batch: TensorDictBase) -> dict[str, Any] | None:
        """Return the metrics; ``None`` if no episode ended in ``batch``, as far as that is known.

        On an accelerator nobody waits to know it.
        """
        found = entries_of(batch, _READ)
        done, returns = found[_READ[0]], found.get(_READ[1])
        if returns is None:
            raise HookError(
                "LogEpisodes found no ('next', 'episode_reward') in the batch; collect with "
                "VectorCollector, or add torchrl's RewardSum to the environment."
            )
        if done.is_cpu and not np.count_nonzero(done.numpy()):  # far quicker than done.any()
            return None
        self._episodes = self._episodes + (int(done.sum()) if done.is_cpu else done.sum())
        episodes = self._episodes
        total = TensorTotal(episodes) if isinstance(episodes, torch.Tensor) else Total(episodes)
        metrics: dict[str, Any] = {
            f"{self.group}/return": Samples(returns, done),
            f"{self.group}/episodes": total,
            "log_pbar": [f"{self.group}/return"] if self.log_pbar else False,
        }
        lengths = batch.get(("next", "step_count"), None)
        if lengths is not None:
            metrics[f"{self.group}/length"] = Samples(lengths, done)
        for key in self.info_keys:
            metrics[f"{self.group}/{key}"] = Samples(_entry(batch, key).float(), done)
        return metrics | self._by_agent(batch, done.squeeze(-1))

    def _by_agent(self, batch: TensorDictBase, done: torch.Tensor) -> dict[str, Any]:
        metrics: dict[str, Any] = {}
        for name, members in self.agents.items():
            returns = batch.get(("next", name, "episode_reward"), None)
            if returns is None or returns.shape[-2] != len(members):
                raise HookError(
                    f"LogEpisodes(agents=...) found no ('next', {name!r}, 'episode_reward') of "
                    f"{len(members)} agents in the batch; collect with AgentsCollector."
                )
            ended = returns.squeeze(-1)  # [*batch, agents]
            metrics[f"{self.group}/{name}/return"] = Samples(ended.mean(-1), done)
            for member, own in zip(members, ended.unbind(-1), strict=True):
                metrics[f"{self.group}/{name}/{member}/return"] = Samples(own, done)
        return metrics

    def state_dict(self) -> dict[str, Any]:
        """Return the count of episodes."""
        return {"episodes": self.episodes}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the count."""
        self._episodes = state_dict["episodes"]

    def register(self, trainer: Loop, name: str = "log_episodes") -> None:
        """Register at ``pre_steps_log``."""
        trainer.register_module(name, self)
        trainer.register_op("pre_steps_log", self)


def _entry(batch: TensorDictBase, key: str) -> torch.Tensor:
    entry: torch.Tensor | None = batch.get(("next", key), None)
    if entry is None:
        raise HookError(
            f"LogEpisodes found no ('next', {key!r}) in the batch; give the VectorCollector the "
            f"same info_keys, {key!r} among them."
        )
    return entry
