"""Every option of deep Q-learning trains, resumes exactly, is saved and compiled."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from marks import slow_except
from remembering import Recall
from remembering import make as make_remembering
from tensordict import TensorDict
from test_algorithms import SAVED, assert_resumed_is_whole
from test_algorithms import make as make_small
from torchrl.envs.utils import ExplorationType, set_exploration_type

from hooktrainer import ConfigError, algorithms
from hooktrainer.loop import Progress
from hooktrainer.networks import NoisyLinear
from hooktrainer.policies import PolicyRecorder, load_policy

VARIANTS = {
    "n-step": {"n_steps": 3},
    "c51": {"quantiles": "c51", "num_quantiles": 5},
    "qr": {"quantiles": "qr", "num_quantiles": 5, "prioritized": True},
    "iqn": {"quantiles": "iqn", "num_quantiles": 4, "n_steps": 2},
    "dueling": {"dueling": True, "num_cells": (8, 8), "rescale_values": True},
    "noisy": {"noisy": True, "double": False},
    "everything": {
        **{"quantiles": "iqn", "dueling": True, "noisy": True, "prioritized": True},
        **{"n_steps": 3, "num_cells": (8, 8)},
    },
}


FEW = {"steps_per_batch": 2, "optim_steps_per_batch": 3}


# "everything" has a dueling network of noisy layers and implicit quantiles. That of the c51
# network is Rainbow, which is tested with all algorithms.
@pytest.mark.parametrize(
    "variant",
    slow_except(["n-step", "everything", "c51", "qr", "dueling"], "n-step", "everything"),
)
def test_a_resumed_run_is_the_whole_run(variant, tmp_path):
    make = partial(make_small, "dqn", **FEW, **SAVED, **VARIANTS[variant])
    whole, _ = assert_resumed_is_whole(make, tmp_path, 400, 230)
    assert torch.isfinite(torch.tensor(whole.metrics.reported["loss/loss"]))


@pytest.mark.parametrize("name", slow_except(["sac", "ddpg"], "ddpg"))
def test_continuous_actions_have_n_step_returns(name, tmp_path):
    make = partial(make_small, name, n_steps=3, **FEW, **SAVED)
    whole, _ = assert_resumed_is_whole(make, tmp_path, 240, 150)
    buffer = whole.registry.modules["replay_buffer"].replay_buffer
    rows = buffer.state_dict()["storage"]
    assert set(rows["steps_to_next_obs"].flatten().tolist()) >= {3}


@pytest.mark.parametrize("variant", slow_except(["everything", "c51"], "everything"))
def test_with_a_memory_it_resumes_and_learns_in_sequences(variant, tmp_path):
    saved = {"save_interval": 80, "log_interval": 80, "steps_per_batch": 7}
    make = partial(make_remembering, "dqn", masked=True, **saved, **VARIANTS[variant])
    assert_resumed_is_whole(make, tmp_path, 224, 112)


@pytest.mark.parametrize(
    "variant", slow_except(["c51", "everything", "qr", "dueling"], "c51", "everything")
)
def test_the_saved_policy_acts_on_means(variant, tmp_path):
    trainer = make_remembering("dqn", None, masked=True, **VARIANTS[variant])
    trainer.train()
    live = trainer.loss_module.value_network
    PolicyRecorder(tmp_path, live, partial(Recall, False, True)).save(
        Progress(frames=0, optim_steps=0, seconds=1.0)
    )
    loaded = load_policy(tmp_path / f"step_{0:012d}", trust=True)
    env = Recall(masked=True)
    for seed in range(9):
        observation, _ = env.reset(seed=seed)
        data = {key: torch.as_tensor(value)[None] for key, value in observation.items()}
        data["action_mask"] = data["action_mask"].bool()
        batch = TensorDict(data, [1])
        with set_exploration_type(ExplorationType.DETERMINISTIC):
            live(batch)
        assert np.array_equal(loaded(observation), batch["action"][0])


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["dueling", "everything"])
@pytest.mark.usefixtures("inductor")
def test_compiled_steps_equal_eager_ones(variant):
    ends = []
    for compile in (None, "step"):
        trainer = make_small(
            "dqn", 160, compile=compile, optim_steps_per_batch=20, **VARIANTS[variant]
        )
        trainer.train()
        assert trainer.optim_count > 50
        ends.append(trainer.loss_module.state_dict())
    torch.testing.assert_close(ends[1], ends[0], rtol=0, atol=1e-5)


def test_rainbow_is_dqn_with_all_of_it():
    trainer = make_small("rainbow", num_cells=(8, 8))
    trainer.train()
    network = trainer.loss_module.value_network
    kinds = {type(module).__name__ for module in network.modules()}
    assert {"CategoricalQNetwork", "DuelingHead", "NoisyLinear"} <= kinds
    assert sum(isinstance(module, NoisyLinear) for module in network.modules()) == 4
    assert trainer.loss_module.double_dqn
    assert trainer.loss_module.n_steps == 1  # the buffer has the returns
    hook = trainer.registry.modules["replay_buffer"]
    assert (hook.n_steps, hook.prioritized) == (3, True)
    run = algorithms.get("rainbow")(env="CartPole-v1")
    assert (run.v_max, run.alpha, run.stop_at) == (100.0, 0.5, 475.0)


def test_a_model_of_single_steps_takes_no_n_step_returns():
    with pytest.raises(ConfigError, match="mbpo: n_steps=3, but its model imagines single steps"):
        make_small("mbpo", n_steps=3)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("rainbow", {"her": "future"}),  # its default is 3
        ("dqn", {"env": "MountainCar-v0", "tuned": True, "her": "future"}),  # and that tuned for it
    ],
)
def test_a_conflict_with_a_default_names_the_value_to_set(name, options):
    with pytest.raises(ConfigError, match=r"and n_steps=3 do not work together: set n_steps=1, or"):
        make_small(name, **options)
