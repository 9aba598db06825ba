"""MinAtar's Asterix as tensors."""

from __future__ import annotations

import torch

from .game import DOWN, INT, LEFT, NOOP, RIGHT, SIZE, UP, Game, GameState, Turn, drawn, full, walked

_ROWS = 8  # from the second on, each with at most one entity
_RAMP_INTERVAL = 100
_SPAWN_SPEED = 10
_MOVE_SPEED = 5


class AsterixWorld(Game):
    """MinAtar's Asterix: collect the treasures and avoid the enemies that cross the board.

    The planes are the player, enemies, trails and treasures. A treasure is worth 1, and an enemy
    ends the episode. Entities become faster and more frequent.
    """

    name = "torch/MinAtar-Asterix"
    planes = 4
    minimal_actions = (NOOP, LEFT, UP, RIGHT, DOWN)
    num_draws = 3  # for a new entity: its direction, what it is, and its row

    def begin_game(self, uniform: torch.Tensor) -> GameState:
        numbers = {
            "x": 5,
            "y": 5,
            "spawn_speed": _SPAWN_SPEED,
            "spawn_timer": _SPAWN_SPEED,
            "move_speed": _MOVE_SPEED,
            "move_timer": _MOVE_SPEED,
            "ramp_timer": _RAMP_INTERVAL,
            "ramps": 0,
        }
        none = uniform.new_zeros((len(uniform), _ROWS), dtype=torch.bool)
        return {
            **{name: full(uniform, number) for name, number in numbers.items()},
            "there": none,
            "is_gold": none,
            "to_right": none,
            "column": none.to(INT),
        }

    def play(self, state: GameState, action: torch.Tensor, uniform: torch.Tensor) -> Turn:
        """Place a new entity, move the player, then the entities."""
        there, is_gold, to_right, column = (
            state[name] for name in ("there", "is_gold", "to_right", "column")
        )
        spawns = state["spawn_timer"] == 0
        free = (~there).to(INT)
        rank = free.cumsum(1) - 1  # of a free row among them
        chosen = (uniform[:, 2] * free.sum(1)).to(INT)
        new = spawns[:, None] & ~there & (rank == chosen[:, None])
        right, gold = uniform[:, 0, None] < 1 / 2, uniform[:, 1, None] < 1 / 3
        there = there | new
        is_gold = torch.where(new, gold, is_gold)
        to_right = torch.where(new, right, to_right)
        column = torch.where(new, torch.where(right, 0, SIZE - 1).to(INT), column)
        spawn_timer = torch.where(spawns, state["spawn_speed"], state["spawn_timer"]) - 1

        x, y = walked(state, action, 1, _ROWS)
        rows = torch.arange(1, _ROWS + 1, device=x.device, dtype=INT)
        meets = there & (column == x[:, None]) & (rows == y[:, None])
        there = there & ~(meets & is_gold)
        moves = state["move_timer"] == 0
        move_timer = torch.where(moves, state["move_speed"], state["move_timer"]) - 1
        column = column + torch.where(to_right, 1, -1).to(INT) * moves[:, None]
        there = there & (column >= 0) & (column < SIZE)
        meets_again = there & moves[:, None] & (column == x[:, None]) & (rows == y[:, None])
        there = there & ~(meets_again & is_gold)
        reward = ((meets | meets_again) & is_gold).sum(1)
        terminal = ((meets | meets_again) & ~is_gold).any(1)

        spawn_speed, move_speed = state["spawn_speed"], state["move_speed"]
        ramps, ramp_timer = state["ramps"], state["ramp_timer"]
        grows = ((spawn_speed > 1) | (move_speed > 1)) if self.ramping else torch.zeros_like(moves)
        harder = grows & (ramp_timer < 0)
        ramp_timer = torch.where(harder, _RAMP_INTERVAL, ramp_timer - grows.to(INT))
        faster = harder & (move_speed > 1) & (ramps % 2 == 1)
        following = {
            "x": x,
            "y": y,
            "spawn_speed": spawn_speed - (harder & (spawn_speed > 1)).to(INT),
            "spawn_timer": spawn_timer,
            "move_speed": move_speed - faster.to(INT),
            "move_timer": move_timer,
            "ramp_timer": ramp_timer,
            "ramps": ramps + harder.to(INT),
            "there": there,
            "is_gold": is_gold,
            "to_right": to_right,
            "column": column,
        }
        return following, reward, terminal

    def observe(self, state: GameState) -> torch.Tensor:  # type: ignore[override]
        there, is_gold, column = state["there"], state["is_gold"], state["column"]
        rows = torch.arange(1, _ROWS + 1, device=column.device, dtype=INT)
        back = column - torch.where(state["to_right"], 1, -1).to(INT)
        return drawn(
            [(state["x"], state["y"], None)],
            [(column, rows, there & ~is_gold)],
            [(back, rows, there & (back >= 0) & (back < SIZE))],
            [(column, rows, there & is_gold)],
        )
