"""`Subsequences`: parts of the episodes of a data set, with the returns-to-go of their steps."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from tensordict import TensorDict

from ..errors import ConfigError
from .datasets import Dataset


class Subsequences:
    """Maps transitions of a data set to the parts of their episodes that begin there.

    It is a ``collate`` of `DataCollector`, whose samples are the indices of transitions. Parts that
    are shorter, since the episode ends, are padded at the end. Transitions after the last end of an
    episode are left out: what they return in all is unknown.

    Args:
        dataset: The data set.
        length: Steps in a part.

    Attributes:
        steps: The transitions, ``[n]``, with ``"observation"``, ``"action"``, ``"return_to_go"``
            ``[n, 1]``, the sum of their reward and all later ones of the episode, and ``"step"``,
            their number in it.
        returns: Returns of the episodes: of whole ones, as far as the data set has them.

    Raises:
        ConfigError: If no episode ends in the data.
    """

    def __init__(self, dataset: Dataset, length: int) -> None:
        read = [("next", key) for key in ("reward", "terminated", "truncated")]
        following = dataset.select(read)["next"]
        ends = (following["terminated"] | following["truncated"]).reshape(-1).nonzero().squeeze(-1)
        if not len(ends):
            raise ConfigError(
                f"none of the {len(dataset)} transitions of the data set ends an episode, so their "
                "returns are unknown: let 'terminated' or 'truncated' mark the ends, or record "
                "more."
            )
        number = int(ends[-1]) + 1
        places = torch.arange(number)
        episode = torch.searchsorted(ends, places)  # of each transition, the number of its own
        end = ends[episode]
        first = torch.cat([ends.new_zeros(1), ends[:-1] + 1])
        reward = following["reward"].reshape(-1)[:number].double()
        total = reward.cumsum(0)
        return_to_go = (total[end] - total + reward).float().unsqueeze(-1)
        kept = dataset.transitions[:number]
        self.steps = TensorDict(
            {
                "observation": kept["observation"].float(),
                "action": kept["action"],
                "return_to_go": return_to_go,
                "step": places - first[episode],
            },
            batch_size=[number],
        )
        self.returns: Sequence[float] = dataset.returns or return_to_go[first, 0].tolist()
        self._end = end
        self._offsets = torch.arange(length)

    def __len__(self) -> int:
        return len(self.steps)

    def __call__(self, starts: Sequence[int]) -> TensorDict:
        """Return the parts that begin at these transitions, ``[batch]``.

        The entries are those of ``steps``, ``[batch, length, ...]`` each, and the bool ``"mask"``,
        false for padding, which is the last step again.
        """
        places = torch.as_tensor(starts).unsqueeze(-1) + self._offsets
        end = self._end[places[:, 0]].unsqueeze(-1)
        taken = self.steps[torch.minimum(places, end)]
        return TensorDict({**taken, "mask": places <= end}, batch_size=[len(places)])
