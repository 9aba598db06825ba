"""A CleanRL script, unchanged, from a checkout that the reader gives: PPO, DQN, SAC or TD3.

The scripts were written for Gymnasium before 1.0. Their `SyncVectorEnv` is replaced by one that
resets finished environments in the same step and reports final observations under the old names.
The meter listens to the writer: the scripts log `charts/SPS` once an iteration.
"""

from __future__ import annotations

import contextlib
import os
import runpy
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import gymnasium as gym
import numpy as np
import torch
import torch.utils.tensorboard
import tyro
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from measure import Meter, Run
from torch.utils.tensorboard import SummaryWriter


@dataclass(kw_only=True)
class Args(Run):
    """Options of the CleanRL runs."""

    path: Path
    """a checkout of CleanRL"""
    algorithm: Literal["ppo", "ppo-atari", "dqn", "sac", "td3"] = "ppo"
    """which script to run"""
    num_envs: int = 4
    """number of environments (PPO)"""


SCRIPTS = {
    "ppo": "ppo.py",
    "ppo-atari": "ppo_atari.py",
    "dqn": "dqn.py",
    "sac": "sac_continuous_action.py",
    "td3": "td3_continuous_action.py",
}
ENVS = {"ppo-atari": "PongNoFrameskip-v4", "sac": "Pendulum-v1", "td3": "Pendulum-v1"}

MATCHED = {
    "ppo": [],
    "ppo-atari": ["--env-id=PongNoFrameskip-v4"],
    "dqn": ["--learning-starts=1000", "--train-frequency=1"],
    "sac": ["--env-id=Pendulum-v1", "--learning-starts=100", "--policy-lr=1e-3"],
    "td3": ["--env-id=Pendulum-v1", "--learning-starts=100", "--learning-rate=1e-3"],
}
"""What differs from each script's defaults, so that all peers do the same work."""


def main(args: Args) -> None:
    """Run the script under the meter, and print the result as one line of JSON."""
    args.prepare()
    env_id = ENVS.get(args.algorithm, "CartPole-v1")
    if args.algorithm == "ppo-atari":
        import ale_py

        gym.register_envs(ale_py)
        # As they were called before Gymnasium 1.0.
        gym.wrappers.GrayScaleObservation = gym.wrappers.GrayscaleObservation
        gym.wrappers.FrameStack = gym.wrappers.FrameStackObservation
    meter = Meter(args, env_id)

    class SameStepEnv(SyncVectorEnv):
        """Reports the end of episodes as Gymnasium did before 1.0."""

        def __init__(self, env_fns: list[Callable[[], gym.Env]]) -> None:
            super().__init__(env_fns, autoreset_mode=AutoresetMode.SAME_STEP)

        def step(self, actions: np.ndarray) -> tuple[Any, ...]:
            observation, reward, terminated, truncated, info = super().step(actions)
            if "final_obs" in info:
                info["final_observation"] = info["final_obs"]
                done = np.flatnonzero(info["_final_info"])
                episode = info["final_info"]["episode"]
                ended = {i: {"r": episode["r"][i], "l": episode["l"][i]} for i in done}
                info["final_info"] = [
                    {"episode": ended[i]} if i in ended else None for i in range(self.num_envs)
                ]
                meter.returns.extend(float(e["r"]) for e in ended.values())
            return observation, reward, terminated, truncated, info

    class Writer(SummaryWriter):
        """A `SummaryWriter` that ticks the meter."""

        def __init__(self, log_dir: str) -> None:
            super().__init__(log_dir)
            meter.start()

        def add_scalar(self, tag: str, value: Any, step: int, **keywords: Any) -> None:
            super().add_scalar(tag, value, step, **keywords)
            if tag == "charts/SPS":
                names = sys._getframe(1).f_globals
                if meter.tick(step, lambda x: act(args.algorithm, names, x)):
                    raise SystemExit

    gym.vector.SyncVectorEnv = SameStepEnv
    torch.utils.tensorboard.SummaryWriter = Writer
    root = args.path.resolve()
    script = root / "cleanrl" / SCRIPTS[args.algorithm]
    if not script.is_file():
        raise SystemExit(f"{root} is no checkout of CleanRL: {script} is missing")
    sys.path.insert(0, str(root))
    options = [f"--seed={args.seed}", "--no-cuda", *MATCHED[args.algorithm]]
    # PPO rounds down to whole batches; the meter ends the run.
    options.append(f"--total-timesteps={args.frames + 256 * 8 * args.num_envs}")
    if args.algorithm == "ppo":
        options.append(f"--num-envs={args.num_envs}")
    sys.argv = [str(script), *options]
    os.chdir(args.log_dir)
    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(None):
        runpy.run_path(str(script), run_name="__main__")
    meter.print()


@torch.no_grad()
def act(algorithm: str, names: dict[str, Any], observation: np.ndarray) -> np.ndarray:
    """Return the deterministic actions of the network that the script trains."""
    x = torch.from_numpy(observation).float()
    if algorithm == "sac":
        return names["actor"].get_action(x)[2].numpy()
    if algorithm == "td3":
        return names["actor"](x).numpy()
    network = names["agent"].actor if algorithm == "ppo" else names["q_network"]
    return network(x).argmax(-1).numpy()


if __name__ == "__main__":
    main(tyro.cli(Args))
