"""Values may see more than policies do: asymmetric actor-critic."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

from hooktrainer import algorithms, load_policy
from hooktrainer.errors import ConfigError

BOX = spaces.Box(-1.0, 1.0, (2,))
SMALL = {"total_frames": 128, "progress_bar": False, "eval_episodes": 1, "num_envs": 4}


class Guess(gym.Env):
    """An environment of Gymnasium with an observation for values."""

    action_space = spaces.Box(-1.0, 1.0, (1,))
    observation_space = spaces.Dict({"policy": BOX, "critic": spaces.Box(-1.0, 1.0, (3,))})

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self._observe(), {}

    def step(self, action):
        self.steps += 1
        return self._observe(), 1.0, self.steps > 5, False, {}

    def _observe(self):
        return {"policy": np.zeros(2, np.float32), "critic": np.ones(3, np.float32)}


@pytest.mark.parametrize(
    ("held", "policy", "value"),
    [
        (["observation", "critic"], ["observation"], ["critic"]),
        (["policy", "critic"], ["policy"], ["critic"]),
        (["policy", "teacher", "critic"], ["policy"], ["critic"]),
        (["image", "speed", "critic"], ["image", "speed"], ["critic"]),
        (["policy", "teacher"], ["policy", "teacher"], ["policy", "teacher"]),
    ],
)
def test_who_reads_what(held, policy, value):
    class Holding(Guess):
        observation_space = spaces.Dict(dict.fromkeys(held, BOX))

        def _observe(self):
            return dict.fromkeys(held, np.zeros(2, np.float32))

    loss = algorithms.PPO(env=Holding, steps_per_batch=8, **SMALL).trainer().loss_module
    assert sorted(loss.actor_network.in_keys) == sorted(policy)
    assert sorted(loss.critic_network.in_keys) == sorted(value)


@pytest.mark.parametrize("memory", [None, "gru"])
@pytest.mark.parametrize("name", ["ppo", "a2c"])
def test_the_value_reads_the_critics_part_alone(name, memory):
    trainer = algorithms.get(name)(env=Guess, memory=memory, steps_per_batch=8, **SMALL).trainer()
    loss = trainer.loss_module
    assert loss.actor_network.in_keys[0] == "policy"
    assert "critic" not in loss.actor_network.in_keys
    assert loss.critic_network.in_keys == ["critic"]
    trainer.train()
    assert trainer.collected_frames == 128


class Choose(Guess):
    """The same with discrete actions."""

    action_space = spaces.Discrete(2)


@pytest.mark.parametrize(
    ("name", "env"), [("sac", Guess), ("td3", Guess), ("ddpg", Guess), ("dsac", Choose)]
)
def test_q_functions_read_the_critics_part_alone(name, env):
    options = {**SMALL, "init_random_frames": 16, "batch_size": 16}
    trainer = algorithms.get(name)(env=env, **options).trainer()
    loss = trainer.loss_module
    assert loss.actor_network.in_keys == ["policy"]
    trainer.train()
    assert {"policy", "critic", ("next", "critic")} <= set(loss.in_keys)
    with pytest.raises(ConfigError, match="share the policy's: leave memory out, or 'critic'"):
        algorithms.get(name)(env=env, memory="gru", **options).trainer()


def test_networks_of_ones_own_go_to_who_sees_their_part():
    made = []

    def encoder(space: spaces.Space) -> torch.nn.Module:
        made.append(sorted(space.spaces))
        return torch.nn.LazyLinear(4)

    algorithms.get("ppo")(env=Guess, network=encoder, steps_per_batch=8, **SMALL).trainer()
    assert made == [["policy"], ["critic"]]
    by_key = {"critic": torch.nn.Linear(3, 7), "policy": torch.nn.Linear(2, 5)}
    trainer = algorithms.get("ppo")(env=Guess, network=by_key, steps_per_batch=8, **SMALL).trainer()
    shapes = [tuple(p.shape) for p in trainer.loss_module.critic_network.parameters()]
    assert (7, 3) in shapes
    assert (5, 2) not in shapes
    with pytest.raises(
        ConfigError, match=r"\['polcy'\]: the observation has the keys \['policy'\]"
    ):
        algorithms.get("ppo")(
            env=Guess, network={"polcy": torch.nn.Linear(2, 5)}, **SMALL
        ).trainer()


@pytest.mark.usefixtures("warm_python")
def test_a_saved_policy_acts_without_what_the_critic_sees(tmp_path):
    run = algorithms.get("ppo")(
        env=Guess, steps_per_batch=8, run_dir=tmp_path / "run", snapshots=2, **SMALL
    )
    run.train()
    policy = load_policy(tmp_path / "run")
    seen = Guess().reset()[0]
    assert policy(seen).shape == (1,)
    assert policy({"policy": seen["policy"]}).shape == (1,)
