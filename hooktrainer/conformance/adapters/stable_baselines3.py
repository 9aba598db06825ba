"""PPO of Stable-Baselines3, with its Monitor, VecCheckNan and callbacks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import CheckpointCallback, EvalCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.logger import configure
from stable_baselines3.common.vec_env import VecCheckNan

from ..adapter import Adapter, Task, Trained, parameters_of, scalars_in

_ENVS = 4


class PPOAdapter(Adapter):
    """Trains with PPO."""

    packages = ("stable-baselines3",)
    checkpoints = "*.zip"
    window = 100  # stats_window_size
    references: ClassVar[Mapping[str, str]] = {
        "resume": "callbacks.py, CheckpointCallback: saves before the last rollout is trained on; "
        "base_class.py, save: without random states",
    }

    def train(self, task: Task) -> Trained:
        """Train with four environments; load a checkpoint, and learn for the remaining frames."""
        vector = make_vec_env(task.env, n_envs=_ENVS, seed=task.seed)
        env = VecCheckNan(vector, raise_exception=True)
        options = {"n_steps": 16, "batch_size": 32, "learning_rate": 3e-3, "seed": task.seed}
        options |= {"gamma": task.gamma, **task.options}
        if task.checkpoint:
            model = PPO.load(task.checkpoint, env=env)
        else:
            model = PPO("MlpPolicy", env, **options)
        model.set_logger(configure(str(task.directory), ["tensorboard"]))
        callbacks: list[Any] = []
        if task.every:
            evaluation, calls = make_vec_env(task.eval_env), task.every // _ENVS
            callbacks = [
                EvalCallback(evaluation, n_eval_episodes=1, eval_freq=calls, verbose=0),
                CheckpointCallback(calls, str(task.directory)),
            ]
        frames = task.frames - task.collected
        model.learn(frames, callbacks, reset_num_timesteps=not task.checkpoint)
        return Trained(
            state=parameters_of(model.policy),
            values=lambda codes: model.policy.predict_values(torch.from_numpy(codes)).detach(),
            frames=model.num_timesteps,
            returns=scalars_in(task.directory, "rollout/ep_rew_mean", "rollout/ep_len_mean"),
        )
