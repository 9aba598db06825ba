"""EnvPool's vector environments, and a pretended one that begins episodes as EnvPool does."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from hooktrainer import ConfigError, LogEpisodes, VectorCollector
from hooktrainer.testing import tiny_trainer

LENGTHS = np.array([3, 5, 4])


class Pool(gym.vector.VectorEnv):
    """Counts steps. Observation: ``[environment, episode, step]``; reward: the step.

    As EnvPool does, it begins an episode in the step that follows an end, with reward 0; or at once
    where it is told to.
    """

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012

    def __init__(self, nested=False, **config):
        self.config = {"num_envs": 3, "batch_size": 3, "max_num_players": 1, **config}
        self.num_envs = 3
        box = spaces.Box(-np.inf, np.inf, (3,), np.float32)
        self.observation_space = spaces.Dict({"inner": box}) if nested else box
        self.single_observation_space = self.observation_space
        self.action_space = self.single_action_space = spaces.Discrete(2)
        self.spec = object()  # nothing of Gymnasium's
        self.nested = nested
        self.episodes, self.steps = np.full(3, -1), np.zeros(3, int)
        self.done = np.zeros(3, bool)
        self.closed_times = 0

    def async_reset(self): ...

    def send(self): ...

    def recv(self): ...

    def reset(self, env_id=None, *, seed=None, options=None):
        which = np.arange(3) if env_id is None else np.asarray(env_id)[::-1]  # in any order
        self._begin(which)
        return self._observe(which), {"env_id": which}

    def step(self, actions):
        late = self.done.copy()
        self.steps[~late] += 1
        self._begin(np.flatnonzero(late))
        self.done = self.steps >= LENGTHS
        everyone = np.arange(3)
        rewards, never = self.steps.astype(np.float32), np.zeros(3, bool)
        return self._observe(everyone), rewards, self.done.copy(), never, {"env_id": everyone}

    def close(self):
        self.closed_times += 1

    def _begin(self, which):
        self.episodes[which] += 1
        self.steps[which] = 0
        self.done[which] = False

    def _observe(self, which):
        rows = np.stack([which, self.episodes[which], self.steps[which]], 1).astype(np.float32)
        return {"inner": rows} if self.nested else rows


@pytest.fixture(params=[False, True], ids=["array", "dict"])
def pool(request):
    return Pool(nested=request.param)


def collect(env, frames):
    collector = VectorCollector(env, frames_per_batch=frames)
    assert "it seeds its sub-environments itself" in collector.unsaved
    return collector, collector.collect()


def test_every_step_is_a_transition_and_the_last_observation_is_the_true_one(pool):
    _, batch = collect(pool, 3 * 20)
    key = "inner" if pool.nested else "observation"
    before, after = batch[key], batch["next", key]
    assert (batch["next", "reward"][..., 0] == after[..., 2]).all()  # none is 0
    assert (after[..., 2] == before[..., 2] + 1).all()
    assert (after[..., :2] == before[..., :2]).all()  # of the same episode
    for i, length in enumerate(LENGTHS):
        ends = torch.arange(1, 21) % length == 0
        assert (batch["next", "done"][i, :, 0] == ends).all()
        assert (batch["next", "step_count"][i, ends] == length).all()
        assert (before[i, 1:][ends[:-1]][:, 2] == 0).all()


def test_random_actions_differ_from_batch_to_batch():
    taken = []

    class Continuous(Pool):
        def step(self, actions):
            taken.append(actions.flatten().tolist())
            return super().step(actions)

    env = Continuous()
    env.action_space = spaces.Box(0.0, 1.0)
    collector = VectorCollector(env, frames_per_batch=3 * 4)
    for _ in range(5):
        collector.collect()
    assert len(taken) > 5 * 4  # some episodes began in a step of their own
    assert all(len(set(own)) == len(own) for own in zip(*taken, strict=True))


def test_it_trains_and_is_closed(pool):
    collector, _ = collect(pool, 3 * 8)
    trainer = tiny_trainer(collector=collector, total_frames=96)
    LogEpisodes().register(trainer)
    trainer.train()
    assert pool.closed_times == 1
    assert trainer.metrics.all_latest()["train/length"] == pytest.approx(4, abs=1)


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (lambda: Pool(batch_size=2), "num_envs=3 and batch_size=2: leave out batch_size"),
        (lambda: Pool, r"env builds a Pool, not a gymnasium.Env"),
    ],
)
def test_what_cannot_be_collected_from_is_refused(env, message):
    with pytest.raises(ConfigError, match=message):
        VectorCollector(env(), frames_per_batch=6, **({"num_envs": 3} if env() is Pool else {}))


@pytest.mark.filterwarnings("ignore")
def test_envpool_itself():
    envpool = pytest.importorskip("envpool")
    pool = envpool.make("CartPole-v1", env_type="gymnasium", num_envs=4, seed=3)
    collector = VectorCollector(pool, frames_per_batch=4 * 100)
    batch = collector.collect()
    done = batch["next", "done"][..., 0]
    assert done.any()
    assert (batch["next", "reward"] == 1).all()  # a step that only resets has 0
    begun = batch["observation"][:, 1:][done[:, :-1]]
    assert (begun.abs() <= 0.05).all()  # where CartPole's episodes begin
    last = batch["next", "observation"][done]
    assert ((last[:, 0].abs() > 2.4) | (last[:, 2].abs() > 0.2)).all()  # where they end
    collector.shutdown()
