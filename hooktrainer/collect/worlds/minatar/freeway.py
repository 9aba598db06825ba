"""MinAtar's Freeway as tensors."""

from __future__ import annotations

import torch

from .game import DOWN, INT, NOOP, SIZE, UP, Game, GameState, Turn, drawn, full, ticked

_CARS = 8  # in the rows from the second on
_SPEEDS = 5
_COLUMN = 4  # of the player
_PLAYER_SPEED = 3
_TIME_LIMIT = 2500


class FreewayWorld(Game):
    """MinAtar's Freeway: cross a road with eight cars.

    The planes are the player, the cars, and a trail for each of five speeds. Reaching the other
    side is worth 1 and changes the speed of all cars; a car sends the player back. The episode ends
    after 2501 steps. The difficulty does not ramp.
    """

    name = "torch/MinAtar-Freeway"
    num_uniforms = _CARS
    planes = 2 + _SPEEDS
    minimal_actions = (NOOP, UP, DOWN)
    num_draws = _CARS

    def begin_game(self, uniform: torch.Tensor) -> GameState:
        speed = _speeds(uniform)
        return {
            "y": full(uniform, SIZE - 1),
            "move_timer": full(uniform, _PLAYER_SPEED),
            "time": full(uniform, _TIME_LIMIT),
            "column": torch.zeros_like(speed),
            "timer": speed.abs(),
            "speed": speed,
        }

    def play(self, state: GameState, action: torch.Tensor, uniform: torch.Tensor) -> Turn:
        """Move the player, who may arrive, then the cars."""
        may_move = state["move_timer"] == 0
        down, up = may_move & (action == DOWN), may_move & (action == UP)
        y = (state["y"] + down.to(INT) - up.to(INT)).clamp(0, SIZE - 1)
        move_timer = torch.where(down | up, _PLAYER_SPEED, state["move_timer"])
        arrives = y == 0
        y = torch.where(arrives, SIZE - 1, y)

        speed = torch.where(arrives[:, None], _speeds(uniform), state["speed"])
        timer = torch.where(arrives[:, None], speed.abs(), state["timer"])
        moves = timer == 0
        column = torch.where(moves, state["column"] + speed.sign(), state["column"])
        column = torch.remainder(column, SIZE)
        rows = torch.arange(1, _CARS + 1, device=y.device, dtype=INT)
        hits = (rows == y[:, None]) & ((state["column"] == _COLUMN) | (column == _COLUMN))
        time = state["time"] - 1
        following = {
            "y": torch.where(hits.any(1), SIZE - 1, y),
            "move_timer": ticked(move_timer),
            "time": time,
            "column": column,
            "timer": torch.where(moves, speed.abs(), timer - 1),
            "speed": speed,
        }
        return following, arrives.to(INT), time < 0

    def observe(self, state: GameState) -> torch.Tensor:  # type: ignore[override]
        column, speed = state["column"], state["speed"]
        rows = torch.arange(1, _CARS + 1, device=column.device, dtype=INT)
        back = torch.remainder(column - speed.sign(), SIZE)
        return drawn(
            [(full(column, _COLUMN), state["y"], None)],
            [(column, rows, speed != 0)],
            *([(back, rows, speed.abs() == number + 1)] for number in range(_SPEEDS)),
        )


def _speeds(uniform: torch.Tensor) -> torch.Tensor:
    """Speeds of 1 to 5 in one of two directions, all as likely."""
    number = (2 * _SPEEDS * uniform).to(INT)
    return torch.where(number < _SPEEDS, number - _SPEEDS, number - _SPEEDS + 1)
