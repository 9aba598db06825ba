"""The target of states of trainers, which a trainer takes up, and goes on with."""

from __future__ import annotations

import io
import json
import random
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from mutate import mutate_tree
from target import Files, Target, read
from tensordict import TensorDict

from hooktrainer import (
    CountFramesLog,
    Every,
    LRSchedulerHook,
    OptimizerHook,
    ReplayBufferTrainer,
    RewardNormalizer,
    Trainer,
)
from hooktrainer.collect import VectorCollector
from hooktrainer.replay import ReplayBuffer
from hooktrainer.store import load_file, save_file
from hooktrainer.store.single_file import FORMAT, _checksum


class Loss(torch.nn.Module):
    """A loss over the observations of a collector."""

    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Linear(4, 2)

    def forward(self, batch: TensorDict) -> TensorDict:
        return TensorDict({"loss_all": self.net(batch["observation"]).square().mean()})


def _trainer() -> Trainer:
    """A trainer with something of every kind that has a state."""
    torch.manual_seed(0)
    loss = Loss()
    optimizer = torch.optim.Adam(loss.parameters(), lr=0.01, fused=True)
    trainer = Trainer(
        collector=VectorCollector("CartPole-v1", num_envs=2, frames_per_batch=8, total_frames=-1),
        total_frames=16,
        frame_skip=1,
        optim_steps_per_batch=1,
        loss_module=loss,
        progress_bar=False,
    )
    OptimizerHook(optimizer).register(trainer)
    ReplayBufferTrainer(ReplayBuffer(50), batch_size=4).register(trainer)
    LRSchedulerHook(torch.optim.lr_scheduler.StepLR(optimizer, 2)).register(trainer)
    RewardNormalizer().register(trainer)
    CountFramesLog(1).register(trainer, name="count")
    trainer.register_op("post_steps", lambda: None, every=Every(frames=8))
    return trainer


def _state() -> Files:
    trainer = _trainer()
    trainer.set_seed(1)
    trainer.train()
    with tempfile.TemporaryDirectory() as place:
        save_file(Path(place) / "state.pt", trainer.state_dict())
        return read(Path(place))


def _spoil_state(files: Files, rng: random.Random) -> None:
    """Another tree, rightly saved."""
    data = files["state.pt"]
    assert isinstance(data, bytes)
    content = torch.load(io.BytesIO(data), weights_only=True)
    skeleton, tensors = json.loads(content["skeleton"]), dict(content["tensors"])
    for _ in range(rng.choice((1, 1, 2))):
        if rng.random() < 0.6:
            part = rng.choice(("components", "components", "components", "rng", None))
            if part is None:
                skeleton = mutate_tree(skeleton, rng)
            elif isinstance(skeleton, dict) and part in skeleton:
                skeleton[part] = mutate_tree(skeleton[part], rng)
        else:
            name = rng.choice(sorted(tensors))
            tensors[name] = _other_tensor(tensors[name], rng)
    try:
        text = json.dumps(skeleton)
    except RecursionError:
        return
    result = io.BytesIO()
    checksum = _checksum(text, tensors)
    whole = {"format": FORMAT, "skeleton": text, "tensors": tensors, "checksum": checksum}
    torch.save(whole, result)
    files["state.pt"] = result.getvalue()


def _other_tensor(tensor: torch.Tensor, rng: random.Random) -> torch.Tensor:
    flat = tensor.reshape(-1)
    return rng.choice(
        (
            torch.zeros(0),
            torch.tensor(1.0),
            flat[:1].clone(),
            flat[: len(flat) // 2].clone(),
            flat.repeat(3),
            tensor.unsqueeze(0).clone(),
            torch.full_like(tensor, -1) if tensor.dtype != torch.bool else ~tensor,
            torch.full(tensor.shape, 2**62),
            torch.randint(0, 256, tensor.shape, generator=torch.Generator().manual_seed(1)),
            tensor.to(torch.complex64),
            tensor.to(torch.uint8),
        )
    )


def _open_state(place: Path) -> Any:
    """Take it up; and go on with it, where anything may fail that is an error and no crash."""
    trainer = _trainer()
    try:
        trainer.load_from_file(place / "state.pt")
        found = {"components": load_file(place / "state.pt")["components"]}
        trainer.total_frames = 24
        try:
            trainer.train()
        except Exception:
            found["trained"] = False
        return found
    finally:
        with suppress(Exception):
            trainer.shutdown()


def targets() -> list[Target]:
    """The target here."""
    return [Target("state of a trainer", _state, _spoil_state, _open_state, lines=True)]
