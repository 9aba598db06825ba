"""MinAtar's Breakout as tensors."""

from __future__ import annotations

import torch

from .game import INT, LEFT, NOOP, RIGHT, SIZE, Game, GameState, Turn, drawn, full

_BRICKS = 30  # three rows
_WALL = (1 << _BRICKS) - 1  # a bit for each
_BELOW = SIZE - 1
_TOP = 1  # row of the first bricks


class BreakoutWorld(Game):
    """MinAtar's Breakout: a paddle bounces a ball to break three rows of bricks.

    The planes are the paddle, the ball, its trail and the bricks. A brick is worth 1, and a broken
    wall is rebuilt. The ball moves along diagonals.
    """

    name = "torch/MinAtar-Breakout"
    num_uniforms = 1
    planes = 4
    minimal_actions = (NOOP, LEFT, RIGHT)

    def begin_game(self, uniform: torch.Tensor) -> GameState:
        left = uniform[:, 0] < 0.5
        x = torch.where(left, 0, SIZE - 1).to(INT)
        return {
            "paddle": full(x, 4),
            "x": x,
            "y": full(x, 3),
            "dx": torch.where(left, 1, -1).to(INT),
            "dy": full(x, 1),
            "trail_x": x,
            "trail_y": full(x, 3),
            "struck": torch.zeros_like(left),
            "bricks": full(x, _WALL),
        }

    def play(self, state: GameState, action: torch.Tensor, uniform: torch.Tensor) -> Turn:
        """Move the paddle, then the ball, which is reflected by walls, bricks and the paddle."""
        paddle = state["paddle"] + (action == RIGHT).to(INT) - (action == LEFT).to(INT)
        paddle = paddle.clamp(0, SIZE - 1)
        old_x, old_y, dx, dy, bricks = (state[key] for key in ("x", "y", "dx", "dy", "bricks"))
        x, y = old_x + dx, old_y + dy
        dx = torch.where((x < 0) | (x >= SIZE), -dx, dx)
        x = x.clamp(0, SIZE - 1)
        at_ceiling = y < 0
        y = y.clamp(min=0)

        number = ((y - _TOP) * SIZE + x).clamp(0, _BRICKS)
        touches = ~at_ceiling & (y >= _TOP) & ((bricks >> number) & 1).bool()
        breaks = touches & ~state["struck"]  # not in two steps after each other
        bricks = torch.where(breaks, bricks & ~(1 << number), bricks)

        at_paddle = y == _BELOW
        bricks = torch.where(at_paddle & (bricks == 0), _WALL, bricks)
        straight = at_paddle & (old_x == paddle)
        turned = at_paddle & (x == paddle) & ~straight
        dx = torch.where(turned, -dx, dx)
        dy = torch.where(at_ceiling | breaks | straight | turned, -dy, dy)
        y = torch.where(breaks | straight | turned, old_y, y)
        moved = {
            "paddle": paddle,
            "x": x,
            "y": y,
            "dx": dx,
            "dy": dy,
            "trail_x": old_x,
            "trail_y": old_y,
            "struck": touches,
            "bricks": bricks,
        }
        return moved, breaks.to(INT), at_paddle & ~straight & ~turned

    def observe(self, state: GameState) -> torch.Tensor:  # type: ignore[override]
        number = torch.arange(_BRICKS, device=state["x"].device, dtype=INT)
        bricks = ((state["bricks"][:, None] >> number) & 1).bool()
        return drawn(
            [(state["paddle"], full(state["x"], _BELOW), None)],
            [(state["x"], state["y"], None)],
            [(state["trail_x"], state["trail_y"], None)],
            [(number % SIZE, number // SIZE + _TOP, bricks)],
        )
