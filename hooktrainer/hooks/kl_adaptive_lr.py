"""`KLAdaptiveLR`: a learning rate that follows the divergence of the policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import torch
from tensordict import TensorDictBase

from ..base.checks import check_positive
from ..errors import ConfigError, HookError
from ..loop.hook import DEFAULT, EARLY
from ..loop.loop import Loop
from .averaging import AveragingHook


@dataclass(eq=False, repr=False)
class KLAdaptiveLR(AveragingHook):
    """Adapts the learning rate so that the policy's divergence stays near ``desired_kl``.

    Before each optimizer step it takes the divergence between the collecting and the current policy
    over the mini-batch. Above ``2 * desired_kl`` the rate is divided by ``factor``; between 0 and
    ``desired_kl / 2`` it is multiplied. This is the rule of rsl_rl (Rudin et al., 2021,
    arXiv:2109.11978, appendix), after Schulman et al., 2017, arXiv:1707.06347, section 4.

    The divergence is the entry ``"kl"`` of the losses: use ``ClipPPOLoss(kl=True)``. On an
    accelerator the rate is a tensor there, as torch's optimizers and `FlatAdam` support, so nothing
    synchronizes.

    The rate after a batch's steps is logged as ``train/lr``, the divergence as ``train/kl``. The
    rate is saved with the optimizer. Do not combine it with a schedule of the rate. `CompiledStep`
    computes the rule inside its graphs by `rate`, and stores the result in ``computed``.

    Args:
        optimizer: All its parameter groups get the rate, which starts with the first group's.
        desired_kl: Target divergence in nats.
        factor: Factor of one change of the rate.
        low: Least rate.
        high: Greatest rate.
        key: Entry of the losses.
    """

    at = (("optimizer", "__call__", EARLY), ("post_steps_log", "log_lr", DEFAULT))
    trains = False
    not_in_graphs: ClassVar = frozenset(  # which are given the `numbers`
        ("trainer", "optimizer", "computed", "desired_kl", "factor", "low", "high")
    )

    optimizer: torch.optim.Optimizer
    desired_kl: float = 0.01
    _: KW_ONLY
    factor: float = 1.5
    low: float = 1e-5
    high: float = 1e-2
    key: str = "kl"

    def __post_init__(self) -> None:
        check_positive("KLAdaptiveLR: desired_kl", self.desired_kl)
        if not (self.factor > 1 and 0 < self.low <= self.high):
            raise ConfigError(
                f"KLAdaptiveLR(factor={self.factor!r}, low={self.low!r}, high={self.high!r}): pass "
                "a factor above 1, and rates, the lower first."
            )
        self.computed: torch.Tensor | None = None
        self._metric = "train/lr"

    def __call__(
        self, losses: TensorDictBase, clip_grad_norm: bool, clip_norm: float | None, index: int
    ) -> None:
        """Set the learning rate of the next step.

        Raises:
            HookError: If the losses have no divergence.
        """
        lr = self.optimizer.param_groups[0]["lr"]
        rate, self.computed = self.computed, None
        if rate is None:
            if (kl := losses.get(self.key, None)) is None:
                raise HookError(f"no {self.key!r} among the losses: use ClipPPOLoss(kl=True).")
            if self.average_over_ranks is not None:
                kl = kl.detach().clone()
                self._average([kl])
            before = lr if torch.is_tensor(lr) else torch.tensor(lr, dtype=torch.float64)
            rate = self.rate({self.key: kl}, before, self.numbers)
        self._set(rate.to(lr) if torch.is_tensor(lr) else rate.item())

    @property
    def numbers(self) -> Sequence[float]:
        """The other numbers that the rule depends on; schedules may change them."""
        return self.desired_kl, self.factor, self.low, self.high

    def rate(
        self, losses: Mapping[str, torch.Tensor], lr: torch.Tensor, numbers: Sequence[Any]
    ) -> torch.Tensor:
        """Return the rate of a step, a function of losses, the rate before and `numbers`."""
        kl = losses[self.key].detach().to(lr.dtype)
        desired, factor, low, high = numbers
        slower, faster = (lr / factor).clamp_min(low), (lr * factor).clamp_max(high)
        lr = torch.where((kl > 0) & (kl < desired / 2), faster, lr)
        return torch.where(kl > desired * 2, slower, lr)

    def log_lr(self, batch: Any) -> dict[str, Any]:
        """Metric: the learning rate after the batch's steps."""
        return {self._metric: self.optimizer.param_groups[0]["lr"]}

    def on_train_start(self, trainer: Loop) -> None:
        """Put the rate on the parameters' device; on a CPU it is a number."""
        group = self.optimizer.param_groups[0]
        device = group["params"][0].device
        if device.type == "cpu":  # no synchronization
            self._set(float(group["lr"]))
        else:
            self._set(torch.as_tensor(group["lr"], dtype=torch.float32).to(device))

    def register(self, trainer: Loop, name: str = "kl_adaptive_lr") -> None:
        """Register at ``optimizer``, before the step, and at ``post_steps_log``."""
        if name != "kl_adaptive_lr":
            self._metric = f"train/lr_{name}"
        super().register(trainer, name)

    def _set(self, lr: float | torch.Tensor) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = lr
