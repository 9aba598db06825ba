from __future__ import annotations

import asyncio
import errno
import gc
import math
import os

import pytest
import torch
from torchsnapshot import Snapshot, StateDict

from hooktrainer.base import fs
from hooktrainer.errors import CheckpointError
from hooktrainer.store import (
    CheckpointManager,
    MalformedError,
    TensorSpec,
    backends,
    get_backend,
    known_backends,
    register_backend,
)

NAMES = known_backends()
NativeBackend = type(get_backend("native"))
DTYPES = [
    torch.float64,
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.complex64,
    torch.complex128,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.uint8,
    torch.uint16,
    torch.uint32,
    torch.uint64,
    torch.bool,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
]


def make_tensors():
    tensors = {}
    for dtype in DTYPES:
        for shape in [(), (0,), (3,), (5, 7), (2, 0)]:
            count = math.prod(shape) * dtype.itemsize
            raw = torch.arange(count).remainder(2 if dtype is torch.bool else 251).to(torch.uint8)
            tensors[f"{dtype}/{shape}"] = (
                raw.view(dtype).reshape(shape) if count else torch.empty(shape, dtype=dtype)
            )
    tensors["odd name: é % \n ../../x \\ $"] = torch.arange(7)
    tensors["parameter"] = torch.nn.Parameter(torch.arange(5.0))
    tensors["transposed"] = torch.arange(6.0).reshape(2, 3).T
    tensors["view of much"] = torch.arange(100_000.0)[10:13]
    tensors["large"] = torch.arange(900_000, dtype=torch.int32)
    return tensors


def specs_of(tensors):
    return {name: TensorSpec.of(tensor) for name, tensor in tensors.items()}


def bits(tensor):
    return tensor.detach().reshape(-1).view(torch.uint8)


def assert_same(left, right):
    assert list(left) == list(right)
    for name in left:
        assert TensorSpec.of(left[name]) == TensorSpec.of(right[name]), name
        assert torch.equal(bits(left[name]), bits(right[name])), name


@pytest.mark.parametrize("name", NAMES)
def test_every_dtype_and_shape_keeps_its_bits(name, tmp_path):
    backend, tensors = get_backend(name), make_tensors()
    backend.write(tmp_path, tensors, None)
    back = backend.read(tmp_path, specs_of(tensors))
    assert_same(back, tensors)
    assert not any(tensor.requires_grad for tensor in back.values())
    back["large"].zero_()  # its own memory
    assert_same(backend.read(tmp_path, specs_of(tensors)), tensors)


@pytest.mark.parametrize("name", NAMES)
def test_tensors_that_share_memory_are_restored_with_their_own(name, tmp_path):
    backend, base = get_backend(name), torch.arange(4.0)
    tensors = {"base": base, "reshaped": base.view(2, 2), "half": base[2:]}
    backend.write(tmp_path, tensors, None)
    back = backend.read(tmp_path, specs_of(tensors))
    assert_same(back, tensors)
    back["base"].zero_()
    assert back["reshaped"].tolist() == [[0, 1], [2, 3]]
    assert back["half"].tolist() == [2, 3]


@pytest.mark.parametrize("name", NAMES)
def test_works_inside_a_running_event_loop(name, tmp_path):
    backend, tensors = get_backend(name), {"x": torch.ones(3)}

    async def both():
        backend.write(tmp_path, tensors, None)
        return backend.read(tmp_path, specs_of(tensors))

    assert_same(asyncio.run(both()), tensors)


@pytest.mark.parametrize("name", NAMES)
def test_other_tensors_than_were_written_are_refused(name, tmp_path):
    backend = get_backend(name)
    backend.write(tmp_path, {"x": torch.ones(3)}, None)
    with pytest.raises(MalformedError):
        backend.check(tmp_path, {"x": TensorSpec(torch.float32, (5_000_000,))})


def test_specs_are_text_and_back():
    for tensor in make_tensors().values():
        assert TensorSpec.parse(str(TensorSpec.of(tensor))) == TensorSpec.of(tensor)
    assert str(TensorSpec(torch.bfloat16, (3, 4))) == "bfloat16[3, 4]"
    with pytest.raises(CheckpointError, match="no dtype 'save'"):
        TensorSpec.parse("save[3]")


def test_the_torch_file_opens_without_hooktrainer(tmp_path):
    get_backend("torch").write(tmp_path, {"a/b": torch.ones(2)}, None)
    content = torch.load(tmp_path / "tensors.pt", weights_only=True)
    assert content["a/b"].tolist() == [1, 1]


# --- the registry ------------------------------------------------------------------------------


def test_the_environment_variable_names_the_back_end(monkeypatch):
    monkeypatch.delenv("CKPT_BACKEND", raising=False)
    assert backends.backend_name() == "torch"
    monkeypatch.setenv("CKPT_BACKEND", "torchsnapshot")
    assert backends.backend_name() == "torchsnapshot"
    assert backends.backend_name("native") == "native"


def test_a_package_can_register_another(monkeypatch):
    monkeypatch.setattr(backends, "_FACTORIES", dict(backends._FACTORIES))
    register_backend("mine", NativeBackend)
    assert "mine" in known_backends()
    assert isinstance(get_backend("mine"), NativeBackend)
    with pytest.raises(ValueError, match="'native'"):
        register_backend("native", NativeBackend)


# --- native: only what changed -----------------------------------------------------------------


def write(root, step, tensors, previous=None, chunk_bytes=1024):
    directory = root / str(step)
    directory.mkdir()
    NativeBackend(chunk_bytes).write(directory, tensors, previous)
    assert_same(NativeBackend().read(directory, specs_of(tensors)), tensors)
    return directory


def inodes(directory):
    return {path.stat().st_ino: path.stat().st_size for path in directory.glob("*.chunk")}


def written(directory, previous):
    """The sizes of the files that are new."""
    old = inodes(previous)
    return sorted(size for inode, size in inodes(directory).items() if inode not in old)


def test_unchanged_chunks_are_linked_and_changed_ones_written(tmp_path):
    tensors = {"frozen": torch.rand(1000), "buffer": torch.rand(4096), "small": torch.rand(3)}
    first = write(tmp_path, 0, tensors)
    assert sum(inodes(first).values()) == 4000 + 16384 + 12
    tensors["buffer"][300:310] += 1  # one chunk of 256 floats
    tensors["small"] = torch.rand(5)  # does not shift the large ones
    second = write(tmp_path, 1, tensors, first)
    assert written(second, first) == [20, 1024]
    fs.remove_tree(first)  # each directory is complete by itself
    assert_same(NativeBackend().read(second, specs_of(tensors)), tensors)


def test_without_links_everything_is_written_again(tmp_path, monkeypatch):
    tensors = {"a": torch.rand(1000)}
    first = write(tmp_path, 0, tensors)

    def refuse(source, target):
        raise OSError(errno.EPERM, "links not permitted")

    monkeypatch.setattr(fs.os, "link", refuse)
    assert sum(written(write(tmp_path, 1, tensors, first), first)) == 4000


# --- torchsnapshot: its traps ------------------------------------------------------------------


def test_torchsnapshot_leaves_nothing_open_when_it_fails(tmp_path):
    backend = get_backend("torchsnapshot")
    (tmp_path / "0").touch()  # where it wants a directory
    gc.collect()  # what other tests left open
    descriptors = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with pytest.raises(OSError, match="/0"):
            backend.write(tmp_path, {"x": torch.rand(1000), "y": torch.rand(10)}, None)
    gc.collect()  # an event loop left open would warn
    assert len(os.listdir("/proc/self/fd")) == descriptors


def test_torchsnapshot_itself_reads_it_too(tmp_path):
    get_backend("torchsnapshot").write(tmp_path, {"x": torch.arange(3.0)}, None)
    state = StateDict(**{"0": torch.zeros(12, dtype=torch.uint8)})
    Snapshot(str(tmp_path)).restore({"tensors": state})
    assert state["0"].view(torch.float32).tolist() == [0, 1, 2]


def test_torchsnapshot_refuses_a_process_group_it_would_wait_for(tmp_path, monkeypatch):
    backend = get_backend("torchsnapshot")
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    with pytest.raises(CheckpointError, match="2 ranks"):
        backend.write(tmp_path, {"x": torch.ones(1)}, None)


def test_a_checkpoint_whose_back_end_is_gone_names_it(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(backends, "_FACTORIES", {**backends._FACTORIES, "theirs": NativeBackend})
        with CheckpointManager(tmp_path / "c", backend="theirs") as manager:
            manager.save({"x": torch.ones(3)}, frames=1)
            assert manager.load()[0].manifest.backend == "theirs"
    with (
        CheckpointManager(tmp_path / "c") as manager,
        pytest.raises(CheckpointError, match="no checkpoint back end 'theirs' here"),
    ):
        manager.load()
