"""`MixDataset`: trains on samples of a data set as well as on collected ones."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from tensordict import TensorDictBase

from ..base.checks import check_fraction
from ..base.tensordicts import device_of
from ..errors import ConfigError
from ..loop.hook import TrainerHookBase


@dataclass(eq=False, repr=False)
class MixDataset(TrainerHookBase):
    """Replaces a part of every sample of a replay buffer by transitions of a data set.

    Ball, Smith, Kostrikov and Levine, 2023, Efficient Online Reinforcement Learning with Offline
    Data, arXiv:2302.02948, who draw half of each sample from either. With a
    `hooktrainer.Schedule` of ``fraction`` a run goes from the data to what it collects. Register it
    after the replay buffer. The data set is not saved: pass the same one to a resumed run.

    Args:
        data: Transitions ``[n]`` with the entries that the loss reads, see
            `hooktrainer.data.Dataset.select`; samples keep these alone.
        fraction: The part of a sample that is replaced, drawn with replacement.

    Raises:
        ConfigError: If there are no transitions, or the fraction is not between 0 and 1.
    """

    at = "process_optim_batch"

    data: TensorDictBase
    fraction: float = 0.5

    def __post_init__(self) -> None:
        if self.data.ndim != 1 or not len(self.data):
            raise ConfigError(
                f"MixDataset: the data are {list(self.data.shape)}: pass transitions [n], n > 0."
            )
        check_fraction("MixDataset: fraction", self.fraction)

    def __call__(self, sample: TensorDictBase) -> TensorDictBase:
        """Return a sample of the same size, ``[batch]``; the data's transitions are its last.

        Raises:
            KeyError: If the sample lacks an entry of the data.
        """
        data = self.data
        number = round(self.fraction * len(sample))
        rows = data[torch.randint(len(data), (number,), device=device_of(data))]
        own = sample.select(*data.keys(True, True))
        return torch.cat([own[: len(sample) - number], rows.to(own.device)])
