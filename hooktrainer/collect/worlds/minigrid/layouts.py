"""MiniGrid's tasks as tensors: how their grids are laid out, and when they are solved."""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from .grid_world import (
    BALL,
    BLUE,
    CLOSED,
    DOOR,
    EMPTY,
    GOAL,
    GREEN,
    INT,
    KEY,
    LOCKED,
    PICK_UP,
    RED,
    TOGGLE,
    WALL,
    YELLOW,
    GridState,
    GridWorld,
    Start,
)


class SizedWorld(GridWorld):
    """Base class of grids of any size, on which an episode may be as long as they are large.

    Args:
        num_envs, device, rest: As for `GridWorld`.
        size: The grid's height, and its width divided by ``aspect``.
        max_steps: As for `GridWorld`; by default ``steps_per_cell * size**2``.
    """

    steps_per_cell: ClassVar[int]
    aspect: ClassVar[int] = 1

    def __init__(
        self,
        num_envs: int,
        device: torch.device | str = "cpu",
        *,
        size: int = 8,
        max_steps: int | None = None,
        **rest: Any,
    ) -> None:
        self.width, self.height = self.aspect * size, size
        max_steps = max_steps or self.steps_per_cell * size**2
        super().__init__(num_envs, device, max_steps=max_steps, **rest)


class EmptyWorld(SizedWorld):
    """A room with a goal in the corner; the agent begins in the opposite one or anywhere."""

    num_uniforms = 2
    steps_per_cell = 4
    sees_through_walls = True

    def __init__(
        self,
        num_envs: int,
        device: torch.device | str = "cpu",
        *,
        agent_start_pos: tuple[int, int] | None = (1, 1),
        agent_start_dir: int = 0,
        **rest: Any,
    ) -> None:
        self.agent_start_pos, self.agent_start_dir = agent_start_pos, agent_start_dir
        super().__init__(num_envs, device, **rest)

    def start(self, uniform: torch.Tensor) -> Start:
        cells, x, y = room(self, uniform)
        cells = placed(cells, corner(self, x, y), GOAL)
        place = chosen(cells == EMPTY, uniform[:, 0])
        if self.agent_start_pos is None:
            return Start(cells, place, number(uniform[:, 1], 0, 4))
        x0, y0 = self.agent_start_pos
        return Start(cells, torch.full_like(place, y0 * self.width + x0), self.agent_start_dir)


class DoorKeyWorld(SizedWorld):
    """A locked door between agent and goal, and its key."""

    num_uniforms = 5
    steps_per_cell = 10

    def start(self, uniform: torch.Tensor) -> Start:
        cells, x, y = room(self, uniform)
        cells = placed(cells, corner(self, x, y), GOAL)
        split = number(uniform[:, 0], 2, self.width - 2)[:, None]
        cells = placed(cells, x == split, WALL)
        row = number(uniform[:, 1], 1, self.height - 2)[:, None]
        cells = placed(cells, (x == split) & (y == row), DOOR + YELLOW * 16 + LOCKED * 256)
        left = (cells == EMPTY) & (x < split)
        place = chosen(left, uniform[:, 2])
        key = chosen(left & ~numbered(cells, place), uniform[:, 4])
        cells = placed(cells, numbered(cells, key), KEY + YELLOW * 16)
        return Start(cells, place, number(uniform[:, 3], 0, 4))


class FourRoomsWorld(GridWorld):
    """Four rooms that are connected by gaps; agent and goal are anywhere."""

    num_uniforms = 7
    width = height = 19

    def start(self, uniform: torch.Tensor) -> Start:
        cells, x, y = room(self, uniform)
        cells = placed(cells, ((x == 9) | (y == 9)).expand_as(cells), WALL)
        for i, low in enumerate((1, 10)):  # a gap in each half of both walls
            gap = [number(uniform[:, 2 * i + k], low, low + 8)[:, None] for k in (0, 1)]
            cells = placed(cells, ((x == 9) & (y == gap[0])) | ((y == 9) & (x == gap[1])), EMPTY)
        place = chosen(cells == EMPTY, uniform[:, 4])
        goal = chosen((cells == EMPTY) & ~numbered(cells, place), uniform[:, 6])
        cells = placed(cells, numbered(cells, goal), GOAL)
        return Start(cells, place, number(uniform[:, 5], 0, 4))


class MemoryWorld(SizedWorld):
    """Remember an object, and go to the one like it at the end of a hallway."""

    num_uniforms = 4
    steps_per_cell = 5

    def __init__(
        self,
        num_envs: int,
        device: torch.device | str = "cpu",
        *,
        random_length: bool = False,
        **rest: Any,
    ) -> None:
        self.random_length = random_length
        super().__init__(num_envs, device, **rest)

    def start(self, uniform: torch.Tensor) -> Start:
        cells, x, y = room(self, uniform)
        middle = self.height // 2
        end = number(uniform[:, 0], 4, self.width - 2)[:, None]
        if not self.random_length:
            end = torch.full_like(end, self.width - 3)
        beside = (y == middle - 1) | (y == middle + 1)
        first_room = (x >= 1) & (x < 5) & ((y == middle - 2) | (y == middle + 2))
        hallway = ((x == 4) | ((x >= 5) & (x < end))) & beside
        walls = first_room | hallway | ((x == end) & (y != middle)) | (x == end + 2)
        cells = placed(cells, walls, WALL)
        shown, upper = (
            torch.where(uniform[:, k] < 0.5, KEY, BALL)[:, None] + GREEN * 16 for k in (2, 3)
        )
        lower = KEY + BALL + 2 * GREEN * 16 - upper
        cells = placed(cells, (x == 1) & (y == middle - 1), shown)
        cells = placed(cells, (x == end + 1) & (y == middle - 2), upper)
        cells = placed(cells, (x == end + 1) & (y == middle + 2), lower)
        column = 1 + (uniform[:, 1] * end[:, 0]).to(INT)
        side = torch.where(shown == upper, -1, 1)
        goal = ((middle + side) * self.width + end + 1).squeeze(1)
        return Start(cells, middle * self.width + column, 0, goal)

    def transition(  # type: ignore[override]
        self, state: GridState, action: torch.Tensor
    ) -> tuple[GridState, torch.Tensor, torch.Tensor]:
        """As always; nothing is picked up."""
        return super().transition(state, torch.where(action == PICK_UP, TOGGLE, action))

    def judged(
        self, before: GridState, state: GridState, action: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Whether the agent is at the right end or at one of the two."""
        place, goal = state["place"], state["goal"]
        column, row = goal % self.width, goal // self.width
        wrong = (self.height - 1 - row) * self.width + column
        return place == goal, (place == goal) | (place == wrong)


class RedBlueDoorWorld(SizedWorld):
    """Open the red door, then the blue one."""

    num_uniforms = 4
    steps_per_cell = 20
    aspect = 2

    def start(self, uniform: torch.Tensor) -> Start:
        cells, x, y = room(self, uniform)
        left, right = self.height // 2, self.height // 2 + self.height - 1
        cells = placed(cells, ((x == left) | (x == right)).expand_as(cells), WALL)
        place = chosen((cells == EMPTY) & (x > left) & (x < right), uniform[:, 0])
        for k, (column, color) in enumerate(((left, RED), (right, BLUE))):
            row = number(uniform[:, 2 + k], 1, self.height - 1)[:, None]
            cells = placed(cells, (x == column) & (y == row), DOOR + color * 16 + CLOSED * 256)
        return Start(cells, place, number(uniform[:, 1], 0, 4))

    def judged(
        self, before: GridState, state: GridState, action: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Whether the blue door is open, after the red one or before."""
        red = (before["cells"] == DOOR + RED * 16).any(1)
        blue = (state["cells"] == DOOR + BLUE * 16).any(1)
        return blue & red, blue


# -- pieces of layouts


def room(world: GridWorld, uniform: torch.Tensor) -> tuple[torch.Tensor, Any, Any]:
    """The cells of a room with walls around, and the column and row of each cell."""
    cells = torch.arange(world.width * world.height, device=uniform.device, dtype=INT)
    x, y = cells % world.width, cells // world.width
    walls = (x == 0) | (x == world.width - 1) | (y == 0) | (y == world.height - 1)
    one = torch.where(walls, WALL, EMPTY).to(INT)
    return one.expand(len(uniform), -1).clone(), x, y


def corner(world: GridWorld, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Which cell is inside the lower right corner."""
    return (x == world.width - 2) & (y == world.height - 2)


def numbered(cells: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
    """Which of the cells has the number ``place``, ``[num_envs]``."""
    return torch.arange(cells.shape[1], device=cells.device, dtype=INT) == place[:, None]


def placed(cells: torch.Tensor, where: torch.Tensor, what: torch.Tensor | int) -> torch.Tensor:
    """The cells with something in some of them."""
    return torch.where(where, what, cells).to(INT)


def number(uniform: torch.Tensor, low: int, high: int) -> torch.Tensor:
    """An integer from ``low`` to ``high`` - 1."""
    return (uniform * (high - low)).to(INT) + low


def chosen(free: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
    """The index of one of the elements of each row that are ``free``, all as likely."""
    rank = free.to(INT).cumsum(1, dtype=INT)
    index = (uniform * rank[:, -1]).to(INT)
    return (rank <= index[:, None]).sum(1, dtype=INT)
