"""Value networks: of a state, or of a state and an action."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from tensordict import NestedKey, TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torch import nn

from .inference import Inference


class ValueNetwork(TensorDictModuleBase):
    """A network that maps one or several tensors to one value: V(s), or Q(s, a).

    Args:
        network: Maps the inputs, joined along their last dimension, to a last dimension of 1.
        in_keys: Entries it reads.
        out_keys: The entry it writes. Default: ``"state_action_value"`` if it reads ``"action"``,
            else ``"state_value"``.

    Examples:
        >>> critic = ValueNetwork(mlp(4, 1))
        >>> q = ValueNetwork(mlp(3 + 1, 1), in_keys=["observation", "action"])
    """

    def __init__(
        self,
        network: nn.Module,
        in_keys: Sequence[NestedKey] = ("observation",),
        out_keys: Sequence[NestedKey] | None = None,
    ) -> None:
        super().__init__()
        self.network = network
        self.in_keys = list(in_keys)
        default = "state_action_value" if "action" in self.in_keys else "state_value"
        self.out_keys = list(out_keys or [default])
        self._infer = Inference(network)

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Write the value, of shape ``[*batch, 1]``, and return ``tensordict``."""
        value = self.evaluate(*[tensordict.get(key) for key in self.in_keys])
        return tensordict.set(self.out_keys[0], value)

    def evaluate(self, *inputs: torch.Tensor) -> torch.Tensor:
        """The value of shape ``[*batch, 1]``, with gradient.

        Args:
            *inputs: The entries ``in_keys``, each of shape ``[*batch, features]``.
        """
        return self.network(_join(inputs))

    def infer(self, *inputs: torch.Tensor) -> torch.Tensor:
        """The value of shape ``[*batch, 1]``, without gradient, as fast as possible."""
        return self._infer(_join(inputs))


def _join(inputs: Sequence[torch.Tensor]) -> torch.Tensor:
    return inputs[0] if len(inputs) == 1 else torch.cat(list(inputs), -1)
