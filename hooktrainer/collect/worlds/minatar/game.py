"""`Game`: the common part of MinAtar's games as tensors."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from gymnasium import spaces

from ....base.checks import check_fraction
from ..functional_world import FunctionalWorld

SIZE = 10
"""Cells on a side of the board."""
NOOP, LEFT, UP, RIGHT, DOWN, FIRE = range(6)
INT = torch.int32
"""Type of the numbers in a state."""
GameState = dict[str, torch.Tensor]
Turn = tuple[GameState, torch.Tensor, torch.Tensor]
"""The state after a step, the reward, and whether the game ends, bool; ``[num_envs]`` each."""


class Game(FunctionalWorld):
    """A game of MinAtar (Young and Tian, 2019, arXiv:1903.03176) as tensors.

    Observations are boolean planes, ``[10, 10, planes]``. The game equals that of the package
    ``minatar`` step for step, given the same random decisions. Differences: the first action of an
    episode repeats none of the previous episode.

    Args:
        num_envs: Number of environments.
        use_minimal_action_set: Whether there are only the actions that the game uses, as in version
            1 of the ids of ``minatar``, or all six, as in version 0.
        sticky_action_prob: Probability that the previous action is repeated.
        difficulty_ramping: Whether the game becomes more difficult with time.
        rest: Arguments of `FunctionalWorld`.
    """

    planes: ClassVar[int]
    """Number of boolean planes of an observation."""
    minimal_actions: ClassVar[Sequence[int]]
    """Those that the game uses."""
    steps_per_graph = 1  # a game is hundreds of operations
    num_draws: ClassVar[int] = 0
    """Random numbers that `play` takes per environment."""

    def __init_subclass__(cls) -> None:
        cls.step_uniforms = 1 + cls.num_draws

    def __init__(
        self,
        num_envs: int,
        *,
        use_minimal_action_set: bool = True,
        sticky_action_prob: float = 0.1,
        difficulty_ramping: bool = True,
        **rest: Any,
    ) -> None:
        self.actions = tuple(self.minimal_actions if use_minimal_action_set else range(6))
        self.sticky_action_prob = check_fraction("sticky_action_prob", sticky_action_prob)
        self.ramping = difficulty_ramping
        self.observation_space: spaces.Space[Any] = spaces.Box(
            0.0, 1.0, (SIZE, SIZE, self.planes), dtype=bool
        )
        self.action_space: spaces.Space[Any] = spaces.Discrete(len(self.actions))
        super().__init__(num_envs, **rest)

    @abstractmethod
    def begin_game(self, uniform: torch.Tensor) -> GameState:
        """The state of the game at the start of an episode, as `initial`."""

    @abstractmethod
    def play(self, state: GameState, action: torch.Tensor, uniform: torch.Tensor) -> Turn:
        """The result of an action that is one of the six, as `transition`."""

    def initial(self, uniform: torch.Tensor) -> GameState:
        state = self.begin_game(uniform)
        return {"action": uniform.new_zeros(len(uniform), dtype=torch.int64), **state}

    def transition(  # type: ignore[override]
        self, state: GameState, action: torch.Tensor, uniform: torch.Tensor
    ) -> Turn:
        chosen = action
        for index, code in enumerate(self.actions):
            if index != code:
                chosen = torch.where(action == index, code, chosen)
        chosen = torch.where(uniform[:, 0] < self.sticky_action_prob, state["action"], chosen)
        played, reward, terminal = self.play(state, chosen, uniform[:, 1:])
        return {**played, "action": chosen}, reward, terminal


def full(like: torch.Tensor, value: int) -> torch.Tensor:
    """A number for each environment, of those that ``like`` has rows for."""
    return like.new_full((len(like),), value, dtype=INT)


Cell = tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]
"""One cell, ``[num_envs]``: x, y, None. Or several, ``[num_envs, n]``: x, y, which are shown."""


def drawn(*planes: Sequence[Cell]) -> torch.Tensor:
    """An observation ``[num_envs, 10, 10, planes]`` that shows the given cells of each plane."""
    x = planes[0][0][0]
    num_envs, size = len(x), SIZE * SIZE * len(planes)
    nowhere = num_envs * size
    begins = torch.arange(0, nowhere, size, device=x.device)[:, None]
    places = []
    for plane, cells in enumerate(planes):
        for x, y, shown in cells:
            place = (y * SIZE + x) * len(planes) + plane
            place = begins + (place.view(num_envs, -1) if shown is None else place)
            places.append(place if shown is None else torch.where(shown, place, nowhere))
    # Written cell by cell, as bytes: comparing each cell with each object, and compiled stores of
    # bools, would take most of a step's time.
    empty = begins.new_zeros(nowhere + 1, dtype=torch.uint8)
    seen = empty.scatter(0, torch.cat(places, 1).flatten(), 1)[:nowhere]
    return seen.view(torch.bool).view(num_envs, SIZE, SIZE, len(planes))


def walked(state: GameState, action: torch.Tensor, top: int, bottom: int) -> tuple[Any, Any]:
    """The position of a player that moves by one cell, within the board and these rows."""
    x = state["x"] + (action == RIGHT).to(INT) - (action == LEFT).to(INT)
    y = state["y"] + (action == DOWN).to(INT) - (action == UP).to(INT)
    return x.clamp(0, SIZE - 1), y.clamp(top, bottom)


def ticked(timer: torch.Tensor) -> torch.Tensor:
    """A timer a step later, which stays at 0."""
    return timer - (timer > 0).to(INT)
