"""MiniGrid's tasks with several rooms and locked doors as tensors."""

from __future__ import annotations

from typing import Any

import torch

from .grid_world import (
    BALL,
    CLOSED,
    COLORS,
    DOOR,
    EMPTY,
    KEY,
    LOCKED,
    OPEN,
    PICK_UP,
    TOGGLE,
    WALL,
    GridState,
    GridWorld,
    Start,
)
from .layouts import chosen, number, numbered, placed, room

_WORDS = (18, 30, 31, 0, 13)  # of "pick up the ... ball"
_COLOR_WORDS = (1, 2, 3, 5, 4, 6)


class UnlockWorld(GridWorld):
    """Take a key and open a locked door."""

    num_uniforms = 4
    width, height = 11, 6
    max_episode_steps = 8 * 6**2

    def start(self, uniform: torch.Tensor) -> Start:
        cells, x, y = room(self, uniform)
        cells = placed(cells, (x == 5).expand_as(cells), WALL)
        row = number(uniform[:, 0], 1, 5)[:, None]
        color = number(uniform[:, 1], 0, COLORS)[:, None] << 4
        cells = placed(cells, (x == 5) & (y == row), DOOR + color + LOCKED * 256)
        inside = x < 5
        key = chosen((cells == EMPTY) & inside, uniform[:, 2])
        cells = placed(cells, numbered(cells, key), KEY + color)
        return Start(cells, *agent(self, cells, inside, uniform[:, 3]))

    def judged(
        self, before: GridState, state: GridState, action: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Whether the door is open."""
        cells = state["cells"]
        opened = ((cells & 15 == DOOR) & (cells >> 8 == OPEN)).any(1) & (action == TOGGLE)
        return opened, opened


class KeyCorridorWorld(GridWorld):
    """Find a key, open a locked room, and pick up the ball in it."""

    has_mission = True

    def __init__(
        self,
        num_envs: int,
        device: torch.device | str = "cpu",
        *,
        num_rows: int = 3,
        room_size: int = 6,
        max_steps: int | None = None,
        **rest: Any,
    ) -> None:
        self.num_rows, self.step_size = num_rows, room_size - 1
        self.width, self.height = self.step_size * 3 + 1, self.step_size * num_rows + 1
        super().__init__(num_envs, device, max_steps=max_steps or 30 * room_size**2, **rest)

    @property
    def num_uniforms(self) -> int:  # type: ignore[override]
        """Three numbers for each possible door, and those of the rest."""
        return 3 * len(self._doors()) + 7

    def _doors(self) -> list[tuple[int, int, int, int]]:
        """Possible doors, without those of the hallway.

        Column and row of a room on a side, the row of the other room, and whether it is horizontal.
        """
        across = [(i, j, j, 0) for i in (0, 2) for j in range(self.num_rows)]
        return across + [(i, j, j + 1, 1) for i in (0, 2) for j in range(self.num_rows - 1)]

    def start(self, uniform: torch.Tensor) -> Start:
        size, rows, doors = self.step_size, self.num_rows, self._doors()
        cells, x, y = room(self, uniform)
        hallway = (x > size) & (x < 2 * size)
        walls = (x % size == 0) | ((y % size == 0) & ~hallway)
        cells = placed(cells, walls.expand_as(cells), WALL)
        rest = uniform[:, 3 * len(doors) :]
        locked_row, key_row = number(rest[:, 0], 0, rows), number(rest[:, 1], 0, rows)
        color, ball_color = number(rest[:, 2], 0, COLORS), number(rest[:, 3], 0, COLORS)

        order, excluded, doors_at, locked = [], [], [], []
        for k, (i, j, other, across) in enumerate(doors):
            touches = (locked_row == j) | (locked_row == other) if i == 2 else locked_row < 0
            excluded.append(touches)
            locked.append(touches & (j == other))
            order.append(torch.where(touches, 2.0, uniform[:, 3 * k]))
            along = number(uniform[:, 3 * k + 1], 1, size)
            if across:
                at = (y == (j + 1) * size) & (x == (i * size + along)[:, None])
            else:
                at = (x == (size if i == 0 else 2 * size)) & (y == (j * size + along)[:, None])
            doors_at.append(at)
            cells = placed(
                cells, at & locked[k][:, None], DOOR + (color << 4)[:, None] + LOCKED * 256
            )

        of_ball, of_key = (y // size == row[:, None] for row in (locked_row, key_row))
        ball = chosen((cells == EMPTY) & (x > 2 * size) & of_ball, rest[:, 4])
        cells = placed(cells, numbered(cells, ball), BALL + (ball_color << 4)[:, None])
        key = chosen((cells == EMPTY) & (x < size) & of_key, rest[:, 5])
        cells = placed(cells, numbered(cells, key), KEY + (color << 4)[:, None])
        middle = rows // 2
        inside = hallway & (y >= middle * size) & (y <= middle * size + size)
        place, direction = agent(self, cells, inside, rest[:, 6])

        # The agent may begin in front of these.
        made = self._until_connected(order, excluded, locked_row)
        for k, at in enumerate(doors_at):
            code = DOOR + (number(uniform[:, 3 * k + 2], 0, COLORS) << 4) + CLOSED * 256
            cells = placed(cells, at & made[k][:, None], code[:, None])
        return Start(cells, place, direction, ball_color)

    def _until_connected(
        self, order: list[torch.Tensor], excluded: list[torch.Tensor], locked_row: torch.Tensor
    ) -> list[torch.Tensor]:
        """Which doors are made, if they are made in an order until all rooms can be reached.

        The original tries doors at random; which of them are new has this distribution.
        """
        return [
            ~excluded[k] & ~self._connected([other < order[k] for other in order], locked_row)
            for k in range(len(order))
        ]

    def _connected(self, made: list[torch.Tensor], locked_row: torch.Tensor) -> torch.Tensor:
        """Whether all rooms but the locked one can be reached by some doors."""
        doors = dict(zip(self._doors(), made, strict=True))
        connected = torch.ones_like(made[0])
        for i in (0, 2):
            reached = [doors[i, j, j, 0] for j in range(self.num_rows)]
            for _ in range(self.num_rows - 1):
                for j in range(self.num_rows - 1):
                    way = doors[i, j, j + 1, 1] & (reached[j] | reached[j + 1])
                    reached[j], reached[j + 1] = reached[j] | way, reached[j + 1] | way
            for j, one in enumerate(reached):
                connected = connected & (one | (locked_row == j) if i == 2 else one)
        return connected

    def judged(
        self, before: GridState, state: GridState, action: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Whether the ball was picked up."""
        taken = (state["carried"] & 15 == BALL) & (action == PICK_UP)
        return taken, taken

    def mission(self, state: GridState) -> torch.Tensor:
        """To pick up the ball of this color."""
        words = torch.arange(50, device=state["goal"].device)
        said = torch.zeros_like(words)
        for index, word in enumerate(_WORDS):
            said = torch.where(words == index, word, said)
        color = torch.zeros_like(state["goal"], dtype=torch.int64)
        for index, word in enumerate(_COLOR_WORDS):
            color = torch.where(state["goal"] == index, word, color)
        return torch.where(words == _WORDS.index(0), color[:, None], said)


def agent(
    world: GridWorld, cells: torch.Tensor, inside: torch.Tensor, uniform: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Place and direction of an agent, which does not begin in front of an object."""
    free = (cells == EMPTY) & inside
    ahead = [cells.roll(-step, 1) for step in (1, world.width, -1, -world.width)]
    pairs = torch.cat([free & ((one == EMPTY) | (one == WALL)) for one in ahead], 1)
    pair = chosen(pairs, uniform)
    return pair % cells.shape[1], pair // cells.shape[1]
