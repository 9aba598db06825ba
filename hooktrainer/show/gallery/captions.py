"""How numbers are said in captions."""

from __future__ import annotations

import math

from ...policies import Evaluation


def frames_text(frames: int) -> str:
    """Such as ``10,240 frames``."""
    return f"{frames:,} frame{'' if frames == 1 else 's'}"


def return_text(evaluation: Evaluation) -> str:
    """Mean and standard deviation with two digits of the deviation, such as ``471 ± 22``."""
    mean, std = evaluation.mean, evaluation.std
    if evaluation.episodes == 1:
        return number_text(mean)
    if not math.isfinite(mean) or not 0 < std < math.inf:
        return f"{number_text(mean)} ± 0"
    decimals = min(6, max(0, 1 - math.floor(math.log10(std))))
    return f"{mean:,.{decimals}f} ± {std:,.{decimals}f}"


def number_text(value: float) -> str:
    """A return, such as ``500``, ``-1,070``, ``-89.3`` or ``0.873``."""
    if not math.isfinite(value):
        return f"{value}"
    if value == round(value) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:,.1f}" if abs(value) >= 10 else f"{value:.3g}"
