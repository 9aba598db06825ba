"""Which seeds are for what, so that nothing is judged by what it was made with.

Episodes of an evaluation are seeded from other seeds than those of training, and options are chosen
on other seeds than those that their results are reported with.
"""

from __future__ import annotations

from typing import Any, Final

from ..errors import ConfigError
from .checks import check_seed

TUNING_SEEDS: Final = range(1_000_000_000, 2_000_000_000)
"""Seeds of runs among which options are chosen; reports leave them out."""
EVALUATION_SEEDS: Final = range(2_000_000_000, 2_000_001_000)
"""Seeds of evaluations; no run is trained from one."""
EVALUATION_SEED: Final = 2_000_000_011
"""The one that evaluations have if no other is given."""


def is_for_tuning(seed: int | None) -> bool:
    """Whether a seed is one of tuning."""
    # A range goes through all its members to find that it holds no None.
    return seed is not None and int(seed) in TUNING_SEEDS


def check_training_seed(name: str, value: Any) -> None:
    """Refuse ``value`` unless it is a seed that a run can be trained from.

    Raises:
        ConfigError: If it is no seed, or one of evaluations.
    """
    check_seed(name, value)
    if int(value) in EVALUATION_SEEDS:
        raise ConfigError(
            f"{name}={value} is kept for evaluation, whose episodes training must not see: pass "
            f"another, such as {value - EVALUATION_SEEDS.start}."
        )
