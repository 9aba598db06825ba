"""What the loop itself costs: one optimizer step of a tiny network, in microseconds.

The same loss, backward pass, clipping and SGD step, by hand and under hooktrainer's and TorchRL's
`Trainer`, with no-op hooks at `post_optim` and with hooks that log a float at every step. The
differences are a few microseconds of about a hundred, so all variants run in one process, in turn,
and each is compared with the hand-written loop of its own round.
"""

from __future__ import annotations

import json
import math
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import tyro
from measure import Run
from tensordict import TensorDict
from torch import nn

import hooktrainer
from hooktrainer import get_logger

CLIP = 1.0
SAME = "hand-written, checked and summed"


@dataclass(kw_only=True)
class Args(Run):
    """Options of the loop benchmark."""

    rounds: int = 9
    """how often every variant runs"""
    steps: int = 250
    """optimizer steps per batch"""
    batches: int = 9
    """batches per variant and round; the first is not counted, of the others the fastest counts"""


class TinyLoss(nn.Module):
    """The mean square of a linear map: about as little as a loss can do."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Linear(4, 1)

    def forward(self, batch: TensorDict) -> TensorDict:
        return TensorDict({"loss": self.net(batch["x"]).pow(2).mean()}, [])


class Batches:
    """A collector of one batch, again and again, that times what is done between two of them."""

    init_random_frames = 0  # TorchRL's trainer asks for it

    def __init__(self, count: int) -> None:
        self.count = count
        self.batch = TensorDict({"x": torch.randn(16, 4)}, [16])
        self.seconds: list[float] = []

    def __iter__(self) -> Iterator[TensorDict]:
        for _ in range(self.count):
            started = time.process_time()
            yield self.batch
            self.seconds.append(time.process_time() - started)

    def shutdown(self) -> None:
        """Nothing to shut down."""


def by_hand(args: Args, batches: Batches, guarded: bool) -> None:
    """Train without a trainer; if guarded, with the operations that hooktrainer adds by itself.

    These are: the loss and the gradient's norm are checked to be finite, and their means kept.
    """
    loss_module = TinyLoss()
    optimizer = torch.optim.SGD(loss_module.parameters(), lr=1e-3)
    parameters = list(loss_module.parameters())
    for batch in batches:
        total_loss, total_norm = torch.zeros(()), torch.zeros(())
        for _ in range(args.steps):
            loss = loss_module(batch)["loss"]
            if guarded and not math.isfinite(loss.item()):
                raise ValueError("the loss is not finite")
            loss.backward()
            norm = nn.utils.clip_grad_norm_(parameters, CLIP)
            if guarded and not math.isfinite(norm.item()):
                raise ValueError("the gradient is not finite")
            optimizer.step()
            optimizer.zero_grad()
            if guarded:
                total_loss += loss.detach()
                total_norm += norm


def with_trainer(
    args: Args, batches: Batches, trainer_class: type, hooks: int, log: bool, **keywords: Any
) -> None:
    """Train with a trainer and some hooks that do nothing, or log a float at every step."""
    loss_module = TinyLoss()
    trainer = trainer_class(
        collector=batches,
        total_frames=10**9,
        frame_skip=1,
        optim_steps_per_batch=args.steps,
        loss_module=loss_module,
        optimizer=torch.optim.SGD(loss_module.parameters(), lr=1e-3),
        clip_norm=CLIP,
        progress_bar=False,
        **keywords,
    )
    for i in range(hooks):
        if log:
            trainer.register_op("post_optim_log", lambda _, name=f"value{i}": {name: 1.0})
        else:
            trainer.register_op("post_optim", lambda: None)
    trainer.train()


def variants() -> dict[str, Callable[[Args, Batches], None]]:
    """Return every way to run the loop, by name."""
    from torchrl.record.loggers.tensorboard import TensorboardLogger
    from torchrl.trainers import Trainer as TorchRLTrainer

    runs: dict[str, Callable[[Args, Batches], None]] = {
        "hand-written": lambda a, b: by_hand(a, b, guarded=False),
        SAME: lambda a, b: by_hand(a, b, guarded=True),
    }
    for name, trainer in (("hooktrainer", hooktrainer.Trainer), ("TorchRL", TorchRLTrainer)):
        for hooks in (0, 10, 100):
            runs[f"{name}, {hooks} no-op hooks"] = lambda a, b, t=trainer, n=hooks: with_trainer(
                a, b, t, n, log=False
            )

    def torchrl_logs(args: Args, batches: Batches) -> None:
        with tempfile.TemporaryDirectory() as folder:
            logger = TensorboardLogger("loop", log_dir=folder)
            keywords = {"logger": logger, "log_interval": 1}
            with_trainer(args, batches, TorchRLTrainer, 10, log=True, **keywords)
            logger.experiment.close()  # its thread still writes

    def hooktrainer_logs(args: Args, batches: Batches) -> None:
        with tempfile.TemporaryDirectory() as folder:
            logger = get_logger("tensorboard", folder, "loop")
            keywords = {"logger": logger, "log_interval": 1}
            with_trainer(args, batches, hooktrainer.Trainer, 10, log=True, **keywords)

    runs["hooktrainer, 10 hooks log to TensorBoard"] = hooktrainer_logs
    runs["TorchRL, 10 hooks log to TensorBoard"] = torchrl_logs
    return runs


def main(args: Args) -> None:
    """Run all variants in turn, and print the result as one line of JSON."""
    warnings.filterwarnings("ignore")
    args.prepare()
    runs = variants()
    microseconds: dict[str, list[float]] = {name: [] for name in runs}
    for round_ in range(args.rounds):
        names = list(runs)
        for name in names[round_ % len(names) :] + names[: round_ % len(names)]:
            batches = Batches(args.batches)
            runs[name](args, batches)
            # Whatever else the machine does only ever adds to the time.
            microseconds[name].append(1e6 * min(batches.seconds[1:]) / args.steps)

    def over(name: str, other: str) -> float:
        pairs = zip(microseconds[name], microseconds[other], strict=True)
        return statistics.median(a - b for a, b in pairs)

    result = {
        name: {
            "microseconds": round(statistics.median(times), 2),
            "over_hand_written": round(over(name, "hand-written"), 2),
            "over_same": round(over(name, SAME), 2),
        }
        for name, times in microseconds.items()
    }
    for library in ("hooktrainer", "TorchRL"):
        slope = over(f"{library}, 100 no-op hooks", f"{library}, 0 no-op hooks") / 100
        result[f"{library}, one no-op hook"] = {"microseconds": round(slope, 3)}
    print(json.dumps({"rows": result}), flush=True)


if __name__ == "__main__":
    main(tyro.cli(Args))
