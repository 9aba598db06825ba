"""``--resume`` of recipes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from outcomes import committed, rows
from tensordict import TensorDict

from hooktrainer import CountFramesLog, Latest, RunDir, Schedule, Trainer
from hooktrainer.errors import CheckpointError, ConfigError, StateMismatchError
from hooktrainer.run import Run, RunConfig
from hooktrainer.store import CheckpointManager
from hooktrainer.testing import FakeCollector


@dataclass(frozen=True, kw_only=True)
class Args(RunConfig):
    """Options of a run that takes milliseconds."""

    total_frames: int = 60
    lr: float = 0.1
    anneal: bool = False
    save_interval: int = 20
    log_interval: int = 20
    keep_last: int = 99
    progress_bar: bool = False


class Loss(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Linear(4, 1)

    def forward(self, batch):
        return TensorDict({"loss": self.net(batch["observation"]).square().mean()}, [])


def train(
    path: Path | None, resume: str | None = None, *, before_each_batch=None, hooks=(), **options
) -> Trainer:
    """Train as a recipe does; ``eval/return`` is best at 20 frames."""
    args = Args(run_dir=path, resume=resume, **options)
    torch.manual_seed(args.seed)
    run = Run(args, "toy")
    loss = Loss()
    trainer = Trainer(
        collector=FakeCollector(),
        total_frames=args.total_frames,
        optim_steps_per_batch=1,
        loss_module=loss,
        optimizer=torch.optim.Adam(loss.parameters(), lr=args.lr),
        **run.trainer_options,
    )
    trainer.register_op(
        "post_steps_log",
        lambda batch: {"eval/return": Latest(-abs(trainer.collected_frames - 20))},
    )
    if before_each_batch is not None:
        trainer.register_op("batch_process", before_each_batch)
    for hook in hooks:
        hook.register(trainer)
    if args.anneal:
        Schedule.linear(trainer.optimizer, "lr", args.lr, 0.0).register(trainer)
    run.train(trainer)
    return trainer


def weights(trainer: Trainer) -> list[float]:
    return torch.cat([p.detach().flatten() for p in trainer.loss_module.parameters()]).tolist()


@pytest.fixture
def run(tmp_path: Path) -> Path:
    train(tmp_path / "run")
    return tmp_path / "run"


def test_resuming_a_finished_run_does_nothing(run, capsys):
    before, logged = committed(run), (run / "metrics.csv").read_bytes()
    capsys.readouterr()
    assert train(run, "latest").collected_frames == 60
    assert f"hooktrainer resume {run} -- --total-frames 120" in capsys.readouterr().out
    assert (committed(run), (run / "metrics.csv").read_bytes()) == (before, logged)


@pytest.mark.parametrize("log_interval", [20, 25])  # a window is open at the end of the first, too
def test_an_extended_run_equals_a_longer_run(tmp_path, log_interval):
    kept = {"log_interval": log_interval}
    train(tmp_path / "run", **kept)
    longer = train(tmp_path / "run", "latest", total_frames=120, **kept)
    whole = train(tmp_path / "whole", total_frames=120, **kept)
    assert weights(longer) == weights(whole)
    assert rows(tmp_path / "run") == rows(tmp_path / "whole")
    assert committed(tmp_path / "run") == [20, 40, 60, 80, 100, 120]


def test_an_extended_run_follows_the_schedule_of_the_longer_run(tmp_path, capsys):
    def rates(path: Path) -> list[str]:
        return [row for row in rows(path) if ",train/lr," in row]

    kept = {"anneal": True, "log_interval": 1}
    short = train(tmp_path / "run", **kept)
    assert short.optimizer.param_groups[0]["lr"] == 0.0
    capsys.readouterr()
    longer = train(tmp_path / "run", "latest", total_frames=120, **kept)
    assert "\ntotal_frames 60 → 120: train/lr 0 → 0.05\n" in capsys.readouterr().out
    train(tmp_path / "whole", total_frames=120, **kept)
    assert rates(tmp_path / "run")[6:] == rates(tmp_path / "whole")[6:]
    assert len(rates(tmp_path / "run")) == 12
    assert weights(longer) != weights(short)


def test_a_run_killed_after_a_rollback_resumes_from_there(run, tmp_path):
    """Its logs were taken back: the later checkpoints are of a course that was given up."""

    def die(batch):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(run, "20", before_each_batch=die)
    assert committed(run) == [20]
    resumed = train(run, "latest")
    whole = train(tmp_path / "whole")
    assert weights(resumed) == weights(whole)
    assert rows(run) == rows(tmp_path / "whole")


def test_a_refused_resume_changes_nothing(run):
    before = (run / "run.json").read_bytes()
    with pytest.raises(StateMismatchError):
        train(run, "20", hooks=[CountFramesLog(1)])
    assert committed(run) == [20, 40, 60]
    assert (run / "run.json").read_bytes() == before
    with pytest.warns(UserWarning, match="count_frames_log is in this trainer but not"):
        train(run, "20", hooks=[CountFramesLog(1)], strict=False)
    assert committed(run) == [20, 40, 60]


@pytest.mark.parametrize("resume", [None, "latest"])
def test_a_run_that_is_being_trained_is_refused_and_left_alone(tmp_path, resume):
    """Whatever its ``run.json`` says: it may be another process's that was refused as well."""
    path = tmp_path / "run"
    with CheckpointManager(path / "checkpoints") as manager:
        manager.save({}, frames=1)
        manager.wait()
        (path / "metrics.csv").write_text("step,name,value\n")
        before = {file: file.stat().st_mtime_ns for file in path.rglob("*")}
        with pytest.raises((CheckpointError, FileExistsError)):
            train(path, resume)
        assert {file: file.stat().st_mtime_ns for file in path.rglob("*")} == before


def test_a_moved_checkpoint_resumes_only_its_own_run(run, tmp_path):
    moved = tmp_path / "mine"
    (run / "checkpoints" / "step_000000000040").rename(moved)
    with pytest.raises(ConfigError, match=r"Name its run with --run-dir, or .* --fork .*/mine$"):
        train(None, str(moved))
    with pytest.raises(ConfigError, match=r"new holds no run.*--fork"):
        train(tmp_path / "new", str(moved))
    assert not (tmp_path / "new").exists()
    whole = weights(train(tmp_path / "whole", total_frames=80))
    assert weights(train(run, str(moved), total_frames=80)) == whole
    assert committed(run)[-1] == 80


def test_a_changed_option_is_refused_unless_allowed(run):
    with pytest.raises(ConfigError, match=r"lr: 0\.1 before, 0\.5 now") as caught:
        train(run, "latest", lr=0.5)
    assert "--allow-change lr" in str(caught.value)
    assert RunDir(run).read()["status"] == "finished"  # nothing was touched
    changed = train(run, "latest", lr=0.5, allow_change=("lr",), total_frames=80)
    assert committed(run)[-1] == 80
    assert changed.optimizer.param_groups[0]["lr"] == 0.5


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("best", "holds no run"),
        ("40", "holds no run"),
        ("nowhere@40", "no run nowhere"),
        ("nowhere/step_000000000040", "no checkpoint nowhere"),
    ],
)
def test_a_missing_checkpoint_is_refused_before_anything_is_created(tmp_path, spec, message):
    place = None if "nowhere" in spec else tmp_path / "new"
    with pytest.raises(CheckpointError, match=message):
        train(place, spec)
    assert list(tmp_path.iterdir()) == []


def test_latest_begins_a_run_in_a_directory_that_holds_none(tmp_path, capsys):
    place = tmp_path / "new"
    begun = weights(train(place, "latest"))
    assert "new holds no run: it begins" in capsys.readouterr().out
    assert begun == weights(train(tmp_path / "other"))
    train(place, "latest", total_frames=80)
    assert committed(place) == [20, 40, 60, 80]


def test_a_damaged_latest_checkpoint_is_set_aside(run, tmp_path, capsys, caplog):
    file = run / "checkpoints" / "step_000000000060" / "state.json"
    file.write_bytes(file.read_bytes()[:-1])
    resumed = train(run, "latest")
    assert "step_000000000040\n" in capsys.readouterr().out
    assert "state.json has" in caplog.text
    assert "step_000000000040 is loaded instead" in caplog.text
    assert weights(resumed) == weights(train(tmp_path / "whole"))
    assert len(list((run / "checkpoints").glob("damaged-*"))) == 1


def test_a_run_killed_before_its_first_checkpoint_restarts(tmp_path):
    RunDir.create(tmp_path / "run")
    (tmp_path / "run" / "metrics.csv").write_text("step,name,value\n10,old,1\n")
    train(tmp_path / "run", "latest")
    assert committed(tmp_path / "run") == [20, 40, 60]
    assert "old" not in (tmp_path / "run" / "metrics.csv").read_text()
