"""PPO with a recurrent policy balances a pole whose velocities are hidden.

    python recipes/ppo_masked_cartpole_rnn.py --seed 1
    python recipes/ppo_masked_cartpole_rnn.py --memoryless    # what a policy without memory reaches

The observation holds the positions of cart and pole, not their velocities, so a policy has to
remember. Policy and critic stand on one trunk with a GRU: while collecting it goes one step at a
time, and the collector carries its hidden state; while optimizing it goes over whole sequences,
reset where an episode begins. `hooktrainer train ppo --memory gru` does the same in one
line. The method is Proximal Policy Optimization (Schulman et al., 2017, arXiv:1707.06347); the task
is from Wierstra et al., 2007, Solving Deep Memory POMDPs.
"""

from __future__ import annotations

from dataclasses import dataclass

import gymnasium as gym
import numpy as np
import torch
from torch import nn

from hooktrainer import (
    Evaluate,
    Every,
    LogEpisodes,
    MiniBatches,
    RewardScaler,
    Schedule,
    Trainer,
    ValueEstimatorHook,
    VectorCollector,
)
from hooktrainer.networks import (
    CategoricalPolicy,
    GRUMemory,
    MemoryTrunk,
    ValueNetwork,
    mlp,
    orthogonal_init,
)
from hooktrainer.objectives import GAE, ClipPPOLoss
from hooktrainer.optim import FlatAdam
from hooktrainer.run import Run, RunConfig, launch


@dataclass(frozen=True, kw_only=True)
class Args(RunConfig):
    """Options of the run."""

    total_frames: int = 500_000
    """frames after which the run ends, solved or not"""
    num_envs: int = 16
    """number of parallel environments"""
    steps_per_batch: int = 64
    """steps per environment in each batch"""
    num_epochs: int = 8
    """epochs over each batch"""
    envs_per_mini_batch: int = 4
    """environments whose steps make up a mini-batch"""

    memoryless: bool = False
    """whether to leave out the GRU, for comparison"""
    hidden_size: int = 64
    """size of the GRU's hidden state"""
    lr: float = 2e-3
    """initial learning rate; falls linearly to zero at total_frames"""
    gamma: float = 0.99
    """discount factor"""
    lmbda: float = 0.95
    """lambda of generalized advantage estimation"""
    clip_epsilon: float = 0.2
    """clipping range of the probability ratio around 1"""
    max_grad_norm: float = 0.5
    """the gradient is clipped to this norm"""

    eval_interval: int = 20_000
    """frames between two evaluations"""
    eval_episodes: int = 50
    """episodes per evaluation, played by the deterministic policy"""
    stop_at: float = 475.0
    """mean evaluation return at which the run stops, the task solved"""


class Positions(gym.ObservationWrapper):
    """CartPole without its velocities: where the cart is, and at which angle the pole."""

    def __init__(self) -> None:
        super().__init__(gym.make("CartPole-v1"))
        space = self.env.observation_space
        assert isinstance(space, gym.spaces.Box)
        self.observation_space = gym.spaces.Box(space.low[[0, 2]], space.high[[0, 2]])

    def observation(self, observation: np.ndarray) -> np.ndarray:
        return observation[[0, 2]]


def main(args: Args) -> None:
    torch.manual_seed(args.seed)
    run = Run(args, "ppo_masked_cartpole_rnn")

    if args.memoryless:
        trunk: nn.Module = nn.Sequential(nn.Linear(2, args.hidden_size), nn.Tanh())
        in_keys = ["observation"]
    else:
        trunk = MemoryTrunk(nn.Identity(), GRUMemory(2, args.hidden_size))
        in_keys = trunk.in_keys
    logits = orthogonal_init(mlp(args.hidden_size, 2, (64,)), output_gain=0.01)
    value = orthogonal_init(mlp(args.hidden_size, 1, (64,)))
    actor = CategoricalPolicy(logits, in_keys, trunk=trunk)
    critic = ValueNetwork(value, in_keys, trunk=trunk)
    loss_module = ClipPPOLoss(
        actor,
        critic,
        clip_epsilon=args.clip_epsilon,
        entropy_coeff=0.0,
        critic_coeff=0.5,
        loss_critic_type="l2",
        normalize_advantage=True,
        diagnostics=4,
    ).to(run.device)
    optimizer = FlatAdam(loss_module.parameters(), lr=args.lr, eps=1e-5)
    frames_per_batch = args.num_envs * args.steps_per_batch

    trainer = Trainer(
        collector=VectorCollector(
            Positions, actor, num_envs=args.num_envs, frames_per_batch=frames_per_batch
        ),
        total_frames=args.total_frames,
        num_epochs=args.num_epochs,
        optim_steps_per_batch=None,  # as many as there are mini-batches
        loss_module=loss_module,
        optimizer=optimizer,
        clip_norm=args.max_grad_norm,
        **run.trainer_options,
    )
    LogEpisodes().register(trainer)
    RewardScaler(args.gamma).register(trainer)  # else the critic's loss rules the shared features
    advantages = GAE(gamma=args.gamma, lmbda=args.lmbda, value_network=critic)
    ValueEstimatorHook(advantages).register(trainer)
    MiniBatches(args.envs_per_mini_batch, loss_module.in_keys, sequences=True).register(trainer)
    Schedule.linear(optimizer, "lr", args.lr, 0.0).register(trainer)
    Evaluate(
        Positions,
        actor,
        every=Every(frames=args.eval_interval),
        episodes=args.eval_episodes,
        stop_at=args.stop_at,
    ).register(trainer)
    run.train(trainer)


if __name__ == "__main__":
    launch(main)
