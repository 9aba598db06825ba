"""A tiny trainer that is right, or wrong in one way: the probe of its name has to find that."""

from __future__ import annotations

import os
import pickle
import time
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from hooktrainer.conformance import Adapter, Task, Trained

BATCH = 64


class Tabular(Adapter):
    """Learns a value of each observation by repeated one-step targets."""

    packages = ("numpy",)
    checkpoints = "*.pkl"

    def __init__(self, wrong: str = "") -> None:
        self.wrong = wrong

    def train(self, task: Task) -> Trained:
        if task.options and self.wrong != "unknown-option":
            raise TypeError(f"no option {list(task.options)}")
        if task.checkpoint is None:
            rng = np.random.default_rng(None if self.wrong == "seeds" else task.seed)
            return self._learn(task, np.zeros(task.env().observation_space.shape), rng)
        table, rng = pickle.loads(task.checkpoint.read_bytes())
        if self.wrong == "resume":
            rng = np.random.default_rng(task.seed)
        return self._learn(task, table, rng)

    def _learn(self, task: Task, table: Any, rng: Any) -> Trained:
        wrong, env, frames = self.wrong, task.env(), task.collected
        observation, _ = env.reset(seed=task.seed)
        collect_to = task.frames - (BATCH if wrong == "frames" else 0)
        rows, seen, lengths, total = [], [], 0, 0.0
        while frames < collect_to:
            steps, ended = [], []
            for _ in range(BATCH):
                following, reward, terminated, truncated, _ = env.step(int(rng.integers(2)))
                if wrong != "nan-observation" and np.isnan(following).any():
                    raise ValueError("the observation is NaN")
                if wrong != "nan-reward" and np.isnan(reward):
                    raise ValueError("the reward is NaN")
                if wrong == "observation-shape":
                    following = following[: observation.size]
                if following.shape != observation.shape:
                    raise ValueError(f"the observation has shape {following.shape}")
                frames, lengths, total = frames + 1, lengths + 1, total + reward
                final, begins = following, terminated or truncated
                if begins:
                    ended.append((total, lengths))
                    lengths, total = 0, 0.0
                    following, _ = env.reset()
                    if wrong == "final-observation":
                        final = following
                stops = terminated and wrong != "termination"
                stops = stops or (truncated and wrong == "truncation")
                steps.append((observation, reward, final, stops))
                observation = following
            if ended and not (wrong == "returns" and frames == task.frames):
                rows.append((frames, *np.mean(ended, axis=0)))
            if wrong == "transitions":
                steps.pop()
            before, rewards, after, stopped = map(np.array, zip(*steps, strict=True))
            seen.append(before)
            for _ in range(20):
                targets = rewards + task.gamma * ~stopped * (after @ table)
                table = table + before.T @ (targets - before @ table) / BATCH
            late = BATCH if wrong in ("evaluations", "checkpoints") else 0
            for what in ("evaluations", "checkpoints"):
                if task.every is None or (frames - late * (what == wrong)) % task.every:
                    continue
                if what == "evaluations":
                    self._evaluate(task.eval_env())
                else:
                    part = task.directory / "part"
                    part.write_bytes(pickle.dumps((table, rng)))
                    os.replace(part, task.directory / f"{frames}.pkl")
        return Trained(
            state={"table": table, "random": rng.random(2)},
            values=lambda codes: codes @ table,
            frames=frames,
            returns=rows,
            trained_on=seen,
        )

    def _evaluate(self, env: Any) -> None:
        env.reset()
        ends = False
        while not ends:
            _, _, terminated, truncated, _ = env.step(0)
            ends = terminated or truncated


class Hangs(Tabular):
    def train(self, task: Task) -> Trained:
        time.sleep(60)
        raise AssertionError


class Raises(Tabular):
    def train(self, task: Task) -> Trained:
        raise RuntimeError("no licence")


class SaysSo(Tabular):
    """Its frames differ as its documentation says."""

    documented: ClassVar = {"frames": "the manual, page 3"}

    def __init__(self) -> None:
        super().__init__("frames")


class Dies(Tabular):
    def train(self, task: Task) -> Trained:
        os.write(2, b"the disk is full\n\n")
        os._exit(3)


class BeginsAgain(Tabular):
    def train(self, task: Task) -> Trained:
        return super().train(replace(task, checkpoint=None, collected=0))


class Survives(Tabular):
    """Its environments are not killed, as if they ran in another process."""

    def train(self, task: Task) -> Trained:
        task.env().ledger.kill_at = None
        return super().train(task)


class Trains(Adapter):
    """Has nothing but a training."""

    def train(self, task: Task) -> Trained:
        trained = Tabular().train(task)
        return Trained(state=trained.state)


class WrongInSilence(Tabular):
    """Refuses without a word."""

    references: ClassVar = {"observation-shape": "tabular.py:1"}

    def train(self, task: Task) -> Trained:
        try:
            return super().train(task)
        except ValueError:
            raise ValueError from None
