"""What other trainers get wrong, one test each: none of it is here."""

from __future__ import annotations

import pickle

import pytest
import torch
from tensordict import TensorDict

import hooktrainer
from hooktrainer import (
    EarlyStopping,
    HookError,
    NonFiniteError,
    ReplayBufferTrainer,
    RewardNormalizer,
    StateMismatchError,
    TargetNetUpdaterHook,
)
from hooktrainer.testing import FakeCollector, ScriptedLoss, tiny_trainer


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


def test_a_short_run_logs_with_the_default_interval(logger):
    trainer = tiny_trainer(
        total_frames=300, collector=FakeCollector(num_envs=10, time=10), logger=logger
    )
    trainer.train()
    assert logger.steps == [100, 300]


def test_a_window_logs_the_mean_not_the_last_sample(logger):
    trainer = tiny_trainer(logger=logger, total_frames=60)
    trainer.register_op("post_steps_log", lambda td: {"frames": float(trainer.collected_frames)})
    trainer.train()
    assert logger.column("frames") == {10: 10.0, 60: 40.0}  # 20, 30, 40, 50, 60


def test_an_exception_in_a_hook_closes_the_collector():
    def fail():
        raise ValueError

    trainer = tiny_trainer()
    trainer.register_op("post_optim", fail)
    with pytest.raises(ValueError):  # noqa: PT011
        trainer.train()
    assert trainer.collector.closed == 1


class Counter:
    """Stateful, and not a TrainerHookBase."""

    def __init__(self) -> None:
        self.n = 0

    def __call__(self):
        self.n += 1

    def state_dict(self):
        return {"n": self.n}

    def load_state_dict(self, state_dict):
        self.n = state_dict["n"]


def test_a_stateful_callable_given_to_register_op_is_saved_and_restored():
    trainer = tiny_trainer()
    trainer.register_op("post_steps", Counter())
    trainer.train()
    counter, other = Counter(), tiny_trainer()
    other.register_op("post_steps", counter)
    other.load_state_dict(trainer.state_dict())
    assert counter.n == 5


def test_the_state_of_the_target_updater_is_saved_and_restored():
    class Updater:
        counter = 0

        def step(self):
            self.counter += 1

    trainer = tiny_trainer()
    TargetNetUpdaterHook(Updater()).register(trainer)
    trainer.train()
    updater, other = Updater(), tiny_trainer()
    TargetNetUpdaterHook(updater).register(other)
    other.load_state_dict(trainer.state_dict())
    assert updater.counter == 10


def test_loading_after_adding_a_hook_says_which():
    saved = tiny_trainer().state_dict()
    trainer = tiny_trainer()
    trainer.register_module("new", Counter())
    with pytest.raises(StateMismatchError, match="hook/new is in this trainer but not in the sta"):
        trainer.load_state_dict(saved)


def test_loading_after_removing_a_hook_says_which():
    trainer = tiny_trainer()
    trainer.register_module("old", Counter())
    with pytest.raises(StateMismatchError, match="hook/old is in the state but not in this tra"):
        tiny_trainer().load_state_dict(trainer.state_dict())


@pytest.mark.parametrize("point", ["batch_process", "process_optim_batch", "post_loss"])
def test_a_transform_that_returns_a_dict_is_refused(point):
    trainer = tiny_trainer()
    trainer.register_op(point, lambda batch: {"reward": 1.0})
    with pytest.raises(HookError, match=f"{point} returned .* of type dict"):
        trainer.train()


def test_signatures_are_checked_when_a_hook_is_registered():
    trainer = tiny_trainer()
    with pytest.raises(HookError, match="takes"):
        trainer.register_op("post_optim", lambda batch: None)
    with pytest.raises(HookError, match="is not a hook point"):
        trainer.register_op("post_optimizer", lambda: None)


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


def test_the_save_interval_is_kept_by_batches_of_its_size(tmp_path):
    file = tmp_path / "state.pt"
    saved_at = []
    trainer = tiny_trainer(
        collector=FakeCollector(num_envs=10, time=10),
        total_frames=500,
        save_trainer_interval=100,
        save_trainer_file=file,
    )

    def look():
        if file.exists():
            saved_at.append(trainer.collected_frames - 100)  # at the end of the batch before
            file.unlink()

    trainer.register_op("batch_process", lambda td: look())
    trainer.train()
    assert saved_at == [100, 200, 300, 400]
    assert file.exists()  # 500


def test_a_collector_that_ends_early_leaves_a_final_checkpoint(tmp_path):
    file = tmp_path / "state.pt"
    tiny_trainer(collector=FakeCollector(num_batches=3), save_trainer_file=file).train()
    other = tiny_trainer().load_from_file(file)
    assert (other.collected_frames, other.optim_count) == (30, 6)


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


def test_train_on_a_finished_reloaded_run_trains_no_more():
    finished = tiny_trainer()
    finished.train()
    reloaded = tiny_trainer()
    reloaded.load_state_dict(finished.state_dict())
    reloaded.train()
    assert (reloaded.collected_frames, reloaded.optim_count) == (50, 10)
    assert reloaded.loss_module.parameter.item() == finished.loss_module.parameter.item()


def test_flattening_marks_the_last_step_of_each_row_and_only_in_the_buffer():
    from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer

    buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(50), batch_size=4)
    flags = torch.zeros(2, 3, 1, dtype=torch.bool)
    batch = TensorDict({"next": {"truncated": flags, "done": flags.clone()}}, [2, 3])
    ReplayBufferTrainer(buffer, flatten_tensordicts=True).extend(batch)
    stored = buffer[:]["next", "truncated"].flatten().tolist()
    assert stored == [False, False, True, False, False, True]
    assert not batch["next", "truncated"].any()
    assert not batch["next", "done"].any()


def test_the_random_state_is_saved(tmp_path):
    def draws(trainer) -> list[torch.Tensor]:
        drawn = []
        trainer.register_op("post_optim", lambda: drawn.append(torch.rand(())))
        return drawn

    file = tmp_path / "state.pt"
    whole = tiny_trainer(seed=0)
    expected = draws(whole)
    whole.train()
    first = tiny_trainer(seed=0, total_frames=30, save_trainer_file=file)
    draws(first)
    first.train()
    second = tiny_trainer().load_from_file(file)
    drawn = draws(second)
    second.train()
    assert torch.stack(drawn).equal(torch.stack(expected[6:]))


def test_the_progress_bar_of_a_resumed_run_does_not_start_at_zero(capsys):
    first = tiny_trainer(total_frames=30)
    first.train()
    second = tiny_trainer(progress_bar=True)
    second.load_state_dict(first.state_dict())
    second.train()
    assert "0.00/50.0" not in capsys.readouterr().err


def test_a_trainer_pickles():
    copy = pickle.loads(pickle.dumps(tiny_trainer()))
    copy.train()
    assert copy.collected_frames == 50


def test_early_stopping_waits_for_a_metric_that_is_not_logged_yet():
    trainer = tiny_trainer()
    EarlyStopping(monitor="late", wait_for=30, patience=100).register(trainer)
    trainer.register_op(
        "post_steps_log", lambda td: {"late": 1.0} if trainer.collected_frames >= 40 else None
    )
    trainer.train()
    assert trainer.collected_frames == 50


def test_frequency_does_not_change_with_the_number_of_environments():
    fired = []
    for num_envs in (1, 5, 10):
        trainer = tiny_trainer(
            collector=FakeCollector(num_envs=num_envs, time=10 // num_envs), total_frames=100
        )
        count = []
        trainer.register_op(
            "post_steps", lambda c=count: c.append(1), every=hooktrainer.Every(frames=20)
        )
        trainer.train()
        fired.append(len(count))
    assert fired == [5, 5, 5]


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


def test_what_was_loaded_may_be_written_over_afterwards():
    hook, other = RewardNormalizer(), RewardNormalizer()
    hook.update_reward_stats(TensorDict({"next": {"reward": torch.ones(4)}}, [4]))
    state = hook.state_dict()
    other.load_state_dict(state)
    state["sum"].fill_(1e9)
    assert other.mean.item() == 1.0
