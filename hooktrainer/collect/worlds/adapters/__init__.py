"""Adapters of other simulators to `TensorWorld`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....base.lazy import attach

if TYPE_CHECKING:
    from .gym_world import GymWorld as GymWorld
    from .jax_world import JaxWorld as JaxWorld
    from .rsl_rl_world import RslRlWorld as RslRlWorld
    from .torchrl_world import TorchRLWorld as TorchRLWorld
else:
    __getattr__, __dir__, __all__ = attach(__name__, __file__)
