"""Every algorithm begins with the weights of a saved policy, if it is told to."""

from __future__ import annotations

import pytest
import torch
from marks import slow_except
from outcomes import same
from test_algorithms import ALGORITHMS, TEXT, make

from hooktrainer import Evaluate, Trainer, load_policy
from hooktrainer.errors import CheckpointError, ConfigError
from hooktrainer.loop.cadence import Progress
from hooktrainer.networks.layers import RunningNorm
from hooktrainer.policies import PolicyRecorder

ACTING = [name for name in ALGORITHMS if name not in {*TEXT, "dreamer"}]


def evaluation(trainer: Trainer) -> Evaluate:
    (hook,) = (one for one in trainer.registry.hooks() if isinstance(one, Evaluate))
    return hook


def weights_of(trainer: Trainer) -> dict[str, torch.Tensor]:
    """What the policy acts by: all but the sums that running statistics are computed from."""
    own = evaluation(trainer).policy.state_dict()
    return {
        k: v.clone() for k, v in own.items() if k.split(".")[-1] not in ("mean", "var", "count")
    }


def save(trainer: Trainer, path, frames: int = 7) -> str:
    of = evaluation(trainer)
    recorder = PolicyRecorder(path, of.policy, of.env, of.env_kwargs, groups=of.groups)
    recorder.save(Progress(frames=frames, optim_steps=1, seconds=1.0))
    return str(path / f"step_{frames:012d}")


@pytest.fixture
def closing():
    """Closes trainers that are not trained."""
    trainers = []
    yield lambda trainer: trainers.append(trainer) or trainer
    for trainer in trainers:
        trainer.shutdown()


@pytest.mark.parametrize(
    "name", slow_except(ACTING, "ppo", "dqn", "td3", "cql", "mbpo", "mappo", "qmix")
)
def test_it_begins_with_a_saved_policy(name, tmp_path, closing):
    first = closing(make(name, seed=1))
    saved = save(first, tmp_path / "first")
    assert not same(weights_of(closing(make(name, seed=2))), weights_of(first))
    trainer = closing(make(name, seed=2, init_policy=saved))
    assert same(weights_of(trainer), weights_of(first))
    loss = trainer.loss_module
    for network, target in (
        (getattr(loss, child.removeprefix("target_")), target)
        for child, target in loss.named_children()
        if child.startswith("target_")
    ):
        for key, value in target.state_dict().items():
            assert value.equal(network.state_dict()[key]), key


def test_it_goes_on_with_its_statistics_of_observations(tmp_path, closing):
    options = {"normalize_observations": True, "num_envs": 4, "steps_per_batch": 16}
    first = make("ppo", total_frames=256, seed=1, **options)
    first.train()
    saved = save(first, tmp_path / "first", frames=256)
    before = next(m for m in evaluation(first).policy.modules() if isinstance(m, RunningNorm))
    for init in (saved, load_policy(saved, as_module=True)):
        trainer = closing(make("ppo", seed=2, init_policy=init, **options))
        after = next(m for m in evaluation(trainer).policy.modules() if isinstance(m, RunningNorm))
        torch.testing.assert_close(after.mean, before.mean, rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(after.var, before.var, rtol=1e-5, atol=1e-6)
        assert after.count.item() == before.count.item() == 256


def test_a_resumed_run_keeps_its_own_weights(tmp_path, closing):
    saved = save(closing(make("ppo", seed=1)), tmp_path / "first")
    options = {"init_policy": saved, "run_dir": tmp_path / "run", "seed": 2}
    trainer = make("ppo", total_frames=128, **options)
    trainer.train()
    resumed = closing(make("ppo", total_frames=256, resume="latest", **options))
    ours, theirs = evaluation(resumed).policy, evaluation(trainer).policy
    assert same(ours.state_dict(), theirs.state_dict())


def test_a_run_whose_first_checkpoint_is_not_there_begins_with_it_again(tmp_path, closing):
    first = closing(make("ppo", seed=1))
    saved = save(first, tmp_path / "first")
    options = {"init_policy": saved, "run_dir": tmp_path / "run", "seed": 2}
    make("ppo", **options).shutdown()  # as a run that is killed before its first checkpoint
    trainer = closing(make("ppo", resume="latest", **options))
    assert same(evaluation(trainer).policy.state_dict(), evaluation(first).policy.state_dict())


def test_it_begins_with_a_module_that_was_changed(tmp_path, closing):
    module = load_policy(save(closing(make("ppo", seed=1)), tmp_path / "first"), as_module=True)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.fill_(0.25)
    trainer = closing(make("ppo", init_policy=module))
    for parameter in evaluation(trainer).policy.parameters():
        assert (parameter == 0.25).all()


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"num_cells": (9,)}, r"'network.0.weight' of \[8, 4\], and not \[9, 4\]"),
        ({"num_cells": (8, 8)}, "network"),
        ({"memory": "gru"}, r"'network.0.weight' of \[8, 4\], and not \[8, 64\]"),
    ],
)
def test_what_does_not_fit_is_refused(options, found, tmp_path, closing):
    saved = save(closing(make("ppo", seed=1)), tmp_path / "first")
    with pytest.raises(ConfigError, match=rf"ppo: init_policy=.*{found}.*num_cells"):
        make("ppo", init_policy=saved, **options)


def test_a_policy_without_the_model_that_is_trained_with_it_is_refused(tmp_path, closing):
    saved = save(closing(make("dreamer", seed=1)), tmp_path / "first")
    with pytest.raises(ConfigError, match=r"has no 'world\.\w+.*fork it"):
        make("dreamer", init_policy=saved)


def test_a_policy_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(CheckpointError, match="nowhere"):
        make("ppo", init_policy=str(tmp_path / "nowhere"))


def test_what_is_no_saved_policy_is_refused(tmp_path, closing):
    saved = save(closing(make("ppo", seed=1)), tmp_path / "first")
    for given in (load_policy(saved), 3):
        with pytest.raises(ConfigError, match=r"ppo: init_policy=.*is no saved policy.*as_module"):
            make("ppo", init_policy=given)
