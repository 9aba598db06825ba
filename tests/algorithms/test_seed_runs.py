"""Runs of several seeds: each is the run of that seed alone, in a process of its own."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
import time

import pytest
from marks import slow_except
from outcomes import is_gone, rows, wait_for

from hooktrainer import ConfigError, TrainerHookBase
from hooktrainer.algorithms import A2C, DQN, PPO
from hooktrainer.algorithms.algorithm import parse
from hooktrainer.algorithms.seed_runs import train_runs
from hooktrainer.graphs import compiling
from hooktrainer.run.seeds import as_seeds, words_of_seeds

SHORT = {"progress_bar": False, "stop_at": None, "eval_episodes": 0, "tuned": False}
RUNS = {
    "ppo": lambda **k: PPO(
        env="CartPole-v1", num_envs=2, steps_per_batch=16, mini_batch_size=16, num_epochs=1,
        num_cells=(8,), total_frames=128, log_interval=32, **SHORT, **k,
    ),
    "a2c": lambda **k: A2C(
        env="CartPole-v1", num_envs=2, steps_per_batch=8, total_frames=64, log_interval=16,
        **SHORT, **k,
    ),
    "dqn": lambda **k: DQN(
        env="CartPole-v1", total_frames=75, init_random_frames=50, batch_size=19, num_cells=(8,),
        log_interval=16, **SHORT, **k,
    ),
    "ppo on a tensor environment": lambda **k: PPO(
        env="torch/CartPole-v1", num_envs=5, steps_per_batch=9, mini_batch_size=15, num_epochs=2,
        total_frames=135, log_interval=45, **SHORT, **k,
    ),
}  # fmt: skip


def saving(**options):
    """A run that is evaluated every 64 frames and saved every 32."""
    return PPO(
        env="CartPole-v1", num_envs=2, steps_per_batch=16, mini_batch_size=16, num_epochs=1,
        num_cells=(8,), progress_bar=False, tuned=False, eval_episodes=2, eval_interval=64,
        save_interval=32, log_interval=32, **options,
    )  # fmt: skip


def state_of(place):
    return json.loads((place / "run.json").read_text())


@pytest.mark.parametrize("kind", RUNS)
def test_a_seed_of_many_is_the_run_of_that_seed(kind, tmp_path):
    results = RUNS[kind](seeds="1-2", run_dir=tmp_path / "many").train()
    RUNS[kind](seed=2, run_dir=tmp_path / "one").train()
    assert rows(tmp_path / "many" / "seed2") == rows(tmp_path / "one")
    assert rows(tmp_path / "many" / "seed2") != rows(tmp_path / "many" / "seed1")
    assert [one.seed for one in results] == [1, 2]
    assert {one.status for one in results} == {"finished"}
    state = state_of(tmp_path / "many" / "seed2")
    assert results[1].frames == state["frames"] > 0
    assert results[1].run_dir == tmp_path / "many" / "seed2"
    assert results[1].metrics == state["metrics"]


@pytest.mark.parametrize("kind", slow_except(["ppo", "dqn", "ppo on a tensor environment"], "dqn"))
def test_seeds_inherit_what_is_compiled_once(kind, tmp_path, capfd, monkeypatch):
    monkeypatch.setattr(compiling, "BACKEND", "eager")
    how = {"compile": "all" if "tensor" in kind else "step"}
    RUNS[kind](seed=2, run_dir=tmp_path / "one", **how).train()
    alone = "".join(capfd.readouterr()).count("compiled ")
    RUNS[kind](seeds="1-2", run_dir=tmp_path / "many", **how).train()
    assert "".join(capfd.readouterr()).count("compiled ") == alone > 0
    assert rows(tmp_path / "many" / "seed2") == rows(tmp_path / "one")
    assert rows(tmp_path / "many" / "seed2") != rows(tmp_path / "many" / "seed1")


def test_each_resumes_alone_and_by_its_own_configuration(tmp_path):
    def run(seeds, place, **kwargs):
        return saving(seeds=seeds, anneal_lr=False, run_dir=tmp_path / place, **kwargs).train()

    run("0-1", "whole", total_frames=192)
    run("0-0", "parts", total_frames=96)
    run("1-1", "parts", total_frames=64)
    run("0-1", "parts", total_frames=192, resume="latest")
    for seed in range(2):
        one, other = (tmp_path / place / f"seed{seed}" for place in ("whole", "parts"))
        assert {"run.json", "config.yaml", "metrics.csv", "checkpoints"} <= {
            file.name for file in one.iterdir()
        }
        assert rows(one)[-6:] == rows(other)[-6:]
        assert state_of(other)["frames"] == 192
    again = run("0-1", "parts", total_frames=192, resume="latest")[1]
    assert (again.status, again.frames) == ("finished", 192)
    configs = [(tmp_path / "whole" / f"seed{seed}" / "config.yaml") for seed in range(2)]
    said = [set(config.read_text().splitlines()) for config in configs]
    assert {line.partition(":")[0] for line in said[0] ^ said[1]} == {"seed", "run_dir"}
    PPO.main(["--config", str(configs[1]), "--run-dir", str(tmp_path / "again")])
    assert rows(tmp_path / "again" / "seed1") == rows(tmp_path / "whole" / "seed1")
    other = parse(PPO, ["--config", str(configs[1]), "--seed", "9"])
    assert (other.seed, other.seeds) == (9, None)


def test_a_seed_that_had_not_begun_branches_off_as_the_others_did(tmp_path):
    saving(total_frames=64, run_dir=tmp_path / "parent", anneal_lr=False).train()

    def run(seeds, place, **kwargs):
        run_dir = tmp_path / place
        saving(total_frames=128, seeds=seeds, run_dir=run_dir, anneal_lr=False, **kwargs).train()

    run("0-1", "whole", fork=str(tmp_path / "parent"))
    run("0-0", "parts", fork=str(tmp_path / "parent"))
    run("0-1", "parts", resume="latest")  # the process had ended before seed 1 began
    assert state_of(tmp_path / "parts" / "seed1")["forked_from"]["frames"] == 64
    assert rows(tmp_path / "parts" / "seed1") == rows(tmp_path / "whole" / "seed1")


class Failing(TrainerHookBase):
    """Ends the runs of some seeds, each in another way."""

    def register(self, trainer, name="failing"):
        trainer.register_module(name, self)
        trainer.register_op("post_steps", self.fail)

    def fail(self):
        if self.trainer.collected_frames <= 40:
            return
        if self.trainer.seed == 1:
            raise RuntimeError("out of luck")
        if self.trainer.seed == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        if self.trainer.seed == 3:
            sys.exit(0)


def test_one_that_fails_is_named_and_leaves_the_others_alone(tmp_path, capfd):
    run = RUNS["a2c"](seeds="0-4", hooks=[Failing()], run_dir=tmp_path, workers=3)
    with pytest.raises(SystemExit) as caught:
        run.train_as_program()
    assert caught.value.code == 1
    table = capfd.readouterr().out.splitlines()
    for seed, reason in ((1, "RuntimeError: out of luck"), (2, "SIGKILL"), (3, "SystemExit")):
        state = state_of(tmp_path / f"seed{seed}")
        assert state["status"] == "failed"
        assert reason in state["reason"]
        (line,) = (line for line in table if line.split()[0] == str(seed))
        assert "failed" in line
        assert reason in line
    for seed in (0, 4):
        state = state_of(tmp_path / f"seed{seed}")
        assert (state["status"], state["frames"]) == ("finished", 64)


def test_runs_that_report_wait_for_each_other():
    runs = [RUNS["a2c"](seed=seed) for seed in range(3)]
    met = []

    def prepare(run, ask):
        trainer = run.built(False)
        trainer.request_stop(ask((run.seed, "first")) + ask((run.seed, "second")))
        return trainer

    def meet(reports, results):
        met.append(dict(reports))
        return {place: f"{report[1]} {place} " for place, report in reports.items()}

    results = train_runs(
        runs, keep=False, at_once=1, progress_bar=False, prepare=prepare, meet=meet
    )
    assert met == [{n: (n, word) for n in range(3)} for word in ("first", "second")]
    for n, one in enumerate(results):
        assert one.reason.startswith(f"first {n} second {n} ")


@pytest.mark.parametrize(
    ("given", "seeds"),
    [(3, (0, 1, 2)), ("3", (0, 1, 2)), ("3-5", (3, 4, 5)), ("7-7", (7,)), ("5,1", (5, 1)),
     ([4, 2], (4, 2)), (range(2), (0, 1)), (None, None)],
)  # fmt: skip
def test_seeds_can_be_said_in_several_ways(given, seeds):
    assert as_seeds(given) == seeds
    if seeds:
        assert as_seeds(words_of_seeds(seeds)) == seeds


@pytest.mark.parametrize("given", [0, -1, "a", "3-1", "", [1, 1], "1,1", [-2], 2.5])
def test_others_are_refused(given):
    with pytest.raises(ConfigError, match="seeds"):
        as_seeds(given)


def test_several_have_no_trainer(tmp_path):
    with pytest.raises(ConfigError, match=r"several runs.*call train\(\)"):
        RUNS["a2c"](seeds=2).trainer()
    with pytest.raises(ConfigError, match=r"call train\(\)"):
        RUNS["a2c"](seeds="3-3").trainer()
    with pytest.raises(ConfigError, match=r"loggers=.*a logger of its own"):
        RUNS["a2c"](seeds=2, loggers=[object()]).train()
    with pytest.raises(ConfigError, match="name a run_dir"):
        RUNS["a2c"](seeds=2, resume="latest").train(keep=True)


class Ending(TrainerHookBase):
    """Sends a signal to the process that trains the seeds, from one of them."""

    is_saved = False

    def __init__(self, number):
        self.number = number

    def register(self, trainer, name="ending"):
        trainer.register_module(name, self)
        trainer.register_op("post_steps_log", self.kill)

    def kill(self, batch):
        if self.trainer.seed == 0 and self.trainer.collected_frames == 160:
            os.kill(os.getppid(), self.number)
            time.sleep(2.0)  # in which this process is ended, or told to end


@pytest.mark.skipif(os.name != "posix", reason="needs signals and fork")
@pytest.mark.parametrize("number", slow_except([signal.SIGKILL, signal.SIGTERM], signal.SIGKILL))
def test_seeds_whose_parent_is_ended_go_on_as_if_it_had_not_been(tmp_path, number):
    def run(place, **kwargs):
        run_dir = tmp_path / place
        saving(total_frames=256, seeds=2, workers=1, run_dir=run_dir, **kwargs).train()

    process = multiprocessing.get_context("fork").Process(
        target=run, args=("ended",), kwargs={"hooks": [Ending(number)]}
    )
    process.start()
    process.join()
    assert process.exitcode == (-number if number == signal.SIGKILL else 128 + number)
    place = tmp_path / "ended"
    state = state_of(place / "seed0")
    wait_for(lambda: is_gone(state["pid"]))
    if number == signal.SIGTERM:
        assert (state["status"], state["reason"]) == ("interrupted", "SIGTERM")
        assert state["frames"] == 160
    assert not (place / "seed1").exists()
    run("ended", resume="latest")
    run("whole")
    for seed in range(2):
        assert rows(place / f"seed{seed}") == rows(tmp_path / "whole" / f"seed{seed}")
