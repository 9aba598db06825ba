"""MiniGrid's tasks as tensors: the layouts of their grids, and when they are solved."""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from ..functional_world import Transition
from .grid_world import (
    BALL,
    BLUE,
    CLOSED,
    COLORS,
    DOOR,
    EMPTY,
    GOAL,
    GREEN,
    INT,
    KEY,
    LOCKED,
    OPEN,
    PICK_UP,
    RED,
    TOGGLE,
    WALL,
    YELLOW,
    GridState,
    GridWorld,
    Judgement,
    Start,
)

_WORDS = (18, 30, 31, 0, 13)  # of "pick up the ... ball"
_COLOR_WORDS = (1, 2, 3, 5, 4, 6)


class SizedWorld(GridWorld):
    """Base class of grids of any size, on which an episode may be as long as they are large.

    Args:
        num_envs, rest: As for `GridWorld`.
        size: The grid's height, and its width divided by ``aspect``.
        max_steps: As for `GridWorld`; by default ``steps_per_cell * size**2``.
    """

    steps_per_cell: ClassVar[int]
    aspect: ClassVar[int] = 1

    def __init__(
        self, num_envs: int, *, size: int = 8, max_steps: int | None = None, **rest: Any
    ) -> None:
        self.width, self.height = self.aspect * size, size
        max_steps = self.steps_per_cell * size**2 if max_steps is None else max_steps
        super().__init__(num_envs, max_steps=max_steps, **rest)


class EmptyWorld(SizedWorld):
    """A room with a goal in the corner; the agent begins in the opposite one or anywhere."""

    num_uniforms = 2
    steps_per_cell = 4
    sees_through_walls = True

    def __init__(
        self,
        num_envs: int,
        *,
        agent_start_pos: tuple[int, int] | None = (1, 1),
        agent_start_dir: int = 0,
        **rest: Any,
    ) -> None:
        self.agent_start_pos, self.agent_start_dir = agent_start_pos, agent_start_dir
        super().__init__(num_envs, **rest)

    def start(self, uniform: torch.Tensor) -> Start:
        cells, x, y = room(self, uniform)
        cells = placed(cells, corner(self, x, y), GOAL)
        place = choice(cells == EMPTY, uniform[:, 0])
        if self.agent_start_pos is None:
            return Start(cells, place, randint(uniform[:, 1], 0, 4))
        x0, y0 = self.agent_start_pos
        return Start(cells, torch.full_like(place, y0 * self.width + x0), self.agent_start_dir)


class DoorKeyWorld(SizedWorld):
    """A locked door between agent and goal, and its key."""

    num_uniforms = 5
    steps_per_cell = 10

    def start(self, uniform: torch.Tensor) -> Start:
        cells, x, y = room(self, uniform)
        cells = placed(cells, corner(self, x, y), GOAL)
        split = randint(uniform[:, 0], 2, self.width - 2)[:, None]
        cells = placed(cells, x == split, WALL)
        row = randint(uniform[:, 1], 1, self.height - 2)[:, None]
        cells = placed(cells, (x == split) & (y == row), DOOR + YELLOW * 16 + LOCKED * 256)
        left = (cells == EMPTY) & (x < split)
        place = choice(left, uniform[:, 2])
        key = choice(left & ~numbered(cells, place), uniform[:, 4])
        cells = placed(cells, numbered(cells, key), KEY + YELLOW * 16)
        return Start(cells, place, randint(uniform[:, 3], 0, 4))


class FourRoomsWorld(GridWorld):
    """Four rooms that are connected by gaps; agent and goal are anywhere."""

    num_uniforms = 7
    width = height = 19

    def start(self, uniform: torch.Tensor) -> Start:
        cells, x, y = room(self, uniform)
        cells = placed(cells, ((x == 9) | (y == 9)).expand_as(cells), WALL)
        for i, low in enumerate((1, 10)):  # a gap in each half of both walls
            gap = [randint(uniform[:, 2 * i + k], low, low + 8)[:, None] for k in (0, 1)]
            cells = placed(cells, ((x == 9) & (y == gap[0])) | ((y == 9) & (x == gap[1])), EMPTY)
        place = choice(cells == EMPTY, uniform[:, 4])
        goal = choice((cells == EMPTY) & ~numbered(cells, place), uniform[:, 6])
        cells = placed(cells, numbered(cells, goal), GOAL)
        return Start(cells, place, randint(uniform[:, 5], 0, 4))


class MemoryWorld(SizedWorld):
    """Remember an object, and go to the one like it at the end of a hallway."""

    num_uniforms = 4
    steps_per_cell = 5

    def __init__(self, num_envs: int, *, random_length: bool = False, **rest: Any) -> None:
        self.random_length = random_length
        super().__init__(num_envs, **rest)

    def start(self, uniform: torch.Tensor) -> Start:
        cells, x, y = room(self, uniform)
        middle = self.height // 2
        end = randint(uniform[:, 0], 4, self.width - 2)[:, None]
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

    def transition(self, state: GridState, action: torch.Tensor) -> Transition:  # type: ignore[override]
        """As always; nothing is picked up."""
        return super().transition(state, torch.where(action == PICK_UP, TOGGLE, action))

    def judged(self, before: GridState, state: GridState, action: torch.Tensor) -> Judgement:
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
        place = choice((cells == EMPTY) & (x > left) & (x < right), uniform[:, 0])
        for k, (column, color) in enumerate(((left, RED), (right, BLUE))):
            row = randint(uniform[:, 2 + k], 1, self.height - 1)[:, None]
            cells = placed(cells, (x == column) & (y == row), DOOR + color * 16 + CLOSED * 256)
        return Start(cells, place, randint(uniform[:, 1], 0, 4))

    def judged(self, before: GridState, state: GridState, action: torch.Tensor) -> Judgement:
        """Whether the blue door is open, after the red one or before."""
        red = (before["cells"] == DOOR + RED * 16).any(1)
        blue = (state["cells"] == DOOR + BLUE * 16).any(1)
        return blue & red, blue


class UnlockWorld(GridWorld):
    """Take a key and open a locked door."""

    num_uniforms = 4
    width, height = 11, 6
    max_episode_steps = 8 * 6**2

    def start(self, uniform: torch.Tensor) -> Start:
        cells, x, y = room(self, uniform)
        cells = placed(cells, (x == 5).expand_as(cells), WALL)
        row = randint(uniform[:, 0], 1, 5)[:, None]
        color = randint(uniform[:, 1], 0, COLORS)[:, None] << 4
        cells = placed(cells, (x == 5) & (y == row), DOOR + color + LOCKED * 256)
        inside = x < 5
        key = choice((cells == EMPTY) & inside, uniform[:, 2])
        cells = placed(cells, numbered(cells, key), KEY + color)
        return Start(cells, *agent(self, cells, inside, uniform[:, 3]))

    def judged(self, before: GridState, state: GridState, action: torch.Tensor) -> Judgement:
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
        *,
        num_rows: int = 3,
        room_size: int = 6,
        max_steps: int | None = None,
        **rest: Any,
    ) -> None:
        self.num_rows, self.step_size = num_rows, room_size - 1
        self.width, self.height = self.step_size * 3 + 1, self.step_size * num_rows + 1
        super().__init__(num_envs, max_steps=max_steps or 30 * room_size**2, **rest)

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
        locked_row, key_row = randint(rest[:, 0], 0, rows), randint(rest[:, 1], 0, rows)
        color, ball_color = randint(rest[:, 2], 0, COLORS), randint(rest[:, 3], 0, COLORS)

        order, excluded, doors_at, locked = [], [], [], []
        for k, (i, j, other, across) in enumerate(doors):
            touches = (locked_row == j) | (locked_row == other) if i == 2 else locked_row < 0
            excluded.append(touches)
            locked.append(touches & (j == other))
            order.append(torch.where(touches, 2.0, uniform[:, 3 * k]))
            along = randint(uniform[:, 3 * k + 1], 1, size)
            if across:
                at = (y == (j + 1) * size) & (x == (i * size + along)[:, None])
            else:
                at = (x == (size if i == 0 else 2 * size)) & (y == (j * size + along)[:, None])
            doors_at.append(at)
            cells = placed(
                cells, at & locked[k][:, None], DOOR + (color << 4)[:, None] + LOCKED * 256
            )

        of_ball, of_key = (y // size == row[:, None] for row in (locked_row, key_row))
        ball = choice((cells == EMPTY) & (x > 2 * size) & of_ball, rest[:, 4])
        cells = placed(cells, numbered(cells, ball), BALL + (ball_color << 4)[:, None])
        key = choice((cells == EMPTY) & (x < size) & of_key, rest[:, 5])
        cells = placed(cells, numbered(cells, key), KEY + (color << 4)[:, None])
        middle = rows // 2
        inside = hallway & (y >= middle * size) & (y <= middle * size + size)
        place, direction = agent(self, cells, inside, rest[:, 6])

        # The agent may begin in front of these doors. The original draws doors, also again, until
        # all rooms are connected; to try them in a random order gives the same distribution.
        for k, at in enumerate(doors_at):
            before = [other < order[k] for other in order]
            is_made = ~excluded[k] & ~self._connected(before, locked_row)
            code = DOOR + (randint(uniform[:, 3 * k + 2], 0, COLORS) << 4) + CLOSED * 256
            cells = placed(cells, at & is_made[:, None], code[:, None])
        return Start(cells, place, direction, ball_color)

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

    def judged(self, before: GridState, state: GridState, action: torch.Tensor) -> Judgement:
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


def randint(uniform: torch.Tensor, low: int, high: int) -> torch.Tensor:
    """An integer from ``low`` to ``high`` - 1."""
    return (uniform * (high - low)).to(INT) + low


def choice(free: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
    """The index of one of the elements of each row that are ``free``, all as likely."""
    rank = free.to(INT).cumsum(1, dtype=INT)
    index = (uniform * rank[:, -1]).to(INT)
    return (rank <= index[:, None]).sum(1, dtype=INT)


def agent(
    world: GridWorld, cells: torch.Tensor, inside: torch.Tensor, uniform: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Place and direction of an agent, which does not begin in front of an object."""
    free = (cells == EMPTY) & inside
    ahead = [cells.roll(-step, 1) for step in (1, world.width, -1, -world.width)]
    pairs = torch.cat([free & ((one == EMPTY) | (one == WALL)) for one in ahead], 1)
    pair = choice(pairs, uniform)
    return pair % cells.shape[1], pair // cells.shape[1]
