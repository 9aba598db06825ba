"""Dreamer acts, resumes and is saved with the state of its world model as memory."""

from __future__ import annotations

from functools import partial
from itertools import islice

import pytest
import torch
from any_env import AnyEnv
from marks import slow_except
from remembering import Recall, assert_saved_acts_as_live
from test_algorithms import SMALL_WORLD, assert_resumed_is_whole, make
from test_spaces import VECTOR, spaces

from hooktrainer.errors import ConfigError
from hooktrainer.hooks import SequenceReplay
from hooktrainer.networks.world_model import RECURRENT
from hooktrainer.replay import ReplayBuffer


@pytest.mark.parametrize("continuous", slow_except([False, True], 0))
def test_the_saved_policy_acts_as_the_live_one(continuous, tmp_path):
    env = partial(Recall, continuous)
    trainer = make("dreamer", 128, env=env)
    trainer.train()
    hidden = {RECURRENT: torch.zeros(SMALL_WORLD["recurrent_size"])}
    assert_saved_acts_as_live(trainer.loss_module.actor_network, hidden, env, tmp_path)


def test_a_run_that_is_resumed_within_episodes_and_sequences_is_the_whole_run(tmp_path):
    options = {"num_envs": 4, "steps_per_batch": 7, "save_interval": 28, "log_interval": 28}
    whole, resumed = assert_resumed_is_whole(
        partial(make, "dreamer", env=Recall, init_random_frames=0, **options), tmp_path, 224, 168
    )
    states = whole.collector.state_dict()["rollout"]["policy"]
    assert not states["is_init"].all()
    assert all(value.any() for _, value in states["hidden"])
    assert resumed.loss_module.return_range == whole.loss_module.return_range > 0


def test_replayed_sequences_begin_with_the_states_of_acting():
    trainer = make("dreamer", env=Recall, num_envs=3, steps_per_batch=20, init_random_frames=0)
    loss = trainer.loss_module
    *_, batch = islice(trainer.collector, 2)
    trainer.shutdown()
    replay = SequenceReplay(ReplayBuffer(100, keys=loss.in_keys), 8, hidden_keys=loss.hidden_keys)
    replay.extend(batch)
    rows = replay.replay_buffer.state_dict()["storage"]
    assert rows[RECURRENT].shape == (6, 1, SMALL_WORLD["recurrent_size"])
    assert torch.equal(rows[RECURRENT][:3, 0], batch[RECURRENT][:, 0])
    assert torch.equal(rows[RECURRENT][3:, 0], batch[RECURRENT][:, 8])
    assert batch[RECURRENT][:, 8].any()


def test_what_the_model_does_not_predict_is_refused():
    masked = partial(AnyEnv, VECTOR, spaces.Discrete(4), 4)
    asymmetric = partial(AnyEnv, spaces.Dict(policy=VECTOR, critic=VECTOR), spaces.Discrete(4))
    for env, key in ((masked, "action_mask"), (asymmetric, "critic")):
        with pytest.raises(ConfigError, match=rf"dreamer: .* gives '{key}'.*leave that out"):
            make("dreamer", env=env)


def test_sequences_that_do_not_fit_are_refused():
    with pytest.raises(ConfigError, match="dreamer: sequence_length=7 has to divide batch_size=16"):
        make("dreamer", sequence_length=7)


def test_compiling_is_refused():
    with pytest.raises(ConfigError, match=r"dreamer: compile=.step., .* leave that out"):
        make("dreamer", compile="step")
