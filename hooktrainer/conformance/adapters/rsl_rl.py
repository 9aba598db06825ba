"""PPO of rsl_rl, with its OnPolicyRunner."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import torch
from rsl_rl.env import VecEnv
from rsl_rl.runners import OnPolicyRunner
from rsl_rl.utils import LogWriter
from tensordict import TensorDict

from ..adapter import Adapter, Task, Trained, parameters_of

_ENVS, _STEPS = 4, 16
_BATCH = _ENVS * _STEPS


class _Scalars(LogWriter):
    """Keeps what is logged."""

    def __init__(self, log_dir: str) -> None:
        self.rows: dict[int, dict[str, float]] = {}

    def add_scalar(self, tag: str, scalar_value: Any, global_step: int | None = None) -> None:
        if not tag.endswith("/time"):
            self.rows.setdefault(int(global_step or 0), {})[tag] = float(scalar_value)


class _Environments(VecEnv):
    """Environments of Gymnasium, reset where they end; they take no notice of actions."""

    num_envs, num_actions, max_episode_length = _ENVS, 1, 1000
    device, cfg = "cpu", {}  # type: ignore[var-annotated]

    def __init__(self, task: Task) -> None:
        self.envs = [task.env() for _ in range(_ENVS)]
        self.episode_length_buf = torch.zeros(_ENVS, dtype=torch.long)
        self.now = [env.reset(seed=task.seed + k)[0] for k, env in enumerate(self.envs)]

    def get_observations(self) -> TensorDict:
        if len({one.shape for one in self.now}) > 1:
            raise NotImplementedError("the adapter, not rsl_rl, makes batches of observations.")
        observations = torch.stack([torch.from_numpy(one) for one in self.now])
        return TensorDict({"policy": observations}, [_ENVS])

    def step(self, actions: torch.Tensor) -> tuple[TensorDict, torch.Tensor, torch.Tensor, Any]:
        steps = [env.step(0) for env in self.envs]
        ends = [terminated or truncated for _, _, terminated, truncated, _ in steps]
        self.now = [
            env.reset()[0] if end else step[0]
            for env, step, end in zip(self.envs, steps, ends, strict=True)
        ]
        extras = {"time_outs": torch.tensor([float(truncated) for *_, truncated, _ in steps])}
        rewards = torch.tensor([float(step[1]) for step in steps])
        return self.get_observations(), rewards, torch.tensor(ends, dtype=torch.long), extras


class RslRlAdapter(Adapter):
    """Trains with PPO, whose actions are continuous."""

    packages = ("rsl-rl-lib",)
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
        """Train with four environments."""
        return self._learn(task, None)

    def resume(self, task: Task) -> Trained:
        """Load the latest checkpoint, and learn for the remaining iterations."""
        return self._learn(task, max(task.directory.glob("model_*.pt"), key=_frames_in))

    def _learn(self, task: Task, latest: Path | None) -> Trained:
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
            "logger": {"class_name": _Scalars},
        }
        runner = OnPolicyRunner(_Environments(task), config, str(task.directory))
        if latest is not None:
            runner.load(str(latest))
        storage, batches = runner.alg.storage, []
        generate = storage.mini_batch_generator

        def record(*args: Any) -> Any:
            for batch in generate(*args):
                batches.append(batch.observations["policy"].numpy())
                yield batch

        storage.mini_batch_generator = record
        runner.learn((task.frames - (0 if latest is None else _frames_in(latest))) // _BATCH)
        rows, critic = runner.logger.writer.rows, runner.alg.critic
        reward, length = "Train/mean_reward", "Train/mean_episode_length"
        return Trained(
            state=parameters_of(runner.alg.actor, "actor.") | parameters_of(critic, "critic."),
            values=lambda codes: critic(TensorDict({"policy": torch.from_numpy(codes)})).detach(),
            frames=(runner.current_learning_iteration + 1) * _BATCH,
            returns=[
                ((k + 1) * _BATCH, row[reward], row[length])
                for k, row in rows.items()
                if reward in row
            ],
            saved=[_frames_in(path) for path in task.directory.glob("model_*.pt")],
            trained_on=batches,
        )


def _frames_in(path: Path) -> int:
    return (int(path.stem.split("_")[-1]) + 1) * _BATCH
