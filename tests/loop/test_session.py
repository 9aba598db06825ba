"""`Session`: the hooks, metrics and exact checkpoints of a run around a loop of one's own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from outcomes import committed, rows, same_runs
from tensordict import TensorDict
from warm_python import run

from hooktrainer import (
    ConfigError,
    Every,
    HookError,
    MiniBatches,
    NanGuard,
    NonFiniteError,
    RunDir,
    Session,
    StateMismatchError,
    TrainerHookBase,
)
from hooktrainer.cli import main
from hooktrainer.errors import SkipOptimStep, TakenError, UnknownHookPointError
from hooktrainer.hooks import CompiledStep, LogScalar, OptimizerHook
from hooktrainer.loop import SignalExit
from hooktrainer.testing import CallRecorder, FakeCollector, ScriptedLoss, tiny_trainer

BATCH = TensorDict({"x": torch.arange(4.0)}, [4])
LOSSES = TensorDict({"loss": torch.tensor(1.0)}, [])


def session_in(tmp_path: Path, **options: Any) -> Session:
    return Session(tmp_path / "run", **{"report": False, "logger": "csv"} | options)


def train(session: Session, batches: int = 3) -> None:
    """A loop with one optimizer step a batch, of 10 frames."""
    with session:
        for _ in range(batches):
            session.step("post_optim")
            session.log({"a": session.progress.batches})
            if not session.end_batch(frames=10):
                break


# -- the points ------------------------------------------------------------------------------------


class Counting(CallRecorder):
    """Records the counters that a hook sees at every call."""

    def _record(self, *arguments: Any, point: str) -> None:
        super()._record(*arguments, point=point)
        self.seen = [*getattr(self, "seen", []), self.trainer.progress.optim_steps]


def test_hooks_are_called_and_count_as_by_the_loop_of_a_trainer(tmp_path):
    theirs = Counting()
    trainer = tiny_trainer(total_frames=20)
    theirs.register(trainer)
    trainer.train()

    ours, loss = Counting(), ScriptedLoss()
    optimizer = OptimizerHook(torch.optim.SGD(loss.parameters(), lr=0.1))
    given = {"loss_module": loss, "hooks": [optimizer, ours]}
    with session_in(tmp_path, total_frames=20, **given) as session:
        batches = iter(FakeCollector())
        while session.going_on:
            batch = session.step("batch_process", next(batches))
            session.step("pre_steps_log", batch)
            session.step("pre_optim_steps")
            for _ in range(2):
                sub_batch = session.step("process_optim_batch", batch)
                losses = loss(sub_batch)
                sub_batch = session.step("post_loss", sub_batch)
                session.step("optimizer", losses)
                session.step("post_optim")
                session.step("post_optim_log", sub_batch)
            session.end_batch(batch.numel(), batch)
    assert ours.calls == theirs.calls
    assert ours.seen == theirs.seen
    assert [len(a) for a in ours.arguments] == [len(a) for a in theirs.arguments]
    assert session.optim_count == trainer.optim_count == 4
    assert torch.equal(loss.parameter, trainer.loss_module.parameter)


def test_a_hook_that_ends_the_epoch_serves_the_next_one_as_well(tmp_path):
    sizes = []
    with session_in(tmp_path, hooks=[MiniBatches(2)]) as session:
        for _ in range(2):
            for _ in range(3):
                try:
                    while True:
                        sizes.append(len(session.step("process_optim_batch", BATCH)))
                except StopIteration:
                    pass
            session.end_batch(frames=4)
    assert sizes == [2] * 12


def test_a_step_that_a_hook_skips_is_not_counted_and_the_loop_catches_it(tmp_path):
    session = session_in(tmp_path)
    session.register_op("post_loss", lambda batch: session.skip_optim_step())
    with pytest.raises(HookError, match=r"catch hooktrainer.errors.SkipOptimStep"), session:
        session.step("post_loss", BATCH)
    assert session.optim_count == 0
    assert RunDir(tmp_path / "run").read()["status"] == "failed"
    with session_in(tmp_path, resume="latest", logger=()) as again:
        again.register_op("post_loss", lambda batch: again.skip_optim_step())
        with pytest.raises(SkipOptimStep):
            again.step("post_loss", BATCH)
        again.step("post_optim")
        again.end_batch(frames=1)
    assert again.optim_count == 1


# -- cadences, metrics, checkpoints ----------------------------------------------------------------


def test_windows_cadences_and_checkpoints_are_those_of_a_run(tmp_path):
    due = []
    session = session_in(tmp_path, total_frames=60, log_interval=20, save_interval=30)
    session.register_op(
        "post_steps", lambda: due.append(session.progress.frames), every=Every(frames=25)
    )
    train(session, 100)
    assert due == [30, 50]
    assert committed(tmp_path / "run") == [30, 60]
    named = [row for row in rows(tmp_path / "run") if ",a," in row]
    assert named == ["10,a,0.0", "20,a,1.0", "40,a,2.5", "60,a,4.5"]
    state = RunDir(tmp_path / "run").read()
    assert (state["status"], state["frames"], state["optim_steps"]) == ("finished", 60, 6)


def test_the_block_may_log_after_its_loop(tmp_path):
    with session_in(tmp_path, total_frames=10) as session:
        session.end_batch(frames=10)
        session.log({"test/accuracy": 0.5})
    assert rows(tmp_path / "run")[-1] == "10,test/accuracy,0.5"


def test_a_block_that_ends_early_is_stopped_and_one_without_a_total_is_finished(tmp_path):
    for total, status in ((100, "stopped"), (None, "finished")):
        session = session_in(tmp_path / status, total_frames=total)
        train(session)
        assert session.control.status == status
        assert committed(tmp_path / status / "run") == [30]
    assert "the loop ended at 30" in RunDir(tmp_path / "stopped/run").read()["reason"]


def test_the_options_of_the_loop_are_those_of_the_run(tmp_path):
    train(session_in(tmp_path, config={"lr": 0.5, "seed": 7}, name="mine", unit="samples"))
    run = RunDir(tmp_path / "run")
    assert run.read_config() | {"lr": 0.5, "seed": 7, "name": "mine"} == run.read_config()
    assert run.read()["unit"] == "samples"
    with pytest.raises(ConfigError, match=r"lr: 0.5 before, 0.1 now"):
        session_in(tmp_path, config={"lr": 0.1, "seed": 7}, name="mine", resume="latest")
    changed = {"config": {"lr": 0.1, "seed": 7}, "allow_change": ["lr"], "name": "mine"}
    with session_in(tmp_path, **changed, unit="samples", resume="latest") as session:
        assert session.progress.samples == 30
        session.end_batch(frames=10)


def test_the_commands_work_on_it(tmp_path, capsys):
    train(session_in(tmp_path))
    for words in (["runs", tmp_path], ["ckpt", "list", tmp_path / "run"]):
        assert main([str(word) for word in words]) == 0, capsys.readouterr()
    assert "step_000000000030" in capsys.readouterr().out


# -- resume ----------------------------------------------------------------------------------------

LOOP = """
import os, random, signal, sys
import numpy as np, torch
from hooktrainer import Every, LogScalar, Session, TrainerHookBase
from tensordict import TensorDict

class Sum(TrainerHookBase):
    at = "post_optim"
    every = Every(optim_steps=2)
    saved_attributes = ("sum",)
    sum = 0.0
    def __call__(self):
        self.sum += random.random()
        self.trainer.log({"train/sum": self.sum})

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Dropout(), torch.nn.Linear(8, 1))
optimizer = torch.optim.Adam(model.parameters())
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.5)
loop = {"mean": np.zeros(3), "last": None}
kill = int(sys.argv[1])
with Session("run", total_frames=200, hooks=[Sum(), LogScalar("y", "train/y", log_pbar=False)],
             resume="latest", seed=1, log_interval=30, save_interval=30, report=False, logger="csv",
             model=model, optimizer=optimizer, scheduler=scheduler, loop=loop) as session:
    while session.going_on:
        x = torch.from_numpy(np.random.randn(5, 3)).float() + torch.from_numpy(loop["mean"]).float()
        batch = session.step("batch_process", TensorDict({"x": x, "y": x.sum(-1)}, [5]))
        session.step("pre_steps_log", batch)
        for _ in range(2):
            loss = (model(x).squeeze(-1) - batch["y"]).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            session.step("post_optim")
            session.log({"loss/loss": loss})
        scheduler.step()
        loop["mean"] = 0.9 * loop["mean"] + 0.1 * x.numpy().mean(0)
        if session.progress.frames == kill:
            os.kill(os.getpid(), signal.SIGTERM if "term" in sys.argv else signal.SIGKILL)
        session.end_batch(frames=5)
"""


def test_a_killed_loop_goes_on_bit_for_bit(tmp_path):
    (tmp_path / "loop.py").write_text(LOOP)
    for place in ("whole", "killed"):
        (tmp_path / place).mkdir()
    assert run(tmp_path / "loop.py", -1, where=tmp_path / "whole").returncode == 0
    ends = [(10, "kill", -signal.SIGKILL)]  # before the first checkpoint
    ends += [(75, "kill", -signal.SIGKILL), (130, "term", 128 + signal.SIGTERM)]
    for frames, how, code in ends:
        done = run(tmp_path / "loop.py", frames, how, where=tmp_path / "killed")
        assert done.returncode == code, done.stderr
    done = run(tmp_path / "loop.py", -1, where=tmp_path / "killed")
    assert done.returncode == 0, done.stderr
    assert same_runs(tmp_path / "whole/run", tmp_path / "killed/run")
    assert rows(tmp_path / "whole/run") == rows(tmp_path / "killed/run")
    assert len(rows(tmp_path / "whole/run")) > 30


def test_a_finished_run_is_not_trained_again_and_goes_on_with_a_larger_total(tmp_path, capsys):
    train(session_in(tmp_path, total_frames=20))
    with session_in(tmp_path, total_frames=20, resume="latest") as session:
        assert not session.going_on
        with pytest.raises(HookError, match="the run has ended"):
            session.end_batch(frames=10)
    assert "nothing left to do" in capsys.readouterr().out
    with session_in(tmp_path, total_frames=40, resume="latest") as session:
        while session.going_on:
            session.end_batch(frames=10)
    assert session.collected_frames == 40


def test_latest_begins_a_run_where_there_is_none_and_none_refuses_one(tmp_path):
    train(session_in(tmp_path, resume="latest"))
    with pytest.raises(TakenError):
        session_in(tmp_path)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"model": torch.nn.Linear(3, 1)}, r"given/model: weight is \[1, 3\] here and \[1, 2\]"),
        ({"net": torch.nn.Linear(2, 1)}, "given/model is in the state but not in this trainer"),
        ({"model": torch.nn.Linear(2, 1), "loop": {"b": 1}}, "given/loop: 'b' is not in the state"),
    ],
)
def test_other_objects_than_the_saved_ones_are_refused(tmp_path, other, message):
    train(session_in(tmp_path, model=torch.nn.Linear(2, 1), loop={"a": 1}))
    with pytest.raises(StateMismatchError, match=message):
        session_in(tmp_path, resume="latest", **{"loop": {"a": 1}} | other)


# -- how it ends -----------------------------------------------------------------------------------


class Watching(TrainerHookBase):
    at = "post_steps"

    def __init__(self) -> None:
        self.events: list[str] = []

    def __call__(self) -> None: ...

    def on_train_end(self, trainer: Any) -> None:
        self.events.append("end")

    def on_exception(self, trainer: Any, exception: BaseException) -> None:
        self.events.append(type(exception).__name__)

    def close(self) -> None:
        self.events.append("close")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_run_with_the_batch_and_a_checkpoint(tmp_path, number):
    def stopped_in_its_second_batch() -> None:
        with session:
            while session.going_on:
                if session.progress.batches == 1:
                    os.kill(os.getpid(), number)
                session.end_batch(frames=10)
            saved.extend(committed(tmp_path / "run"))  # before whatever the block does then

    saved: list[int] = []
    session = session_in(tmp_path, hooks=[watching := Watching()])
    before = signal.signal(number, signal.SIG_DFL)
    try:
        with pytest.raises(SignalExit) as ended:
            stopped_in_its_second_batch()
        assert signal.getsignal(number) == signal.SIG_DFL
    finally:
        signal.signal(number, before)
    assert (ended.value.code, saved) == (128 + number, [20])
    assert watching.events == ["end", "close"]
    assert RunDir(tmp_path / "run").read()["status"] == "interrupted"


@pytest.mark.parametrize(
    ("error", "status", "aside"),
    [(ValueError("boom"), "failed", True), (KeyboardInterrupt(), "interrupted", False)],
)
def test_an_exception_in_the_block_closes_everything_and_is_raised(tmp_path, error, status, aside):
    def failing_loop() -> None:
        with session:
            session.end_batch(frames=10)
            raise error

    session = session_in(tmp_path, hooks=[watching := Watching()])
    with pytest.raises(type(error)) as raised:
        failing_loop()
    assert raised.value is error
    assert watching.events == [type(error).__name__, "close"]
    assert RunDir(tmp_path / "run").read()["status"] == status
    assert (tmp_path / "run/exception.pt").exists() == aside
    with pytest.raises(HookError, match=r"step.'post_optim'. after the block"):
        session.step("post_optim")


def test_an_iterator_that_ran_out_in_the_block_is_no_good_end(tmp_path):
    with pytest.raises(RuntimeError, match="StopIteration was raised in"), session_in(tmp_path):
        next(iter(()))


IN_A_GENERATOR = """
from hooktrainer import Session

def batches():
    with Session("run", logger="csv", save_interval=10, report=False) as session:
        while True:
            session.end_batch(frames=10)
            yield

running = batches()
next(running)
next(running)
"""


@pytest.mark.slow
def test_a_generator_is_left_with_the_program_as_if_it_were_killed(tmp_path):
    command = [sys.executable, "-c", IN_A_GENERATOR]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert committed(tmp_path / "run") == [10, 20]


def test_a_generator_that_is_read_no_further_stops_the_run(tmp_path):
    def frames():
        with session_in(tmp_path, total_frames=40) as session:
            while session.end_batch(frames=10):
                yield session.collected_frames

    reading = frames()
    assert next(reading) == 10
    reading.close()
    state = RunDir(tmp_path / "run").read()
    assert (state["status"], state["frames"]) == ("stopped", 10)


def test_a_hook_that_cannot_start_fails_the_run(tmp_path):
    watching = Watching()
    watching.on_train_start = lambda trainer: 1 / 0
    with pytest.raises(ZeroDivisionError), session_in(tmp_path, hooks=[watching]):
        raise AssertionError
    assert watching.events == ["ZeroDivisionError", "close"]


def test_losses_are_checked_before_the_step(tmp_path):
    losses = TensorDict({"loss": torch.tensor(float("nan"))}, [])
    with pytest.raises(NonFiniteError), session_in(tmp_path, hooks=[NanGuard()]) as session:
        session.step("optimizer", losses)


# -- wrong usage -----------------------------------------------------------------------------------


def test_a_hook_at_a_point_that_the_loop_does_not_call_is_told(tmp_path):
    hooks = [LogScalar("x", "train/x"), Watching()]
    with pytest.warns(UserWarning, match="'log_train/x' at pre_steps_log") as told:
        train(session_in(tmp_path, hooks=hooks))
    assert len(told) == 1
    assert Path(told[0].filename) == Path(__file__)


def test_a_hook_outside_the_points_is_refused(tmp_path):
    session = session_in(tmp_path, hooks=[LogScalar("x", "train/x")], points=["post_optim"])
    with (
        pytest.raises(ConfigError, match="'log_train/x' is at pre_steps_log, which is not in"),
        session,
    ):
        raise AssertionError
    with session_in(tmp_path / "b", points=["post_optim"]) as session:
        session.step("post_optim")
        with pytest.raises(ConfigError, match="add it to points="):
            session.step("post_loss", BATCH)
        session.end_batch(frames=1)


def test_a_hook_that_needs_the_loop_of_a_trainer_is_told_so(tmp_path):
    class Reads(TrainerHookBase):
        at = "post_steps"

        def __call__(self) -> None:
            return self.trainer.num_epochs

    with pytest.raises(HookError, match="a Session has no num_epochs: the loop") as raised:
        train(session_in(tmp_path / "a", hooks=[Reads()]))
    assert "in hook 'reads' at hook point post_steps" in raised.value.__notes__[0]
    for name in ("train", "run", "compute_loss", "clip_norm"):
        assert not hasattr(session_in(tmp_path / name), name)

    class Computes(Reads):
        at = "optimizer"
        computes_loss = True

        def __call__(self, *_: Any) -> Any: ...

    with pytest.raises(ConfigError, match="'computes' computes the loss"):
        train(session_in(tmp_path / "b", hooks=[Computes()]))

    class UsesLoss(Reads):
        def __call__(self) -> None:
            self.trainer.loss_module.parameters()

    with pytest.raises(HookError, match=r"no loss_module: a hook uses it; pass Session"):
        train(session_in(tmp_path / "c", hooks=[UsesLoss()]))
    loss = ScriptedLoss()
    optimizer = OptimizerHook(torch.optim.SGD(loss.parameters(), lr=0.1))
    with pytest.raises(HookError, match=r"no compiled_loss: the loop"):
        train(session_in(tmp_path / "d", hooks=[optimizer, CompiledStep()], loss_module=loss))


def test_calls_outside_the_block_and_after_the_end_are_refused(tmp_path):
    session = session_in(tmp_path, total_frames=10)
    for call in (
        lambda: session.step("post_optim"),
        lambda: session.end_batch(1),
        lambda: session.log({"a": 1}),
    ):
        with pytest.raises(HookError, match="outside the block"):
            call()
    with session:
        assert not session.end_batch(frames=10)
        with pytest.raises(HookError, match="the run has ended"):
            session.step("post_optim")
        with pytest.raises(HookError, match="the run has ended"):
            session.end_batch(frames=10)
    with pytest.raises(ConfigError, match="closed"), session:
        ...


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda s: s.step("post_optm"), "Did you mean post_optim"),
        (lambda s: s.step("post_steps"), "end_batch.* calls it"),
        (lambda s: s.step("post_loss"), r"pass \(sub_batch\), not 0 arguments"),
        (lambda s: s.step("post_optim", BATCH), r"pass \(\), not 1 arguments"),
        (lambda s: s.step("batch_process", {"x": 1}), "batch is .*dict"),
        (lambda s: s.end_batch(frames=0), "frames=0: pass a positive integer"),
        (lambda s: s.end_batch(frames=2.5), "frames=2.5: pass a positive integer"),
    ],
)
def test_wrong_calls_are_explained(tmp_path, call, message):
    errors = (ConfigError, UnknownHookPointError)
    with pytest.raises(errors, match=message), session_in(tmp_path) as session:
        call(session)


def test_wrong_arguments_are_explained(tmp_path, monkeypatch):
    with pytest.raises(ConfigError, match=r"envs=.* has no state_dict"):
        session_in(tmp_path, envs=object())
    with pytest.raises(UnknownHookPointError):
        session_in(tmp_path, points=["post_optm"])
    assert not (tmp_path / "run").exists()
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ConfigError, match="a Session is one process, and there are 2"):
        session_in(tmp_path)


def test_a_block_without_a_batch_is_an_error_and_one_that_ends_within_one_is_told(tmp_path):
    never = pytest.raises(ConfigError, match=r"end_batch.* was never called")
    with never, session_in(tmp_path) as session:
        session.step("post_optim")
    within = pytest.warns(UserWarning, match="the block ended within a batch")
    with within as told, session_in(tmp_path / "b") as session:
        session.end_batch(frames=1)
        session.step("post_optim")
    assert Path(told[0].filename) == Path(__file__)


def test_a_session_that_cannot_be_made_leaves_its_directory_to_another(tmp_path):
    with pytest.raises(ConfigError, match="hooks="):
        session_in(tmp_path, hooks=[print])
    train(session_in(tmp_path))
    assert json.loads((tmp_path / "run/run.json").read_text())["status"] == "finished"
