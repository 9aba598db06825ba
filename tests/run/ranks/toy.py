"""A recipe that takes a second, and a collector whose data are known."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tensordict import TensorDict
from torch.distributed.tensor import DTensor

from hooktrainer import (
    Evaluate,
    Every,
    Latest,
    LogEpisodes,
    MiniBatches,
    Trainer,
    TrainerHookBase,
    ValueEstimatorHook,
    VectorCollector,
)
from hooktrainer.collect import Collector
from hooktrainer.networks import CategoricalPolicy, ValueNetwork, mlp
from hooktrainer.objectives import GAE, ClipPPOLoss
from hooktrainer.optim import FlatAdam
from hooktrainer.run import Run, RunConfig
from hooktrainer.store import flatten, rng_state


class GivenData(Collector):
    """Yields one batch again and again, of which a rank keeps its rows.

    Args:
        batch: ``[num_envs, time]``.
    """

    def __init__(self, batch: TensorDict) -> None:
        self.batch = batch

    def shard(self, rank: int, world_size: int) -> None:
        rows = len(self.batch) // world_size
        self.batch = self.batch[rank * rows : (rank + 1) * rows]

    def collect(self) -> TensorDict:
        return self.batch.clone()


@dataclass(frozen=True, kw_only=True)
class Args(RunConfig):
    """Options of the toy."""

    total_frames: int = 512
    log_interval: int = 128
    save_interval: int = 128
    keep_last: int = 99
    progress_bar: bool = False
    num_envs: int = 4


class Trouble(TrainerHookBase):
    """Does something to one rank at one batch: raise, or send a signal."""

    def __init__(self, what: str, rank: int, batch: int) -> None:
        self.what, self.rank, self.batch = what, rank, batch

    def __call__(self) -> None:
        here = int(os.environ.get("RANK", 0)) == self.rank
        if not here or self.trainer.progress.batches != self.batch:
            return
        if self.what == "raise":
            raise RuntimeError("trouble on purpose")
        if self.what.startswith("SIG"):
            os.kill(os.getpid(), getattr(signal, self.what))

    def register(self, trainer: Trainer, name: str = "trouble") -> None:
        self.trainer = trainer
        trainer.register_module(name, self)
        trainer.register_op("post_steps", self)


def train(
    path: Path,
    trouble: tuple[str, int, int] | None = None,
    sharded: bool = False,
    **options: Any,
) -> Trainer:
    """PPO on CartPole, 64 frames a batch."""
    args = Args(run_dir=path, **options)
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    run = Run(args, "toy")
    networks = mlp(4, 2), mlp(4, 1)
    if sharded:
        networks = tuple(run.fully_shard(network) for network in networks)
    actor, critic = CategoricalPolicy(networks[0]), ValueNetwork(networks[1])
    loss = ClipPPOLoss(actor, critic, normalize_advantage=True)
    optimizer = torch.optim.Adam if sharded else FlatAdam
    trainer = Trainer(
        collector=VectorCollector(
            "CartPole-v1", actor, num_envs=args.num_envs, frames_per_batch=16 * args.num_envs
        ),
        total_frames=args.total_frames,
        num_epochs=2,
        optim_steps_per_batch=None,
        loss_module=loss,
        optimizer=optimizer(loss.parameters(), lr=3e-3),
        clip_norm=0.5,
        **run.trainer_options,
    )
    LogEpisodes().register(trainer)
    ValueEstimatorHook(GAE(gamma=0.99, lmbda=0.95, value_network=critic)).register(trainer)
    MiniBatches(32, loss.in_keys).register(trainer)
    Evaluate("CartPole-v1", actor, every=Every(frames=256), episodes=4).register(trainer)
    trainer.register_op(
        "post_steps_log",
        lambda batch: {"toy/rank": Latest(int(os.environ.get("RANK", 0))), "toy/rows": len(batch)},
    )
    Trouble(*(trouble or ("nothing", 0, 0))).register(trainer)
    run.train(trainer)
    return trainer


def save_parameters(loss: torch.nn.Module, file: Path) -> None:
    if int(os.environ.get("RANK", 0)) == 0:
        torch.save([p.detach().clone() for p in loss.parameters()], file)


def train_and_tell(path: Path, options: dict[str, Any]) -> None:
    """Train, and write how this rank ended to ``end<rank>.json``."""
    trainer = train(path, **options)
    own = dict(trainer.loss_module.named_parameters())
    parameters = {
        n: (p.to_local() if isinstance(p, DTensor) else p).detach().clone() for n, p in own.items()
    }
    (path / f"end{os.environ.get('RANK', '0')}.json").write_text(
        json.dumps(
            {
                "frames": trainer.collected_frames,
                "parameters": _digest(parameters),
                "collector": _digest(trainer.collector.state_dict()),
                "rng": {name: _digest(part) for name, part in rng_state().items()},
                "reason": trainer.stop_reason,
            }
        )
    )


def ends(path: Path, number: int = 2) -> list[dict[str, Any]]:
    return [json.loads((path / f"end{rank}.json").read_text()) for rank in range(number)]


def _digest(tree: Any) -> str:
    skeleton, tensors = flatten(tree)
    whole = hashlib.sha256(json.dumps(skeleton).encode())
    for tensor in tensors.values():
        whole.update(tensor.numpy().tobytes())
    return whole.hexdigest()


if __name__ == "__main__":  # toy.py PATH OPTIONS
    given = json.loads(sys.argv[2])
    if str(given.pop("fails_on", None)) == os.environ.get("RANK"):
        raise RuntimeError("it cannot start")
    train_and_tell(Path(sys.argv[1]), given)
