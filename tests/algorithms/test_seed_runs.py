"""Runs of several seeds side by side: each is what it is with any others, and with none."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal

import pytest
import torch

from hooktrainer import ConfigError, TrainerHookBase
from hooktrainer.algorithms import A2C, DDPG, DQN, MBPO, PPO, SAC, TD3
from hooktrainer.algorithms.seed_runs import SeedRuns
from hooktrainer.loop.lockstep import Lockstep
from hooktrainer.run.seeds import as_seeds, words_of_seeds

SHORT = {"progress_bar": False, "stop_at": None, "eval_episodes": 0, "tuned": False}
ODD = {"num_cells": (13, 5), "activation": "silu"}  # no multiples of any vector register
RUNS = {
    "ppo": lambda **k: PPO(
        env="CartPole-v1", num_envs=3, steps_per_batch=11, mini_batch_size=7, num_epochs=2,
        total_frames=99, **SHORT, **ODD, **k,
    ),
    "ppo with hooks between": lambda **k: PPO(
        env="Pendulum-v1", num_envs=2, steps_per_batch=16, mini_batch_size=16, num_epochs=2,
        total_frames=96, desired_kl=0.01, normalize_observations=True, **SHORT, **k,
    ),
    "ppo on a world": lambda **k: PPO(
        env="torch/CartPole-v1", num_envs=5, steps_per_batch=9, mini_batch_size=15, num_epochs=2,
        total_frames=135, **SHORT, **ODD, **k,
    ),
    "a2c": lambda **k: A2C(
        env="CartPole-v1", num_envs=2, steps_per_batch=8, total_frames=64, **SHORT, **k
    ),
    "dqn": lambda **k: DQN(
        env="CartPole-v1", total_frames=75, init_random_frames=50, batch_size=19,
        **SHORT, **ODD, **k,
    ),
    "sac": lambda **k: SAC(
        env="Pendulum-v1", total_frames=60, init_random_frames=50, batch_size=21,
        **SHORT, **ODD, **k,
    ),
    "td3": lambda **k: TD3(
        env="Pendulum-v1", total_frames=60, init_random_frames=50, batch_size=16,
        num_cells=(16,), **SHORT, **k,
    ),
    "ddpg": lambda **k: DDPG(
        env="Pendulum-v1", total_frames=60, init_random_frames=50, batch_size=16,
        num_cells=(16,), **SHORT, **k,
    ),
    "mbpo": lambda **k: MBPO(
        env="Pendulum-v1", total_frames=60, init_random_frames=40, batch_size=16,
        optim_steps_per_batch=4, fit_interval=40, fit_steps=4, num_rollouts=20,
        num_cells=(16,), **SHORT, **k,
    ),
}  # fmt: skip


def parameters(trainer):
    return [
        value.clone()
        for value in trainer.loss_module.state_dict().values()
        if torch.is_tensor(value)
    ]


def same(a, b):
    return all(torch.equal(x, y) for x, y in zip(parameters(a), parameters(b), strict=True))


@pytest.mark.parametrize("kind", RUNS)
def test_a_seed_is_bit_for_bit_the_same_whichever_others_there_are(kind):
    make = RUNS[kind]
    many = make(seeds="0-3").train()
    assert [trainer.seed for trainer in many] == [0, 1, 2, 3]
    assert not same(many[0], many[1])
    pair = make(seeds=[3, 1]).train()
    assert same(pair[0], many[3])
    assert same(pair[1], many[1])
    (alone,) = make(seeds="2-2").train()
    assert same(alone, many[2])


@pytest.mark.parametrize("kind", ["ppo", "a2c", "dqn", "sac", "td3"])
def test_it_is_the_run_of_one_seed_but_for_rounding(kind):
    make = RUNS[kind]
    together = make(seeds="1-2").train()[0]
    by_itself = make(seed=1).train()
    assert together.optim_count == by_itself.optim_count > 0
    for a, b in zip(parameters(together), parameters(by_itself), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)


def test_learners_out_of_step_are_computed_with_whoever_is_there():
    def out(epochs):
        def made():
            for seed, number in epochs.items():
                trainer = RUNS["ppo"](seeds=(seed,), seed=seed).built(False)
                trainer.num_epochs = number
                yield trainer

        group = Lockstep(made())
        assert group.run() == [None] * len(epochs)
        return [member.loop for member in group.members]

    epochs = {0: 1, 1: 3, 2: 2}  # while some wait for the next batch, others still take steps
    for (seed, number), together in zip(epochs.items(), out(epochs), strict=True):
        assert same(together, out({seed: number})[0])


def rows(path):
    return [line for line in path.read_text().splitlines() if "time/" not in line]


@pytest.mark.parametrize("env", ["CartPole-v1", "torch/CartPole-v1"])
def test_each_leaves_what_a_run_leaves_and_resumes_beside_others(env, tmp_path):
    def run(seeds, place, **kwargs):
        return PPO(
            env=env, num_envs=2, steps_per_batch=16, mini_batch_size=16, num_epochs=1,
            num_cells=(8,), anneal_lr=False, progress_bar=False, tuned=False, eval_episodes=3,
            eval_interval=64, save_interval=32, log_interval=32, seeds=seeds,
            run_dir=tmp_path / place, **kwargs,
        ).train()  # fmt: skip

    whole = run("0-2", "whole", total_frames=256)
    run("0-1", "parts", total_frames=128)
    run("2-2", "parts", total_frames=96)  # another place, another time
    parts = run("0-2", "parts", total_frames=256, resume="latest")
    for seed in range(3):
        assert same(whole[seed], parts[seed])
        one, other = (tmp_path / place / f"seed{seed}" for place in ("whole", "parts"))
        assert {"run.json", "config.yaml", "metrics.csv", "checkpoints"} <= {
            file.name for file in one.iterdir()
        }
        assert rows(one / "metrics.csv")[-6:] == rows(other / "metrics.csv")[-6:]
        assert json.loads((other / "run.json").read_text())["frames"] == 256
    assert run("0-2", "parts", total_frames=256, resume="latest")[1].has_ended
    configs = [(tmp_path / "whole" / f"seed{seed}" / "config.yaml") for seed in range(2)]
    said = [set(config.read_text().splitlines()) for config in configs]
    assert {line.partition(":")[0] for line in said[0] ^ said[1]} == {"seed", "run_dir"}
    PPO.main(["--config", str(configs[1]), "--run-dir", str(tmp_path / "again")])
    again = tmp_path / "again" / "seed1" / "metrics.csv"
    assert rows(again) == rows(tmp_path / "whole" / "seed1" / "metrics.csv")


class Failing(TrainerHookBase):
    """Fails in the run of one seed."""

    def register(self, trainer, name="failing"):
        trainer.register_module(name, self)
        trainer.register_op("post_steps", self.fail)

    def fail(self):
        if self.trainer.seed == 1 and self.trainer.collected_frames > 40:
            raise RuntimeError("out of luck")


def test_one_that_fails_leaves_the_others_alone(capsys):
    run = RUNS["a2c"](seeds="0-2", hooks=[Failing()])
    with pytest.raises(RuntimeError, match="out of luck") as caught:
        run.train()
    assert "in the run of seed 1" in "".join(caught.value.__notes__)
    said = capsys.readouterr().out
    assert "failed: out of luck" in said
    assert said.count("64  ") == 2


class Breaking(Failing):
    """Breaks an environment of one seed."""

    def fail(self):
        if self.trainer.seed == 1:

            def step(action):
                raise OSError("the simulator is gone")

            self.trainer.source._group._steps[0] = step


@pytest.mark.parametrize("env", ["Pendulum-v1", "CartPole-v1"])
def test_an_environment_that_fails_leaves_the_others_alone(env):
    def run(seeds, **kwargs):
        return A2C(
            env=env, num_envs=1, steps_per_batch=8, total_frames=32, seeds=seeds, **SHORT, **kwargs
        )

    whole = run("0-2").train()
    broken = SeedRuns(run("0-2", hooks=[Breaking()]), lambda one: one.built(False), False)
    with pytest.raises(OSError, match="the simulator is gone"):
        broken.train()
    assert [trainer.collected_frames for trainer in broken.trainers] == [32, 8, 32]
    for seed in (0, 2):
        assert same(broken.trainers[seed], whole[seed])


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
    with pytest.raises(ConfigError, match=r"loggers=.*each a logger of its own"):
        RUNS["a2c"](seeds=2, loggers=[object()]).train()
    with pytest.raises(ConfigError, match="name a run_dir"):
        RUNS["a2c"](seeds=2, resume="latest").train(keep=True)


def test_a_network_that_cannot_be_computed_together_is_computed_by_each(capsys):
    def run(seeds):
        return PPO(
            env="CartPole-v1", num_envs=2, steps_per_batch=8, mini_batch_size=8, num_epochs=1,
            num_cells=(8,), memory="gru", total_frames=32, seeds=seeds, **SHORT,
        ).train()  # fmt: skip

    two = run("0-1")
    assert "each seed computes its own optimizer steps, since a GRUCell" in capsys.readouterr().out
    assert same(run("1-1")[0], two[1])


@pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL and fork")
def test_a_run_that_was_killed_goes_on_as_if_it_had_not_been(tmp_path):
    def run(place, **kwargs):
        return PPO(
            env="CartPole-v1", num_envs=2, steps_per_batch=16, mini_batch_size=16, num_epochs=1,
            num_cells=(8,), total_frames=256, progress_bar=False, tuned=False, eval_episodes=2,
            eval_interval=64, save_interval=32, log_interval=32, seeds=2,
            run_dir=tmp_path / place, **kwargs,
        ).train()  # fmt: skip

    def killed():
        run("killed", hooks=[Killing()])

    process = multiprocessing.get_context("fork").Process(target=killed)
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert list((tmp_path / "killed" / "seed1" / "checkpoints").iterdir())
    whole, resumed = run("whole"), run("killed", resume="latest", hooks=[])
    for seed in range(2):
        assert same(whole[seed], resumed[seed])
        files = (tmp_path / place / f"seed{seed}" / "metrics.csv" for place in ("whole", "killed"))
        assert rows(next(files)) == rows(next(files))


class Killing(TrainerHookBase):
    """Kills the process in the run of one seed, while the other is behind."""

    is_saved = False

    def register(self, trainer, name="killing"):
        trainer.register_module(name, self)
        trainer.register_op("post_steps_log", self.kill)

    def kill(self, batch):
        if self.trainer.seed == 0 and self.trainer.collected_frames == 160:
            os.kill(os.getpid(), signal.SIGKILL)


def test_processes_share_the_seeds_and_change_nothing(tmp_path):
    def run(place, **kwargs):
        A2C(
            env="CartPole-v1", num_envs=2, steps_per_batch=8, total_frames=64, log_interval=16,
            run_dir=tmp_path / place, seeds="1-3", **SHORT, **kwargs,
        ).train()  # fmt: skip

    run("here")
    run("there", workers=2)
    for seed in (1, 2, 3):
        files = (tmp_path / place / f"seed{seed}" / "metrics.csv" for place in ("here", "there"))
        assert rows(next(files)) == rows(next(files))
    with pytest.raises(ConfigError, match=r"workers=2.*cannot be sent"):
        run("nowhere", workers=2, hooks=[Failing()])
