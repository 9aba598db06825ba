"""What networks need can be saved; what a program may not do is refused, and takes no memory."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from gymnasium import spaces
from marks import slow_except
from policy_envs import Toy
from torch import nn

from hooktrainer import CheckpointError, ConfigError
from hooktrainer.policies import program as bounds
from hooktrainer.policies.calls import ALLOWED, operator_named
from hooktrainer.policies.program import Program

X = torch.tensor([[1.0, -2.0], [3.0, 4.0]])
F32 = {"dtype": {"dtype": "float32"}}


class Via(nn.Module):
    """Observations go through a function or a layer, and become two numbers."""

    def __init__(self, function, shape):
        super().__init__()
        self.function = function
        with torch.no_grad():
            out = self._apply_to(torch.zeros(2, *shape))
        self.head = nn.Linear(out.flatten(1).shape[1], 2)

    def _apply_to(self, x):
        out = self.function(x)
        return (out[0] if isinstance(out, tuple) else out).to(torch.float32)

    def forward(self, x):
        return self.head(self._apply_to(x).flatten(1))


def attention(size):
    layer = nn.MultiheadAttention(size, 2, batch_first=True)

    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = layer

        def forward(self, x):
            return self.layer(x, x, x, need_weights=False)[0]

    return Own()


ACTIVATIONS = [
    *(nn.Tanh(), nn.ELU(), nn.GELU(), nn.SiLU(), nn.Mish(), nn.Softplus(), nn.Hardtanh()),
    *(nn.LeakyReLU(), nn.PReLU(), nn.SELU(), nn.CELU(), nn.ReLU6(), nn.Hardswish(), nn.Softsign()),
    *(nn.Hardsigmoid(), nn.LogSigmoid(), nn.Softmax(-1), nn.LogSoftmax(-1), nn.Dropout(0.5)),
    *(nn.Tanhshrink(), nn.Softshrink(), nn.Hardshrink(), nn.Threshold(0.1, 1), nn.ReLU(True)),
]
IMAGE, SEQUENCE, VECTOR = (3, 16, 16), (4, 8), (8,)
NETWORKS = {
    "in place": (
        lambda: lambda x: F.cosine_similarity(x, x + 1)[:, None] * x.floor_divide(2),
        VECTOR,
    ),
    "activations": (lambda: nn.Sequential(nn.Linear(8, 8), *ACTIVATIONS), VECTOR),
    "norms": (lambda: nn.Sequential(nn.LayerNorm(8), nn.BatchNorm1d(8), nn.RMSNorm(8)), VECTOR),
    "weight norm": (lambda: nn.utils.parametrizations.weight_norm(nn.Linear(8, 4)), VECTOR),
    "spectral norm": (lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(8, 4)), VECTOR),
    "convolutions": (
        lambda: nn.Sequential(
            *(nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8), nn.ReLU(True)),
            *(nn.MaxPool2d(2), nn.GroupNorm(2, 8), nn.AvgPool2d(2)),
            *(nn.ConvTranspose2d(8, 4, 3, stride=2), nn.ZeroPad2d(1), nn.PixelShuffle(2)),
            *(nn.AdaptiveAvgPool2d(2), nn.AdaptiveMaxPool2d(2)),
        ),
        IMAGE,
    ),
    "an instance norm": (lambda: nn.InstanceNorm2d(3, affine=True), IMAGE),
    "convolutions in one dimension": (
        lambda: nn.Sequential(
            *(nn.Conv1d(4, 6, 3, padding="same"), nn.MaxPool1d(2), nn.AvgPool1d(2)),
            *(nn.ConvTranspose1d(6, 3, 2), nn.LocalResponseNorm(2), nn.AdaptiveAvgPool1d(1)),
        ),
        SEQUENCE,
    ),
    "an lstm": (lambda: nn.LSTM(8, 4, 2, batch_first=True), SEQUENCE),
    "a gru": (lambda: nn.GRU(8, 4, 2, batch_first=True), SEQUENCE),
    "an rnn": (lambda: nn.RNN(8, 4, batch_first=True), SEQUENCE),
    "attention": (lambda: attention(8), SEQUENCE),
    "a transformer": (
        lambda: nn.TransformerEncoder(
            nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2, enable_nested_tensor=False
        ),
        SEQUENCE,
    ),
    "an embedding": (lambda: nn.Sequential(Argmax(), nn.Embedding(8, 4)), VECTOR),
    "one-hot vectors": (lambda: lambda x: F.one_hot(x.argmax(1), 8), VECTOR),
    "einsum": (lambda: lambda x: torch.einsum("bi,bj->bij", x, x), VECTOR),
    "indexing": (lambda: lambda x: x[:, [1, 3]] + x[..., ::4] + x[:, 2:4], VECTOR),
    "gathering": (lambda: lambda x: x.gather(1, x.argsort(1))[:, -3:], VECTOR),
    "padding": (lambda: lambda x: F.pad(x, (1, 2)).roll(1, 1).flip(1), VECTOR),
    "cutting": (lambda: lambda x: torch.cat(x.split(2, 1)[::-1], 1) * x.repeat(1, 1), VECTOR),
    "comparing": (lambda: lambda x: torch.where(x > 0, x, -x).masked_fill(x.isnan(), 0), VECTOR),
    "integers": (lambda: lambda x: (x * 9).long() // 2 % 3 + torch.arange(8), VECTOR),
    "statistics": (lambda: lambda x: F.normalize(x - x.mean(1, True)) / x.std(1)[:, None], VECTOR),
}


class Argmax(nn.Module):
    def forward(self, x):
        return x.argmax(-1)


# Quick are the others, with a cheaper one of each kind.
SLOW = {"a gru", "convolutions", "weight norm", "an instance norm", "an lstm", "a transformer"}


@pytest.mark.parametrize(
    "name", slow_except(NETWORKS, *(name for name in NETWORKS if name not in SLOW))
)
def test_networks_can_be_saved(name, reload):
    make, shape = NETWORKS[name]
    layer = make()
    if isinstance(layer, nn.Module):
        layer.eval()
    network = Via(layer, shape).eval()
    low = spaces.Box(-1.0, 1.0, shape)
    loaded = reload(network, lambda: Toy(low, spaces.Box(-9.0, 9.0, (2,))))
    x = torch.randn(6, *shape)
    with torch.no_grad():
        expected = network(x)
    torch.testing.assert_close(torch.from_numpy(loaded(x.numpy())), expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(loaded(x.numpy()[0]), expected[0], rtol=1e-4, atol=1e-5)


def test_what_cannot_be_saved_is_named_with_what_to_do(save):
    network = Via(lambda x: torch.fft.rfft(x).abs(), VECTOR)
    with pytest.raises(ConfigError, match=r"it calls aten\._fft_r2c\.default.*use other layers"):
        save(network, lambda: Toy(spaces.Box(-1.0, 1.0, VECTOR), spaces.Box(-9.0, 9.0, (2,))))


def test_what_would_take_too_much_memory_is_not_saved(save, monkeypatch):
    monkeypatch.setattr(bounds, "MOST_BYTES", 100_000)
    network = Via(lambda x: x.repeat(1, 10_000).cumsum(1)[:, :3], VECTOR)
    with pytest.raises(ConfigError, match=r"Via cannot be saved: .* would take .* GB"):
        save(network, lambda: Toy(spaces.Box(-1.0, 1.0, VECTOR), spaces.Box(-9.0, 9.0, (2,))))


def program(*steps, weights=None, inputs=("x",)):
    description = {"inputs": list(inputs), "steps": list(steps), "outputs": [f"%{steps[-1][0]}"]}
    return Program(json.loads(json.dumps(description)), weights or {})


def test_every_operator_of_the_list_is_one():
    for name in ALLOWED:
        packet = getattr(torch.ops.aten, name)
        usable = []
        for overload in packet.overloads():
            try:
                usable.append(operator_named(f"aten.{name}.{overload}"))
            except CheckpointError:
                continue
        assert usable, name


def test_only_a_program_that_samples_draws_random_numbers():
    steps = [["y", "aten.rand_like.default", ["%x"], {}]]
    with pytest.raises(CheckpointError, match="which draws random numbers"):
        program(*steps)
    drawing = Program({"inputs": ["x"], "steps": steps, "outputs": ["%y"]}, {}, random=True)
    assert not torch.equal(drawing(X)[0], drawing(X)[0])


def convolution(weight, stride, groups):
    args = ["%a", weight, None, [stride] * 2, [0, 0], [1, 1], False, [0, 0], groups]
    return ["y", "aten.convolution.default", args, {}]


GROWING = {
    "full": [["y", "aten.full.default", [[1 << 29], 1.0], F32]],
    "overflowing": [["y", "aten.full.default", [[1 << 32, 1 << 32], 1.0], F32]],
    "repeat": [["y", "aten.repeat.default", ["%x", [1, 1 << 40]], {}]],
    "expand": [
        ["e", "aten.expand.default", ["%x", [1 << 40, {"batch": 1}, 2]], {}],
        ["y", "aten.clone.default", ["%e"], {}],
    ],
    "doubling": [
        ["s0", "aten.repeat.default", ["%x", [1, 64]], {}],
        *([f"s{n + 1}", "aten.cat.default", [[f"%s{n}", f"%s{n}"], 1], {}] for n in range(60)),
    ],
    "columns": [
        ["a", "aten.full.default", [[1, 1, 1000, 1000], 0], {}],
        ["w", "aten.full.default", [[1, 1, 500, 500], 0], {}],
        convolution("%w", 1, 1),
    ],
    "a mask": [
        ["a", "aten.full.default", [[1 << 14, 1 << 14], 0], {}],
        ["m", "aten.eq.Scalar", ["%a", 0], {}],
        ["z", "aten.full.default", [[], 0], {}],
        ["y", "aten.index_put.default", ["%a", ["%m"], "%z"], {}],
    ],
    "another device": [["y", "aten.full.default", [[1 << 40], 1.0], {"device": {"device": "x"}}]],
}


@pytest.mark.parametrize("name", GROWING)
def test_memory_is_not_taken(name):
    made = program(*GROWING[name])
    with pytest.raises(CheckpointError, match=r"would take .* GB|cannot be calc"):
        made.check(X.to("meta"))
    with pytest.raises(CheckpointError):
        made(X)


def test_memory_may_grow_with_the_batch_and_no_faster():
    linear = program(["y", "aten.repeat.default", ["%x", [1, 3]], {}])
    assert [linear(x)[0].shape[0] for x in (X, X[:1], X[:0], X.repeat(50, 1))] == [2, 1, 0, 100]
    part = program(["y", "aten.select.int", ["%x", 1, 0], {}])
    with pytest.raises(CheckpointError, match="would take"):  # the observation itself
        part.check(torch.empty(1, 1 << 40, device="meta"))
    square = program(["y", "aten.full.default", [[{"batch": 1000}, {"batch": 1000}], 1.0], F32])
    assert square(X[:1])[0].shape == (1000, 1000)
    with pytest.raises(CheckpointError, match=r"for 2 observations .* it may take 0\.0 GB"):
        square(X)


def test_a_program_has_at_most_so_many_steps():
    steps = [[f"s{n}", "aten.neg.default", ["%x"], {}] for n in range(bounds.MOST_STEPS + 1)]
    with pytest.raises(CheckpointError, match="10,001 steps"):
        program(*steps)
    program(*steps[:-1])


WRONG = {
    "a text for a number": ["aten.add.Tensor", ["%x", {"text": "1"}], {}],
    "a number for a list of tensors": ["aten.cat.default", [5], {}],
    "a tensor for a list of tensors": ["aten.cat.default", ["%x"], {}],
    "a tensor for an integer": ["aten.unsqueeze.default", ["%x", "%x"], {}],
    "a list in a list": ["aten.repeat.default", ["%x", [[1]]], {}],
    "a long list": ["aten.repeat.default", ["%x", [1] * 5_000], {}],
    "an unknown keyword": ["aten.neg.default", ["%x"], {"out": "%x"}],
    "another layout": ["aten.full.default", [[2], 0], {"layout": {"layout": "sparse_coo"}}],
    "a complex type": ["aten.full.default", [[2], 0], {"dtype": {"dtype": "complex64"}}],
    "two keys": ["aten.full.default", [[2], 0], {"dtype": {"dtype": "float32", "x": 1}}],
    "a huge batch": ["aten.full.default", [[{"batch": 1 << 40}], 0], {}],
    "an item of a name": ["getitem", [5, 0], {}],
    "a value without a name": [5, ["%x"], {}],
    "no value of that name": ["aten.neg.default", ["%nothing"], {}],
    "another word": ["aten._to_copy.default", ["%x"], {"dtype": {"code": "1"}}],
    "no keyword arguments": ["aten.neg.default", ["%x"]],
}


@pytest.mark.parametrize("name", WRONG)
def test_arguments_are_checked_by_type(name):
    problem = r"this is not a program of a policy|cannot be calculated"
    with pytest.raises(CheckpointError, match=problem) as caught:
        program(["y", *WRONG[name]]).check(X)
    assert "\n" not in str(caught.value)


def test_none_is_refused_before_pytorch_gets_it():
    """Called on the CPU, this operator would end the process."""
    with pytest.raises(CheckpointError, match=r"aten\.copy\.default does not take None"):
        program(["y", "aten.copy.default", [None, "%x"], {}])


UNSAFE = {
    "integers divided towards zero": [
        ["i", "aten._to_copy.default", ["%x"], {"dtype": {"dtype": "int64"}}],
        ["y", "aten.div.Tensor_mode", ["%i", -1], {"rounding_mode": {"text": "trunc"}}],
    ],
    "an item of a tensor": [["y", "getitem", ["%x", 0], {}]],
    "a convolution without groups": [
        ["a", "aten.full.default", [[1, 1, 4, 4], 0], {}],
        convolution("%a", 1, 0),
    ],
    "a stride of zero": [
        ["a", "aten.full.default", [[1, 1, 4, 4], 0], {}],
        convolution("%a", 0, 1),
    ],
    "many dimensions": [["y", "aten.view.default", ["%x", [{"batch": 1}, 2, *[1] * 20]], {}]],
    "as many as a mask has": [
        ["m", "aten.gt.Scalar", ["%x", 0], {}],
        ["y", "aten.index.Tensor", ["%x", ["%m"]], {}],
    ],
}


@pytest.mark.parametrize("name", UNSAFE)
def test_what_an_operator_would_not_check_is_refused(name):
    made = program(*UNSAFE[name])
    with pytest.raises(CheckpointError) as caught:
        made(X)
    assert "\n" not in str(caught.value)


def test_an_index_beyond_is_one_line_when_it_is_calculated():
    made = program(
        ["i", "aten._to_copy.default", ["%x"], {"dtype": {"dtype": "int64"}}],
        ["y", "aten.embedding.default", ["%w", "%i"], {}],
        weights={"w": torch.zeros(4, 2)},
    )
    assert made(X.abs().clamp(max=3))[0].shape == (2, 2, 2)
    with pytest.raises(CheckpointError, match=r"embedding\.default cannot be calculated: IndexErr"):
        made(X * 100)


def test_steps_use_inputs_weights_and_earlier_steps():
    made = program(
        ["wt", "aten.permute.default", ["%w", [1, 0]], {}],
        ["y", "aten.mm.default", ["%x", "%wt"], {}],
        ["z", "aten.clamp.default", ["%y", -1.0, {"float": "inf"}], {}],
        ["parts", "aten.split_with_sizes.default", ["%z", [{"batch": 1}], 0], {}],
        ["first", "getitem", ["%parts", 0], {}],
        weights={"w": torch.tensor([[1.0, 1.0]])},
    )
    assert made(X)[0].tolist() == [[-1.0], [7.0]]
    with pytest.raises(CheckpointError, match="two values are called x"):
        program(["x", "aten.neg.default", ["%x"], {}])
