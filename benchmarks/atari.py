"""PPO on Pong, 8 games: 128 steps each, 4 epochs of 4 minibatches, Mnih et al.'s network.

hooktrainer, as `hooktrainer train ppo` builds it, and Stable-Baselines3 with the settings of its
zoo; CleanRL's script is run by `cleanrl.py --algorithm=ppo-atari`. All have the same wrappers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import tyro
from measure import Meter, Run

GAME = "PongNoFrameskip-v4"


@dataclass(kw_only=True)
class Args(Run):
    """Options of the runs on Pong."""

    library: Literal["hooktrainer", "sb3"] = "hooktrainer"
    """whose PPO"""


def with_hooktrainer(args: Args, meter: Meter) -> None:
    """Train with hooktrainer's algorithm."""
    from hooktrainer.algorithms import PPO

    run = PPO(
        env=GAME,
        total_frames=args.frames,
        num_envs=8,
        steps_per_batch=128,
        num_epochs=4,
        mini_batch_size=256,
        lr=2.5e-4,
        clip_epsilon=0.1,
        entropy_coeff=0.01,
        num_cells=(512,),
        activation="relu",
        eval_episodes=0,
        progress_bar=False,
        seed=args.seed,
        tuned=False,
    )
    trainer = run.trainer()
    trainer.register_op("post_steps", lambda: meter.tick(trainer.collected_frames))
    trainer.train()


def with_sb3(args: Args, meter: Meter) -> None:
    """Train with Stable-Baselines3."""
    from sb3 import Tick
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_atari_env
    from stable_baselines3.common.vec_env import VecFrameStack

    env = VecFrameStack(make_atari_env(GAME, n_envs=8, seed=args.seed), n_stack=4)
    model = PPO(
        "CnnPolicy",
        env,
        n_steps=128,
        batch_size=256,
        n_epochs=4,
        learning_rate=2.5e-4,
        clip_range=0.1,
        ent_coef=0.01,
        vf_coef=0.5,
        seed=args.seed,
        device="cpu",
    )
    model.learn(args.frames, callback=Tick(meter, None))


def main(args: Args) -> None:
    """Train, and print the result as one line of JSON."""
    import ale_py
    import gymnasium as gym

    gym.register_envs(ale_py)
    args.prepare()
    meter = Meter(args, GAME)
    {"hooktrainer": with_hooktrainer, "sb3": with_sb3}[args.library](args, meter)
    meter.print()


if __name__ == "__main__":
    main(tyro.cli(Args))
