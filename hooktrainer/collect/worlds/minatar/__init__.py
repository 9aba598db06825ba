"""MinAtar's five games as tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....base.lazy import attach

if TYPE_CHECKING:
    from .asterix import AsterixWorld as AsterixWorld
    from .breakout import BreakoutWorld as BreakoutWorld
    from .freeway import FreewayWorld as FreewayWorld
    from .seaquest import SeaquestWorld as SeaquestWorld
    from .space_invaders import SpaceInvadersWorld as SpaceInvadersWorld
else:
    __getattr__, __dir__, __all__ = attach(__name__, __file__)
