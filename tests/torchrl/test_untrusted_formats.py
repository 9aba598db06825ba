"""Nothing in what claims to be a checkpoint of TorchRL's is believed, and nothing is executed."""

from __future__ import annotations

import json
import pickle
import zipfile

import pytest
import torch
from saved_there import Parts, same

import hooktrainer
from hooktrainer import CheckpointError, Trainer
from hooktrainer.testing import tiny_trainer

pytestmark = [
    pytest.mark.filterwarnings("ignore:The collector, a torchrl"),
    pytest.mark.filterwarnings("ignore:No target network updater"),
]


def refuse(path, match):
    with pytest.raises(CheckpointError, match=match) as caught:
        tiny_trainer().load_from_file(path)
    assert "\n" not in str(caught.value)


def edit(file, change):
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))


def spoil_weight(memmap, **fields):
    """Change what the weight's entry says of it."""
    key = "value_network_params.module.0.module.weight"
    edit(memmap / "loss_module/meta.json", lambda content: content[key].update(fields))


class Evil:
    def __reduce__(self):
        return (exec, ("print('it ran')",))


@pytest.mark.parametrize("thing", [Evil(), {"a": [Evil()]}])
def test_a_pickle_is_not_run(memmap, thing, capsys):
    (memmap / "optimizer/state/other.pickle").write_bytes(pickle.dumps(thing))
    refuse(memmap, "holds more than plain data and tensors: builtins.exec")
    assert "it ran" not in capsys.readouterr().out


def test_nor_is_one_within_a_storage(memmap, capsys):
    class Storage:
        def __reduce__(self):
            return (torch.storage._load_from_bytes, (pickle.dumps(Evil()),))

    (memmap / "optimizer/state/other.pickle").write_bytes(pickle.dumps({"x": Storage()}))
    refuse(memmap, "more than plain data and tensors: builtins.exec")
    assert "it ran" not in capsys.readouterr().out


def test_a_tensor_larger_than_its_file_is_refused(memmap):
    spoil_weight(memmap, shape=[2, 1 << 40])
    refuse(memmap, r"has 32 bytes in place of 8,796,093,022,208")


@pytest.mark.parametrize(
    "shape", [[-1, 4], [2.0, 4], "24", None, [1 << 62, 4], [True, 8], [[2], 4]]
)
def test_a_shape_that_is_none_is_refused(shape, memmap):
    spoil_weight(memmap, shape=shape)
    refuse(memmap, "memmap:")


def test_no_file_of_elsewhere_is_read(memmap, tmp_path):
    (tmp_path / "secret.memmap").write_bytes(b"\0" * 32)
    edit(
        memmap / "loss_module/meta.json",
        lambda content: content.update({"../../secret": next(iter(content.values()))}),
    )
    refuse(memmap, "does not lie in its directory")


def test_nor_by_way_of_a_link(memmap, tmp_path):
    (tmp_path / "secret").write_bytes(b"\0" * 32)
    weight = memmap / "loss_module/value_network_params.module.0.module.weight.memmap"
    weight.unlink()
    weight.symlink_to(tmp_path / "secret")
    refuse(memmap, "is a link out of its directory")


@pytest.mark.parametrize(
    "damage",
    [
        lambda m: m.update(components=3),
        lambda m: m["components"].update(optimizer=[]),
        lambda m: m["components"]["optimizer"].pop("path"),
        lambda m: m["components"]["optimizer"].update(path=7),
        lambda m: m["components"].update(again=m["components"]["optimizer"]),
        lambda m: m.update(format_version=2),
        lambda m: m["components"]["optimizer"].update(path="nowhere"),
        lambda m: m["components"]["optimizer"].update(path="../../etc"),
        lambda m: m["components"]["optimizer"].update(path="a" * 300),
    ],
)
def test_a_damaged_manifest_is_refused(damage, directory):
    edit(directory / "manifest.json", damage)
    refuse(directory, "directory: ")


@pytest.mark.parametrize(
    "node",
    [
        {"kind": "system", "value": "ls"},
        {"kind": "numpy", "key": "tensor_00000000", "dtype": "O"},
        {"kind": "tensor", "key": "nothing"},
        {"kind": "torch_dtype", "value": "nn"},
        {"kind": "list", "items": 3},
        {"kind": "numpy", "key": "tensor_00000000", "dtype": "S1000000"},
        {"kind": "numpy_scalar", "dtype": "V1", "value": 1 << 40},
        {"kind": "numpy_scalar", "dtype": "S1", "value": 1 << 40},
        {"kind": "numpy_scalar", "dtype": "f4", "value": [0.0]},
        [],
        {},
    ],
)
def test_a_schema_that_is_none_is_refused(node, directory):
    (schema,) = directory.glob("components/*-optimizer/state.json")
    schema.write_text(
        json.dumps({"kind": "dict", "items": [[{"kind": "value", "value": "x"}, node]]})
    )
    refuse(directory, "directory: ")


WEIGHT = "0/loss_module/value_network_params.module.0.module.weight"


@pytest.mark.parametrize(
    ("path", "change", "match"),
    [
        (WEIGHT, {"location": "../../secret"}, "does not lie in its directory"),
        (WEIGHT, {"location": "nowhere"}, "it has no nowhere"),
        (WEIGHT, {"byte_range": [0, 1 << 22], "shape": [1 << 20]}, "bytes in place of"),
        (WEIGHT, {"byte_range": [-32, 0]}, "a tensor of 32 bytes is to lie at -32 to 0"),
        (WEIGHT, {"byte_range": [0, 36]}, "a tensor of 32 bytes is to lie at 0 to 36"),
        (WEIGHT, {"shape": [-1, 4]}, "is no shape"),
        (WEIGHT, {"serializer": "torch_save"}, "a tensor of an unknown kind"),
        (WEIGHT, {"dtype": "torch.nn"}, "a tensor of an unknown kind"),
        (WEIGHT, {"type": "ShardedTensor"}, "'ShardedTensor', which is unknown"),
        (WEIGHT, {"type": "ChunkedTensor", "chunks": [3]}, "snapshot: "),
        ("0/state", {"keys": ["collected_frames"] * 2}, "has a key twice"),
        ("0/state", {"keys": 3}, "snapshot: "),
        ("0/state/_optim_count", {"serialized_value": "many"}, "snapshot: "),
        ("0/early_stopping/stop_reason", {"location": "/etc/passwd"}, "not lie in its directory"),
    ],
)
def test_a_snapshot_that_says_what_is_not_so_is_refused(path, change, match, snapshot):
    edit(snapshot / ".snapshot_metadata", lambda content: content["manifest"][path].update(change))
    refuse(snapshot, match)


def test_nor_is_a_pickle_in_a_snapshot_run(snapshot, capsys):
    torch.save(Evil(), snapshot / "0/early_stopping/stop_reason")
    refuse(snapshot, "holds more than plain data and tensors")
    assert "it ran" not in capsys.readouterr().out


def test_an_archive_whose_member_is_larger_than_it_says_is_refused(directory, tmp_path):
    archive = tmp_path / "bomb"
    (weight, *_) = sorted(directory.glob("components/*-loss_module/state/*.memmap"))
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        for source in sorted(directory.rglob("*")):
            if source.is_file():
                data = b"\0" * (1 << 20) if source == weight else source.read_bytes()
                file.writestr(source.relative_to(directory).as_posix(), data)
    refuse(archive, "has 1,048,576 bytes in place of 32")


@pytest.mark.parametrize(
    ("spoil", "match"),
    [
        ("bzip2", "'manifest.json' is packed as TorchRL never does"),
        ("names", "two files of one name"),
        ("sizes", "to be larger than they can be"),
    ],
)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_an_archive_that_stands_for_more_than_it_holds_is_refused(spoil, match, tmp_path):
    kind = zipfile.ZIP_BZIP2 if spoil == "bzip2" else zipfile.ZIP_DEFLATED
    with zipfile.ZipFile(tmp_path / "bomb", "w", kind) as file:
        file.writestr("manifest.json", "0" * 100_000)
        if spoil == "names":
            file.writestr("manifest.json", "{}")
        if spoil == "sizes":
            file.infolist()[0].file_size = 1 << 30
    refuse(tmp_path / "bomb", match)


def test_a_snapshot_of_many_tensors_at_one_place_is_refused(snapshot, monkeypatch):
    monkeypatch.setattr("hooktrainer.base.untrusted.files._available", lambda: (1 << 25) - 1)
    (snapshot / "file").write_bytes(bytes(1 << 22))
    file = snapshot / ".snapshot_metadata"
    metadata = json.loads(file.read_text())
    big = {"location": "file", "byte_range": [0, 1 << 22], "shape": [1 << 20]}
    entry = metadata["manifest"][WEIGHT] | big
    chunks = {"type": "ChunkedTensor", "shape": [1 << 21], "chunks": [{"tensor": entry}] * 2}
    metadata["manifest"] |= {"0/chunks": chunks} | {f"0/{i}": entry for i in range(6)}
    file.write_text(json.dumps(metadata))
    refuse(snapshot, r"its tensors take 33,\d{3},\d{3} bytes; 33,554,431 bytes of memory")


def test_a_snapshot_of_two_objects_at_one_place_is_refused(snapshot):
    def again(content):
        content["manifest"]["0/again"] = content["manifest"]["0/early_stopping/stop_reason"]

    edit(snapshot / ".snapshot_metadata", again)
    refuse(snapshot, "two objects are at one place")


@pytest.mark.parametrize(
    "counters",
    [
        {"collected_frames": -1, "_optim_count": 0},
        {"collected_frames": float("inf"), "_optim_count": 0},
        {"collected_frames": 10},
        {"collected_frames": [], "_optim_count": 0},
        [],
    ],
)
def test_counters_that_are_none_are_refused(counters, memmap):
    (memmap / "state.json").write_text(json.dumps(counters))
    here = Parts(1, hooktrainer)
    trainer = Trainer(**here.arguments)
    before = {k: v.clone() for k, v in here.loss.state_dict().items()}
    with pytest.raises(CheckpointError, match="as its counters"):
        trainer.load_from_file(memmap)
    assert same(before, dict(here.loss.state_dict()))
    trainer.shutdown()


def test_a_directory_of_something_else_is_said(tmp_path):
    refuse(tmp_path, "is a directory, and none that TorchRL's trainer saved")
