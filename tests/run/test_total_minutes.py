"""`--total-minutes`: a run ends after so many minutes of training."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hooktrainer.algorithms import A2C


def test_a_run_ends_after_its_minutes_those_before_a_resume_included(tmp_path: Path) -> None:
    def train(**options: Any) -> Any:
        trainer = A2C(
            env="CartPole-v1",
            total_frames=100_000,
            num_envs=2,
            steps_per_batch=8,
            num_cells=(4,),
            eval_episodes=0,
            tuned=False,
            progress_bar=False,
            run_dir=tmp_path / "run",
            **options,
        ).train()
        summary = json.loads((tmp_path / "run/run.json").read_text())
        assert summary["status"] == "finished"
        assert "minutes" in summary["reason"]
        return trainer.progress

    first = train(total_minutes=0.002)
    assert 0.12 <= first.seconds < 10
    assert train(total_minutes=0.001, resume="latest").frames == first.frames
    assert train(total_minutes=first.seconds / 60 + 0.002, resume="latest").frames > first.frames
