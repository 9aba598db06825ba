"""Tasks of MiniGrid as tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....base.lazy import attach

if TYPE_CHECKING:
    from .grid_world import GridWorld as GridWorld
    from .layouts import DoorKeyWorld as DoorKeyWorld
    from .layouts import EmptyWorld as EmptyWorld
    from .layouts import FourRoomsWorld as FourRoomsWorld
    from .layouts import MemoryWorld as MemoryWorld
    from .layouts import RedBlueDoorWorld as RedBlueDoorWorld
    from .rooms import KeyCorridorWorld as KeyCorridorWorld
    from .rooms import UnlockWorld as UnlockWorld
else:
    __getattr__, __dir__, __all__ = attach(__name__, __file__)
