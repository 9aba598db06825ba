"""Tasks of MiniGrid as tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....base.lazy import attach

if TYPE_CHECKING:
    from .grid_world import GridWorld as GridWorld
    from .tasks import DoorKeyWorld as DoorKeyWorld
    from .tasks import EmptyWorld as EmptyWorld
    from .tasks import FourRoomsWorld as FourRoomsWorld
    from .tasks import KeyCorridorWorld as KeyCorridorWorld
    from .tasks import MemoryWorld as MemoryWorld
    from .tasks import RedBlueDoorWorld as RedBlueDoorWorld
    from .tasks import UnlockWorld as UnlockWorld
else:
    __getattr__, __dir__, __all__ = attach(__name__, __file__)
