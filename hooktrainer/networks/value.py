"""Value networks: of a state, or of a state and an action."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from tensordict import NestedKey, TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torch import Tensor, nn

from .inference import Inference
from .inputs import arguments
from .memory import through


class ValueNetwork(TensorDictModuleBase):
    """A network that maps one or several tensors to one value: V(s), or Q(s, a).

    Args:
        network: Maps the inputs to a last dimension of 1. If its ``forward`` takes one tensor, the
            inputs are concatenated along their last dimension.
        in_keys: Entries it reads.
        out_keys: The entry it writes. Default: ``"state_action_value"`` if it reads ``"action"``,
            else ``"state_value"``.
        trunk: As for `Policy`. It does not read an ``"action"``, which comes last.

    Examples:
        >>> critic = ValueNetwork(mlp(4, 1))
        >>> q = ValueNetwork(mlp(3 + 1, 1), in_keys=["observation", "action"])
    """

    def __init__(
        self,
        network: nn.Module,
        in_keys: Sequence[NestedKey] = ("observation",),
        out_keys: Sequence[NestedKey] | None = None,
        trunk: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.network = network
        self.trunk = trunk
        self.in_keys = list(in_keys)
        default = "state_action_value" if "action" in self.in_keys else "state_value"
        self.out_keys = list(out_keys or [default])
        self._rest = 1 if "action" in self.in_keys else 0
        self._infer = Inference(network, type(self).__name__)

    @property
    def joins(self) -> bool:
        """Whether the network takes one tensor, so that several inputs are concatenated."""
        return self._infer.joins

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Write the value ``[*batch, 1]``, and return ``tensordict``."""
        value = self.evaluate(*[tensordict.get(key) for key in self.in_keys])
        return tensordict.set(self.out_keys[0], value)

    def evaluate(self, *inputs: Tensor, features: Tensor | None = None) -> Tensor:
        """The value ``[*batch, 1]``, with gradient.

        Args:
            *inputs: The entries ``in_keys``, ``[*batch, ...]`` each.
            features: The trunk's output for them, if it is known.
        """
        if self.trunk is not None:
            inputs = through(self.trunk, inputs, features, self._rest)  # type: ignore[assignment]
        return self.network(*arguments(inputs, self.joins))

    def infer(self, *inputs: Tensor) -> Tensor:
        """The value ``[*batch, 1]``, without gradient, as fast as possible."""
        if self.trunk is not None:
            with torch.no_grad():
                inputs = through(self.trunk, inputs, rest=self._rest)  # type: ignore[assignment]
        return self._infer(*inputs)
