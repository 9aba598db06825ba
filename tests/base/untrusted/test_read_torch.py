"""What torch.save wrote is read as by torch.load; what claims more than it holds is refused."""

from __future__ import annotations

import io
import pickle
import zipfile
from collections import Counter, OrderedDict

import pytest
import torch

from hooktrainer.base.untrusted import MalformedError
from hooktrainer.base.untrusted.read_torch import read_torch


def saved(content):
    buffer = io.BytesIO()
    torch.save(content, buffer)
    return buffer.getvalue()


def trained():
    network = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    optimizer = torch.optim.AdamW(network.parameters())
    network(torch.rand(4, 2)).sum().backward()
    optimizer.step()
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [2, 3])
    return network, optimizer, scheduler


def test_states_of_modules_optimizers_and_schedulers_are_those_of_torch_load():
    network, optimizer, scheduler = trained()
    data = saved([network.state_dict(), optimizer.state_dict(), scheduler.state_dict()])
    ours, theirs = read_torch(data), torch.load(io.BytesIO(data), weights_only=True)
    assert ours[0].keys() == theirs[0].keys()
    assert all(torch.equal(ours[0][key], theirs[0][key]) for key in ours[0])
    assert ours[0]._metadata == theirs[0]._metadata
    network.load_state_dict(ours[0])
    optimizer.load_state_dict(ours[1])
    assert str(ours[1:]) == str(theirs[1:])


@pytest.mark.parametrize(
    "value",
    [
        *(None, True, False, 0, -1, 255, 65536, -(2**31), 2**40, 10**30, 1.5, float("inf"), 1j),
        *("", "é\n", b"", b"\x00\xff", bytearray(b"\x80"), (), (1,), (1, 2), (1, 2, 3), (1,) * 9),
        *([], [1], list(range(2000)), {}, {"a": 1}, {1: 2, (3, 4): None}, {1, 2}),
        *(OrderedDict(a=1), Counter("abca"), torch.Size([2, 3])),
        *(torch.float16, torch.device("cpu"), torch.device("cuda", 1)),
    ],
    ids=repr,
)
def test_plain_values(value):
    back = read_torch(saved(value))
    assert back == value
    assert type(back) is type(value)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bool, torch.uint16, torch.float8_e5m2])
def test_tensors_keep_dtype_shape_stride_and_what_they_share(dtype):
    whole = torch.arange(12).reshape(3, 4).to(dtype)
    back = read_torch(saved({"whole": whole, "view": whole.T[1:], "same": whole}))
    assert back["whole"].dtype is dtype
    assert torch.equal(back["whole"].float(), whole.float())
    assert back["view"].stride() == whole.T.stride()
    assert back["same"] is back["whole"]
    back["whole"].zero_()
    assert back["view"].float().sum() == 0


def rewritten(data, edit):
    """The archive with its pickle edited, and its hashes as they must be."""
    result = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(result, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            new.writestr(name, edit(content) if name.endswith("data.pkl") else content)
    return result.getvalue()


@pytest.mark.parametrize(
    ("end", "match"),
    [(pickle.TUPLE1, "larger than its storage"), (b"", "is to have 1600 bytes, and has 1200")],
)
def test_a_tensor_larger_than_its_storage_or_a_storage_than_its_record(end, match):
    size, more = (pickle.BININT2 + n.to_bytes(2, "little") + end for n in (300, 400))
    data = rewritten(saved(torch.ones(300)), lambda content: content.replace(size, more))
    with pytest.raises(MalformedError, match=match):
        read_torch(data)


def test_a_record_shorter_than_it_claims():
    """The rest of the tensor would be memory that was never written."""
    count, more = pickle.BININT1 + b"\x10", pickle.BININT1 + b"\xf0"
    data = saved({"x": torch.ones(16, dtype=torch.uint8), "room": "a" * 2000})
    data = bytearray(rewritten(data, lambda content: content.replace(count, more)))
    entry = data.rindex(b"archive/data/0") - 46
    data[entry + 24 : entry + 28] = (0xF0).to_bytes(4, "little")
    with pytest.raises(MalformedError):
        read_torch(bytes(data))


@pytest.mark.parametrize("zipped", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2])
def test_a_compressed_record_is_not_unpacked(zipped):
    result = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(saved(torch.zeros(100_000)))) as old,
        zipfile.ZipFile(result, "w", zipped) as new,
    ):
        for name in old.namelist():
            new.writestr(name, old.read(name))
    assert len(result.getvalue()) < 10_000
    with pytest.raises(MalformedError, match="compressed"):
        read_torch(result.getvalue())


def test_a_tree_that_refers_to_itself_over_and_over():
    node = [0]
    for _ in range(40):
        node = [node, node]
    with pytest.raises(MalformedError, match="over and over"):
        read_torch(saved(node))
    node = []
    node.append(node)
    with pytest.raises(MalformedError):
        read_torch(saved(node))


def test_items_of_a_tensor_are_not_set():
    """Indices that are broadcast would take more memory and time than the file has bytes."""
    data = saved([torch.zeros(1, 1), (torch.tensor([[0]] * 9), torch.tensor([[0] * 9]))])
    with pytest.raises(MalformedError, match="more than plain data"):  # tensor[indices] = 1
        read_torch(rewritten(data, lambda content: content[:2] + content[6:-2] + b"K\x01s."))


@pytest.mark.parametrize("kind", ["set", "bytearray"])
def test_a_value_that_is_copied_over_and_over(kind):
    value = b"]q\x00(" + bytes([75, 1] * 1000) + b"e"
    if kind == "bytearray":
        value = b"X\xe8\x03\0\0" + b"a" * 1000 + b"q\x00"
    begin = b"\x80\x02(" + value + f"cbuiltins\n{kind}\nq\x01".encode()
    data = saved(None)
    assert read_torch(rewritten(data, lambda _: begin + b"h\x01h\x00\x85Rt."))
    with pytest.raises(MalformedError, match="over and over"):
        read_torch(rewritten(data, lambda _: begin + b"h\x01h\x00\x85R" * 100 + b"t."))


@pytest.mark.parametrize(
    "taker",
    [
        *(b"cbuiltins\nset\n%s\x85R", b"ccollections\nOrderedDict\n%s\x85R", b"%sQ"),
        *(b"ccollections\nOrderedDict\n]%sa\x85R", b"ctorch._utils\n_rebuild_tensor_v2\n%s\x85R"),
    ],
)
def test_no_tensor_is_made_of_each_element(taker, monkeypatch):
    def split(content):
        begin, end = content.index(b"ctorch._utils"), content.rindex(b"R") + 1
        return content[:begin] + taker.replace(b"%s", content[begin:end]) + content[end:]

    monkeypatch.setattr(torch.Tensor, "__iter__", lambda _: pytest.fail("iterated"))
    with pytest.raises(MalformedError):
        read_torch(rewritten(saved({"x": torch.ones(3)}), split))


class Planted:
    ran: list[int] = []  # noqa: RUF012

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize(
    "call",
    [
        (Planted.ran.append, 1),
        (print, 1),
        (bytearray, 10**12),
        (OrderedDict.fromkeys, (1,)),
        (getattr, "text", "join"),
        (torch.sparse_coo_tensor, torch.ones(1, 1).long(), torch.ones(1)),
    ],
    ids=lambda call: call[0].__name__,
)
def test_nothing_is_called(call):
    with pytest.raises(MalformedError):
        read_torch(saved(Planted(*call)))
    assert Planted.ran == []


def test_an_attribute_may_not_hide_a_method():
    state = OrderedDict(a=1)
    state._metadata = {"version": 1}
    assert read_torch(saved(state))._metadata == {"version": 1}
    hiding = rewritten(
        saved(state), lambda content: content.replace(b"\x09\0\0\0_metadata", b"\x05\0\0\0items")
    )
    with pytest.raises(MalformedError, match="'items' is no attribute"):
        read_torch(hiding)


def test_every_cut_and_many_flipped_bits_are_found():
    data = saved({"x": torch.rand(20), "y": [1, 2.5, "text"]})
    for length in range(0, len(data), 7):
        with pytest.raises(MalformedError):
            read_torch(data[:length])
    for place in range(0, len(data), 5):
        flipped = bytearray(data)
        flipped[place] ^= 1 << place % 8
        try:
            back = read_torch(bytes(flipped))
        except MalformedError:
            continue
        assert str(back) == str(read_torch(data))  # only what nothing is read from
