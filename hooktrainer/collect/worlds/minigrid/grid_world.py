"""`GridWorld`: MiniGrid's grids, actions and partial views as tensors."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np
import torch
from gymnasium import spaces

from ....base.checks import check_count
from ..functional_world import FunctionalWorld, Transition

# A cell is a number: its kind + 16 * its color + 256 * its state.
EMPTY, WALL, DOOR, KEY, BALL, BOX, GOAL, LAVA = 1, 2 + 5 * 16, 4, 5, 6, 7, 8 + 16, 9
NOTHING = 0
RED, GREEN, BLUE, YELLOW = 0, 1, 2, 4
COLORS = 6
OPEN, CLOSED, LOCKED = 0, 1, 2
TURN_LEFT, TURN_RIGHT, FORWARD, PICK_UP, DROP, TOGGLE = range(6)
VIEW = 7
_ROW: Final = (1 << VIEW) - 1
"""The bits of all cells in a row of a view."""
INT = torch.int32
GridState = dict[str, torch.Tensor]
Judgement = tuple[torch.Tensor, torch.Tensor]
"""Whether a step succeeds, and whether it ends the episode, bool ``[num_envs]``."""


class Start(NamedTuple):
    """The start of an episode: cells ``[num_envs, height * width]``, and the agent ``[num_envs]``.

    ``goal`` is a number that a task may need to know, such as a color.
    """

    cells: torch.Tensor
    place: torch.Tensor
    direction: torch.Tensor | int
    goal: torch.Tensor | int = 0


class GridWorld(FunctionalWorld):
    """A task of MiniGrid (Chevalier-Boisvert et al., 2023, arXiv:2306.13831) as tensors.

    Observations are those of the original with its usual wrappers: the view of 7 x 7 cells, the
    direction, and, where it varies, the mission as word indices. Steps equal the original's.
    Layouts have the distribution of the original's; which one an episode has depends on the seed.

    Args:
        num_envs: Number of environments.
        max_steps: The length at which an episode is truncated; by default ``max_episode_steps`` of
            the class.
        name: Name for messages.
        rest: Arguments of `FunctionalWorld`.
    """

    steps_per_graph = 1  # a grid is hundreds of operations
    width: int
    height: int
    sees_through_walls: ClassVar[bool] = False
    has_mission: ClassVar[bool] = False
    max_episode_steps: int = 100  # as of MiniGrid's grids

    def __init__(
        self, num_envs: int, *, max_steps: int | None = None, name: str | None = None, **rest: Any
    ) -> None:
        self.name = name or type(self).__name__
        cells = spaces.MultiDiscrete(np.broadcast_to([11, 6, 4], (VIEW, VIEW, 3)), dtype=np.uint8)
        parts: dict[str, spaces.Space[Any]] = {"image": cells, "direction": spaces.Discrete(4)}
        if self.has_mission:
            parts["mission"] = spaces.MultiDiscrete([52] * 50)
        self.observation_space: spaces.Space[Any] = spaces.Dict(parts)
        self.action_space: spaces.Space[Any] = spaces.Discrete(7)
        self.max_steps = self.max_episode_steps if max_steps is None else max_steps
        check_count("max_steps", self.max_steps)  # which rewards depend on, so None has no meaning
        super().__init__(num_envs, **{"max_episode_steps": self.max_steps, **rest})
        self._sight = _sight(self.device)

    # -- what a task defines ---------------------------------------------------------------------

    @abstractmethod
    def start(self, uniform: torch.Tensor) -> Start:
        """The start of an episode; ``uniform`` as for `initial`."""

    def judged(self, before: GridState, state: GridState, action: torch.Tensor) -> Judgement:
        """Judge a step.

        ``state["reached"]`` is the cell that the agent stepped on, if it moved, else ``EMPTY``. By
        default a step to the goal succeeds.
        """
        reached = state["reached"] == GOAL
        return reached, reached

    def mission(self, state: GridState) -> torch.Tensor:
        """The mission as word indices, int64 ``[num_envs, 50]``, if there is one."""
        raise NotImplementedError

    # -- FunctionalWorld -------------------------------------------------------------------------

    def initial(self, uniform: torch.Tensor) -> GridState:
        begun = self.start(uniform)
        zero = begun.place.to(INT) * 0
        return {
            "cells": begun.cells,
            "place": begun.place.to(INT),
            "direction": (zero + begun.direction).to(INT),
            "goal": (zero + begun.goal).to(INT),
            "carried": zero,
            "reached": zero + EMPTY,
            "steps": zero,
        }

    def transition(self, state: GridState, action: torch.Tensor) -> Transition:  # type: ignore[override]
        cells, place, carried = state["cells"], state["place"], state["carried"]
        turn = (action == TURN_RIGHT).to(INT) - (action == TURN_LEFT).to(INT)
        dx, dy = _unit(state["direction"])
        front = (place + dx + dy * self.width).long()
        faced = cells.gather(1, front[:, None]).squeeze(1)
        kind, color = faced & 15, (faced >> 4) & 15

        is_open_door = (kind == DOOR) & (faced >> 8 == OPEN)
        enters = (faced == EMPTY) | (faced == GOAL) | (kind == LAVA) | is_open_door
        moves = (action == FORWARD) & enters
        takes = (action == PICK_UP) & (carried == NOTHING) & (kind >= KEY) & (kind <= BOX)
        drops = (action == DROP) & (carried != NOTHING) & (faced == EMPTY)
        has_key = carried == KEY + (color << 4)
        turns_key = (faced >> 8 != LOCKED) | has_key
        toggles = (action == TOGGLE) & (kind == DOOR) & turns_key
        door = DOOR + (color << 4) + (is_open_door.to(INT) << 8)  # closed if it was open

        changed = torch.where(takes, EMPTY, torch.where(drops, carried, faced))
        changed = torch.where(toggles, door, changed)
        following = {
            "cells": cells.scatter(1, front[:, None], changed[:, None]),
            "place": torch.where(moves, front.to(INT), place),
            "direction": (state["direction"] + turn) & 3,
            "goal": state["goal"],
            "carried": torch.where(takes, faced, torch.where(drops, NOTHING, carried)),
            "reached": torch.where(moves, faced, EMPTY),
            "steps": state["steps"] + 1,
        }
        succeeds, ends = self.judged(state, following, action)
        reward = 1 - 0.9 * (following["steps"].to(self.dtype) / self.max_steps)
        return following, torch.where(succeeds, reward, 0.0), ends

    def observe(self, state: GridState) -> dict[str, torch.Tensor]:  # type: ignore[override]
        cells = self._view(state)
        parts = torch.arange(0, 12, 4, device=cells.device, dtype=INT)
        image = (cells[..., None] >> parts) & 15
        observed = {"image": image.to(torch.uint8), "direction": state["direction"].long()}
        return observed | ({"mission": self.mission(state)} if self.has_mission else {})

    def _view(self, state: GridState) -> torch.Tensor:
        """The cells that the agent sees, ``[num_envs, 7, 7]``, first to the right, then backwards.

        The agent stands in the middle of the last row, and faces the first.
        """
        place, direction = state["place"][:, None, None], state["direction"][:, None, None]
        cells = torch.arange(VIEW, device=place.device, dtype=INT)
        right, ahead = (cells - VIEW // 2)[:, None], VIEW - 1 - cells
        dx, dy = _unit(direction)
        x = place % self.width + dx * ahead - dy * right
        y = place // self.width + dy * ahead + dx * right
        inside = (x >= 0) & (x < self.width) & (y >= 0) & (y < self.height)
        flat = torch.where(inside, y * self.width + x, 0).flatten(1).long()
        seen = state["cells"].gather(1, flat).view(inside.shape)
        seen = torch.where(inside, seen, WALL)
        if not self.sees_through_walls:
            seen = torch.where(_visible(seen, self._sight), seen, 0)
        here = (right == 0) & (ahead == 0)
        carried = torch.where(state["carried"] == NOTHING, EMPTY, state["carried"])
        return torch.where(here, carried[:, None, None], seen)


def _unit(direction: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The unit vector of a direction: right, down, left, up."""
    sign = torch.where(direction < 2, 1, -1).to(INT)
    is_vertical = direction % 2
    return sign * (1 - is_vertical), sign * is_vertical


def _visible(seen: torch.Tensor, sight: torch.Tensor) -> torch.Tensor:
    """Which cells of a view ``[num_envs, 7, 7]`` are visible; walls and closed doors hide others.

    A row is a number with a bit for each of its cells; ``sight`` is that of `_sight`.
    """
    bits = torch.arange(VIEW, device=seen.device, dtype=INT)
    hides = (seen == WALL) | ((seen & 15 == DOOR) & (seen >> 8 != OPEN))
    clear = torch.where(hides, 0, (1 << bits)[:, None]).sum(1, dtype=INT)
    entry = torch.full_like(clear[:, 0], 1 << VIEW // 2 << VIEW)  # the agent's cell
    rows: list[torch.Tensor] = []
    for j in reversed(range(VIEW)):
        entry = sight[(entry & ~_ROW | clear[:, j]).long()]
        rows.append(entry)
    columns = torch.stack(rows[::-1], 1)
    return ((columns[:, None, :] >> bits[:, None]) & 1).bool()


def _sight(device: torch.device) -> torch.Tensor:
    """How sight spreads in a row, and to the row above it, as a table.

    The index is the visible cells of the row, shifted by 7 bits, with its cells that do not hide;
    the entry is the visible cells of the row above, shifted likewise, with all visible cells of the
    row. From a visible cell that does not hide, sight spreads to the next cell, first to the right
    and then to the left, and above to both.
    """
    index = torch.arange(1 << 2 * VIEW, device=device, dtype=INT)
    row, clear, above = index >> VIEW, index & _ROW, torch.zeros_like(index)
    for cells, step in ((range(VIEW), 1), (reversed(range(VIEW)), -1)):
        for i in cells:
            passes = row >> i & clear >> i & 1
            lit = (passes << i) | (passes << i + step if 0 <= i + step < VIEW else 0)
            row, above = row | lit, above | lit
    return above << VIEW | row
