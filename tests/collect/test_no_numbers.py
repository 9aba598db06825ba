"""What environments return instead of numbers is refused, with the environment and the key."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from toy_envs import Counter, Masked, Nested

from hooktrainer import VectorCollector
from hooktrainer.collect.make_envs import spaces_of
from hooktrainer.errors import ConfigError


def collect(env, frames=8, **kwargs):
    with_notes = VectorCollector(env, num_envs=2, frames_per_batch=frames, **kwargs)
    try:
        return with_notes.collect()
    finally:
        with_notes.shutdown()


def lacking(base, change):
    """An environment whose third step returns what ``change`` makes of its values."""

    class Lacking(base):
        def step(self, action):
            values = list(super().step(action))
            if self.count == 3:
                change(values)
            return tuple(values)

    return Lacking


def put(index, value):
    def change(values):
        values[index] = value

    return change


@pytest.mark.parametrize(
    ("base", "change", "what"),
    [
        (Counter, put(0, None), "observation = None"),
        (Counter, put(0, [None, 1.0]), r"observation = \[None, 1.0\]"),
        (Counter, put(1, None), "reward = None"),
        (Counter, put(2, None), "terminated = None"),
        (Counter, put(3, None), "truncated = None"),
        (Nested, put(0, None), r"observation\['inner'\]\['image'\] = None"),
        (Nested, lambda values: values[0].update(level=None), r"observation\['level'\] = None"),
        (Masked, lambda values: values[4].update(action_mask=None), r"info\['action_mask'\] = Non"),
    ],
)
def test_none_is_refused_where_it_is_returned(base, change, what):
    with pytest.raises(ConfigError, match=f"the environment returned {what}") as caught:
        collect(lacking(base, change))
    assert "without None among the values" in str(caught.value)
    assert "while stepping environment 0, <Lacking" in caught.value.__notes__[0]
    assert "at step 3 of the batch, in episode 0, begun by reset(seed=" in caught.value.__notes__[0]


# NumPy before 2.4 takes an array of one element for a number.
@pytest.mark.parametrize(("frame_skip", "size"), [(1, 2), (2, 1)])
def test_an_array_in_place_of_a_number_is_refused(frame_skip, size):
    problem = rf"step\(\) of <Lack.* reward = array\(.*, of the shape \[{size}\]: let it return a"
    with pytest.raises(ConfigError, match=problem):
        collect(lacking(Counter, put(1, np.ones(size))), frame_skip=frame_skip)


@pytest.mark.parametrize(
    ("change", "key"),
    [
        (lambda values: values[0].pop("level"), r"\['level'\]"),
        (lambda values: values[0]["inner"].pop("image"), r"\['inner'\]\['image'\]"),
        (put(0, 3.0), r"\['"),
    ],
)
def test_an_observation_that_lacks_an_entry_is_refused(change, key):
    with pytest.raises(ConfigError, match=f"an observation without {key}.* return every entry"):
        collect(lacking(Nested, change))


class ObservationAlone(Counter):
    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed)[0]


def test_a_reset_of_the_old_gym_is_refused():
    for build in (collect, spaces_of):
        with pytest.raises(ConfigError, match=r"reset\(\) of <Obs.* returned a ndarray; let it"):
            build(ObservationAlone)


def test_a_step_of_the_old_gym_is_refused():
    def step(values):
        values[2:4] = [values[2] or values[3]]

    with pytest.raises(ConfigError, match=r"step\(\) of .* did not return five values; let it"):
        collect(lacking(Counter, step))


def test_an_environment_without_spaces_is_refused():
    class Bare(gym.Env):
        observation_space = Counter().observation_space

    with pytest.raises(ConfigError, match=r"<Bare.* has no action_space: set self\.action_space"):
        spaces_of(Bare)


@pytest.mark.parametrize(
    ("change", "options", "what"),
    [(put(1, None), {"frame_skip": 2}, "reward"), (put(0, None), {"workers": 2}, "observation")],
)
def test_with_skipped_frames_and_in_other_processes_too(change, options, what):
    with pytest.raises(ConfigError, match=f"the environment returned {what} = None"):
        collect(lacking(Counter, change), **options)


def test_none_of_a_reset_is_refused():
    class Silent(Counter):
        def reset(self, *, seed=None, options=None):
            return None, super().reset(seed=seed)[1]

    with pytest.raises(ConfigError, match="the environment returned observation = None") as caught:
        collect(Silent, restore_episodes=False)
    assert "while resetting environment 0, <Silent" in caught.value.__notes__[0]


def test_nan_and_lists_of_numbers_are_taken():
    class Various(Counter):
        def _observe(self):
            return [float("nan"), self.count]

    batch = collect(Various)
    assert batch["next", "observation"][0, 0].isnan().tolist() == [True, False]
    assert batch["next", "observation"][0, 1, 1].item() == 2.0
