"""What the TorchRL benchmarks share: environments, and the hooks that drive the meter."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import torch
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv
from measure import Act, Meter
from tensordict import TensorDict, TensorDictBase
from torchrl.data import Bounded, Categorical, Composite, Unbounded
from torchrl.envs import Compose, EnvBase, GymEnv, RewardSum, SerialEnv, StepCounter, TransformedEnv
from torchrl.trainers import Trainer


class VectorCartPole(EnvBase):
    """Gymnasium's vectorised CartPole as a TorchRL environment of batch size `[num_envs]`.

    It spares TorchRL one TensorDict per environment and step, which `SerialEnv` pays.
    """

    def __init__(self, num_envs: int) -> None:
        super().__init__(device="cpu", batch_size=[num_envs])
        self.env = CartPoleVectorEnv(num_envs, gym.spec("CartPole-v1").max_episode_steps)
        box = self.env.single_observation_space
        low, high = (torch.from_numpy(x).expand(num_envs, 4) for x in (box.low, box.high))
        self.observation_spec = Composite(
            observation=Bounded(low, high, dtype=torch.float32), shape=[num_envs]
        )
        self.action_spec = Categorical(2, shape=[num_envs])
        self.reward_spec = Unbounded([num_envs, 1])
        flag = Categorical(2, shape=[num_envs, 1], dtype=torch.bool)
        self.done_spec = Composite(
            done=flag, terminated=flag.clone(), truncated=flag.clone(), shape=[num_envs]
        )

    def _reset(self, tensordict: TensorDictBase | None = None, **_: object) -> TensorDictBase:
        env, num_envs = self.env, self.batch_size[0]
        mask = None if tensordict is None else tensordict.get("_reset", None)
        if mask is None:
            env.reset()
        else:
            rows = mask.view(num_envs).numpy()
            env.state[:, rows] = env.np_random.uniform(env.low, env.high, (4, int(rows.sum())))
            env.steps[rows] = 0
        flag = torch.zeros(num_envs, 1, dtype=torch.bool)
        return TensorDict(
            {
                "observation": torch.from_numpy(env.state.T.astype(np.float32)),
                "done": flag,
                "terminated": flag.clone(),
                "truncated": flag.clone(),
            },
            batch_size=self.batch_size,
        )

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        observation, reward, terminated, truncated, _ = self.env.step(
            tensordict.get("action").numpy()
        )
        self.env.prev_done[:] = False  # TorchRL resets finished environments itself
        return TensorDict(
            {
                "observation": torch.from_numpy(observation),
                "reward": torch.from_numpy(reward).unsqueeze(-1),
                "done": torch.from_numpy(terminated | truncated).unsqueeze(-1),
                "terminated": torch.from_numpy(terminated).unsqueeze(-1),
                "truncated": torch.from_numpy(truncated).unsqueeze(-1),
            },
            batch_size=self.batch_size,
        )

    def _set_seed(self, seed: int | None) -> None:
        self.env.reset(seed=seed)


def cartpole(kind: str, num_envs: int, seed: int) -> EnvBase:
    """Return `num_envs` CartPoles as one TorchRL environment.

    All of them sum up the rewards of each episode, as the peers do.

    Args:
        kind: `default` is how TorchRL's own trainer configurations build it: `SerialEnv` of
            `GymEnv`, each with `StepCounter` and `RewardSum`; `lean` sums the rewards once for
            all of them; `vector` is `VectorCartPole`.
        num_envs: how many environments.
        seed: seed of their first episodes.
    """
    env: EnvBase
    if kind == "default":
        env = SerialEnv(
            num_envs, lambda: TransformedEnv(gym_env(), Compose(StepCounter(), reward_sum()))
        )
    elif kind == "lean":
        env = TransformedEnv(SerialEnv(num_envs, gym_env), reward_sum())
    else:
        env = TransformedEnv(VectorCartPole(num_envs), reward_sum())
    env.set_seed(seed)
    return env


def reward_sum() -> RewardSum:
    """Return the transform that sums rewards, under the name that TorchRL's trainers log."""
    return RewardSum(in_keys=["reward"], out_keys=["reward_sum"])


def gym_env() -> EnvBase:
    """Return one CartPole with integer actions."""
    return GymEnv("CartPole-v1", categorical_action_encoding=True)


def pendulum(seed: int) -> EnvBase:
    """Return one Pendulum that sums up the rewards of each episode."""
    env = TransformedEnv(SerialEnv(1, lambda: GymEnv("Pendulum-v1")), reward_sum())
    env.set_seed(seed)
    return env


class Tick:
    """Hooks that report every batch to the meter, and stop the run when it returns True.

    Args:
        meter: the meter.
        trainer: a TorchRL trainer.
        act: the deterministic policy.
        every: least number of frames between two ticks.
    """

    def __init__(self, meter: Meter, trainer: Trainer, act: Act, every: int = 1) -> None:
        self.meter = meter
        self.trainer = trainer
        self.act = act
        self.every = every
        self._next = 0

    def register(self) -> None:
        """Register the hooks with the trainer."""
        if self.meter.run.solve:
            self.trainer.register_op("pre_steps_log", self.returns)
        self.trainer.register_op("post_steps", self)

    def returns(self, batch: TensorDictBase) -> None:
        """Note the returns of finished episodes."""
        with self.meter.paused():
            done = batch["next", "done"]
            self.meter.returns.extend(batch["next", "reward_sum"][done].tolist())

    def __call__(self) -> None:
        """Tick."""
        frames = self.trainer.collected_frames
        if frames < min(self._next, self.meter.run.frames):
            return
        self._next = frames + self.every
        if self.meter.tick(frames, self.act):
            self.trainer.request_stop("the benchmark is over")
