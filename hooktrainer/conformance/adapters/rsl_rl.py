"""PPO of rsl_rl, with its OnPolicyRunner."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import torch
from gymnasium.vector import SyncVectorEnv
from rsl_rl.env import VecEnv
from rsl_rl.runners import OnPolicyRunner
from tensordict import TensorDict
from torch import nn

from ..adapter import Adapter, Task, Trained, parameters_of, scalars_in

_ENVS, _STEPS = 4, 16
_BATCH = _ENVS * _STEPS


class _Environments(VecEnv):
    """Environments of Gymnasium, reset where they end; they take no notice of actions."""

    num_envs, num_actions, max_episode_length = _ENVS, 1, 1000
    device, cfg = "cpu", {}  # type: ignore[var-annotated]

    def __init__(self, task: Task) -> None:
        self.envs = SyncVectorEnv([task.env] * _ENVS, autoreset_mode="SameStep")
        self.episode_length_buf = torch.zeros(_ENVS, dtype=torch.long)
        self.now, _ = self.envs.reset(seed=task.seed)

    def get_observations(self) -> TensorDict:
        return TensorDict({"policy": torch.from_numpy(self.now)}, [_ENVS])

    def step(self, actions: torch.Tensor) -> tuple[TensorDict, torch.Tensor, torch.Tensor, Any]:
        self.now, *rest, _ = self.envs.step([0] * _ENVS)
        rewards, terminated, truncated = (torch.from_numpy(one).float() for one in rest)
        ends = terminated.maximum(truncated).long()
        return self.get_observations(), rewards, ends, {"time_outs": truncated}


class PPOAdapter(Adapter):
    """Trains with PPO, whose actions are continuous."""

    packages = ("rsl-rl-lib",)
    checkpoints = "model_*.pt"
    window = 100
    documented: ClassVar[Mapping[str, str]] = {
        "checkpoints": "guide/configuration, save_interval: iterations between checkpoints; the "
        "first is saved too",
    }
    references: ClassVar[Mapping[str, str]] = {
        "final-observation": "algorithms/ppo.py, process_env_step: adds gamma times the value of "
        "the observation before the step",
        "resume": "runners/on_policy_runner.py, save: networks, optimizer, iteration, no random "
        "states; learn counts the loaded iteration again",
    }

    def train(self, task: Task) -> Trained:
        """Train with four environments; load a checkpoint, and learn for the rest."""
        torch.manual_seed(task.seed)
        network = {"class_name": "MLPModel", "hidden_dims": [64], "activation": "elu"}
        algorithm = {"class_name": "PPO", "gamma": task.gamma, "learning_rate": 3e-3}
        algorithm |= {"schedule": "fixed", "use_clipped_value_loss": False, **task.options}
        config = {
            "num_steps_per_env": _STEPS,
            "save_interval": (task.every or task.frames) // _BATCH,
            "obs_groups": {"actor": ["policy"], "critic": ["policy"]},
            "algorithm": algorithm | {"num_learning_epochs": 10, "num_mini_batches": 2},
            "actor": network | {"distribution_cfg": {"class_name": "GaussianDistribution"}},
            "critic": network,
        }
        runner = OnPolicyRunner(_Environments(task), config, str(task.directory))
        if task.checkpoint:
            runner.load(str(task.checkpoint))
        runner.learn((task.frames - task.collected) // _BATCH)
        runner.logger.writer.flush()
        critic = runner.alg.critic
        rows = scalars_in(task.directory, "Train/mean_reward", "Train/mean_episode_length")
        return Trained(
            state=parameters_of(nn.ModuleDict({"actor": runner.alg.actor, "critic": critic})),
            values=lambda codes: critic(TensorDict({"policy": torch.from_numpy(codes)})).detach(),
            frames=(runner.current_learning_iteration + 1) * _BATCH,
            returns=[((iteration + 1) * _BATCH, *means) for iteration, *means in rows],
        )

    def frames_in(self, checkpoint: Path) -> int:
        """Checkpoints are named by their iteration."""
        return (super().frames_in(checkpoint) + 1) * _BATCH
