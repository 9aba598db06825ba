"""Comparisons of runs of a real trainer, and what they leave out."""

from __future__ import annotations

from hooktrainer import Every, RunDir, get_logger
from hooktrainer.cli.compare import compare_runs, without_clock
from hooktrainer.store import CheckpointManager
from hooktrainer.testing import tiny_trainer


def train(path):
    trainer = tiny_trainer(
        logger=get_logger(("csv", "tensorboard"), RunDir(path), "toy"),
        log_interval=20,
        checkpoints=CheckpointManager(path / "checkpoints"),
        seed=0,
    )
    trainer.register_op("post_steps", lambda: None, every=Every(seconds=1e-6))
    trainer.train()
    return path


def test_two_runs_of_a_trainer_are_identical_but_for_the_clock(tmp_path):
    compared = compare_runs(train(tmp_path / "run"), train(tmp_path / "again"))
    assert [difference for part in compared for difference in part.found] == []
    leaves = {part.part: part.leaves for part in compared}
    assert leaves["loss_module"] > 0
    assert leaves["metrics.csv"] == leaves["tensorboard"] > 0
    assert {"hook/optimizer", "collector", "progress", "random state"} <= set(leaves)


def test_the_clocks_of_all_ranks_are_left_out():
    def state(seconds):
        components = {"progress": {"frames": 8, "seconds": seconds}}
        reported = {"loss/a": 1.0, "time/step": seconds}
        ranks = [{"components": components}]
        return {"components": components, "reported": reported, "ranks": ranks}

    one, other = without_clock(state(1.0), state(2.0))
    assert one == other
    assert one["ranks"][0]["components"]["progress"] == {"frames": 8}
    assert one["reported"] == {"loss/a": 1.0}
