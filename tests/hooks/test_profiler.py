from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest

from hooktrainer import Profiler
from hooktrainer.errors import ConfigError
from hooktrainer.testing import tiny_trainer


def windows(place):
    return sorted(path.name for path in place.glob("*.json")) if place.exists() else []


def trained(place, frames=100, **options):
    trainer = tiny_trainer(total_frames=frames)  # batches of 10 frames
    Profiler(place, **options).register(trainer)
    listening = []
    trainer.register_op("post_steps", lambda: listening.append(bool(trainer.timing.listeners)))
    trainer.train()
    assert trainer.timing.listeners == ()
    assert not listening[-1]  # after the last window the profiler costs nothing
    return windows(place)


def test_a_window_holds_the_operators_by_phase(tmp_path):
    assert trained(tmp_path, wait=1, warmup=1, active=2) == ["batches_3-4.pt.trace.json"]
    events = json.loads((tmp_path / "batches_3-4.pt.trace.json").read_text())["traceEvents"]
    names = [event["name"] for event in events if event.get("cat") in ("cpu_op", "user_annotation")]
    assert any(name.startswith("aten::") for name in names)
    for phase in ("collect", "optimize"):
        assert names.count(phase) == 2
    table = (tmp_path / "batches_3-4.txt").read_text()
    assert "aten::" in table
    assert "optimize" in table


def test_windows_follow_each_other_until_they_are_enough(tmp_path):
    found = trained(tmp_path, wait=0, warmup=1, active=2, repeat=2)
    assert found == ["batches_2-3.pt.trace.json", "batches_5-6.pt.trace.json"]


@pytest.mark.parametrize(
    ("name", "least"), [("wait", 0), ("warmup", 1), ("active", 1), ("repeat", 0)]
)
def test_too_small_numbers_are_refused(name, least):
    with pytest.raises(ConfigError, match=f"^{name}={least - 1}: pass"):
        Profiler("profile", **{name: least - 1})


def example(trainer):
    return Profiler(Path(tempfile.mkdtemp()) / "profile", active=1)
