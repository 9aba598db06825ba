"""What other trainers get wrong, one test each: none of it is here."""

from __future__ import annotations

import pickle

import pytest
import torch
from tensordict import TensorDict

from hooktrainer import NonFiniteError, RewardNormalizer
from hooktrainer.testing import ScriptedLoss, tiny_trainer


def test_building_a_second_trainer_leaves_the_first_ones_counters_alone():
    first = tiny_trainer()
    first.train()
    second = tiny_trainer()
    assert (first.collected_frames, first.optim_count) == (50, 10)
    assert (second.collected_frames, second.optim_count) == (0, 0)
    second.train()
    assert (first.collected_frames, first.optim_count) == (50, 10)


def test_losses_of_several_epochs_are_averaged_over_all_their_steps(logger):
    loss = ScriptedLoss(values=[1, 2, 3, 4, 5, 6])
    tiny_trainer(
        loss_module=loss, num_epochs=3, optim_steps_per_batch=2, total_frames=10, logger=logger
    ).train()
    assert logger.column("loss/loss") == {10: 3.5}


@pytest.mark.parametrize("log_interval", [10**9, 10])
def test_memory_does_not_grow_with_the_length_of_the_run(log_interval):
    trainer = tiny_trainer(total_frames=8_000, log_interval=log_interval)
    trainer.register_op("post_optim_log", lambda td: {"x": torch.ones(()), "y": 1.0})
    trainer.register_op("pre_steps_log", lambda td: {"z": 1.0})
    sizes = []

    def look() -> None:
        # In the midst of the run, since at its end the window is closed; and when the chunks in
        # which values are added up are equally full.
        if trainer.progress.batches % 256 == 250:
            kept = trainer.metrics, trainer.timing, trainer.progress, trainer.cadences
            sizes.append(len(pickle.dumps(kept)))

    trainer.register_op("post_steps", look)
    trainer.train()
    assert len(sizes) == 3
    assert sizes[-1] <= sizes[0] + 200


def test_a_nan_loss_does_not_reach_the_weights():
    loss = ScriptedLoss(values=[1.0, float("nan")])
    with pytest.raises(NonFiniteError):
        tiny_trainer(loss_module=loss).train()
    assert loss.parameter.item() == pytest.approx(-0.1)


def test_a_nan_gradient_does_not_reach_the_weights():
    class Root(ScriptedLoss):
        def forward(self, batch):
            return TensorDict({"loss": self.parameter.abs().sqrt() * 0}, [])

    loss = Root()
    with pytest.raises(NonFiniteError):
        tiny_trainer(loss_module=loss).train()
    assert loss.parameter.item() == 0.0


def test_a_trainer_that_was_restored_shares_nothing_with_the_one_that_was_saved():
    def adam():
        loss = ScriptedLoss()
        return tiny_trainer(
            total_frames=100, loss_module=loss, optimizer=torch.optim.Adam(loss.parameters())
        )

    def pairs(trainer):
        return trainer.state_dict()["components"]["hook/optimizer"]["state"][0]

    first, second = adam(), adam()
    first.train()
    moments = {key: value.clone() for key, value in pairs(first).items()}
    second.load_state_dict(first.state_dict())
    second.optimizer.state[second.loss_module.parameter]["exp_avg"].fill_(7.0)
    assert all(value.equal(pairs(first)[key]) for key, value in moments.items())


def test_a_loaded_state_is_copied():
    hook, other = RewardNormalizer(), RewardNormalizer()
    hook.update_reward_stats(TensorDict({"next": {"reward": torch.ones(4)}}, [4]))
    state = hook.state_dict()
    other.load_state_dict(state)
    state["_reward_stats"]["sum"].fill_(1e9)
    assert other.mean.item() == 1.0
