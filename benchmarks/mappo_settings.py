"""What the benchmarks of MAPPO share: the environment and its settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from measure import Run

MAX_STEPS = 100


@dataclass(kw_only=True)
class MappoRun(Run):
    """Options of the runs of MAPPO on VMAS."""

    scenario: str = "balance"
    """a scenario of VMAS"""
    settings: Literal["matched", "own", "sota"] = "matched"
    """one for both, hooktrainer's own (hooktrainer only), or those of TorchRL's script"""


@dataclass(frozen=True)
class Settings:
    """The settings of a run."""

    num_envs: int
    num_epochs: int
    mini_batch_size: int
    lr: float
    gamma: float
    lmbda: float
    width: int
    max_grad_norm: float
    critic_coeff: float
    normalize_advantage: bool

    @property
    def frames_per_batch(self) -> int:
        """Whole episodes of every environment."""
        return self.num_envs * MAX_STEPS


SETTINGS = {
    "matched": Settings(64, 10, 800, 1e-3, 0.99, 0.95, 128, 0.5, 0.5, True),
    # sota-implementations/multiagent/mappo_ippo.yaml
    "sota": Settings(600, 45, 4096, 5e-5, 0.9, 0.9, 256, 40.0, 1.0, False),
}
