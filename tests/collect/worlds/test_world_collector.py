"""`VectorCollector`: the batches of `VectorCollector`, without waiting for the device."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from gymnasium import spaces
from no_waiting import NoWaiting
from toy_worlds import Ladder

from hooktrainer import ConfigError, OverlappedCollector, VectorCollector
from hooktrainer.collect.worlds.world_ids import make_tensor_world
from hooktrainer.errors import StateMismatchError
from hooktrainer.networks import CategoricalPolicy, mlp
from hooktrainer.testing import tiny_trainer

CARTPOLE = "torch/CartPole-v1"


def policy(device: str = "cpu") -> CategoricalPolicy:
    torch.manual_seed(0)
    return CategoricalPolicy(mlp(4, 2)).to(device)


def test_batches_are_those_of_gymnasiums_environments():
    """The same entries, shapes and types; the same meaning is what `check_collector` looks at."""
    found = []
    for env in (CARTPOLE, "CartPole-v1"):
        batch = VectorCollector(env, policy(), num_envs=3, frames_per_batch=90).collect()
        items = batch.items(True, True)
        found.append({key: (value.shape, value.dtype, value.device) for key, value in items})
    assert found[0] == found[1]


def test_returns_and_lengths_go_on_from_batch_to_batch():
    collector = VectorCollector(Ladder, num_envs=2, frames_per_batch=6)  # 3 steps of each
    rewards, lengths = [], []
    for _ in range(3):
        following = collector.collect()["next"]
        rewards += following["episode_reward"][0, :, 0].tolist()
        lengths += following["step_count"][0, :, 0].tolist()
    # A ladder of 4 rungs: the reward of a step is the rung that it leads to.
    assert lengths == [1, 2, 3, 4, 1, 2, 3, 4, 1]
    assert rewards == [1, 3, 6, 10, 1, 3, 6, 10, 1]


def test_observations_that_do_not_fit_their_space_are_refused():
    class Wide(Ladder):
        observation_space = spaces.Box(0, 9, (3,))  # one number would be repeated

    collector = VectorCollector(Wide, num_envs=2, frames_per_batch=6)
    with pytest.raises(
        ConfigError, match=r"'observation' of .* has the shape \[2, 1\], not \[2, 3\]"
    ):
        collector.collect()


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("warm_up", [False, True])
def test_collecting_waits_for_no_device(device, warm_up):
    """On ``meta`` there is nothing to read, and each copy to or from it is seen."""
    collector = VectorCollector(
        CARTPOLE,
        policy(device),
        num_envs=4,
        frames_per_batch=80,
        init_random_frames=10_000 * warm_up,
        device=device,
    )
    first = collector.collect()  # checks and lays out
    with NoWaiting():
        batch = collector.collect()
    assert batch.device == first.device == torch.device(device)
    assert batch["next", "observation"].shape == (4, 20, 4)


class Broken(Ladder):
    """Its reward on the second rung is NaN."""

    def transition(self, state: Any, action: torch.Tensor) -> Any:
        rung, reward, ends = super().transition(state, action)
        return rung, reward.masked_fill((reward == 2) & (action == 1), torch.nan), ends


def test_returns_on_a_device_are_those_of_a_cpu_also_after_a_reward_that_is_nan(monkeypatch):
    def returns() -> torch.Tensor:
        collector = VectorCollector(Broken, num_envs=3, frames_per_batch=3 * 7)
        return torch.cat([collector.collect()["next", "episode_reward"] for _ in range(4)], 1)

    expected = returns()
    assert expected.isnan().any()
    assert (expected == 1 + 2 + 3 + 4).any()
    monkeypatch.setattr(torch.Tensor, "is_cpu", property(lambda tensor: False))
    torch.testing.assert_close(returns(), expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("env", ["MountainCarContinuous-v0", "torch/MountainCarContinuous-v0"])
def test_continuous_actions_are_clipped_for_the_environment_alone(env):
    def far(observation: torch.Tensor) -> torch.Tensor:
        return torch.full((2, 1), 5.0)

    options: dict[str, Any] = {"num_envs": 2, "frames_per_batch": 4}
    plain = VectorCollector(env, far, **options).collect()
    clipped = VectorCollector(env, far, clip_actions=True, **options).collect()
    assert (clipped["action"] == 5.0).all()
    torch.testing.assert_close(plain["next", "reward"], torch.full((2, 2, 1), -2.5))
    torch.testing.assert_close(clipped["next", "reward"], torch.full((2, 2, 1), -0.1))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"env": CARTPOLE}, "num_envs is missing"),
        ({"env": CARTPOLE, "num_envs": 3, "frames_per_batch": 10}, "not a multiple of num_envs=3"),
        ({"env": CARTPOLE, "num_envs": 2, "frame_skip": 4}, "counts 1 frames a step"),
        ({"env": CARTPOLE, "num_envs": 2, "env_kwargs": {"gravity": 1}}, "cannot be made with"),
        ({"env": CARTPOLE, "num_envs": 2, "env_kwargs": {"device": "cpu"}}, "cannot be made with"),
        (
            {"env": lambda num_envs: object(), "num_envs": 2},
            "object is no tensor world: give a TensorWorld",
        ),
        ({"env": lambda num_envs: Ladder(3), "num_envs": 2}, "of 3 environments instead of 2"),
        ({"env": Ladder(3), "num_envs": 2}, "built already, with 3 environments"),
    ],
)
def test_invalid_arguments_are_refused(arguments, message):
    with pytest.raises(ConfigError, match=message):
        VectorCollector(**{"frames_per_batch": 40, **arguments})


def test_a_world_of_no_known_name_is_refused():
    with pytest.raises(ConfigError, match="Did you mean torch/CartPole-v1"):
        make_tensor_world("torch/Cartpole-v1", num_envs=2)


def test_a_built_world_is_taken_as_it_is_and_not_shared():
    world = Ladder(3)
    collector = VectorCollector(world, frames_per_batch=6)
    assert collector.envs.world is world
    assert collector.num_envs == 3
    with pytest.raises(ConfigError, match="ladder: they are built already"):
        collector.shard(0, 3)


def test_a_world_may_pass_its_arguments_on():
    class Passes(Ladder):
        def __init__(self, *args, rungs=1, **kwargs):
            super().__init__(*args, **kwargs)
            self.rungs = rungs

    collector = VectorCollector(Passes, num_envs=3, frames_per_batch=6, env_kwargs={"rungs": 4})
    assert collector.collect().shape == (3, 2)
    assert collector.envs.world.rungs == 4


def test_shares_that_would_all_play_the_same_are_refused():
    def make(num_envs: int, device: torch.device) -> Ladder:
        return Ladder(num_envs, device)

    collector = VectorCollector(make, num_envs=4, frames_per_batch=8)
    with pytest.raises(ConfigError, match="built already or without first_env"):
        collector.shard(0, 2)

    class Entangled(Ladder):
        shares = False

    collector = VectorCollector(Entangled, num_envs=4, frames_per_batch=8)
    with pytest.raises(ConfigError, match=r"2 processes cannot share .*Entangled: .* depend on"):
        collector.check_shares(2)


def test_states_of_tensors_and_of_other_environments_are_told_apart():
    options: dict[str, Any] = {"num_envs": 2, "frames_per_batch": 4}
    both = VectorCollector(CARTPOLE, **options), VectorCollector("CartPole-v1", **options)
    states = []
    for collector in both:
        collector.collect()
        states.append(collector.state_dict())
    for collector, state in zip(both, reversed(states), strict=True):
        with pytest.raises(StateMismatchError, match="stepped environments of another kind"):
            collector.load_state_dict(state)


def test_a_world_is_asked_for_its_state_once_it_has_one():
    class Late(Ladder):
        def state_dict(self):
            assert self.carry is not None
            return super().state_dict()

    first, second = (VectorCollector(Late, num_envs=2, frames_per_batch=4) for _ in range(2))
    first.collect()
    second.load_state_dict(first.state_dict())
    assert second.collect()["observation"].equal(first.collect()["observation"])


def test_a_checkpoint_holds_a_wrapped_collector_once():
    """Its log is a hook's; restored as a hook too, it would go back to where it was wrapped."""
    trainer = tiny_trainer(collector=VectorCollector(CARTPOLE, num_envs=2, frames_per_batch=4))
    trainer.collector = OverlappedCollector(trainer.collector, 1, mode="thread")
    assert not [name for name in trainer.state_dict()["components"] if "vector" in name]
    trainer.shutdown()
