"""DQN flips bits to those wanted: goals without any sign of coming closer, learned by hindsight.

    python recipes/dqn_bit_flip.py --seed 1
    python recipes/dqn_bit_flip.py --her none    # what deep Q-learning reaches without

Each step costs 1 until all bits are right, so random actions never see another reward. Hindsight
experience replay (Andrychowicz et al., 2017, arXiv:1707.01495) replays episodes as if the goal had
been what they reached. On average half of the bits are wrong at first, so the best mean return is
1 - bits / 2. Environments of gymnasium-robotics have the same interface:
`hooktrainer train sac --env PointMaze_UMaze-v3 --her future`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces

from hooktrainer import (
    Evaluate,
    Every,
    HindsightReplay,
    LogEpisodes,
    ReplayBufferTrainer,
    TargetNetUpdaterHook,
    Trainer,
    VectorCollector,
)
from hooktrainer.networks import EpsilonGreedy, QNetwork, mlp
from hooktrainer.objectives import DQNLoss, HardUpdate
from hooktrainer.optim import FlatAdam
from hooktrainer.replay import ReplayBuffer
from hooktrainer.run import Run, RunConfig, launch


@dataclass(frozen=True, kw_only=True)
class Args(RunConfig):
    """Options of the run."""

    bits: int = 15
    """number of bits, and of the steps of an episode"""
    her: Literal["future", "final", "episode", "none"] = "future"
    """which achieved goals replace the desired ones"""
    total_frames: int = 10_000
    """frames after which the run ends"""
    num_envs: int = 8
    """number of parallel environments"""
    steps_per_batch: int = 8
    """steps per environment in each batch"""
    optim_steps_per_batch: int = 32
    """optimizer steps after each batch"""

    batch_size: int = 64
    """transitions per optimizer step"""
    lr: float = 1e-3
    """learning rate"""
    gamma: float = 0.98
    """discount factor"""
    target_interval: int = 100
    """optimizer steps between two updates of the target network"""
    eps_end: float = 0.1
    """final epsilon, the probability of a random action"""
    annealing_frames: int = 8_000
    """frames over which epsilon falls linearly from 1 to eps_end"""

    eval_interval: int = 1_000
    """frames between two evaluations"""
    eval_episodes: int = 100
    """episodes per evaluation, played by the greedy policy"""
    log_interval: int = 500
    """frames in a log window"""
    save_interval: int = 5_000
    """frames between two checkpoints"""


class BitFlip(gym.Env[dict[str, Any], int]):
    """Each action flips a bit; -1 a step, and 0 with the wanted bits, which ends the episode."""

    def __init__(self, bits: int) -> None:
        each = spaces.Box(0.0, 1.0, (bits,))
        names = ("observation", "achieved_goal", "desired_goal")
        self.observation_space = spaces.Dict(dict.fromkeys(names, each))
        self.action_space = spaces.Discrete(bits)
        self.bits = self.goal = np.zeros(bits, np.float32)
        self.time = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.time = 0
        self.bits, self.goal = self.np_random.integers(2, size=(2, len(self.bits))).astype("f4")
        return self._observe(), {}

    def step(self, action: int) -> Any:
        self.time += 1
        self.bits = self.bits.copy()
        self.bits[action] = 1 - self.bits[action]
        reward = float(self.compute_reward(self.bits, self.goal, {}))
        return self._observe(), reward, reward == 0, self.time == len(self.bits), {}

    def compute_reward(self, achieved: Any, desired: Any, info: Any) -> Any:
        return -(achieved != desired).any(-1).astype(np.float32)

    def compute_terminated(self, achieved: Any, desired: Any, info: Any) -> Any:
        return self.compute_reward(achieved, desired, info) == 0

    def _observe(self) -> dict[str, Any]:
        names = ("observation", "achieved_goal", "desired_goal")
        return dict(zip(names, (self.bits, self.bits, self.goal), strict=True))


def main(args: Args) -> None:
    torch.manual_seed(args.seed)
    run = Run(args, "dqn_bit_flip")

    network = mlp(2 * args.bits, args.bits, (256, 256), torch.nn.ReLU)
    q_network = QNetwork(network, in_keys=["observation", "desired_goal"])
    policy = EpsilonGreedy(
        q_network, eps_end=args.eps_end, annealing_num_steps=args.annealing_frames
    )
    loss_module = DQNLoss(
        q_network, gamma=args.gamma, loss_function="smooth_l1", double_dqn=True
    ).to(run.device)
    buffer = ReplayBuffer(
        100_000, batch_size=args.batch_size, keys=loss_module.in_keys, device=run.device
    )
    replay = ReplayBufferTrainer(buffer)
    if args.her != "none":
        env = BitFlip(args.bits)
        replay = HindsightReplay(
            buffer, env.compute_reward, env.compute_terminated, strategy=args.her
        )

    trainer = Trainer(
        collector=VectorCollector(
            partial(BitFlip, args.bits),
            policy,
            num_envs=args.num_envs,
            frames_per_batch=args.num_envs * args.steps_per_batch,
        ),
        total_frames=args.total_frames,
        optim_steps_per_batch=args.optim_steps_per_batch,
        loss_module=loss_module,
        optimizer=FlatAdam(loss_module.parameters(), lr=args.lr),
        clip_norm=10.0,
        **run.trainer_options,
    )
    LogEpisodes().register(trainer)
    replay.register(trainer)
    updater = HardUpdate(loss_module, value_network_update_interval=args.target_interval)
    TargetNetUpdaterHook(updater).register(trainer)
    Evaluate(
        partial(BitFlip, args.bits),
        q_network,
        every=Every(frames=args.eval_interval),
        episodes=args.eval_episodes,
    ).register(trainer)
    run.train(trainer)


if __name__ == "__main__":
    launch(main)
