"""`ImitationLoss`, of a student and its teacher; `BCLoss`, of a policy and a data set."""

from __future__ import annotations

from typing import Any, Literal

import torch
from tensordict import NestedKey
from torch import nn
from torch.nn.functional import mse_loss

from ..errors import ConfigError
from .common import Entries, Loss

PREFIX = "teacher_"
"""Prefix of the teacher's entries."""


class ImitationLoss(Loss):
    """The difference between a student and its teacher, averaged over a batch.

    Reads the student's inputs and the entries of `hooktrainer.Distillation`. Returns
    ``loss_imitation``:

    - ``"mse"``: the squared difference of the best actions, for continuous actions;
    - ``"kl"``: the Kullback-Leibler divergence from the teacher to the student, for normal and
      categorical distributions; if the teacher only gives actions, their negative log-likelihood.

    Args:
        actor_network: The student, from `hooktrainer.networks`.
        kind: ``"mse"`` or ``"kl"``.
        coeff: Factor of the loss.
        certain: Whether the teacher only gives actions.

    Raises:
        ConfigError: If the student does not support this loss.
    """

    hint = "Distillation writes what the teacher does."

    out_keys = ("loss_imitation",)
    actor_network: Any
    coeff: Any

    def __init__(
        self,
        actor_network: nn.Module,
        kind: Literal["mse", "kl"] = "mse",
        *,
        coeff: float = 1.0,
        certain: bool = False,
    ) -> None:
        super().__init__()
        self.actor_network = actor_network
        self.kind = kind
        self._register_coefficients(coeff=coeff)
        distribution = getattr(actor_network, "distribution", None)
        name = type(actor_network).__name__
        self.teacher_keys: tuple[str, ...] = ("action",)
        if kind == "kl":
            if distribution is None or not (certain or distribution.kl_keys):
                raise ConfigError(
                    f"ImitationLoss(kind='kl'): that of {name} has no closed form: use 'mse'."
                )
            self.teacher_keys = ("action",) if certain else distribution.kl_keys
        elif kind != "mse":
            raise ConfigError(f"ImitationLoss(kind={kind!r}): pass 'mse' or 'kl'.")
        elif distribution is not None and distribution.mask_size:
            raise ConfigError(
                f"ImitationLoss(kind='mse'): the actions of {name} are discrete: use kind='kl'."
            )
        self._certain = certain

    @property
    def in_keys(self) -> list[NestedKey]:
        return [*self.actor_network.in_keys, *(PREFIX + key for key in self.teacher_keys)]

    def losses(self, entries: Entries) -> dict[str, torch.Tensor]:
        actor = self.actor_network
        inputs = [entries[key] for key in actor.in_keys]
        taught = {key: entries[PREFIX + key] for key in self.teacher_keys}
        if self.kind == "mse":
            mine = actor.mode(*inputs) if hasattr(actor, "mode") else actor.evaluate(*inputs)
            loss = mse_loss(mine, taught["action"].view(mine.shape))
        elif self._certain:
            loss = -actor.log_prob_and_entropy(inputs, taught["action"])[0].mean()
        else:
            loss = actor.distribution.kl_from(taught, actor.evaluate(*inputs)).mean()
        return {"loss_imitation": self.coeff * loss}


class BCLoss(Loss):
    """Behavior cloning: how far a policy is from the actions of the data.

    Reads the policy's inputs and ``"action"``. Returns ``loss_bc``: the mean negative
    log-likelihood of the actions, or the mean squared difference if the policy is deterministic.

    Args:
        actor_network: The policy, from `hooktrainer.networks`.
    """

    hint = "It is one of a data set."
    out_keys = ("loss_bc",)
    actor_network: Any

    def __init__(self, actor_network: nn.Module) -> None:
        super().__init__(action="action")
        self.actor_network = actor_network

    @property
    def in_keys(self) -> list[NestedKey]:
        return [*self.actor_network.in_keys, self.tensor_keys.action]

    def losses(self, entries: Entries) -> dict[str, torch.Tensor]:
        actor, action = self.actor_network, entries[self.tensor_keys.action]
        inputs = [entries[key] for key in actor.in_keys]
        if hasattr(actor, "log_prob_and_entropy"):
            return {"loss_bc": -actor.log_prob_and_entropy(inputs, action)[0].mean()}
        mine = actor.evaluate(*inputs)
        return {"loss_bc": mse_loss(mine, action.reshape(mine.shape))}
