"""A box of actions: tanh into it, and noise that stays in it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from ..errors import ConfigError


class Box(nn.Module):
    """Maps any real numbers into a box, by tanh: the last layer of a policy whose mean is bounded.

    Args:
        shape: Shape of an action, or the number of its features.
        low: Lower bound, one number or one for each feature.
        high: Upper bound, likewise.

    Attributes:
        shape: Shape of an action.
        low: Lower bounds ``[*shape]``.
        high: Upper bounds ``[*shape]``.
        half_width: Half the difference of the two, ``[*shape]``.

    Raises:
        ConfigError: If ``low`` is not below ``high``, or one of them is infinite.

    Examples:
        >>> Box(1, low=0.0, high=4.0)(torch.zeros(3, 1)).flatten().tolist()
        [2.0, 2.0, 2.0]
    """

    low: torch.Tensor
    high: torch.Tensor
    half_width: torch.Tensor
    _center: torch.Tensor

    def __init__(
        self,
        shape: int | tuple[int, ...],
        low: torch.Tensor | Sequence[float] | float = -1.0,
        high: torch.Tensor | Sequence[float] | float = 1.0,
    ) -> None:
        super().__init__()
        self.shape = (shape,) if isinstance(shape, int) else tuple(shape)
        low_, high_ = (
            torch.as_tensor(bound, dtype=torch.get_default_dtype()).expand(self.shape)
            for bound in (low, high)
        )
        if not ((low_ < high_) & low_.isfinite() & high_.isfinite()).all():
            raise ConfigError(
                f"the bounds of the action, low={low} and high={high}, must be finite, low below "
                "high."
            )
        half_width = (high_ - low_) / 2
        # Buffers, so that they move with the module; not state, as they come from the environment.
        self.register_buffer("low", low_.clone(), persistent=False)
        self.register_buffer("high", high_.clone(), persistent=False)
        self.register_buffer("half_width", half_width, persistent=False)
        self.register_buffer("_center", low_ + half_width, persistent=False)

    def forward(self, unbounded: torch.Tensor) -> torch.Tensor:
        """The point of the box, ``[*batch, *shape]``, for ``[*batch, features]``."""
        return torch.addcmul(self._center, self.half_width, self.shaped(unbounded.tanh()))

    def shaped(self, flat: torch.Tensor) -> torch.Tensor:
        """``[*batch, features]`` as ``[*batch, *shape]``."""
        if len(self.shape) == 1:
            return flat
        return flat.reshape(*flat.shape[:-1], *self.shape)

    def flat(self, action: torch.Tensor) -> torch.Tensor:
        """``[*batch, *shape]`` as ``[*batch, features]``."""
        if len(self.shape) == 1:
            return action
        return action.reshape(*action.shape[: action.ndim - len(self.shape)], -1)

    def invert(self, action: torch.Tensor) -> torch.Tensor:
        """What `forward` maps to ``action``, ``[*batch, features]``.

        At the very edge of the box it is as far out as float32 can tell.
        """
        unit = self.flat((action - self._center) / self.half_width)
        edge = 1.0 - torch.finfo(unit.dtype).eps
        return unit.clamp(-edge, edge).atanh()

    def perturb(self, action: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        """Add ``noise``, in halves of the box, to ``action``, and clip the sum to the box."""
        moved = torch.addcmul(action, self.half_width, noise)
        return torch.minimum(torch.maximum(moved, self.low), self.high)

    def sample(self, *shape: int) -> torch.Tensor:
        """Points drawn uniformly from the box, ``[*shape, *self.shape]``."""
        unit = torch.rand(*shape, *self.shape, device=self.low.device, dtype=self.low.dtype)
        return torch.lerp(self.low, self.high, unit)
