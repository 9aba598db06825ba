"""What the policies share: one network, a TensorDict interface, and a fast one for collecting."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from tensordict import NestedKey, TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torch import nn

from ..errors import ConfigError
from .inference import Inference


class Policy(TensorDictModuleBase, ABC):
    """A stochastic policy over one network, without distribution objects where speed counts.

    It is used in three ways, which agree:

    - ``policy.act(observation)`` returns ``out_keys`` as a dict, for fast collectors;
    - ``policy(tensordict)`` writes the same into a TensorDict, for all others;
    - ``policy.get_dist(tensordict)`` is the distribution, for TorchRL's losses.

    The first two have no gradient. Actions are random, or the distribution's mode under TorchRL's
    ``set_exploration_type``. Random numbers come from torch's global generator, whose state
    checkpoints hold.

    Args:
        network: Maps the inputs, joined along their last dimension, to the distribution's
            parameters.
        in_keys: Entries the policy reads.
        out_keys: Entries it writes; a choice from ``entries``.

    Attributes:
        entries: Everything the policy can write.
        log_prob_keys: Where the log-probability is written, for TorchRL's losses.
        dist_sample_keys: Where the action is written, likewise.

    Raises:
        ConfigError: If the policy cannot write one of ``out_keys``.
    """

    entries: tuple[str, ...] = ("action", "action_log_prob")

    def __init__(
        self, network: nn.Module, in_keys: Sequence[NestedKey], out_keys: Sequence[str]
    ) -> None:
        super().__init__()
        unknown = [key for key in out_keys if key not in self.entries]
        if unknown or "action" not in out_keys:
            raise ConfigError(
                f"{type(self).__name__}: out_keys={list(out_keys)} must hold 'action' and may hold "
                f"{[key for key in self.entries if key != 'action']}."
            )
        self.network = network
        self.in_keys = list(in_keys)
        self.out_keys = list(out_keys)
        self.log_prob_keys = ["action_log_prob"]
        self.dist_sample_keys = ["action"]
        self._infer = Inference(network)

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Write ``out_keys``, without gradient, and return ``tensordict``."""
        for key, value in self.act(*self.inputs(tensordict)).items():
            tensordict.set(key, value)
        return tensordict

    def act(self, *inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return ``out_keys`` for some observations, without gradient, as fast as possible.

        Args:
            *inputs: The entries ``in_keys``, each of shape ``[*batch, features]``.
        """
        return self.complete(self.sample(*inputs))

    def sample(self, *inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        """The half of `act` that has to be done at every step: the action, and what it came from.

        Args:
            *inputs: The entries ``in_keys``, each of shape ``[*batch, features]``.
        """
        return self._decide(self._parameters_from(self._infer, *inputs))

    def complete(self, sample: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """The other half, which can be done for all steps of a rollout at once.

        Args:
            sample: What `sample` returned, or many such results stacked.

        Returns:
            ``out_keys``.
        """
        return sample

    def evaluate(self, *inputs: torch.Tensor) -> torch.Tensor:
        """The distribution's parameters, ``[*batch, parameters]``, with gradient."""
        return self._parameters_from(self.network, *inputs)

    def inputs(self, tensordict: TensorDictBase) -> list[torch.Tensor]:
        """The entries ``in_keys`` of ``tensordict``."""
        return [tensordict.get(key) for key in self.in_keys]

    @abstractmethod
    def get_dist(self, tensordict: TensorDictBase) -> torch.distributions.Distribution:
        """The distribution of the action, ``[*batch]``, with gradient."""

    @abstractmethod
    def _decide(self, parameters: torch.Tensor) -> dict[str, torch.Tensor]:
        """What `sample` returns, from the distribution's parameters."""

    def _parameters_from(
        self, network: nn.Module | Inference, *inputs: torch.Tensor
    ) -> torch.Tensor:
        return network(inputs[0] if len(inputs) == 1 else torch.cat(inputs, -1))
