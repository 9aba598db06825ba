"""Worlds whose environments are tensors on one device, and what collects from them.

`TensorWorld` says what a simulator has to give, `FunctionalWorld` is for physics that are pure
functions, and `WorldCollector` yields the batches that `VectorCollector` yields, without a step in
which anything waits for the device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...base.lazy import attach

if TYPE_CHECKING:
    from .adapters import GymWorld as GymWorld
    from .adapters import JaxWorld as JaxWorld
    from .adapters import RslRlWorld as RslRlWorld
    from .adapters import TorchRLWorld as TorchRLWorld
    from .adapters import adapt_world as adapt_world
    from .functional_world import Carry as Carry
    from .functional_world import FunctionalWorld as FunctionalWorld
    from .tensor_world import Outcome as Outcome
    from .tensor_world import TensorWorld as TensorWorld
    from .world_collector import WorldCollector as WorldCollector
    from .world_ids import is_world as is_world
    from .world_ids import make_tensor_world as make_tensor_world
else:
    __getattr__, __dir__, __all__ = attach(__name__, __file__)
