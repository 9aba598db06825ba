"""CleanRL's cleanrl/ppo.py, run as it is."""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import gymnasium as gym
import torch

from ...errors import ConfigError
from ..adapter import Adapter, Task, Trained, parameters_of, scalars_in

_SIZES: dict[str, Any] = {"num_envs": 4, "num_steps": 16, "num_minibatches": 2, "update_epochs": 10}


class PPOAdapter(Adapter):
    """Trains by the script, whose path is in the environment variable CLEANRL_PPO."""

    references: ClassVar[Mapping[str, str]] = {
        "truncation": "cleanrl/ppo.py: next_done is terminations or truncations",
        "resume": "docs/advanced/resume-training.md: code to add to a script",
    }

    def __init__(self) -> None:
        self.script = Path(os.environ.get("CLEANRL_PPO", ""))
        if not self.script.is_file():
            raise ConfigError(
                f"CLEANRL_PPO={str(self.script)!r} is no file: download cleanrl/ppo.py of "
                "github.com/vwxyzjn/cleanrl, and give its path in this environment variable."
            )
        self.script = self.script.resolve()

    def train(self, task: Task) -> Trained:
        """Train with four environments."""
        gym.register("Probe-v0", entry_point=task.env)  # type: ignore[arg-type]
        options = {"env_id": "Probe-v0", "total_timesteps": task.frames, **_SIZES}
        options |= {"seed": task.seed, "gamma": task.gamma, "learning_rate": 3e-3, **task.options}
        words = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
        sys.argv = [self.script.name, *words, "--no-cuda", "--no-anneal-lr", "--no-clip-vloss"]
        os.chdir(task.directory)
        done = runpy.run_path(str(self.script), run_name="__main__")
        agent, (log,) = done["agent"], task.directory.glob("runs/*")
        return Trained(
            state=parameters_of(agent),
            values=lambda codes: agent.get_value(torch.from_numpy(codes)).detach(),
            frames=done["global_step"],
            returns=scalars_in(log, "charts/episodic_return", "charts/episodic_length"),
        )
