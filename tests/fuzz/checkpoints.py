"""Targets: checkpoints of the three back ends, single files, what TorchRL saved, data sets."""

from __future__ import annotations

import dataclasses
import io
import json
import random
import tempfile
from collections import OrderedDict, deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xxhash
from harness import Files, Target, read, spoil_place
from mutate import mutate_bytes, mutate_json, mutate_tree, spoil_torch_file
from tensordict import LazyStackedTensorDict, NonTensorData, TensorDict

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
from hooktrainer.data import Dataset, load_dataset
from hooktrainer.errors import CheckpointError, ConfigError
from hooktrainer.replay import ReplayBuffer
from hooktrainer.store import (
    Checkpoint,
    CheckpointManager,
    FileRecord,
    Manifest,
    load_file,
    rng_state,
    save_file,
)
from hooktrainer.store.single_file import FORMAT, checksum_of
from hooktrainer.store.stored import seal

MANIFEST, STATE = "manifest.json", "state.json"


def tree() -> dict[str, Any]:
    """One of everything that a state may hold."""
    torch.manual_seed(0)
    shared = torch.rand(4)
    return {
        "x": torch.rand(300),
        "small": [torch.rand(3, 2), torch.arange(5), torch.zeros(0, 3), torch.tensor(1.5)],
        "dtypes": [torch.zeros(3, dtype=d) for d in (torch.bool, torch.bfloat16, torch.uint16)],
        "shared": {"a": shared, "b": shared},
        "module": OrderedDict(weight=torch.rand(2, 2)),
        "numpy": [np.arange(6.0).reshape(2, 3), np.array(["ab", "c"]), np.float32(2), np.str_("é")],
        "plain": [None, True, 2**70, -0.0, float("nan"), 1j, "text", b"bytes", bytearray(b"more")],
        "groups": [(1, 2), {1, 2}, frozenset("ab"), range(3), slice(1, None), deque([1], 3)],
        "keys": {1: "one", (2, 3): "pair", "$x": "dollar"},
        "torch": [torch.float16, torch.device("cpu"), torch.Size([2])],
        "td": TensorDict(
            {"a": torch.rand(2, 3), "b": {"c": torch.rand(2)}, "n": NonTensorData("x", [2])}, [2]
        ),
        "lazy": LazyStackedTensorDict.lazy_stack([TensorDict({"a": torch.ones(1)}) for _ in "ab"]),
        "path": Path("some/where"),
    }


def _checkpoint(backend: str) -> Callable[[], Files]:
    def make() -> Files:
        with tempfile.TemporaryDirectory() as place:
            with CheckpointManager(place, backend=backend, config={"lr": 1e-3}) as manager:
                manager.save(tree(), frames=10, metrics={"eval/return": 1.5})
            files = read(Path(place) / "step_000000000010")
        opened = Manifest.decode(files[MANIFEST])  # type: ignore[arg-type]
        always = {"time": 1.0, "versions": {"torch": "2"}, "run_id": "0" * 16}
        always |= {"git_commit": None, "git_dirty": None}
        files[MANIFEST] = dataclasses.replace(opened, **always).encode()  # type: ignore[arg-type]
        return files

    return make


def _open_checkpoint(place: Path) -> Any:
    """Load it; what is loaded is intact, and what is not is told of by verify alike."""
    checkpoint = Checkpoint.open(place)
    try:
        checkpoint.verify()
    except CheckpointError:
        intact = False
    else:
        intact = True
    try:
        found = checkpoint.load()
    except CheckpointError as error:
        if intact:
            raise AssertionError(f"verified, and not loaded: {error}") from error
        raise
    if not intact:
        raise AssertionError("loaded, and not verified")
    return found


def _spoil_checkpoint(files: Files, rng: random.Random) -> None:
    for _ in range(rng.choice((1, 1, 2))):
        kind = rng.randrange(10)
        names = [name for name in sorted(files) if isinstance(files[name], bytes)]
        if kind == 0:
            spoil_place(files, rng)
        elif kind <= 2 and MANIFEST in names:
            files[MANIFEST] = _spoil_manifest(files[MANIFEST], rng)
        elif kind <= 5 and STATE in names:
            files[STATE] = mutate_json(files[STATE], rng)
        else:
            inner = [name for name in names if name.startswith("tensors/")]
            if inner:
                name = rng.choice(inner)
                files[name] = _spoil_tensors(name, files[name], rng)
    if rng.random() < 0.95:
        _forge(files, rng)


def _spoil_manifest(data: Any, rng: random.Random) -> bytes:
    if rng.random() < 0.2:
        return mutate_bytes(data, rng)
    try:
        content = mutate_tree(json.loads(data)["manifest"], rng)
        return seal("manifest", content)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return mutate_bytes(data, rng)


def _spoil_tensors(name: str, data: Any, rng: random.Random) -> bytes:
    if name.endswith((".json", ".snapshot_metadata")):
        return mutate_json(data, rng)
    if name.endswith(".pt"):
        return spoil_torch_file(data, rng)
    return mutate_bytes(data, rng)


def _forge(files: Files, rng: random.Random) -> None:
    """Give the files in the manifest the hashes that they have."""
    manifest = files.get(MANIFEST)
    try:
        opened = Manifest.decode(manifest)  # type: ignore[arg-type]
    except Exception:  # it is spoilt itself
        return
    records = {}
    for name, record in opened.files.items():
        data = files.get(name)
        if isinstance(data, bytes):
            record = FileRecord(len(data), xxhash.xxh3_128_hexdigest(data))
        records[name] = record
    if rng.random() < 0.3:
        for name in files:
            if name != MANIFEST and isinstance(data := files[name], bytes) and name.isprintable():
                records[name] = FileRecord(len(data), xxhash.xxh3_128_hexdigest(data))
    files[MANIFEST] = dataclasses.replace(opened, files=records).encode()


def _single() -> Files:
    with tempfile.TemporaryDirectory() as place:
        save_file(Path(place) / "state.pt", tree())
        return read(Path(place))


def _resave(parts: tuple[str | None, ...], whole: float) -> Callable[[Files, random.Random], None]:
    """Change the tree, the named parts of it, or the tensors, and save them rightly.

    Args:
        parts: Which parts of the tree; ``None`` for all of it.
        whole: How many files hold what was rightly saved; the rest are spoilt themselves.
    """

    def spoil(files: Files, rng: random.Random) -> None:
        data = files["state.pt"]
        assert isinstance(data, bytes)
        if rng.random() >= whole:
            files["state.pt"] = spoil_torch_file(data, rng)
            return
        content = torch.load(io.BytesIO(data), weights_only=True)
        text, tensors = content["state"], dict(content["tensors"])
        for _ in range(rng.choice((1, 1, 2))):
            part = rng.choice(parts)
            if rng.random() >= 0.6:
                name = rng.choice(sorted(tensors))
                tensors[name] = _other_tensor(tensors[name], rng)
            elif part is None:
                text = mutate_json(text.encode("utf-8", "replace"), rng).decode("utf-8", "replace")
                break
            else:
                state = json.loads(text)
                tree = state["skeleton"]
                text = json.dumps(
                    {**state, "skeleton": {**tree, part: mutate_tree(tree[part], rng)}}
                )
        plain = {name: tensor.detach() for name, tensor in tensors.items()}
        checksum = checksum_of(text, plain) if rng.random() < 0.97 else "0" * 32
        result = io.BytesIO()
        saved = {"format": FORMAT, "state": text, "tensors": tensors, "checksum": checksum}
        torch.save(saved, result)
        files["state.pt"] = result.getvalue()

    return spoil


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
            torch.nn.Parameter(torch.ones(2)),
        )
    )


# -- A state that a trainer takes up, and goes on with.


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


# -- Data sets.


def _dataset() -> Files:
    steps = 20
    transitions = TensorDict(
        {
            "observation": torch.rand(steps, 3),
            "action": torch.arange(steps),
            "next": {
                "observation": torch.rand(steps, 3),
                "reward": torch.rand(steps, 1),
                "terminated": torch.zeros(steps, 1, dtype=torch.bool),
                "truncated": torch.zeros(steps, 1, dtype=torch.bool),
            },
        },
        [steps],
    )
    with tempfile.TemporaryDirectory() as place:
        Dataset(transitions, [1.0, 2.5], "Pendulum-v1", "made").save(Path(place) / "data")
        return read(Path(place))


def _spoil_dataset(files: Files, rng: random.Random) -> None:
    data = files["data"]
    if rng.random() < 0.1 or not isinstance(data, bytes):
        spoil_place(files, rng)
    elif rng.random() < 0.4:
        files["data"] = mutate_bytes(data, rng)
    else:
        end = 8 + int.from_bytes(data[:8], "little")
        header = mutate_json(data[8:end], rng)
        files["data"] = len(header).to_bytes(8, "little") + header + data[end:]


def _open_dataset(place: Path) -> Any:
    data = load_dataset(place / "data")
    return [data.transitions, data.returns, data.env, data.description, repr(data)]


def targets() -> list[Target]:
    """The targets here."""
    rng_state()  # imports what it needs
    errors = (CheckpointError,)
    made = [
        Target(
            f"checkpoint, {each}", _checkpoint(each), _spoil_checkpoint, _open_checkpoint, errors
        )
        for each in ("torch", "torchsnapshot", "native")
    ]
    one = (*errors, FileNotFoundError)
    data = (ConfigError, FileNotFoundError)
    parts = ("components", "components", "components", "rng", None)
    return [
        *made,
        Target("state of a trainer", _state, _resave(parts, 1.0), _open_state, lines=True),
        Target(
            "single file", _single, _resave((None,), 0.4), lambda p: load_file(p / "state.pt"), one
        ),
        Target("data set", _dataset, _spoil_dataset, _open_dataset, data),
    ]
