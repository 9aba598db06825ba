from __future__ import annotations

import json
import tempfile
from collections import Counter
from pathlib import Path

from hooktrainer import Tracer, algorithms
from hooktrainer.run import Run, RunConfig
from hooktrainer.testing import tiny_trainer


def spans(path):
    """The spans of a trace of one thread: name, category, beginning, end."""
    return [
        (event["name"], event["cat"], event["ts"], event["ts"] + event["dur"])
        for event in json.loads(path.read_text())["traceEvents"]
        if event["ph"] == "X"
    ]


def parents(path):
    """How often each span lies in which other, as (outer, inner); fails if two cross."""
    found, stack = Counter(), []
    for name, _, start, end in spans(path):
        while stack and stack[-1][1] <= start + 1e-4:
            stack.pop()
        assert not stack or end <= stack[-1][1] + 1e-4, f"{name} leaves {stack[-1][0]}"
        found[stack[-1][0] if stack else None, name] += 1
        stack.append((name, end))
    return found


def test_the_first_batches_are_recorded_and_no_more(tmp_path):
    trainer = tiny_trainer(total_frames=100)  # 10 batches of 2 steps
    trainer.register_op("post_optim", lambda: None)
    seen = []
    trainer.register_op("post_steps", lambda: seen.append(trainer.timing.trace is not None))
    Tracer(tmp_path / "trace.json", 3).register(trainer)
    trainer.train()
    found = parents(tmp_path / "trace.json")
    assert seen == [True] * 3 + [False] * 7
    assert found[None, "step"] == found["step", "collect"] == found["step", "optimize"] == 3
    assert found["optimize", "loss"] == found["optimize", "optimizer"] == 6
    assert found["optimize", "<lambda>"] == 6
    assert found["step", "<lambda>"] == 3
    assert found[None, "start"] == 1


def test_the_parts_of_collecting_and_evaluation_are_in(tmp_path):
    trainer = algorithms.PPO(
        env="CartPole-v1",
        total_frames=4_096,
        seed=0,
        progress_bar=False,
        eval_episodes=1,
        eval_interval=1,
        tuned=False,
        hooks=[Tracer(tmp_path / "trace.json", 2)],
    ).trainer()
    trainer.train()
    found = parents(tmp_path / "trace.json")
    steps = trainer.collector.frames_per_batch // trainer.collector.num_envs
    assert found["collect", "env"] == found["collect", "inference"] == 2 * steps
    assert found["collect", "transfer"] == 2
    assert found["step", "evaluate"] == found["step", "value_estimator"] == 2
    by_name = {(name, category) for name, category, *_ in spans(tmp_path / "trace.json")}
    assert {("value_estimator", "advantages"), ("evaluate", "evaluate")} <= by_name
    assert {("optimizer", "optimize"), ("env", "collect"), ("step", "phase")} <= by_name


def test_every_recipe_can_be_traced_and_profiled(tmp_path, capsys):
    def trained(frames, **options):
        given = {"logger": ("csv",), "progress_bar": False, "total_frames": frames, **options}
        args = RunConfig(run_dir=tmp_path / "run", **given)
        run = Run(args, "toy")
        run.train(tiny_trainer(total_frames=frames, **run.trainer_options))
        return run.dir

    place = trained(60, trace=2, profile=1)
    assert parents(place.trace)[None, "step"] == 2
    assert (place.profile / "batches_3-3.txt").exists()
    place.trace.unlink()
    trained(120, resume="latest")  # these options may change
    assert not place.trace.exists()
    trained(180, resume="latest", trace=3)
    assert parents(place.trace)[None, "step"] == 3


def example(trainer):
    return Tracer(Path(tempfile.mkdtemp()) / "trace.json", 2)
