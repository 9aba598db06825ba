from __future__ import annotations

import pytest

from hooktrainer.base import frames_bar
from hooktrainer.testing import tiny_trainer


def test_the_bar_ends_at_the_last_frame_with_the_marked_metrics(capsys):
    trainer = tiny_trainer(progress_bar=True)
    trainer.register_op("post_steps_log", lambda td: {"reward": 2.5, "log_pbar": True})
    trainer.train()
    last = capsys.readouterr().err.replace("\r", "\n").strip().splitlines()[-1]
    assert "50.0/50.0" in last
    assert "100%" in last
    assert "reward=2.5" in last


@pytest.mark.parametrize("seconds", [0.0, 1e6])
def test_a_file_has_a_line_from_time_to_time_and_no_picture(capsys, monkeypatch, seconds):
    monkeypatch.setattr(frames_bar, "SECONDS", seconds)
    tiny_trainer(progress_bar=True).train()
    text = capsys.readouterr().err
    assert "\r" not in text
    lines = text.splitlines()
    assert "0.00/50.0" in lines[0]
    assert "50.0/50.0" in lines[-1]
    assert len(lines) == 2 if seconds else len(lines) > 4
    assert text.endswith("\n")
