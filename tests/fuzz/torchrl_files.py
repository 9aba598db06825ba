"""Targets: the directories and archives that TorchRL's trainer saves."""

from __future__ import annotations

import collections
import io
import random
import tempfile
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from harness import Files, Target, read, spoil_place
from mutate import mutate_bytes, mutate_json, spoil_pickle, spoil_torch_file
from tensordict import NonTensorData, TensorDict
from torchrl.checkpoint import Checkpoint, StateDictCheckpointAdapter
from torchrl.data import LazyTensorStorage, ReplayBuffer

from hooktrainer.errors import CheckpointError
from hooktrainer.store.single_file import read_plain
from hooktrainer.torchrl import checkpoint as formats

ARCHIVE = "archive.zip"


class _Part:
    """Something with a state."""

    def __init__(self, **state: Any) -> None:
        self.state = state

    def state_dict(self) -> dict[str, Any]:
        return self.state

    def load_state_dict(self, state: Any) -> None: ...


def _unified() -> Files:
    torch.manual_seed(0)
    everything = _Part(
        tensors=[torch.rand(3), torch.empty(0, 2), torch.tensor([True, False])],
        arrays=[np.arange(4.0).reshape(2, 2), np.float32(1.5)],
        ordered=collections.OrderedDict(a=(1, [2.5, None]), b={"x"}, c=frozenset({1})),
        ranges=[slice(1, None), range(1, 9, 2), 1 + 2j, float("inf")],
        torch=[torch.Size([2, 3]), torch.device("cpu"), torch.float16],
        bytes=[b"\x00\xff", bytearray(b"ab"), Path("a/b")],
    )
    buffer = ReplayBuffer(storage=LazyTensorStorage(10), batch_size=2)
    buffer.extend(TensorDict({"obs": torch.rand(10, 3)}, [10]))
    checkpoint = Checkpoint(
        trainer_state=_Part(collected_frames=10, _optim_count=1), replay_buffer=buffer
    )
    for payload in ("directory", "torch"):
        part = everything if payload == "directory" else _Part(weight=torch.rand(2, 2), step=1)
        checkpoint.register(payload, part, adapter=StateDictCheckpointAdapter(payload))
    with tempfile.TemporaryDirectory() as place, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        checkpoint.save(Path(place) / "saved")
        return read(Path(place) / "saved")


def _file() -> Files:
    network = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 1))
    optimizer = torch.optim.Adam(network.parameters())
    network(torch.rand(2, 3)).sum().backward()
    optimizer.step()
    content = {
        "collector": collections.OrderedDict(frames=10, iter=1),
        "loss_module": collections.OrderedDict(
            (f"{name}_params.{key}", value.detach())
            for name in ("actor_network", "critic_network")
            for key, value in network.state_dict().items()
        ),
        "state": collections.OrderedDict(
            collected_frames=10, _last_log={"loss": 1.0}, _last_save=0, _optim_count=3
        ),
        "optimizer": optimizer.state_dict(),
        "scheduler": {
            "milestones": collections.Counter([1, 2]),
            "last_epoch": 1,
            "base_lrs": [1e-3],
        },
        "buffer": {
            "replay_buffer": {
                "_storage": {"_storage": collections.OrderedDict(obs=torch.rand(8, 3)), "_len": 8},
                "_writer": {"_cursor": 0},
            }
        },
    }
    result = io.BytesIO()
    torch.save(content, result)
    return {"trainer.pt": result.getvalue()}


def _memmap() -> Files:
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as place:
        for name in ("loss_module", "collector", "optimizer"):
            content = {
                "weight": torch.rand(2, 3),
                "nested": {"step": torch.tensor(3), "none": torch.empty(0, 2)},
                "name": NonTensorData("text"),
                "betas": NonTensorData((0.9, {"x": torch.ones(2)})),
            }
            TensorDict(content).memmap(str(Path(place) / name))
        (Path(place) / "state.json").write_text('{"collected_frames": 10, "_optim_count": 1}')
        return read(Path(place))


def _archive() -> Files:
    return {ARCHIVE: _zipped(_unified(), zipfile.ZIP_STORED)}


def _zipped(files: Files, method: int) -> bytes:
    result = io.BytesIO()
    with zipfile.ZipFile(result, "w", method) as archive:
        for name, content in files.items():
            if isinstance(content, bytes):
                archive.writestr(zipfile.ZipInfo(name), content, method)
    return result.getvalue()


def _spoil(files: Files, rng: random.Random) -> None:
    for _ in range(rng.choice((1, 1, 2))):
        if rng.random() < 0.1:
            spoil_place(files, rng)
            break
        name = rng.choice(sorted(files))
        data = files[name]
        if not isinstance(data, bytes):
            continue
        if name.endswith(".json"):
            files[name] = mutate_json(data, rng)
        elif name.endswith(".pt"):
            files[name] = spoil_torch_file(data, rng)
        else:
            files[name] = (spoil_pickle if name.endswith(".pickle") else mutate_bytes)(data, rng)


def _spoil_archive(files: Files, rng: random.Random) -> None:
    data = files[ARCHIVE]
    assert isinstance(data, bytes)
    if rng.random() < 0.25:
        files[ARCHIVE] = mutate_bytes(data, rng)
        return
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        inner: Files = {name: archive.read(name) for name in archive.namelist()}
    _spoil(inner, rng)
    if rng.random() < 0.01:  # little in the archive, and much out of it
        inner[rng.choice(("manifest.json", "../outside/x", "/etc/x"))] = b" " * (100 << 20)
    method = rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2))
    files[ARCHIVE] = _zipped(inner, method)


def _open(place: Path) -> Any:
    found = formats.read(place / ARCHIVE if (place / ARCHIVE).exists() else place)
    try:
        return None if found is None else _plain(found)
    except RecursionError:
        return "nested deep"


def _plain(tree: Any) -> Any:
    """A tree as checkpoints can hold it, for its fingerprint."""
    if isinstance(tree, dict):
        return [type(tree).__name__, *([repr(key), _plain(item)] for key, item in tree.items())]
    if isinstance(tree, list | tuple):
        return [type(tree).__name__, *map(_plain, tree)]
    if isinstance(tree, torch.Tensor | np.ndarray):
        return tree
    if isinstance(tree, set | frozenset):
        return [type(tree).__name__, *sorted(map(repr, tree))]
    return f"{type(tree).__name__} {tree!r}"


def targets() -> list[Target]:
    """The targets here."""
    errors = (CheckpointError, FileNotFoundError)
    return [
        Target(
            "file of TorchRL", _file, _spoil, lambda p: _plain(read_plain(p / "trainer.pt")), errors
        ),
        Target("folder of TorchRL", _unified, _spoil, _open, errors),
        Target("memmap of TorchRL", _memmap, _spoil, _open, errors),
        Target("archive of TorchRL", _archive, _spoil_archive, _open, errors),
    ]
