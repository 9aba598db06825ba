"""Algorithms on any observation and any action: they train, evaluate, save a policy and resume."""

from __future__ import annotations

import re
from functools import partial
from itertools import product

import gymnasium as gym
import numpy as np
import pytest
from any_env import AnyEnv
from gymnasium import spaces
from marks import slow_except
from test_algorithms import SMALL_WORLD
from torch import nn

from hooktrainer import algorithms
from hooktrainer.errors import ConfigError
from hooktrainer.loop import Progress
from hooktrainer.policies import PolicyRecorder, load_policy, play_episodes

VECTOR = spaces.Box(-1, 1, (3,))
OBSERVATIONS = {
    "vector": VECTOR,
    "matrix of float64": spaces.Box(-1, 1, (2, 3), np.float64),
    "bytes": spaces.Box(0, 255, (6,), "uint8"),
    "image": spaces.Box(0, 255, (9, 9, 3), "uint8"),
    "discrete": spaces.Discrete(5, start=1),
    "multi discrete": spaces.MultiDiscrete([3, 70]),
    "multi binary": spaces.MultiBinary(4),
    "nested": spaces.Dict(
        image=spaces.Box(0, 255, (9, 9, 3), "uint8"),
        state=VECTOR,
        rest=spaces.Dict(pair=spaces.Tuple((spaces.Discrete(3), spaces.MultiBinary(2)))),
    ),
    "tuple": spaces.Tuple((VECTOR, spaces.Discrete(2))),
}
BOX = spaces.Box(np.array([-2, 0], "f4"), np.array([2, 8], "f4"))
CHOICE = spaces.Discrete(3)
ACTIONS = {
    "discrete": spaces.Discrete(3, start=-1),
    "multi discrete": spaces.MultiDiscrete([3, 2], start=[1, 0]),
    "matrix of choices": spaces.MultiDiscrete([[3, 2], [2, 2]]),
    "multi binary": spaces.MultiBinary(3),
    "box": BOX,
    "matrix": spaces.Box(-1, 1, (2, 2)),
    "dict": spaces.Dict(
        move=BOX, shoot=spaces.Discrete(3), rest=spaces.Tuple((spaces.MultiBinary(2), VECTOR))
    ),
    "tuple": spaces.Tuple((spaces.Discrete(2), spaces.Discrete(3, start=4))),
}
FIELDS = {"num_envs": 2, "steps_per_batch": 16, "num_cells": (8,), "progress_bar": False}
REPLAY = {"init_random_frames": 32, "batch_size": 8, "buffer_size": 200, "steps_per_batch": 8}
MAKES = {
    "ppo": {"num_epochs": 1, "mini_batch_size": 16},
    "a2c": {},
    "reinforce": {},
    "trpo": {"num_epochs": 1, "mini_batch_size": 16},
    **dict.fromkeys(["dqn", "dsac"], REPLAY | {"optim_steps_per_batch": 2}),
    **dict.fromkeys(["sac", "td3", "ddpg"], REPLAY | {"optim_steps_per_batch": 2}),
    "dreamer": {**REPLAY, **SMALL_WORLD},
    "mbpo": {**REPLAY, "fit_interval": 32, "fit_steps": 2, "num_rollouts": 8},
}


def run(name, env, frames=96, **kwargs):
    options = {**FIELDS, **MAKES[name], "eval_interval": 64, "eval_episodes": 2, **kwargs}
    return algorithms.get(name)(env=env, total_frames=frames, tuned=False, **options)


# Networks are built alike for all: of the others each sees one observation, of several parts.
@pytest.mark.parametrize(
    ("name", "observation"),
    slow_except(
        [
            *product(["ppo"], OBSERVATIONS),
            *product(["dqn", "sac", "td3", "trpo", "dsac", "dreamer"], ["nested"]),
            *product(["dqn", "sac", "dreamer"], ["image"]),
        ],
        *range(len(OBSERVATIONS)),
        ("dqn", "nested"),
        ("dqn", "image"),
        ("dreamer", "image"),
    ),
)
def test_any_observation(name, observation, tmp_path):
    action = spaces.Discrete(3) if name in ("dqn", "dsac") else BOX
    env = partial(AnyEnv, OBSERVATIONS[observation], action)
    normalize = observation in ("nested", "vector")
    trainer = run(name, env, run_dir=tmp_path / "a", normalize_observations=normalize).train()
    assert trainer.collected_frames == 96
    values = [v for n, v in trainer.metrics.all_latest().items() if n.startswith("loss/")]
    assert values
    assert np.isfinite(values).all()


# A2C's, REINFORCE's and TRPO's policies are PPO's.
@pytest.mark.parametrize(
    ("name", "action"),
    [
        *product(["ppo", "sac"], ACTIONS),
        *product(["a2c", "reinforce", "trpo", "dreamer"], ["dict"]),
        *product(["td3", "mbpo"], ["matrix"]),
    ],
)
def test_any_action(name, action):
    trainer = run(name, partial(AnyEnv, VECTOR, ACTIONS[action])).train()
    assert trainer.collected_frames == 96


@pytest.mark.parametrize(
    ("name", "action", "size"),
    [
        ("ppo", spaces.Discrete(4), 4),
        ("ppo", spaces.MultiDiscrete([3, 2]), 5),
        ("a2c", spaces.Discrete(4), 4),
        ("trpo", spaces.MultiDiscrete([3, 2]), 5),
        ("dqn", spaces.Discrete(4), 4),
        ("dsac", spaces.Discrete(4), 4),
        ("sac", spaces.MultiDiscrete([3, 2]), 5),
    ],
)
def test_what_a_mask_in_the_info_forbids_is_never_done(name, action, size):
    env = partial(AnyEnv, VECTOR, action, mask_size=size)  # which refuses it
    trainer = run(name, env, eps_end=0.5) if name == "dqn" else run(name, env)
    trainer.train()


@pytest.mark.parametrize(
    ("observation", "action"),
    [
        ("nested", "dict"),
        ("tuple", "tuple"),
        ("image", "matrix of choices"),
        ("multi discrete", "multi binary"),
    ],
)
def test_saved_policies_play(observation, action, tmp_path):
    env = partial(AnyEnv, OBSERVATIONS[observation], ACTIONS[action])
    distribution = "squashed" if action == "dict" else "gaussian"
    actor = run("ppo", env, action_distribution=distribution).train().loss_module.actor_network
    recorder = PolicyRecorder(tmp_path, actor, env)
    recorder.save(Progress(frames=1))
    policy = load_policy(tmp_path / "latest")
    [first, second] = play_episodes(policy, episodes=2, env=env())
    assert (first.length, second.length) == (9, 9)
    space = env().observation_space
    space.seed(1)
    observations = [space.sample() for _ in range(4)]
    single = [policy(one) for one in observations]
    stacked = gym.vector.utils.concatenate(
        space, observations, gym.vector.utils.create_empty_array(space, 4)
    )
    together = policy(stacked)
    again = list(
        gym.vector.utils.iterate(gym.vector.utils.batch_space(ACTIONS[action], 4), together)
    )
    for one, other in zip(single, again, strict=True):
        assert _close(one, other)


def _close(one, other):
    if isinstance(one, dict):
        return all(_close(one[key], other[key]) for key in one)
    if isinstance(one, tuple):
        return all(map(_close, one, other))
    return np.allclose(one, other, rtol=1e-4, atol=1e-5)


class _Pixels(nn.Module):
    """Features of an image of 9 x 9 pixels."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(9 * 9 * 3, 4)

    def forward(self, image):
        return self.linear(image.flatten(1) / 255)


class _Bits(nn.Linear):
    def forward(self, bits):
        return super().forward(bits.float())


def test_every_encoder_of_a_key_is_used():
    own = {("rest", "pair", "1"): _Bits(2, 4)}
    options = {"network": own, "share_network": False}
    loss = run("ppo", partial(AnyEnv, OBSERVATIONS["nested"], BOX), **options).trainer().loss_module
    for network in (loss.actor_network, loss.critic_network):
        assert any(isinstance(module, _Bits) for module in network.modules())


def test_policy_and_value_share_a_trunk_where_there_are_images_or_where_asked():
    def networks(observation, **kwargs):
        made = run("ppo", partial(AnyEnv, OBSERVATIONS[observation], BOX), **kwargs).trainer()
        return made.loss_module.actor_network, made.loss_module.critic_network

    for observation, kwargs in (
        ("image", {}),
        ("image", {"network": "impala"}),
        ("image", {"network": lambda space: _Pixels()}),
        ("nested", {"network": {"image": "small"}}),
        ("nested", {"network": {"image": _Pixels()}}),
        ("vector", {"share_network": True}),
    ):
        actor, critic = networks(observation, **kwargs)
        assert actor.trunk is critic.trunk is not None
    for observation, kwargs in (
        ("image", {"share_network": False}),
        ("image", {"share_network": False, "network": "impala"}),
        ("vector", {}),
        ("vector", {"network": "flat"}),
        ("vector", {"network": nn.Linear(3, 4)}),
    ):
        actor, critic = networks(observation, **kwargs)
        assert actor.trunk is critic.trunk is None


@pytest.mark.parametrize(
    ("env", "options", "message"),
    [
        (partial(AnyEnv, spaces.Text(5), BOX), {}, "Text.*no tensor form"),
        (partial(AnyEnv, VECTOR, spaces.Text(5)), {}, "ppo.*Text"),
        (partial(AnyEnv, VECTOR, BOX), {"network": "nature"}, "nature.*for images.*leave network"),
        (
            partial(AnyEnv, VECTOR, spaces.Discrete(4), 3),
            {},
            "Discrete.4.*action_mask of 3.*one of 4",
        ),
        (partial(AnyEnv, VECTOR, BOX), {"network": "natur"}, "Did you mean nature"),
        (
            partial(AnyEnv, OBSERVATIONS["nested"], BOX),
            {"network": {"imag": "small"}},
            r"\['imag'\]: the observation has the keys \['image', 'state', .*; name one of these",
        ),
        (partial(AnyEnv, VECTOR, BOX), {"network": nn.Linear(4, 2)}, "does not map.*observation"),
        (
            partial(AnyEnv, VECTOR, spaces.Box(-np.inf, np.inf, (1,))),
            {"action_distribution": "beta"},
            "bounded actions",
        ),
        (
            partial(AnyEnv, VECTOR, spaces.Box(np.float32([-1, 0]), np.float32([1, 0]))),
            {"action_distribution": "beta"},
            "ppo: the actions of .* it needs bounded actions, low below high: bound or leave",
        ),
        (
            partial(AnyEnv, VECTOR, spaces.MultiDiscrete([[3, 2], [2, 2]])),
            {"action_distribution": "squashed"},
            "action_distribution='squashed' is for continuous actions.*leave it out",
        ),
        (
            partial(AnyEnv, VECTOR, spaces.Discrete(3)),
            {"log_std": -1.0},
            "log_std=-1.0 is for continuous gaussian actions: leave it out",
        ),
        (
            partial(AnyEnv, VECTOR, BOX),
            {"log_std": -1.0, "action_distribution": "squashed"},
            "log_std=-1.0 is for continuous gaussian actions: leave it out",
        ),
        (
            partial(AnyEnv, VECTOR, spaces.Dict(a=spaces.Box(0, 3, (2,), "int32"))),
            {},
            "a Box of int32: make it a MultiDiscrete",
        ),
        (partial(AnyEnv, VECTOR, spaces.Dict({})), {}, "actions of .* nothing to do"),
        (partial(AnyEnv, spaces.Dict({}), BOX), {}, r"observation space Dict\(\) is empty"),
    ],
)
def test_what_does_not_fit_is_one_line_before_the_first_batch(env, options, message, tmp_path):
    with pytest.raises(ConfigError, match=message) as error:
        run("ppo", env, run_dir=tmp_path / "a", **options).trainer()
    assert "\n" not in str(error.value)
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("where", ["info", "observation"])
@pytest.mark.parametrize(
    ("name", "action"), [("ppo", BOX), ("ppo", spaces.Dict(move=BOX)), ("sac", BOX)]
)
def test_a_mask_of_what_is_not_chosen_from_is_refused(where, name, action):
    class Env(AnyEnv):
        def _info(self):
            return {"action_mask": np.ones(4, bool)} if where == "info" else {}

    seen = VECTOR if where == "info" else spaces.Dict(x=VECTOR, action_mask=spaces.MultiBinary(4))
    with pytest.raises(ConfigError, match=r"action_mask of 4.*leave the mask out") as error:
        run(name, partial(Env, seen, action)).trainer()
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "action", "message"),
    [
        ("dqn", spaces.MultiDiscrete([[3, 2]]), "sac, ppo, a2c and reinforce take MultiDiscrete"),
        ("dqn", BOX, "sac, td3, ddpg, ppo, a2c and reinforce take continuous"),
        ("td3", ACTIONS["dict"], "sac, ppo, a2c and reinforce take Dict"),
        ("ddpg", CHOICE, "dqn, dsac, sac, ppo, a2c and reinforce take discrete"),
    ],
)
def test_who_takes_the_actions_is_said(name, action, message):
    with pytest.raises(ConfigError, match=rf"{name} is for .*: {message}") as error:
        run(name, partial(AnyEnv, VECTOR, action)).trainer()
    assert "\n" not in str(error.value)
    takers, kind = message.split(" take ")
    for taker in re.split(", | and ", takers):
        wanted = algorithms.get(taker).actions
        assert wanted in ("any", "bounded") or kind in wanted


@pytest.mark.parametrize("at", [0, 5])
@pytest.mark.parametrize("name", ["ppo", "dqn"])
def test_a_mask_that_forbids_everything_is_refused(name, at):
    class Env(AnyEnv):
        def __init__(self):
            super().__init__(VECTOR, spaces.MultiDiscrete([2, 3]) if name == "ppo" else CHOICE, 5)
            self._mask_size = 5 if name == "ppo" else 3

        def _info(self):
            info = super()._info()
            if self._steps == at:
                info["action_mask"][-3:] = False
            return info

        def _allows(self, action):
            return True

    with pytest.raises(ConfigError, match=r"action_mask of environment 0.*allows none") as error:
        run(name, Env).train()
    assert "\n" not in str(error.value)


@pytest.mark.usefixtures("warm_python")
@pytest.mark.parametrize("action", ["dict", "matrix"])
def test_drawn_actions_are_clipped_as_in_training_and_the_environment_is_made_again(
    action, tmp_path
):
    env, path = partial(AnyEnv, VECTOR, ACTIONS[action]), tmp_path / "a"
    run("ppo", env, run_dir=path, log_std=2.0, snapshots=2).train()
    drawing = load_policy(path / "policies" / "latest", deterministic=False, seed=0, trust=True)
    made = drawing.make_env() if drawing.saved.environment.reason is None else env()
    assert {e.length for e in play_episodes(drawing, episodes=3, env=made)} == {9}
    observations = np.zeros((200, 3), "f4")
    batch = drawing(observations)
    for one in gym.vector.utils.iterate(gym.vector.utils.batch_space(ACTIONS[action], 200), batch):
        assert ACTIONS[action].contains(one)
