"""MinAtar's Seaquest as tensors."""

from __future__ import annotations

import torch

from .game import (
    DOWN,
    FIRE,
    INT,
    LEFT,
    NOOP,
    RIGHT,
    SIZE,
    UP,
    Game,
    GameState,
    Turn,
    drawn,
    full,
    ticked,
    walked,
)

_OXYGEN = 200
_SPAWN_SPEED = 20  # of enemies
_DIVER_SPAWN_SPEED = 30
_MOVE_SPEED = 5
_COOL_DOWN = 5
_SHOT_INTERVAL = 10
_DIVER_INTERVAL = 5
_MOST_DIVERS = 6
_BOTTOM = SIZE - 1
# The most at a time: an entity leaves the board before so many others have come.
_ENEMIES = 30
_DIVERS = 2
_BULLETS = 2


class SeaquestWorld(Game):
    """MinAtar's Seaquest: a submarine shoots enemies, rescues divers, and comes up for air.

    The planes are the front and back of the submarine, its bullets, trails, enemy bullets, fish,
    enemy submarines, the gauges of oxygen and divers, and divers. An enemy is worth 1; surfacing
    with six divers is worth up to 10, with the oxygen that is left. The episode ends when something
    hits the submarine, there is no oxygen, or it surfaces without a diver. With each surfacing
    enemies become faster and more frequent.
    """

    name = "torch/MinAtar-Seaquest"
    planes = 10
    minimal_actions = (NOOP, LEFT, UP, RIGHT, DOWN, FIRE)
    num_draws = 5  # of a new enemy the direction, whether it is a submarine, row; the diver's two

    def begin_game(self, uniform: torch.Tensor) -> GameState:
        numbers = {
            "x": 5,
            "y": 0,
            "oxygen": _OXYGEN,
            "divers": 0,
            "spawn_speed": _SPAWN_SPEED,
            "spawn_timer": _SPAWN_SPEED,
            "diver_spawn_timer": _DIVER_SPAWN_SPEED,
            "move_speed": _MOVE_SPEED,
            "ramps": 0,
            "shot_timer": 0,
        }
        false = uniform.new_zeros(len(uniform), dtype=torch.bool)
        state = {name: full(uniform, number) for name, number in numbers.items()}
        state |= {"to_right": false, "at_surface": ~false}
        # Each kind in the order in which they came, the last one at the end.
        for kind, size in (("enemy", _ENEMIES), ("diver", _DIVERS), ("bullet", _BULLETS)):
            none = false[:, None].expand(-1, size).clone()
            zero = none.to(INT)
            state |= {f"{kind}_there": none, f"{kind}_right": none}
            state |= {f"{kind}_x": zero, f"{kind}_y": zero}
            if kind != "bullet":
                state[f"{kind}_timer"] = zero
            if kind == "enemy":
                state |= {"enemy_is_sub": none, "enemy_shot_timer": zero}
        # Enemy bullets, a bit for each column of a row. They only hit the player, so that how many
        # are in one cell does not matter.
        shots = uniform.new_zeros((len(uniform), SIZE), dtype=INT)
        return {**state, "shots_right": shots, "shots_left": shots}

    def play(self, state: GameState, action: torch.Tensor, uniform: torch.Tensor) -> Turn:
        """Place new enemies and divers, then move the player and everything else."""
        state = _spawned(dict(state), uniform)
        fires = (action == FIRE) & (state["shot_timer"] == 0)
        state |= _pushed(
            state,
            fires,
            bullet_there=torch.ones_like(fires),
            bullet_x=state["x"],
            bullet_y=state["y"],
            bullet_right=state["to_right"],
        )
        shot_timer = torch.where(fires, _COOL_DOWN, state["shot_timer"])
        to_right = (state["to_right"] | (action == RIGHT)) & (action != LEFT)
        x, y = walked(state, action, 0, SIZE - 2)
        state |= {"x": x, "y": y, "to_right": to_right, "shot_timer": ticked(shot_timer)}

        state, reward = _bullets_fly(state)
        state = _divers_swim(state)
        state, killed, hit = _enemies_move(state)
        state |= {name: ticked(state[name]) for name in ("spawn_timer", "diver_spawn_timer")}
        state, bonus, drowned = self._breathes(state)
        return state, reward + killed + bonus, hit | drowned

    def _breathes(self, state: GameState) -> tuple[GameState, torch.Tensor, torch.Tensor]:
        """The state, reward and whether the player dies, where it surfaces or stays below."""
        oxygen, divers, ramps = state["oxygen"], state["divers"], state["ramps"]
        move_speed, spawn_speed = state["move_speed"], state["spawn_speed"]
        below = state["y"] > 0
        arrives = ~below & ~state["at_surface"]
        dies = (oxygen <= 0) | (arrives & (divers == 0))
        surfaces = arrives & (divers != 0)
        has_all = divers == _MOST_DIVERS
        reward = torch.where(surfaces & has_all, oxygen * 10 // _OXYGEN, 0)
        # As in the original, one diver less than none is left of six.
        left = torch.where(has_all, 0, divers) - 1
        harder = surfaces & ((spawn_speed > 1) | (move_speed > 2)) & self.ramping
        state |= {
            "oxygen": torch.where(surfaces, _OXYGEN, oxygen - below.to(INT)),
            "divers": torch.where(surfaces, left, divers),
            "at_surface": ~below & (state["at_surface"] | surfaces),
            "move_speed": move_speed - (harder & (move_speed > 2) & (ramps % 2 == 1)).to(INT),
            "spawn_speed": spawn_speed - (harder & (spawn_speed > 1)).to(INT),
            "ramps": ramps + harder.to(INT),
        }
        return state, reward, dies

    def observe(self, state: GameState) -> torch.Tensor:  # type: ignore[override]
        x, y, there, is_sub = (state[name] for name in ("x", "y", "enemy_there", "enemy_is_sub"))
        number = torch.arange(SIZE, device=x.device, dtype=INT)
        bottom, rows = torch.full_like(number, _BOTTOM), number.repeat_interleave(SIZE)
        shots = state["shots_right"] | state["shots_left"]
        shots = ((shots[:, :, None] >> number) & 1).bool().flatten(1)
        oxygen, divers = (state[name][:, None] for name in ("oxygen", "divers"))
        enemies = (state["enemy_x"], state["enemy_y"])
        return drawn(
            [(x, y, None)],
            [(x - _step(state["to_right"]), y, None)],
            [(state["bullet_x"], state["bullet_y"], state["bullet_there"])],
            [_trail(state, "enemy"), _trail(state, "diver")],
            [(number.repeat(SIZE), rows, shots)],
            [(*enemies, there & ~is_sub)],
            [(*enemies, there & is_sub)],
            [(number, bottom, number < oxygen.clamp(min=0) * 10 // _OXYGEN)],
            [(number, bottom, (number >= _BOTTOM - divers) & (number < _BOTTOM))],
            [(state["diver_x"], state["diver_y"], state["diver_there"])],
        )


def _spawned(state: GameState, uniform: torch.Tensor) -> GameState:
    """The state with a new enemy and a new diver, if it is time."""
    right, is_sub = uniform[:, 0] < 1 / 2, uniform[:, 1] < 1 / 3
    row = (uniform[:, 2] * 8).to(INT) + 1
    opposite = state["enemy_there"] & (state["enemy_right"] != right[:, None])
    blocked = (opposite & (state["enemy_y"] == row[:, None])).any(1)
    due = state["spawn_timer"] == 0
    state |= _pushed(
        state,
        due & ~blocked,
        enemy_there=torch.ones_like(due),
        enemy_x=torch.where(right, 0, SIZE - 1).to(INT),
        enemy_y=row,
        enemy_right=right,
        enemy_timer=state["move_speed"],
        enemy_is_sub=is_sub,
        enemy_shot_timer=full(row, _SHOT_INTERVAL),
    )
    state["spawn_timer"] = torch.where(due, state["spawn_speed"], state["spawn_timer"])

    right, row = uniform[:, 3] < 1 / 2, (uniform[:, 4] * 8).to(INT) + 1
    due = state["diver_spawn_timer"] == 0
    state |= _pushed(
        state,
        due,
        diver_there=torch.ones_like(due),
        diver_x=torch.where(right, 0, SIZE - 1).to(INT),
        diver_y=row,
        diver_right=right,
        diver_timer=full(row, _DIVER_INTERVAL),
    )
    timer = torch.where(due, _DIVER_SPAWN_SPEED, state["diver_spawn_timer"])
    return {**state, "diver_spawn_timer": timer}


def _pushed(state: GameState, new: torch.Tensor, **entry: torch.Tensor) -> GameState:
    """Entries of a kind, with one more at the end in the environments ``new``."""
    return {
        name: torch.where(
            new[:, None], torch.cat([state[name][:, 1:], value[:, None]], 1), state[name]
        )
        for name, value in entry.items()
    }


def _step(to_right: torch.Tensor) -> torch.Tensor:
    return torch.where(to_right, 1, -1).to(INT)


def _on_board(x: torch.Tensor) -> torch.Tensor:
    return (x >= 0) & (x < SIZE)


def _meets(state: GameState, x: torch.Tensor) -> torch.Tensor:
    """Which enemies are where the player is, if they are in columns ``x``."""
    return (x == state["x"][:, None]) & (state["enemy_y"] == state["y"][:, None])


def _trail(state: GameState, kind: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    back = state[f"{kind}_x"] - _step(state[f"{kind}_right"])
    return back, state[f"{kind}_y"], state[f"{kind}_there"] & _on_board(back)


def _first(hits: torch.Tensor) -> torch.Tensor:
    """Of each row the first element that is true."""
    return hits & (hits.cumsum(-1) == 1)


def _shot(state: GameState, targets: torch.Tensor, latest: bool) -> tuple[GameState, torch.Tensor]:
    """The state without bullets and the enemies among ``targets`` that they hit, and the reward.

    A bullet hits one enemy in its cell, the one that came first, or the latest one. No two bullets
    are in one cell.
    """
    meets = (state["bullet_x"][:, :, None] == state["enemy_x"][:, None, :]) & (
        state["bullet_y"][:, :, None] == state["enemy_y"][:, None, :]
    )
    hits = meets & state["bullet_there"][:, :, None] & targets[:, None, :]
    subs = state["enemy_is_sub"][:, None, :]
    # Bullets that fly see fish first, enemies that swim into bullets are moved after submarines.
    preferred, others = (hits & subs, hits & ~subs) if latest else (hits & ~subs, hits & subs)
    hits = torch.where(preferred.any(2, keepdim=True), preferred, others)
    struck = _first(hits.flip(2)).flip(2) if latest else _first(hits)
    spent = struck.any(2)
    state |= {
        "enemy_there": state["enemy_there"] & ~struck.any(1),
        "bullet_there": state["bullet_there"] & ~spent,
    }
    return state, spent.sum(1)


def _bullets_fly(state: GameState) -> tuple[GameState, torch.Tensor]:
    x = state["bullet_x"] + _step(state["bullet_right"])
    state |= {"bullet_x": x, "bullet_there": state["bullet_there"] & _on_board(x)}
    return _shot(state, state["enemy_there"], latest=False)


def _divers_swim(state: GameState) -> GameState:
    """Move divers, the latest first, and take those on board that meet the player."""
    names = ("there", "x", "timer")
    columns = {name: list(state[f"diver_{name}"].unbind(1)) for name in names}
    divers = state["divers"]
    for i in reversed(range(_DIVERS)):
        there, x, timer = (columns[name][i] for name in names)
        in_row = state["diver_y"][:, i] == state["y"]
        taken = there & in_row & (x == state["x"]) & (divers < _MOST_DIVERS)
        moves = there & ~taken & (timer == 0)
        x = x + _step(state["diver_right"][:, i]) * moves
        reached = moves & in_row & (x == state["x"]) & (divers < _MOST_DIVERS)
        divers = divers + (taken | reached).to(INT)
        columns["there"][i] = there & ~taken & ~reached & _on_board(x)
        columns["x"][i] = x
        columns["timer"][i] = torch.where(moves, _DIVER_INTERVAL, timer - 1)
    moved = {f"diver_{name}": torch.stack(column, 1) for name, column in columns.items()}
    return {**state, **moved, "divers": divers}


def _enemies_move(state: GameState) -> tuple[GameState, torch.Tensor, torch.Tensor]:
    """The state, reward and whether the player is hit, where enemies and their bullets move."""
    there, is_sub, right = (state[f"enemy_{name}"] for name in ("there", "is_sub", "right"))
    hit = (there & _meets(state, state["enemy_x"])).any(1)
    moves = there & (state["enemy_timer"] == 0)
    x = state["enemy_x"] + _step(right) * moves
    rammed = moves & _meets(state, x)
    shoots = there & is_sub & (state["enemy_shot_timer"] == 0)
    timer = torch.where(moves, state["move_speed"][:, None], state["enemy_timer"] - 1)
    shot_timer = torch.where(shoots, _SHOT_INTERVAL, state["enemy_shot_timer"] - 1)
    state |= {
        "enemy_x": x,
        "enemy_there": there & _on_board(x),
        "enemy_timer": timer,
        "enemy_shot_timer": shot_timer,
    }
    # Those that are shot in this step shoot as well.
    shots_right = state["shots_right"] | _shots(state, shoots & right)
    shots_left = state["shots_left"] | _shots(state, shoots & ~right)
    state, reward = _shot(state, state["enemy_there"] & moves & ~rammed, latest=True)
    hit = hit | rammed.any(1)
    hit = hit | _is_shot(state, shots_right | shots_left)
    shots_right, shots_left = (shots_right << 1) & (2**SIZE - 1), shots_left >> 1
    hit = hit | _is_shot(state, shots_right | shots_left)
    state |= {"shots_right": shots_right, "shots_left": shots_left}
    return state, reward, hit


def _shots(state: GameState, shoots: torch.Tensor) -> torch.Tensor:
    """The bullets of enemies that shoot, as bits."""
    x = state["enemy_x"]
    rows = torch.arange(SIZE, device=x.device, dtype=INT)[:, None]
    new = (shoots & _on_board(x))[:, None, :] & (state["enemy_y"][:, None, :] == rows)
    # No two submarines shoot from one cell at the same time, so that a sum sets each bit once.
    return torch.where(new, (1 << x.clamp(0, SIZE - 1))[:, None, :], 0).sum(2, dtype=INT)


def _is_shot(state: GameState, shots: torch.Tensor) -> torch.Tensor:
    """Whether there is an enemy bullet where the player is."""
    rows = torch.arange(SIZE, device=shots.device, dtype=INT)
    row = torch.where(rows == state["y"][:, None], shots, 0).sum(1, dtype=INT)
    return ((row >> state["x"]) & 1).bool()
