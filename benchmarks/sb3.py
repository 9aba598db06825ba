"""Stable-Baselines3: PPO and DQN on CartPole-v1, SAC and TD3 on Pendulum-v1.

`--settings zoo` takes the tuned settings of RL Baselines3 Zoo, `--settings matched` those that
every other benchmark script uses. TensorBoard logging is on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import tyro
from measure import Meter, Run
from stable_baselines3 import DQN, PPO, SAC, TD3
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.noise import NormalActionNoise


@dataclass(kw_only=True)
class Args(Run):
    """Options of the Stable-Baselines3 runs."""

    algorithm: Literal["ppo", "dqn", "sac", "td3"] = "ppo"
    """what to train"""
    settings: Literal["matched", "zoo"] = "matched"
    """the settings that all peers share, or the zoo's"""
    num_envs: int | None = None
    """number of environments, if not that of the settings"""
    width: int = 64
    """units in each hidden layer of PPO's networks (matched settings)"""


def linear(start: float) -> Callable[[float], float]:
    """Return a schedule from `start` to zero over the run."""
    return lambda remaining: remaining * start


def settings(args: Args) -> tuple[int, dict[str, Any]]:
    """Return the number of environments and the algorithm's keyword arguments."""
    match args.algorithm, args.settings:
        case "ppo", "matched":
            layers = [args.width, args.width]
            return 4, {
                "n_steps": 128,
                "batch_size": 128 * (args.num_envs or 4) // 4,
                "n_epochs": 4,
                "learning_rate": 2.5e-4,
                "ent_coef": 0.01,
                "policy_kwargs": {"net_arch": {"pi": layers, "vf": layers}},
            }
        case "ppo", "zoo":
            return 8, {
                "n_steps": 32,
                "batch_size": 256,
                "n_epochs": 20,
                "learning_rate": linear(1e-3),
                "clip_range": linear(0.2),
                "gae_lambda": 0.8,
                "gamma": 0.98,
                "ent_coef": 0.0,
            }
        case "dqn", "matched":
            return 1, {
                "learning_rate": 2.5e-4,
                "batch_size": 128,
                "buffer_size": 10_000,
                "learning_starts": 1_000,
                "train_freq": 1,
                "gradient_steps": 1,
                "target_update_interval": 500,
                "exploration_fraction": 0.5,
                "policy_kwargs": {"net_arch": [120, 84]},
            }
        case "dqn", "zoo":
            return 1, {
                "learning_rate": 2.3e-3,
                "batch_size": 64,
                "buffer_size": 100_000,
                "learning_starts": 1_000,
                "train_freq": 256,
                "gradient_steps": 128,
                "target_update_interval": 10,
                "exploration_fraction": 0.16,
                "exploration_final_eps": 0.04,
                "policy_kwargs": {"net_arch": [256, 256]},
            }
        case "sac", _:  # the zoo's settings for Pendulum are the shared ones
            return 1, {"learning_rate": 1e-3}
        case "td3", "matched":
            return 1, {
                "learning_rate": 1e-3,
                "batch_size": 256,
                "learning_starts": 100,
                "train_freq": 1,
                "policy_kwargs": {"net_arch": [256, 256]},
                "action_noise": NormalActionNoise(np.zeros(1), np.full(1, 0.1)),
            }
    raise ValueError(f"no settings {args.settings!r} for {args.algorithm!r}")


class Tick(BaseCallback):
    """Tells the meter about every rollout (or, off-policy, every 100 steps) and stops the run."""

    def __init__(self, meter: Meter, every: int | None) -> None:
        super().__init__()
        self.meter = meter
        self.every = every

    def _on_step(self) -> bool:
        if self.every and self.num_timesteps % self.every == 0:
            self._tick()
        return not self.meter.over

    def _on_rollout_start(self) -> None:
        # On-policy algorithms have just trained on the rollout before this one.
        if self.every is None and self.num_timesteps:
            self._tick()

    def _on_training_end(self) -> None:
        if not self.meter.over:
            self._tick()

    def _tick(self) -> None:
        if self.meter.run.solve:  # Monitor keeps the last 100 episodes, as the meter does.
            self.meter.returns.clear()
            self.meter.returns.extend(episode["r"] for episode in self.model.ep_info_buffer)
        self.meter.tick(self.num_timesteps, self._act)

    def _act(self, observation: Any) -> Any:
        return self.model.predict(observation, deterministic=True)[0]


def main(args: Args) -> None:
    """Train, and print the result as one line of JSON."""
    args.prepare()
    algorithm = {"ppo": PPO, "dqn": DQN, "sac": SAC, "td3": TD3}[args.algorithm]
    env_id = "Pendulum-v1" if args.algorithm in ("sac", "td3") else "CartPole-v1"
    num_envs, keywords = settings(args)
    envs = make_vec_env(env_id, args.num_envs or num_envs, seed=args.seed)
    model = algorithm(
        "MlpPolicy",
        envs,
        seed=args.seed,
        device="cpu",
        tensorboard_log=str(args.log_dir),
        **keywords,
    )
    meter = Meter(args, env_id)
    meter.start()
    model.learn(args.frames, Tick(meter, None if args.algorithm == "ppo" else 100))
    meter.print()


if __name__ == "__main__":
    main(tyro.cli(Args))
