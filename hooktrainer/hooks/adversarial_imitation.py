"""`AdversarialImitation`: rewards steps that a discriminator takes for an expert's."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any

import torch
from tensordict import TensorDictBase
from torch import Tensor
from torch.nn.functional import one_hot, softplus

from ..base.checks import check_count, check_rate
from ..base.tensordicts import mask_of
from ..errors import ConfigError
from ..networks import mlp
from .averaging import LearnedReward


@dataclass(eq=False, repr=False)
class AdversarialImitation(LearnedReward):
    """Generative adversarial imitation learning (Ho and Ermon, 2016, arXiv:1606.03476).

    A discriminator learns to tell the expert's observations and actions from the collected ones.
    The reward becomes ``-log(1 - D)`` for its estimate D that a step is the expert's. The
    discriminator trains on a batch after rewarding it, with the gradient penalty of Gulrajani et
    al., 2017, arXiv:1704.00028, on its logits. For algorithms that learn from their own batches,
    such as PPO and TRPO; pass it as ``hooks=``. Logged episode returns are the environment's.

    It logs ``gail/reward``, the mean reward of a batch, and the discriminator's ``gail/loss`` and
    ``gail/accuracy``.

    Args:
        expert: Transitions ``[n]`` with ``"observation"`` and ``"action"``, such as
            ``load_dataset(path).transitions``. They are not saved: pass the same ones to a resumed
            run.
        actions: Number of discrete actions; ``None`` for continuous ones.
        discriminator: Maps ``[n, features]``, observations and actions side by side, discrete ones
            one-hot, to logits ``[n, 1]``; by default two hidden layers of 64.
        lr: Learning rate of the discriminator.
        steps: Optimizer steps of the discriminator per batch.
        batch_size: Steps of either kind in each.
        penalty: Weight of the gradient penalty.
        environment: Factor of the environment's reward, which is added.

    Raises:
        ConfigError: If the expert's transitions lack an array of each, or a number is out of range,
            such as ``actions`` for the expert's discrete ones.
    """

    saved_attributes = ("discriminator", "optimizer")
    phase = "gail"

    expert: TensorDictBase
    _: KW_ONLY
    actions: int | None = None
    discriminator: Any = None
    lr: float = 3e-4
    steps: int = 8
    batch_size: int = 128
    penalty: float = 10.0
    environment: float = 0.0

    def __post_init__(self) -> None:
        for name in ("steps", "batch_size"):
            check_count(f"AdversarialImitation: {name}", getattr(self, name))
        for name in ("penalty", "environment", "lr"):
            check_rate(f"AdversarialImitation: {name}", getattr(self, name))
        arrays = {key for key, value in self.expert.items() if isinstance(value, Tensor)}
        if missing := {"observation", "action"} - arrays:
            raise ConfigError(
                f"AdversarialImitation: the expert's data have no {sorted(missing)} that is one "
                "array, of which it needs both: flatten what has several parts."
            )
        action = self.expert["action"]
        if not len(action):
            raise ConfigError("AdversarialImitation: the expert's data have no transitions.")
        # An index, which is not a quantity.
        if not action.is_floating_point() and action[0].numel() == 1:
            low, high = int(action.min()), int(action.max())
            if low < 0 or high >= (self.actions or 0):
                raise ConfigError(
                    f"AdversarialImitation(actions={self.actions}): the expert's discrete actions "
                    f"are {low} to {high}: pass the number of actions, which count from 0."
                )
        self._expert = self._joined(self.expert)
        if self.discriminator is None:
            self.discriminator = mlp(self._expert.shape[-1], 1, (64, 64))
        self.optimizer = torch.optim.Adam(self.discriminator.parameters(), lr=self.lr)
        self._logged = {}
        self._networks = [self.discriminator]

    def __call__(self, batch: TensorDictBase) -> TensorDictBase:
        """Return ``batch``, ``[num_envs, time]``, with the discriminator's rewards.

        Raises:
            ConfigError: If its steps have other shapes than the expert's.
        """
        device = next(self.discriminator.parameters()).device
        given, seen = batch.get(("next", "reward")), self._joined(batch).to(device)
        if (own := seen.shape[-1]) != (theirs := self._expert.shape[-1]):
            raise ConfigError(
                f"AdversarialImitation: the steps have {own} features of observation and action, "
                f"the expert's {theirs}: pass data of this environment."
            )
        with torch.no_grad():
            reward = softplus(self.discriminator(seen))  # -log(1 - sigmoid)
        mask = mask_of(batch)
        valid = torch.ones(batch.shape, dtype=torch.bool) if mask is None else mask
        valid = valid.to(seen.device)
        self._logged = {"gail/reward": reward[valid].mean(), **self._learn(seen[valid])}
        return batch.copy().set(
            ("next", "reward"), reward.to(given).view(given.shape) + self.environment * given
        )

    def loss(self, expert: Tensor, seen: Tensor) -> tuple[Tensor, Tensor]:
        """The discriminator's loss on steps ``[n, features]`` of either kind, and its accuracy."""
        logits = self.discriminator(torch.cat([expert, seen]))
        true, false = logits.tensor_split([len(expert)])
        accuracy = 0.5 * ((true > 0).float().mean() + (false <= 0).float().mean())
        return softplus(-true).mean() + softplus(false).mean(), accuracy

    def _gradient_penalty(self, expert: Tensor, seen: Tensor) -> Tensor:
        share = torch.rand(len(seen), 1, device=seen.device)
        between = torch.lerp(expert, seen, share).requires_grad_()
        (slope,) = torch.autograd.grad(
            self.discriminator(between).sum(), between, create_graph=True
        )
        return self.penalty * (slope.norm(dim=-1) - 1).square().mean()

    def _learn(self, seen: Tensor) -> dict[str, Tensor]:
        """Train the discriminator; return its mean loss and accuracy."""
        total, self._expert = seen.new_zeros(2), self._expert.to(seen.device)
        for _ in range(self.steps):
            ours, theirs = (
                rows[torch.randint(len(rows), (self.batch_size,), device=rows.device)]
                for rows in (seen, self._expert)
            )
            loss, accuracy = self.loss(theirs, ours)
            self._minimize(loss + self._gradient_penalty(theirs, ours), self.discriminator)
            total += torch.stack([loss.detach(), accuracy]) / self.steps
        return {"gail/loss": total[0], "gail/accuracy": total[1]}

    def _joined(self, data: TensorDictBase) -> Tensor:
        """Observations and actions side by side, ``[*batch, features]``."""
        observation, action = data.get("observation"), data.get("action")
        if self.actions is not None:
            action = one_hot(action.reshape(data.shape).long(), self.actions)
        parts = (part.reshape(*data.shape, -1).float() for part in (observation, action))
        return torch.cat(list(parts), -1)
