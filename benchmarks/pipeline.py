"""What stages and collecting ahead gain over a serial run: one thing after the other.

    python benchmarks/pipeline.py             # a minute or two
    python benchmarks/pipeline.py --quick     # a short check that all of it runs

An environment shows a picture and takes 2 ms a step, as a simulator does that runs elsewhere. The
policy is a frozen convolutional encoder with a small head on its features, as in fine-tuning; PPO
learns the head. The encoder's size and the epochs are chosen at the start so that acting and
learning take about as long as stepping: there is something to overlap.

All rows step the environments in as many processes and train on the same number of frames; rounds
take them in turns, each in another order. Frames per second of the whole training loop, as ratios
to the first row in the same round, and their medians. The first row that does everything in one
process is there for comparison.
"""

from __future__ import annotations

import json
import random
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
import tyro
from gymnasium import spaces
from results import machine, versions
from rich.console import Console
from rich.table import Table
from tensordict import NestedKey, TensorDictBase
from torch import nn

from hooktrainer import (
    LogEpisodes,
    MiniBatches,
    OverlappedCollector,
    Trainer,
    TrainerHookBase,
    ValueEstimatorHook,
    VectorCollector,
    get_logger,
)
from hooktrainer.networks import CategoricalPolicy, ValueNetwork, mlp
from hooktrainer.objectives import GAE, ClipPPOLoss
from hooktrainer.optim import FlatAdam

HERE = Path(__file__).parent
LATENCY = 0.002
SIZE = 64
FEATURES = 64
NUM_ENVS = 16
SERIAL = "serial"


class SlowPictures(gym.Env[Any, Any]):
    """A dot that the agent moves left and right over a noisy picture; 2 ms a step."""

    metadata = {"render_modes": []}  # noqa: RUF012

    def __init__(self) -> None:
        self.observation_space = spaces.Box(0, 255, (3, SIZE, SIZE), np.uint8)
        self.action_space = spaces.Discrete(2)
        self._place = 0
        self._steps = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._background = self.np_random.integers(0, 64, (3, SIZE, SIZE), np.uint8)
        self._place, self._steps = int(self.np_random.integers(SIZE)), 0
        return self._picture(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        time.sleep(LATENCY)
        self._place = min(max(self._place + (2 if action else -2), 0), SIZE - 1)
        self._steps += 1
        reward = 1.0 - abs(self._place - SIZE / 2) / SIZE
        return self._picture(), reward, False, self._steps >= 100, {}

    def _picture(self) -> Any:
        picture = self._background.copy()
        picture[:, :, self._place] = 255
        return picture


class Encoder(nn.Module):
    """A frozen convolutional network."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, channels, 5, stride=2),
            nn.ReLU(),
            nn.Conv2d(channels, channels, 3, stride=2),
            nn.ReLU(),
            nn.Conv2d(channels, channels, 3),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(2),
            nn.Flatten(),
            nn.Linear(4 * channels, FEATURES),
        ).requires_grad_(False)

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        return self.layers(observation.float() / 255)


class EncodedPolicy(nn.Module):
    """Acts on the encoder's features, and records these, so that learning need not encode again."""

    in_keys = ("observation",)

    def __init__(self, encoder: Encoder, head: CategoricalPolicy) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = head

    def act(self, observation: torch.Tensor) -> dict[NestedKey, torch.Tensor]:
        features = self.encoder(observation)
        return {"features": features, **self.head.act(features)}


@dataclass(frozen=True)
class Work:
    """How much there is to do.

    Attributes:
        channels: of the encoder.
        epochs: passes of the learner over a batch.
        steps: steps of each environment in a batch.
        batches: batches of a run that count; the first two do not.
    """

    channels: int
    epochs: int
    steps: int
    batches: int


@dataclass(frozen=True)
class Row:
    """A way to collect."""

    name: str
    workers: int
    stages: int = 1
    depth: int = 0


@dataclass(frozen=True)
class Target:
    """What a row shall reach against the row that does one thing after the other."""

    row: str
    bound: float


@dataclass
class Args:
    """Options."""

    workers: int = 2
    """processes that step the environments"""
    rounds: int = 5
    """rounds; medians are shown"""
    results: Path = HERE / "results"
    """where the JSON goes"""
    quick: bool = False
    """a short check that everything runs; its figures mean nothing and are not saved"""


class Clock(TrainerHookBase):
    """Notes when each batch is done, and how old it was."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.ages: list[float] = []
        self.totals: list[dict[str, float]] = []

    def register(self, trainer: Trainer, name: str = "clock") -> None:
        self._trainer = trainer
        trainer.register_module(name, self)
        trainer.register_op("post_steps_log", self)

    def __call__(self, batch: TensorDictBase) -> None:
        self.times.append(time.perf_counter())
        self.ages.append(self._trainer.metrics.latest("data/age") or 0.0)
        self.totals.append(dict(self._trainer.timing.totals))

    def seconds(self, phase: str) -> float:
        """Seconds of a phase a batch, without the first two."""
        spent = self.totals[-1].get(phase, 0.0) - self.totals[1].get(phase, 0.0)
        return spent / (len(self.totals) - 2)


class NextFeatures(TrainerHookBase):
    """Gives the value network the features of what follows, encoding only what is not there."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder

    def register(self, trainer: Trainer, name: str = "next_features") -> None:
        trainer.register_module(name, self)
        trainer.register_op("batch_process", self)

    @torch.no_grad()
    def __call__(self, batch: TensorDictBase) -> TensorDictBase:
        following = batch["features"].roll(-1, 1)
        missing = batch["next", "done"][..., 0].clone()
        missing[:, -1] = True
        following[missing] = self._encoder(batch["next", "observation"][missing])
        batch["next", "features"] = following
        return batch


def networks(channels: int) -> tuple[EncodedPolicy, ClipPPOLoss, GAE]:
    """The policy, and what learns its head."""
    torch.manual_seed(0)
    head = CategoricalPolicy(mlp(FEATURES, 2, activation_class=nn.SiLU), in_keys=["features"])
    critic = ValueNetwork(mlp(FEATURES, 1), in_keys=["features"])
    policy = EncodedPolicy(Encoder(channels), head)
    loss = ClipPPOLoss(head, critic, loss_critic_type="l2", normalize_advantage=True)
    return policy, loss, GAE(gamma=0.99, lmbda=0.95, value_network=critic)


def train(row: Row, work: Work) -> dict[str, float]:
    """Train.

    Returns:
        ``fps``: frames per second; ``age``: the greatest of a batch; ``acting``: seconds a step;
        ``learning``: seconds a batch.
    """
    policy, loss, gae = networks(work.channels)
    frames_per_batch = NUM_ENVS * work.steps
    collector: Any = VectorCollector(
        [SlowPictures] * NUM_ENVS,
        policy,
        frames_per_batch=frames_per_batch,
        workers=row.workers,
        stages=row.stages,
    )
    if row.depth:
        collector = OverlappedCollector(collector, depth=row.depth)
    batches = work.batches + 2
    with tempfile.TemporaryDirectory() as run:
        trainer = Trainer(
            collector=collector,
            total_frames=batches * frames_per_batch,
            num_epochs=work.epochs,
            optim_steps_per_batch=None,
            loss_module=loss,
            optimizer=FlatAdam(loss.parameters(), lr=3e-4),
            clip_norm=0.5,
            logger=get_logger("csv", run, "pipeline"),
            progress_bar=False,
            seed=0,
        )
        LogEpisodes().register(trainer)
        NextFeatures(policy.encoder).register(trainer)
        ValueEstimatorHook(gae).register(trainer)
        keys = ["features", "action", "action_log_prob", "advantage", "value_target"]
        MiniBatches(64, keys).register(trainer)
        clock = Clock()
        clock.register(trainer)
        trainer.train()
    seconds = clock.times[-1] - clock.times[1]
    return {
        "fps": work.batches * frames_per_batch / seconds,
        "age": max(clock.ages),
        "acting": clock.seconds("collect/inference") / work.steps,
        "learning": clock.seconds("optimize"),
    }


def calibrate(args: Args) -> Work:
    """Choose the encoder's size and the number of epochs for this machine, by two short runs."""
    stepping = NUM_ENVS / args.workers * LATENCY
    steps, batches = (4, 2) if args.quick else (16, 12)
    serial = Row(SERIAL, args.workers)
    first = train(serial, Work(128, 1, steps, 4))
    channels = 8 * round(128 / 8 * (stepping / first["acting"]) ** 0.5)  # work grows as the square
    second = train(serial, Work(channels, 16, steps, 4))
    epochs = max(1, round(16 * stepping * steps / second["learning"]))
    return Work(channels, epochs, steps, batches)


def main(args: Args) -> None:
    """Measure, print and save."""
    torch.set_num_threads(1)
    console = Console()
    rows = (
        Row("one process", 0),
        Row(SERIAL, args.workers),
        Row("stages=2", args.workers, stages=2),
        Row("depth=1", args.workers, depth=1),
        Row("stages=2, depth=1", args.workers, stages=2, depth=1),
    )
    targets = (Target("stages=2", 1.3), Target("depth=1", 1.3), Target("stages=2, depth=1", 1.8))
    work = calibrate(args)
    console.print(
        f"{NUM_ENVS} environments of {LATENCY * 1e3:g} ms a step in {args.workers} processes, an "
        f"encoder of {work.channels} channels, {work.epochs} epochs a batch of {work.steps} steps"
    )
    found: dict[str, list[dict[str, float]]] = {row.name: [] for row in rows}
    for _ in range(1 if args.quick else args.rounds):
        for row in random.sample(rows, len(rows)):
            found[row.name].append(train(row, work))
    table = Table(title="frames per second of the whole loop", title_justify="left")
    for column in ("", "frames/s", f"x {SERIAL}", "target", "age at most"):
        table.add_column(column, justify="left" if not column else "right")
    bounds = {target.row: target.bound for target in targets}
    summary = {}
    for row in rows:
        runs = found[row.name]
        ratio = median_ratio(runs, found[SERIAL])
        age = max(run["age"] for run in runs)
        fps = statistics.median(run["fps"] for run in runs)
        bound = bounds.get(row.name)
        met = "" if bound is None else f">= {bound} {'met' if ratio >= bound else 'falls short'}"
        table.add_row(row.name, f"{fps:,.0f}", f"{ratio:.2f}", met, f"{age:g}")
        summary[row.name] = {"fps": fps, "ratio": ratio, "target": bound, "age": age}
    console.print(table)
    if args.quick:
        return
    args.results.mkdir(exist_ok=True)
    file = args.results / "pipeline.json"
    content = {
        "name": "pipeline",
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "machine": machine(),
        "versions": versions(),
        "work": asdict(work),
        "summary": summary,
        "rounds": found,
    }
    file.write_text(json.dumps(content, indent=1) + "\n")
    console.print(f"saved in {file}")


def median_ratio(runs: Sequence[dict[str, float]], against: Sequence[dict[str, float]]) -> float:
    """The median over rounds of the ratio of frames per second."""
    pairs = zip(runs, against, strict=True)
    return statistics.median(run["fps"] / other["fps"] for run, other in pairs)


if __name__ == "__main__":
    main(tyro.cli(Args, description=__doc__))
