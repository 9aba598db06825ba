from __future__ import annotations

import re

import pytest
import torch
from tensordict import TensorDict

from hooktrainer import CheckpointError, ConfigError, HookPoint, TrainerHookBase
from hooktrainer.testing import CallRecorder, FakeCollector, ScriptedLoss, tiny_trainer

STEP = ["process_optim_batch", "post_loss", "optimizer", "post_optim", "post_optim_log"]
BEFORE = ["batch_process", "pre_steps_log", "pre_optim_steps"]
AFTER = ["post_steps", "post_steps_log"]


def recorded(**arguments) -> CallRecorder:
    recorder, trainer = CallRecorder(), tiny_trainer(**arguments)
    recorder.register(trainer)
    trainer.train()
    return recorder


# -- the loop ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("epochs", "steps", "batches"), [(1, 1, 1), (1, 2, 5), (3, 2, 2), (2, 1, 3)]
)
def test_call_order(epochs, steps, batches):
    recorder = recorded(num_epochs=epochs, optim_steps_per_batch=steps, total_frames=10 * batches)
    assert recorder.calls == (BEFORE + STEP * steps * epochs + AFTER) * batches


def test_the_index_restarts_at_every_epoch():
    recorder = recorded(num_epochs=2, optim_steps_per_batch=3, total_frames=10, clip_norm=1.0)
    passed = [
        arguments[1:]
        for call, arguments in zip(recorder.calls, recorder.arguments, strict=True)
        if call == "optimizer"
    ]
    assert passed == [(True, 1.0, j) for j in (0, 1, 2, 0, 1, 2)]


def test_without_a_number_of_steps_stop_iteration_ends_the_epoch():
    pieces = [3, 0, 2]  # steps in each epoch

    def sub_batches(batch):
        if not pieces[0]:
            pieces.pop(0)
            raise StopIteration
        pieces[0] -= 1

    recorder, trainer = (
        CallRecorder(),
        tiny_trainer(optim_steps_per_batch=None, num_epochs=3, total_frames=10),
    )
    trainer.register_op("process_optim_batch", sub_batches, priority=1)
    recorder.register(trainer)
    trainer.train()
    # the recorder at process_optim_batch is behind the hook that ends an epoch
    assert recorder.calls == BEFORE + STEP * 5 + AFTER
    assert trainer.optim_count == 5


# -- how far it goes -----------------------------------------------------------------------------


def test_frames_count_what_the_environment_skipped():
    trainer = tiny_trainer(frame_skip=4, total_frames=80)
    trainer.train()
    assert trainer.collector.yielded == 2
    assert trainer.collected_frames == 80


def test_the_collector_s_frame_skip_is_the_trainer_s():
    collector = FakeCollector()
    collector.frame_skip = 4
    assert tiny_trainer(collector=collector, frame_skip=None).frame_skip == 4
    assert tiny_trainer(collector=collector, frame_skip=4).frame_skip == 4
    assert tiny_trainer(frame_skip=None).frame_skip == 1
    with pytest.raises(ConfigError, match=r"frame_skip=2, but the collector repeats .* 4 times"):
        tiny_trainer(collector=collector, frame_skip=2)


@pytest.mark.parametrize("frame_skip", [1, 4])
def test_random_frames_are_collected_without_optimizing(frame_skip):
    collector = FakeCollector()
    collector.init_random_frames = 30  # transitions
    recorder = CallRecorder()
    trainer = tiny_trainer(collector=collector, frame_skip=frame_skip, total_frames=50 * frame_skip)
    recorder.register(trainer)
    trainer.train()
    quiet = ["batch_process", "pre_steps_log", *AFTER]
    assert recorder.calls == quiet * 2 + (BEFORE + STEP * 2 + AFTER) * 3


def test_a_finished_run_does_nothing_and_closes():
    trainer = tiny_trainer()
    trainer.train()
    other = tiny_trainer()
    other.load_state_dict(trainer.state_dict())
    recorder = CallRecorder()
    recorder.register(other)
    other.train()
    assert recorder.calls == []
    assert other.collector.yielded == 5  # nothing more was collected
    assert other.collector.closed == 1


# -- what hooks ask for --------------------------------------------------------------------------


def test_a_stop_ends_the_run_after_the_batch(logger):
    recorder, trainer = CallRecorder(), tiny_trainer(logger=logger)
    recorder.register(trainer)
    trainer.register_op(
        "post_optim", lambda: trainer.request_stop("solved") if trainer.optim_count == 3 else None
    )
    trainer.train()
    assert recorder.calls == (BEFORE + STEP * 2 + AFTER) * 2
    assert trainer.control.stop_reason == "solved"
    assert logger.steps[-1] == 20
    assert trainer.collector.closed == 1


def test_a_stop_without_a_reason_says_where_it_was_requested():
    trainer = tiny_trainer()

    def enough():
        trainer.request_stop()

    trainer.register_op("post_steps", enough)
    trainer.train()
    assert re.fullmatch(r"requested in enough, test_trainer\.py:\d+", trainer.control.stop_reason)


@pytest.mark.parametrize("point", ["process_optim_batch", "post_loss", "optimizer"])
def test_a_skipped_step_trains_nothing_and_is_not_counted(point, logger):
    loss = ScriptedLoss(values=[1.0, 100.0, 3.0, 5.0])
    trainer = tiny_trainer(loss_module=loss, total_frames=20, logger=logger)
    passes = [0]

    def skip_second(*arguments):
        passes[0] += 1
        if passes[0] == 2:
            trainer.skip_optim_step()

    called = []
    trainer.register_op(point, skip_second, priority=10_000)
    trainer.register_op("post_optim", lambda: called.append(trainer.optim_count))
    trainer.train()
    assert trainer.optim_count == 3
    assert called == [1, 2, 3]
    assert loss.parameter.item() == pytest.approx(-0.3)
    logged = logger.column("loss/loss")
    skipped_before_the_loss = point == "process_optim_batch"  # then no value is used up
    assert logged == {10: 1.0, 20: (100 + 3) / 2 if skipped_before_the_loss else (3 + 5) / 2}


def test_a_save_is_written_at_the_end_of_the_batch(tmp_path):
    file = tmp_path / "state.pt"
    trainer = tiny_trainer(save_trainer_file=file, save_trainer_interval=10**6)
    seen = {}

    def ask_and_look():
        seen[trainer.collected_frames] = file.exists()
        if trainer.collected_frames == 20:
            trainer.request_save()

    trainer.register_op("post_steps", ask_and_look)
    trainer.train()
    assert seen == {10: False, 20: False, 30: True, 40: True, 50: True}


def test_a_file_may_be_named_after_construction_as_a_string(tmp_path):
    def fail():
        raise Boom

    trainer = tiny_trainer()
    trainer.save_trainer_file = str(tmp_path / "state.pt")
    trainer.register_op("post_steps", fail)
    with pytest.raises(Boom):
        trainer.train()
    assert (tmp_path / "exception.pt").exists()
    assert trainer.collector.closed == 1


def test_an_unknown_back_end_is_refused_before_training(tmp_path, monkeypatch):
    monkeypatch.setenv("CKPT_BACKEND", "bogus")
    names = r"'bogus'.* native, torch, torchsnapshot"
    with pytest.raises(CheckpointError, match=names):
        tiny_trainer(save_trainer_file=tmp_path / "state.pt")


def test_a_window_is_closed_on_request(logger):
    trainer = tiny_trainer(logger=logger)
    trainer.register_op(
        "post_steps", lambda: trainer.request_log() if trainer.collected_frames == 30 else None
    )
    trainer.train()
    assert logger.steps == [10, 30, 50]


# -- metrics -------------------------------------------------------------------------------------


def test_first_and_last_window_of_a_short_run(logger):
    tiny_trainer(logger=logger).train()
    assert logger.steps == [10, 50]


def test_a_window_is_the_mean_of_everything_in_it(logger):
    loss = ScriptedLoss(values=range(1, 11))
    tiny_trainer(logger=logger, loss_module=loss).train()
    assert logger.column("loss/loss") == {10: 1.5, 50: 6.5}  # (1+2)/2, (3+…+10)/8


@pytest.mark.parametrize(
    "arguments",
    [
        {"log_interval": 10},
        {"log_interval": 10, "collector": FakeCollector(num_batches=3)},
        {"log_interval": 30, "collector": FakeCollector(num_batches=3)},
        {"total_frames": 10},
    ],
    ids=["every batch", "collector ends", "collector ends at a window", "one batch"],
)
def test_no_step_is_written_twice(arguments, logger):
    tiny_trainer(logger=logger, **arguments).train()
    assert logger.steps == sorted(set(logger.steps))


def test_metrics_of_on_train_end_are_written(logger):
    hook, trainer = Recording(), tiny_trainer(logger=logger)
    hook.on_train_end = lambda trainer: trainer.log({"final": 7.0})
    hook.register(trainer)
    trainer.train()
    assert logger.column("final") == {50: 7.0}


# -- nothing stays open --------------------------------------------------------------------------


class Recording(TrainerHookBase):
    """Writes down the run's own calls."""

    def __init__(self) -> None:
        self.calls: list[object] = []

    def register(self, trainer, name="recording"):
        trainer.register_module(name, self)
        trainer.register_op("post_steps", self)

    def __call__(self):
        pass

    def on_train_start(self, trainer):
        self.calls.append("start")

    def on_train_end(self, trainer):
        self.calls.append("end")

    def on_exception(self, trainer, exception):
        self.calls.append(type(exception))

    def close(self):
        self.calls.append("close")


class Boom(Exception):  # noqa: N818
    """Raised on purpose."""


class Hostile:
    """A collector that misbehaves at one of its methods."""

    def __init__(self, fails_at: str, error: type[BaseException] = Boom) -> None:
        self.fails_at = fails_at
        self.error = error
        self.closed = 0

    def __iter__(self):
        self._maybe_fail("iter")
        yield TensorDict({"x": torch.zeros(10)}, [10])
        self._maybe_fail("next")
        yield TensorDict({"x": torch.zeros(10)}, [10])

    def _maybe_fail(self, where: str) -> None:
        if where == self.fails_at:
            raise self.error(where)

    def shutdown(self):
        self.closed += 1
        self._maybe_fail("shutdown")


@pytest.mark.parametrize("error", [Boom, KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("where", ["hook", "iter", "next", "on_train_start", "on_train_end"])
def test_a_failing_hook_closes_everything_once(where, error, logger):
    def fail(*_):
        raise error

    hook, trainer = Recording(), tiny_trainer(logger=logger, collector=Hostile(where, error))
    hook.register(trainer)
    if where == "hook":
        trainer.register_op("post_steps", fail)
    setattr(hook, where, fail)
    with pytest.raises(error):
        trainer.train()
    for _ in range(2):
        assert hook.calls[-2:] == [error, "close"]
        assert hook.calls.count("close") == 1
        assert (trainer.collector.closed, logger.closed) == (1, 1)
        trainer.shutdown()


def test_a_failing_close_becomes_a_note_of_the_error(logger):
    collector = Hostile("shutdown")
    trainer = tiny_trainer(collector=collector, logger=logger)

    def fail():
        raise ValueError("the cause")

    trainer.register_op("post_steps", fail)
    with pytest.raises(ValueError, match="the cause") as caught:
        trainer.train()
    assert any("closing failed" in note and "shutdown" in note for note in caught.value.__notes__)
    assert (collector.closed, logger.closed) == (1, 1)


# -- sharing nothing -----------------------------------------------------------------------------


def objects_of(thing, found=None) -> dict[int, object]:
    """Every object that can change and is reached from ``thing``, by its identity."""
    found = {} if found is None else found
    ours = type(thing).__module__.startswith(("hooktrainer", __name__))
    if id(thing) in found or not (ours or isinstance(thing, (list, dict, set, tuple))):
        return found
    if isinstance(thing, (HookPoint, type)):
        return found
    if not isinstance(thing, tuple):
        found[id(thing)] = thing
    inside = thing.values() if isinstance(thing, dict) else thing if not ours else ()
    for each in (*inside, *getattr(thing, "__dict__", {}).values()):
        objects_of(each, found)
    return found


def test_two_trainers_share_nothing():
    one = tiny_trainer()
    Recording().register(one)
    one.train()
    two = tiny_trainer()
    of_one, of_two = objects_of(one), objects_of(two)
    assert len(of_two) > 30
    assert [of_one[key] for key in of_one.keys() & of_two.keys()] == []
    assert two.collected_frames == two.optim_count == 0
    assert "recording" not in two.describe()
    assert two.metrics.all_latest() == {}
    assert (one.collected_frames, one.optim_count) == (50, 10)


# -- with torchrl --------------------------------------------------------------------------------


def test_training_a_second_time_is_refused():
    trainer = tiny_trainer()
    trainer.train()
    with pytest.raises(ConfigError, match="closed"):
        trainer.train()
    assert trainer.control.status == "finished"
    assert trainer.collector.closed == 1
