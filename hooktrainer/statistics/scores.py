"""The score of a run from its curve; reference scores that normalize tasks.

An evaluation logs the mean over its episodes, so a curve has one value for each evaluation. Curves
are interpolated linearly and compared at the frames that all have, so that a longer run has no
advantage.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .intervals import Scores

# -- `Curve`: a metric of a run over its frames.


@dataclass(frozen=True)
class Curve:
    """A metric of a run.

    Attributes:
        frames: Frames of its values, rising, ``int64 [n]``.
        values: Finite, ``float64 [n]``.
    """

    frames: NDArray[np.int64]
    values: NDArray[np.float64]

    @classmethod
    def of(cls, pairs: Iterable[tuple[int, float]]) -> Curve:
        """Make a curve of ``(frames, value)`` pairs; values that are not finite are left out."""
        kept = dict(pair for pair in pairs if math.isfinite(pair[1]))
        frames = np.array(sorted(kept), np.int64)
        return cls(frames, np.array([kept[int(frame)] for frame in frames], np.float64))

    def best(self, *, minimize: bool = False) -> tuple[int, float] | None:
        """Return frames and value of the highest (or lowest) point; ``None`` without points."""
        if not len(self.values):
            return None
        index = int(self.values.argmin() if minimize else self.values.argmax())
        return int(self.frames[index]), float(self.values[index])


Score = Callable[[Curve, float], float]
"""Called with a curve of at least one point, and the frames up to which it counts."""
_TAIL = 0.1


def shared_frames(curves: Sequence[Curve], ended: Sequence[bool]) -> float:
    """Return the frames up to which all curves can be compared.

    Args:
        curves: Of at least one point each.
        ended: For each, whether its run stopped early by itself: it keeps its last value and does
            not limit the others.

    Raises:
        ValueError: If there is no curve.
    """
    held = [curve for curve, over in zip(curves, ended, strict=True) if not over]
    ends = [float(curve.frames[-1]) for curve in held or curves]
    return min(ends) if held else max(ends)


def last(curve: Curve, frames: float) -> float:
    """Return the value at those frames, interpolated."""
    return float(np.interp(frames, curve.frames, curve.values))


def tail(curve: Curve, frames: float) -> float:
    """Return the mean over the last tenth of the frames, which depends less on one evaluation."""
    return _mean_over(curve, frames * (1 - _TAIL), frames)


def best(curve: Curve, frames: float) -> float:
    """Return the best evaluation up to those frames, which grows with the number of evaluations."""
    return float(curve.values[: max(1, int(np.searchsorted(curve.frames, frames, "right")))].max())


def area(curve: Curve, frames: float) -> float:
    """Return the area under the curve as a mean over frames, from the first evaluation on."""
    return _mean_over(curve, float(curve.frames[0]), frames)


SCORES: Final[Mapping[str, Score]] = {"last": last, "tail": tail, "best": best, "area": area}
"""Scores of a curve, by name."""


def score_function(name: str, *, minimize: bool = False) -> Score:
    """Return one of `SCORES`, for a metric of which more or, to ``minimize``, less is better."""
    score = SCORES[name]
    if not minimize:
        return score
    return lambda curve, frames: -score(Curve(curve.frames, -curve.values), frames)


def first_reached(
    curve: Curve, threshold: float, frames: float, *, minimize: bool = False
) -> float | None:
    """Return the frames of the first evaluation that reached a threshold; ``None`` without one.

    Args:
        curve: The curve.
        threshold: The value to reach.
        frames: Frames up to which it counts.
        minimize: Whether values at or below the threshold have reached it.
    """
    enough = curve.values <= threshold if minimize else curve.values >= threshold
    there = np.flatnonzero(enough & (curve.frames <= frames))
    return float(curve.frames[there[0]]) if len(there) else None


def _mean_over(curve: Curve, low: float, high: float) -> float:
    low = max(low, float(curve.frames[0]))
    if high <= low:
        return last(curve, high)
    inner = curve.frames[(curve.frames > low) & (curve.frames < high)].astype(np.float64)
    grid = np.concatenate([[low], inner, [high]])
    values = np.interp(grid, curve.frames, curve.values)
    return float(np.sum(np.diff(grid) * (values[1:] + values[:-1]) / 2) / (high - low))


# -- Reference scores: what a return of a task is measured by, so that tasks can be put together.


@dataclass(frozen=True)
class Reference:
    """The two returns of a task that define its normalized scores.

    Attributes:
        low: The return that counts as 0, such as that of random play.
        high: The return that counts as 1, such as that of a human or an expert.
        source: Origin of both.

    Raises:
        ValueError: If ``high`` is not above ``low``.
    """

    low: float
    high: float
    source: str

    def __post_init__(self) -> None:
        """Check the two."""
        if not self.low < self.high:
            raise ValueError(f"high={self.high} has to be above low={self.low}")

    def normalize(self, scores: ArrayLike, *, minimize: bool = False) -> Scores:
        """Return normalized scores, of which more is better: with ``minimize``, 1 at ``low``."""
        share = (np.asarray(scores, np.float64) - self.low) / (self.high - self.low)
        return 1 - share if minimize else share


# -- Reference scores that are known, by environment, and where they are from.

_MEASURED = "random play, 1,000 episodes (CartPole) or 300; {} from Gymnasium 1.4"
_D4RL = "random and expert, D4RL (Fu et al. 2020), measured in version 2"
_ATARI = "random and human, Wang et al. 2016, as in DQN Zoo (Quan and Ostrovski 2020)"
_GYMNASIUM = {
    "CartPole-v1": (22.2, 500.0, "longest episode"),
    "Acrobot-v1": (-498.1, -100.0, "reward threshold"),
    "MountainCarContinuous-v0": (-33.3, 90.0, "reward threshold"),
    "LunarLander-v3": (-181.3, 200.0, "reward threshold"),
    "BipedalWalker-v3": (-102.0, 300.0, "reward threshold"),
}
_MUJOCO = {
    "HalfCheetah": (-280.178953, 12135.0),
    "Hopper": (-20.272305, 3234.3),
    "Walker2d": (1.629008, 4592.3),
    "Ant": (-325.6, 3879.7),
}
_GAMES = """
alien 227.8 7127.7, amidar 5.8 1719.5, assault 222.4 742.0, asterix 210.0 8503.3,
asteroids 719.1 47388.7, atlantis 12850.0 29028.1, bank_heist 14.2 753.1,
battle_zone 2360.0 37187.5, beam_rider 363.9 16926.5, berzerk 123.7 2630.4, bowling 23.1 160.7,
boxing 0.1 12.1, breakout 1.7 30.5, centipede 2090.9 12017.0, chopper_command 811.0 7387.8,
crazy_climber 10780.5 35829.4, defender 2874.5 18688.9, demon_attack 152.1 1971.0,
double_dunk -18.6 -16.4, enduro 0.0 860.5, fishing_derby -91.7 -38.7, freeway 0.0 29.6,
frostbite 65.2 4334.7, gopher 257.6 2412.5, gravitar 173.0 3351.4, hero 1027.0 30826.4,
ice_hockey -11.2 0.9, jamesbond 29.0 302.8, kangaroo 52.0 3035.0, krull 1598.0 2665.5,
kung_fu_master 258.5 22736.3, montezuma_revenge 0.0 4753.3, ms_pacman 307.3 6951.6,
name_this_game 2292.3 8049.0, phoenix 761.4 7242.6, pitfall -229.4 6463.7, pong -20.7 14.6,
private_eye 24.9 69571.3, qbert 163.9 13455.0, riverraid 1338.5 17118.0, road_runner 11.5 7845.0,
robotank 2.2 11.9, seaquest 68.4 42054.7, skiing -17098.1 -4336.9, solaris 1236.3 12326.7,
space_invaders 148.0 1668.7, star_gunner 664.0 10250.0, surround -10.0 6.5, tennis -23.8 -8.3,
time_pilot 3568.0 5229.2, tutankham 11.4 167.6, up_n_down 533.4 11693.2, venture 0.0 1187.5,
video_pinball 16256.9 17667.9, wizard_of_wor 563.5 4756.5, yars_revenge 3092.9 54576.9,
zaxxon 32.5 9173.3
"""


def _all() -> dict[str, Reference]:
    found = {}
    for env, (low, high, what) in _GYMNASIUM.items():
        found[env] = Reference(low, high, _MEASURED.format(what))
    for body, (low, high) in _MUJOCO.items():
        found |= {f"{body}-{version}": Reference(low, high, _D4RL) for version in ("v4", "v5")}
    for line in _GAMES.split(","):
        game, low_text, high_text = line.split()
        name = "".join(word.capitalize() for word in game.split("_"))
        found[f"ALE/{name}-v5"] = Reference(float(low_text), float(high_text), _ATARI)
    return found


REFERENCES: Final[Mapping[str, Reference]] = _all()
"""Known references, by environment."""
