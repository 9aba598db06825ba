"""Trainers in a notebook, whose kernel is pretended; `tests/test_notebooks.py` has a real one."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from contextlib import suppress
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from hooktrainer import TrainerHookBase
from hooktrainer.algorithms import PPO
from hooktrainer.base.notebook import in_kernel
from hooktrainer.loop import Control, GracefulSignals, live_view
from hooktrainer.testing import tiny_trainer


class Cells:
    """The outputs that a pretended kernel displays."""

    def __init__(self) -> None:
        self.drawn: list[dict[str, str]] = []

    def display(self, data: dict[str, str], *, raw: bool, display_id: bool) -> Any:
        assert raw
        assert display_id
        assert not self.drawn  # one output, which is then updated
        self.update(data, raw=raw)
        return self

    def update(self, data: dict[str, str], *, raw: bool) -> None:
        assert raw
        self.drawn.append(data)


@pytest.fixture
def cells(monkeypatch: pytest.MonkeyPatch) -> Cells:
    """The outputs of this process, as if it were a kernel."""
    cells = Cells()
    ipython, display = ModuleType("IPython"), ModuleType("IPython.display")
    ipython.get_ipython = lambda: SimpleNamespace(kernel=object())  # type: ignore[attr-defined]
    display.display = cells.display  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    monkeypatch.setattr(live_view, "_SECONDS", 0.0)
    return cells


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_a_view_shows_progress_metrics_and_a_curve(cells, capsys):
    trainer = tiny_trainer(progress_bar=True, log_interval=10)
    trainer.register_op("post_steps_log", lambda td: {"train/return": 2.5, "a<b>": 1.25, **SHOWN})
    trainer.train()
    first, last = cells.drawn[0], cells.drawn[-1]
    assert first["text/plain"].startswith("running · 0 of 50 frames")
    assert re.fullmatch(r"finished · 50 of 50 frames · [\d,]+ frames/s · .+ s", last["text/plain"])
    assert last["text/plain"] in last["text/html"]
    assert '<div style="width:100.0%">' in last["text/html"]
    assert '<th>train/return</th><td class="n">2.5</td>' in last["text/html"]
    assert '<th>a&lt;b&gt;</th><td class="n">1.25</td>' in last["text/html"]
    assert "a<b>" not in last["text/html"]
    (points,) = re.findall(r'<polyline class="mean" points="([^"]+)">', last["text/html"])
    assert len(points.split()) == 5  # windows
    assert capsys.readouterr().err == ""


SHOWN = {"log_pbar": ["a<b>"]}


def test_a_view_without_returns_shows_a_loss_escaped(cells):
    trainer = tiny_trainer(progress_bar=True)
    trainer.register_op("post_steps_log", lambda td: {"loss/<x>": 0.5, "loss/nan": float("nan")})
    trainer.train()
    html = cells.drawn[-1]["text/html"]
    shown = re.findall(r"<figcaption>(.*?)</figcaption>", html)
    assert len(shown) == 1
    assert shown[0].startswith("loss/")
    assert "<x>" not in html


@pytest.mark.parametrize("seconds", [0.0, 1e6])
def test_a_view_is_redrawn_from_time_to_time_and_at_the_end(cells, monkeypatch, seconds):
    monkeypatch.setattr(live_view, "_SECONDS", seconds)
    tiny_trainer(progress_bar=True).train()
    assert len(cells.drawn) == 2 if seconds else len(cells.drawn) > 4
    assert cells.drawn[-1]["text/plain"].startswith("finished · 50 of 50")


def test_a_failure_is_raised_and_shown(cells):
    trainer = tiny_trainer(progress_bar=True)
    trainer.register_op("post_steps", lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        trainer.train()
    assert cells.drawn[-1]["text/plain"].startswith("failed · 10 of 50 frames")


def test_a_long_curve_is_thinned(cells, monkeypatch):
    monkeypatch.setattr(live_view, "_MOST_POINTS", 8)
    view = live_view.LiveView(trainer := tiny_trainer())
    for trainer.progress.frames in range(100):
        view.add_window({"train/return": 1.0})
    view.display()
    points = re.findall(r'class="mean" points="([^"]+)"', cells.drawn[-1]["text/html"])[0].split()
    assert 4 <= len(points) <= 8
    view.close()


def test_outside_a_kernel_nothing_of_ipython_is_imported(monkeypatch, capsys):
    class Refusing:
        def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
            assert name.partition(".")[0] not in ("IPython", "ipywidgets", "ipykernel")

    for name in [name for name in sys.modules if name.partition(".")[0] == "IPython"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [Refusing(), *sys.meta_path])
    assert not in_kernel()
    tiny_trainer(progress_bar=True).train()
    assert "50.0/50.0" in capsys.readouterr().err


def test_a_terminal_of_ipython_is_no_kernel(monkeypatch):
    ipython = ModuleType("IPython")
    ipython.get_ipython = lambda: SimpleNamespace()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    assert not in_kernel()


class InterruptAt(TrainerHookBase):
    """Interrupts the kernel, in a batch."""

    at = "post_steps"
    is_saved = False

    def __init__(self, batch: int, number: int = signal.SIGINT) -> None:
        self.batch, self.number = batch, number

    def __call__(self) -> None:
        if self.trainer.progress.batches == self.batch:
            os.kill(os.getpid(), self.number)


def small_run(place: Any, *hooks: TrainerHookBase) -> PPO:
    return PPO(
        env="torch/CartPole-v1",
        total_frames=320,
        num_envs=4,
        steps_per_batch=16,
        mini_batch_size=32,
        num_epochs=1,
        eval_interval=64,
        eval_episodes=1,
        num_cells=(8,),
        stop_at=None,
        logger=None if place is None else "csv",
        run_dir=place,
        seed=3,
        hooks=hooks,
    )


def test_an_interrupted_run_continues_in_the_next_cell_bit_for_bit(cells, tmp_path, capsys):
    before = signal.getsignal(signal.SIGINT)
    run = small_run(tmp_path / "a", InterruptAt(2))
    trainer = run.train()
    assert (trainer.control.status, trainer.collected_frames) == ("interrupted", 128)
    assert repr(trainer) == "<Trainer: interrupted, 128 of 320 frames>"
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == (
        "Interrupted at 128 of 320 frames; continue it with .resumed().train() of this PPO."
    )
    assert cells.drawn[-1]["text/plain"].startswith("interrupted · 128 of 320 frames")
    assert signal.getsignal(signal.SIGINT) is before

    cells.drawn.clear()
    resumed = run.resumed().train()
    assert (resumed.control.status, resumed.collected_frames) == ("finished", 320)
    points = re.findall(r'class="mean" points="([^"]+)"', cells.drawn[-1]["text/html"])[0]
    assert len(points.split()) == 5  # evaluations, those before the interrupt included

    cells.drawn.clear()
    straight = small_run(tmp_path / "b").train()
    for ours, theirs in zip(
        resumed.loss_module.parameters(), straight.loss_module.parameters(), strict=True
    ):
        assert torch.equal(ours, theirs)
    logs = [(tmp_path / name / "metrics.csv").read_text().splitlines() for name in "ab"]
    rows = [[row for row in log if ",time/" not in row] for log in logs]
    assert rows[0] == rows[1]


def test_an_interrupted_run_without_a_directory_cannot_be_continued(cells, capsys):
    trainer = small_run(None, InterruptAt(2)).train()
    assert trainer.control.status == "interrupted"
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == ("Interrupted at 128 of 320 frames; nothing was saved, since it has no run_dir.")


def test_a_kernel_that_is_terminated_exits(cells, tmp_path):
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        with pytest.raises(SystemExit) as ended:
            small_run(tmp_path / "a", InterruptAt(2, signal.SIGTERM)).train()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert ended.value.code == 143


def test_a_kernel_is_not_killed_for_a_call_that_does_not_return(cells, monkeypatch, capfd):
    codes: list[int] = []
    monkeypatch.setattr("hooktrainer.loop.signals.exit_now", codes.append)
    with GracefulSignals(Control(), 0.2):
        interrupt()
        end = time.monotonic() + 0.5
        while time.monotonic() < end:
            with suppress(BaseException):  # the batch is abandoned
                time.sleep(0.01)
    assert codes == []
    assert "the batch is not done and is abandoned" in capfd.readouterr().err
