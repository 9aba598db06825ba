"""PPO of Stable-Baselines3, with its Monitor, VecCheckNan and callbacks."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import torch
from stable_baselines3 import PPO
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.callbacks import CheckpointCallback, EvalCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.logger import configure
from stable_baselines3.common.vec_env import VecCheckNan

from ..adapter import Adapter, Task, Trained, parameters_of

_ENVS = 4


class _RecordingBuffer(RolloutBuffer):
    """Records the observations in mini-batches."""

    def get(self, batch_size: int | None = None) -> Iterator[Any]:
        for batch in super().get(batch_size):
            self.batches = [*getattr(self, "batches", []), batch.observations.numpy()]
            yield batch


class StableBaselines3Adapter(Adapter):
    """Trains with PPO."""

    packages = ("stable-baselines3",)
    window = 100  # stats_window_size
    references: ClassVar[Mapping[str, str]] = {
        "resume": "callbacks.py, CheckpointCallback: saves before the last rollout is trained on; "
        "base_class.py, save: without random states",
    }

    def train(self, task: Task) -> Trained:
        """Train with four environments."""
        options: dict[str, Any] = {"n_steps": 16, "batch_size": 32, "learning_rate": 3e-3}
        options |= {"rollout_buffer_class": _RecordingBuffer, "seed": task.seed}
        options |= {"gamma": task.gamma, **task.options}
        return self._learn(task, PPO("MlpPolicy", self._env(task), **options))

    def resume(self, task: Task) -> Trained:
        """Load the latest checkpoint, and learn for the remaining frames."""
        latest = max(task.directory.glob("*.zip"), key=_frames_in)
        return self._learn(task, PPO.load(latest, env=self._env(task)))

    def _env(self, task: Task) -> VecCheckNan:
        vector = make_vec_env(task.env, n_envs=_ENVS, seed=task.seed)
        return VecCheckNan(vector, raise_exception=True)

    def _learn(self, task: Task, model: PPO) -> Trained:
        model.set_logger(configure(str(task.directory), ["csv"]))
        callbacks = []
        if task.every:
            evaluation, calls = make_vec_env(task.eval_env), task.every // _ENVS
            callbacks = [
                EvalCallback(evaluation, n_eval_episodes=1, eval_freq=calls, verbose=0),
                CheckpointCallback(calls, str(task.directory)),
            ]
        remaining = task.frames - model.num_timesteps
        model.learn(remaining, callbacks, reset_num_timesteps=model.num_timesteps == 0)
        with (task.directory / "progress.csv").open() as file:
            rows = list(csv.DictReader(file))
        frames, mean, length = "time/total_timesteps", "rollout/ep_rew_mean", "rollout/ep_len_mean"
        return Trained(
            state=parameters_of(model.policy),
            values=lambda codes: model.policy.predict_values(torch.from_numpy(codes)).detach(),
            frames=model.num_timesteps,
            returns=[(int(r[frames]), float(r[mean]), float(r[length])) for r in rows if r[mean]],
            saved=[_frames_in(path) for path in task.directory.glob("*.zip")],
            trained_on=model.rollout_buffer.batches,
        )


def _frames_in(path: Any) -> int:
    return int(path.stem.split("_")[-2])
