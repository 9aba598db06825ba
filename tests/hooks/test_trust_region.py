"""`TrustRegion`: one step of the policy for each batch, within its limit; values come after."""

from __future__ import annotations

import pytest

from hooktrainer import ConfigError, Trainer, TrustRegion
from hooktrainer.algorithms import TRPO
from hooktrainer.log import read_csv
from hooktrainer.testing import tiny_trainer

SMALL = {"num_envs": 4, "steps_per_batch": 16, "num_cells": (8,), "num_epochs": 2, "seed": 0}


def make(total_frames: int = 192, **options: object) -> Trainer:
    fields = {**SMALL, "eval_episodes": 0, "tuned": False, "progress_bar": False, **options}
    return TRPO(env="CartPole-v1", total_frames=total_frames, **fields).trainer()


def example_trainer() -> Trainer:
    trainer = make()
    trainer.remove_hook("trust_region")
    return trainer


def test_every_batch_is_one_step_of_the_policy_within_the_limit(tmp_path):
    run = {"run_dir": tmp_path, "logger": "csv", "log_interval": 1, "max_kl": 0.003}
    trainer = make(**run)
    actor = list(trainer.loss_module.actor_network.parameters())
    seen = [[p.clone() for p in actor]]
    trainer.register_op("post_steps", lambda: seen.append([p.clone() for p in actor]))
    # All optimizer steps come after the policy's.
    trainer.register_op("pre_optim_steps", lambda: seen.append([p.clone() for p in actor]))
    trainer.train()
    for before, after, later in zip(seen[::2], seen[1::2], seen[2::2], strict=False):
        assert all((a != b).any() for a, b in zip(before, after, strict=True))
        assert all((a == b).all() for a, b in zip(after, later, strict=True))
    logged = read_csv(tmp_path)
    divergences = [kl for _, kl in logged["train/kl"]]
    assert len(divergences) == 3
    assert all(0 < kl < 0.003 for kl in divergences)
    assert all(fraction > 0 for _, fraction in logged["train/step_fraction"])


def test_what_cannot_be_is_refused():
    with pytest.raises(ConfigError, match="max_kl=0"):
        TrustRegion(0)
    with pytest.raises(ConfigError, match=r"shrink=1\.5"):
        TrustRegion(shrink=1.5)
    trainer = tiny_trainer()
    TrustRegion().register(trainer)
    with pytest.raises(ConfigError, match="has no policy_terms: use TRPOLoss"):
        trainer.train()
