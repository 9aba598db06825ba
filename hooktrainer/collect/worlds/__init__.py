"""Batched tensor environments and their protocol `TensorWorld`.

`FunctionalWorld` is the base class for physics written as pure functions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...base.lazy import attach

if TYPE_CHECKING:
    from .adapters.gym_world import GymWorld as GymWorld
    from .adapters.jax_world import JaxWorld as JaxWorld
    from .adapters.rsl_rl_world import RslRlWorld as RslRlWorld
    from .adapters.torchrl_world import TorchRLWorld as TorchRLWorld
    from .functional_world import Carry as Carry
    from .functional_world import FunctionalWorld as FunctionalWorld
    from .tensor_world import Outcome as Outcome
    from .tensor_world import TensorWorld as TensorWorld
    from .world_ids import adapt_world as adapt_world
    from .world_ids import is_world as is_world
    from .world_ids import make_tensor_world as make_tensor_world
else:
    __getattr__, __dir__, __all__ = attach(__name__, __file__)
