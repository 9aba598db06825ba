from __future__ import annotations

import enum
import json
import math
import struct
from collections import OrderedDict, defaultdict, deque, namedtuple
from pathlib import Path

import numpy as np
import pytest
import torch
from tensordict import MemoryMappedTensor, NonTensorData, TensorDict, lazy_stack
from tensordict.nn import TensorDictParams
from torch._subclasses.fake_tensor import FakeTensorMode

from hooktrainer.errors import CheckpointError
from hooktrainer.store import flatten, unflatten

Point = namedtuple("Point", "x y")


class Color(enum.IntEnum):
    RED = 1


def round_trip(tree):
    skeleton, tensors = flatten(tree)
    copies = {
        name: tensor.clone(memory_format=torch.contiguous_format)
        for name, tensor in tensors.items()
    }
    return unflatten(json.loads(json.dumps(skeleton, allow_nan=False)), copies)


VALUES = {
    "plain": [None, True, False, 0, 1, -1, 1.0, 0.1, 1e-320, -1e308, 1.5 - 2j, complex("inf-0j")],
    "large": [2**63 - 1, 2**63, -(2**200), 10**5000],
    "text": ["", "text", 'é\n"\\ \ud800', "$tuple", b"", b"\x00\xff" * 300, bytearray(b"ab")],
    "nested": [[], [1, [2.0, "3"]], (), (1, (2, [3])), {}, {"a": {"b": 1}}],
    "keys": [{1: "a", "1": "b", 2.5: "c", None: "d", (1, "x"): "e"}, {True: 1}, {False: 0, "a": 1}],
    "dollars": [{"$tuple": [1]}, {"$": 1}],
    "sets": [set(), {1, "a", (2, 3)}, frozenset({1, 2}), range(3, 9, 2), slice(None, 5)],
    "ordered": [deque([1, 2, 3], 3), deque(), OrderedDict([("b", 1), ("a", 2)]), OrderedDict()],
    "torch": [torch.float32, torch.bfloat16, torch.device("cpu"), torch.device("cuda:1")],
    "others": [torch.Size([2, 3]), torch.Size([]), Path("runs/a")],
    "generator": np.random.default_rng(0).bit_generator.state,
}


@pytest.mark.parametrize("name", VALUES)
def test_python_values_come_back_equal_and_of_the_same_type(name):
    def same(a, b):
        assert type(a) is type(b)
        assert a == b
        if isinstance(a, dict):
            same(list(a), list(b))
            same(list(a.values()), list(b.values()))
        elif isinstance(a, list | tuple | deque):
            for va, vb in zip(a, b, strict=True):
                same(va, vb)
        if isinstance(a, deque):
            assert a.maxlen == b.maxlen

    same(VALUES[name], round_trip(VALUES[name]))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -0.0, 0.0, 5e-324])
def test_floats_keep_their_bits(value):
    assert struct.pack("<d", round_trip(value)) == struct.pack("<d", value)


def test_parameters_views_and_conjugates_are_saved_as_plain_tensors():
    base = torch.arange(12.0).reshape(3, 4)
    tree = {
        "parameter": torch.nn.Parameter(base),
        "transposed": base.T,
        "strided": base[:, ::2],
        "expanded": base[:1].expand(5, 4),
        "conjugate": torch.tensor([1 + 2j]).conj(),
        "imaginary": torch.tensor([1 + 2j]).conj().imag,
    }
    back = round_trip(tree)
    for name, tensor in tree.items():
        assert type(back[name]) is torch.Tensor
        assert not back[name].requires_grad
        assert torch.equal(back[name], tensor), name


def test_a_tensor_that_occurs_twice_is_stored_once_and_stays_one():
    weight = torch.ones(3)
    skeleton, tensors = flatten(
        {"actor": weight, "loss": {"actor": weight}, "other": torch.ones(3)}
    )
    assert list(tensors) == ["actor", "other"]
    back = unflatten(skeleton, tensors)
    assert back["actor"] is back["loss"]["actor"]
    assert back["other"] is not back["actor"]


ARRAYS = [
    *(np.arange(6, dtype=np.int16).reshape(2, 3), np.asfortranarray(np.arange(6.0).reshape(2, 3))),
    *(np.array(1.5), np.zeros((0, 3)), np.array(["ab", "c"]), np.array([b"x"])),
    *(np.arange(3, dtype=">f8"), np.array(["2024-01-01"], dtype="M8[D]"), np.array([True, False])),
    *(np.arange(10)[::3], np.float16([1, math.nan]), np.array([1 + 2j]), np.longdouble([1, 2])),
    *(np.array([2**63], dtype=np.uint64), np.broadcast_to(np.arange(3), (2, 3))),
]


@pytest.mark.parametrize("array", ARRAYS, ids=lambda a: f"{a.dtype.str}{a.shape}")
def test_numpy_arrays_keep_dtype_shape_and_bits(array):
    array = array.view()
    array.flags.writeable = False
    back = round_trip({"x": array})["x"]
    assert type(back) is np.ndarray
    assert (back.dtype.str, back.shape) == (array.dtype.str, array.shape)
    assert back.tobytes() == array.tobytes()
    assert back.flags.writeable


SCALARS = [
    *(np.float64(-0.0), np.float32("nan"), np.int8(-3), np.uint64(2**64 - 1), np.bool_(True)),
    *(np.str_("é"), np.str_(""), np.complex64(1j), np.datetime64("2024-01-01")),
    *(np.bytes_(b"x"), np.bytes_(b"x\0")),
]


@pytest.mark.parametrize("scalar", SCALARS, ids=lambda s: type(s).__name__)
def test_numpy_scalars_keep_type_and_bits(scalar):
    back = round_trip(scalar)
    assert (type(back), back.tobytes()) == (type(scalar), scalar.tobytes())


def test_tensordicts_keep_batch_size_device_names_and_nesting():
    td = TensorDict(
        {
            "x": torch.zeros(2, 3, 4),
            "text": NonTensorData("hi", batch_size=[2, 3]),
            "sub": {"y": torch.ones(2, 3, 4)},
        },
        batch_size=[2, 3],
        names=["env", "time"],
        device="cpu",
    )
    td["sub"].batch_size = [2, 3, 4]
    back = round_trip({"td": td, "empty": TensorDict({}, [4]), "locked": td.clone().lock_()})
    assert type(back["td"]) is TensorDict
    assert (back["td"].batch_size, back["td"].names) == (td.batch_size, td.names)
    assert back["td"].device == td.device
    assert back["td"]["sub"].batch_size == torch.Size([2, 3, 4])
    assert back["td"]["text"] == "hi"
    assert (back["td"]["x"] == td["x"]).all()
    assert back["empty"].batch_size == torch.Size([4])
    assert back["empty"].device is None
    assert back["locked"].is_locked
    assert not back["td"].is_locked


def test_lazy_stacks_and_tensordict_params():
    stack = lazy_stack([TensorDict({"a": torch.zeros(2)}), TensorDict({"a": torch.ones(3)})])
    texts = lazy_stack([NonTensorData("x"), NonTensorData("y")])
    params = TensorDictParams(TensorDict({"w": torch.ones(2)}))
    back = round_trip({"stack": stack, "texts": texts, "params": params})
    assert type(back["stack"]) is type(stack)
    assert [td["a"].tolist() for td in back["stack"].tensordicts] == [[0, 0], [1, 1, 1]]
    assert back["texts"].tolist() == ["x", "y"]
    assert type(back["params"]) is TensorDict
    assert back["params"]["w"].tolist() == [1, 1]


def test_names_are_unique_where_paths_collide():
    tree = {
        1: torch.zeros(1),
        "1": torch.ones(1),
        "a/b": torch.full((1,), 2.0),
        "a": {"b": torch.full((1,), 3.0)},
    }
    _, tensors = flatten(tree)
    assert len(tensors) == 4
    back = round_trip(tree)
    assert [back[1], back["1"], back["a/b"], back["a"]["b"]] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        (object(), "builtins.object"),
        (lambda: 0, "function"),
        (Color.RED, "Color"),
        (Point(1, 2), r"plain .* tuples"),
        (defaultdict(int), "defaultdict"),
        (np.array([None]), "dtype object"),
        (np.zeros(2, "i4,f4"), "dtype"),
        (np.ma.array([1]), "MaskedArray"),
        (torch.Generator(), "get_state"),
        (torch.eye(2).to_sparse(), "sparse"),
        (torch.empty(1, device="meta"), "meta"),
        (torch.nn.Linear(1, 1), "state_dict"),
    ],
    ids=lambda v: type(v).__name__ if not isinstance(v, str) else v,
)
def test_what_cannot_be_saved_is_refused_with_its_path_and_type(value, hint):
    with pytest.raises(CheckpointError, match=hint) as caught:
        flatten({"my_hook": {"state": [0, (value,)]}})
    assert str(caught.value).startswith("my_hook/state/1/0: ")


def test_memory_mapped_tensors_are_saved_and_wrapper_tensors_are_refused():
    back = round_trip({"x": MemoryMappedTensor.from_tensor(torch.arange(3))})
    assert type(back["x"]) is torch.Tensor
    assert back["x"].tolist() == [0, 1, 2]
    with FakeTensorMode():
        fake = torch.ones(3)
    with pytest.raises(CheckpointError, match="FakeTensor"):
        flatten({"x": fake})


def test_a_cycle_is_refused():
    tree = {}
    tree["self"] = tree
    with pytest.raises(CheckpointError, match="contains itself"):
        flatten(tree)


def test_unknown_types_and_missing_tensors_are_named():
    with pytest.raises(CheckpointError, match="'Widget'"):
        unflatten({"$Widget": [1]}, {})
    with pytest.raises(CheckpointError, match="'a/b'"):
        unflatten({"$tensor": ["a/b"]}, {})
    with pytest.raises(CheckpointError, match="no dtype 'save'"):
        unflatten({"$dtype": ["save"]}, {})


LARGE = {"$range": [[0, 10**9, 1]]}


@pytest.mark.parametrize(
    "node",
    [
        *({f"${tag}": [LARGE]} for tag in ("tuple", "set", "frozenset", "deque", "Size", "dict")),
        *({"$dict": [[LARGE]]}, {"$dict": [[{"$tensor": ["x"]}]]}),
        *({"$OrderedDict": [{"$tensor": ["x"]}, {}]}, {"$OrderedDict": [{}, {"$tensor": ["x"]}]}),
        {"$LazyStackedTensorDict": [{"$tensor": ["x"]}, 0, None]},
    ],
    ids=str,
)
def test_nothing_becomes_larger_than_it_is_written(node, monkeypatch):
    monkeypatch.setattr(torch.Tensor, "__iter__", lambda _: pytest.fail("a tensor of each element"))
    with pytest.raises(CheckpointError, match=r"is no list of the parts|is not made of"):
        unflatten(node, {"x": torch.ones(3)})
