"""rsl_rl's PPO on torch/CartPole-v1, the environments as tensors.

rsl_rl has Gaussian policies only, so the sign of the action is the direction. It logs to
TensorBoard, as its users have it, and has an environment of its own, see `setup.sh`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import tyro
from measure import Meter, Run
from rsl_rl.env import VecEnv
from rsl_rl.runners import OnPolicyRunner
from tensordict import TensorDict

from hooktrainer.collect.worlds.classic_control import CartPoleWorld


@dataclass(kw_only=True)
class Args(Run):
    """Options of the rsl_rl run."""

    num_envs: int = 1_024
    """number of environments"""
    num_steps: int = 24
    """steps in each environment per rollout"""
    width: int = 64
    """units in each of the two hidden layers of the actor and of the critic"""


class RunOverError(Exception):
    """The run is over."""


class World(VecEnv):
    """hooktrainer's world as rsl_rl wants it; its clock ticks as a rollout begins."""

    num_actions = 1
    max_episode_length = 500
    device = "cpu"

    def __init__(self, args: Args, meter: Meter) -> None:
        self.cfg = {}
        self.num_envs = args.num_envs
        self._args, self._meter = args, meter
        self._world = CartPoleWorld(args.num_envs)
        self._observation = self._world.reset()["observation"]
        self._steps = 0
        self.episode_length_buf = torch.zeros(args.num_envs, dtype=torch.int64)

    def get_observations(self) -> TensorDict:
        """What all environments observe."""
        return TensorDict({"policy": self._observation}, [self.num_envs])

    def step(self, actions: torch.Tensor) -> tuple[TensorDict, torch.Tensor, torch.Tensor, dict]:
        """Step all environments."""
        if self._steps % self._args.num_steps == 0 and self._meter.tick(
            self._steps * self.num_envs
        ):
            raise RunOverError
        self._steps += 1
        out = self._world.step((actions[:, 0] > 0).long())
        self._observation = out.observation["observation"]
        done = out.terminated | out.truncated
        return self.get_observations(), out.reward, done, {"time_outs": out.truncated}


def config(args: Args) -> dict:
    """The configuration, with the settings that hooktrainer's run has."""
    layers = [args.width, args.width]
    network = {"class_name": "MLPModel", "hidden_dims": layers, "activation": "tanh"}
    gaussian = {"class_name": "GaussianDistribution", "init_std": 1.0, "std_type": "scalar"}
    return {
        "num_steps_per_env": args.num_steps,
        "save_interval": 10**9,
        "obs_groups": {"actor": ["policy"], "critic": ["policy"]},
        "actor": network | {"distribution_cfg": gaussian},
        "critic": dict(network),
        "algorithm": {
            "class_name": "PPO",
            "num_learning_epochs": 5,
            "num_mini_batches": 4,
            "learning_rate": 1e-3,
            "schedule": "fixed",
            "rnd_cfg": None,
            "symmetry_cfg": None,
        },
    }


def main(args: Args) -> None:
    """Train, and print the result as one line of JSON."""
    args.prepare()
    meter = Meter(args, "CartPole-v1")
    runner = OnPolicyRunner(World(args, meter), config(args), str(args.log_dir))
    meter.start()
    try:
        runner.learn(10**9)
    except RunOverError:
        meter.print()


if __name__ == "__main__":
    main(tyro.cli(Args))
