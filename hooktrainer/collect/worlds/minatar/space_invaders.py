"""MinAtar's Space Invaders as tensors."""

from __future__ import annotations

import torch

from .game import FIRE, INT, LEFT, NOOP, RIGHT, SIZE, Game, GameState, Turn, drawn, full, ticked

_COOL_DOWN = 5
_MOVE_INTERVAL = 12
_SHORTEST_INTERVAL = 6  # that the difficulty ramps to
_SHOT_INTERVAL = 10
_BOTTOM = SIZE - 1


class SpaceInvadersWorld(Game):
    """MinAtar's Space Invaders: shoot at aliens, which come closer and shoot as well.

    The planes are the cannon, the aliens, those that move to the left and to the right, and the
    bullets of both sides. An alien is worth 1. The episode ends when an alien or a bullet hits the
    cannon, or aliens land. Aliens become faster, the fewer they are and with each wave.
    """

    name = "torch/MinAtar-SpaceInvaders"
    planes = 6
    minimal_actions = (NOOP, LEFT, RIGHT, FIRE)

    def begin_game(self, uniform: torch.Tensor) -> GameState:
        none = uniform.new_zeros((len(uniform), SIZE, SIZE), dtype=torch.bool)
        return {
            "x": full(uniform, 5),
            "direction": full(uniform, -1),
            "move_interval": full(uniform, _MOVE_INTERVAL),
            "move_timer": full(uniform, _MOVE_INTERVAL),
            "shot_timer": full(uniform, 0),
            "alien_shot_timer": full(uniform, _SHOT_INTERVAL),
            "aliens": none | _wave(uniform.device),
            "bullets": none,
            "alien_bullets": none,
        }

    def play(self, state: GameState, action: torch.Tensor, uniform: torch.Tensor) -> Turn:
        """Move the cannon or fire, then move bullets and aliens, which fire as well."""
        rows = torch.arange(SIZE, device=action.device, dtype=INT)
        fires = (action == FIRE) & (state["shot_timer"] == 0)
        x = state["x"] + (action == RIGHT).to(INT) - (action == LEFT).to(INT)
        x = x.clamp(0, SIZE - 1)
        in_column = rows == x[:, None]
        fired = (in_column & fires[:, None])[:, None, :]
        nothing = torch.zeros_like(fired)
        # A bullet is fired from the bottom and flies up at once.
        bullets = torch.cat([state["bullets"][:, 1:-1], fired, nothing], 1)
        alien_bullets = torch.cat([nothing, state["alien_bullets"][:, :-1]], 1)
        terminal = (alien_bullets[:, _BOTTOM] & in_column).any(1)

        aliens = state["aliens"]
        terminal = terminal | (aliens[:, _BOTTOM] & in_column).any(1)
        moves = state["move_timer"] == 0
        number = aliens.sum((1, 2), dtype=INT)
        pace = torch.minimum(number, state["move_interval"])
        to_left = state["direction"] < 0
        at_edge = torch.where(to_left, aliens[:, :, 0].any(1), aliens[:, :, -1].any(1))
        descends, walks = moves & at_edge, moves & ~at_edge
        terminal = terminal | (descends & aliens[:, _BOTTOM].any(1))
        sideways = torch.where(to_left[:, None, None], aliens.roll(-1, 2), aliens.roll(1, 2))
        moved = torch.where(walks[:, None, None], sideways, aliens)
        aliens = torch.where(descends[:, None, None], aliens.roll(1, 1), moved)
        terminal = terminal | (moves & (aliens[:, _BOTTOM] & in_column).any(1))

        shoots = state["alien_shot_timer"] == 0
        # The lowest one of the nearest column that has any; of two as near the left one.
        distance = (rows - x[:, None]).abs() * SIZE + rows
        distance = torch.where(aliens.any(1), distance, SIZE * SIZE)
        nearest = distance == distance.amin(1, keepdim=True)
        lowest = torch.where(aliens & nearest[:, None, :], rows[:, None], -1).amax((1, 2))
        shot = nearest[:, None, :] & (rows == lowest[:, None])[:, :, None]
        alien_bullets = alien_bullets | (shot & shoots[:, None, None])

        killed = aliens & bullets
        reward = killed.sum((1, 2))
        aliens, bullets = aliens & ~killed, bullets & ~killed
        cleared = ~aliens.any((1, 2))
        harder = cleared & (state["move_interval"] > _SHORTEST_INTERVAL) & self.ramping
        shot_timer = torch.where(fires, _COOL_DOWN, state["shot_timer"])
        alien_timer = torch.where(shoots, _SHOT_INTERVAL, state["alien_shot_timer"])
        following = {
            "x": x,
            "direction": torch.where(descends, -state["direction"], state["direction"]),
            "move_interval": state["move_interval"] - harder.to(INT),
            "move_timer": torch.where(moves, pace, state["move_timer"]) - 1,
            "shot_timer": ticked(shot_timer),
            "alien_shot_timer": alien_timer - 1,
            "aliens": aliens | (cleared[:, None, None] & _wave(x.device)),
            "bullets": bullets,
            "alien_bullets": alien_bullets,
        }
        return following, reward, terminal

    def observe(self, state: GameState) -> torch.Tensor:  # type: ignore[override]
        aliens, to_left = state["aliens"].flatten(1), state["direction"][:, None] < 0
        cells = torch.arange(SIZE * SIZE, device=aliens.device, dtype=INT)
        columns, rows = cells % SIZE, cells // SIZE
        return drawn(
            [(state["x"], full(state["x"], _BOTTOM), None)],
            [(columns, rows, aliens)],
            [(columns, rows, aliens & to_left)],
            [(columns, rows, aliens & ~to_left)],
            [(columns, rows, state["bullets"].flatten(1))],
            [(columns, rows, state["alien_bullets"].flatten(1))],
        )


def _wave(device: torch.device) -> torch.Tensor:
    """The places of new aliens."""
    cells = torch.arange(SIZE, device=device)
    return (cells < 4)[:, None] & (cells >= 2) & (cells < 8)
