"""Encoders: every observation space becomes features, whatever the batch's dimensions."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from hooktrainer.errors import ConfigError
from hooktrainer.networks import (
    DiscreteEncoder,
    GridEncoder,
    ImageEncoder,
    NetworkFactory,
    ObservationEncoder,
    RunningNorm,
    mlp,
)

IMAGE = spaces.Box(0, 255, (84, 84, 3), "uint8")
NESTED = spaces.Dict(
    image=IMAGE,
    carries=spaces.Discrete(3),
    rest=spaces.Tuple((spaces.MultiBinary(2), spaces.MultiDiscrete([2, 70]))),
    state=spaces.Box(-1, 1, (2, 2), np.float64),
    action_mask=spaces.MultiBinary(4),
)
SPACES = {
    "vector": spaces.Box(-1, 1, (5,)),
    "bytes": spaces.Box(0, 255, (128,), "uint8"),
    "matrix": spaces.Box(-1, 1, (3, 4)),
    "discrete": spaces.Discrete(5, start=2),
    "image": IMAGE,
    "small image": spaces.Box(0, 255, (7, 7, 3), "uint8"),
    "bits of a grid": spaces.Box(*(np.full((10, 10, 4), bit) for bit in (False, True)), dtype=bool),
    "grid": spaces.MultiDiscrete(np.broadcast_to([11, 70], (7, 5, 2)), dtype=np.uint8),
    "stacked": spaces.Box(0, 255, (4, 84, 84), "uint8"),
    "nested": NESTED,
}


def examples(space, *batch):
    rng = np.random.default_rng(0)
    return [
        torch.from_numpy(np.asarray(rng.integers(0, 2, (*batch, *leaf.shape))).astype(leaf.dtype))
        for leaf in leaves(space)
    ]


def leaves(space):
    if isinstance(space, spaces.Dict | spaces.Tuple):
        parts = dict(space.items() if isinstance(space, spaces.Dict) else enumerate(space))
        return [leaf for name in parts if name != "action_mask" for leaf in leaves(parts[name])]
    return [space]


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_a_batch_of_any_dimensions_is_its_rows(space):
    encoder = ObservationEncoder(space)
    arrays = examples(space, 2, 3)
    features = encoder(*arrays)
    assert features.shape == (2, 3, encoder.out_features)
    rows = torch.stack([encoder(*[x[i] for x in arrays]) for i in range(2)])
    torch.testing.assert_close(features, rows, atol=1e-4, rtol=1e-4)
    one = encoder(*[x[0, 0] for x in arrays])
    torch.testing.assert_close(features[0, 0], one, atol=1e-4, rtol=1e-4)


def test_the_entries_of_a_nested_space_have_keys_and_a_mask_is_left_out():
    encoder = ObservationEncoder(NESTED)
    assert set(encoder.in_keys) == {"image", "carries", "state", ("rest", "0"), ("rest", "1")}
    assert encoder.out_features == 64 * 7 * 7 + 3 + 4 + 2 + 2 * 32
    plain = ObservationEncoder(spaces.Tuple((spaces.Discrete(2), spaces.Discrete(2))))
    assert plain.in_keys == [("observation", "0"), ("observation", "1")]


@pytest.mark.parametrize(
    ("shape", "dtype", "high", "layout"),
    [
        ((84, 84, 3), "uint8", 255, "HWC"),
        ((3, 84, 84), "uint8", 255, "CHW"),
        ((84, 84), "uint8", 255, "HW"),
        ((4, 84, 84, 3), "uint8", 255, "NHWC"),
        ((10, 10, 10), "bool", 1, "HWC"),
        ((64, 64, 3), "float32", 1, "HWC"),
        ((4, 4, 3), "uint8", 255, None),
    ],
)
def test_the_layout_of_images_is_found_out(shape, dtype, high, layout):
    high = np.full(shape, high, dtype)
    space = spaces.Box(np.zeros_like(high), high, dtype=dtype)
    with nullcontext() if layout else pytest.raises(ConfigError, match="no images"):
        assert ImageEncoder(space, lambda _: nn.Flatten()).layout == layout


def test_images_are_scaled_and_their_channels_are_where_they_belong():
    class Mean(nn.Module):  # of each channel
        def forward(self, x):
            return x.mean((-1, -2))

    image = torch.zeros(1, 40, 50, 3, dtype=torch.uint8)
    image[..., 1] = 255
    by_rows = ImageEncoder(spaces.Box(0, 255, (40, 50, 3), "uint8"), lambda _: Mean())
    torch.testing.assert_close(by_rows(image), torch.tensor([[0.0, 1.0, 0.0]]))
    by_channels = ImageEncoder(spaces.Box(0, 255, (3, 40, 50), "uint8"), lambda _: Mean())
    torch.testing.assert_close(by_channels(image.permute(0, 3, 1, 2)), by_rows(image))
    stacked = ImageEncoder(spaces.Box(0, 255, (2, 40, 50, 3), "uint8"), lambda _: Mean())
    floats = ImageEncoder(spaces.Box(0.0, 0.5, (40, 50, 3), "float64"), lambda _: Mean())
    assert torch.equal(floats(image.double() / 510), torch.tensor([[0.0, 1, 0]]).double())
    twice = torch.stack([image, image * 0], 1)
    torch.testing.assert_close(stacked(twice), torch.tensor([[0.0, 1, 0, 0, 0, 0]]))


def test_the_values_of_a_grid_are_categories_each_a_plane():
    class Planes(nn.Module):
        def forward(self, x):
            return x

    space = spaces.MultiDiscrete(np.broadcast_to([3, 2], (5, 6, 2)), dtype=np.uint8)
    grid = torch.zeros(1, 5, 6, 2, dtype=torch.uint8)
    grid[0, 1, 4] = torch.tensor([2, 1])
    planes = GridEncoder(space, lambda _: Planes())(grid).reshape(5, 5, 6)
    assert planes[:, 0, 0].tolist() == [1, 0, 0, 1, 0]
    assert planes[:, 1, 4].tolist() == [0, 0, 1, 0, 1]
    assert NetworkFactory(spaces.Dict(grid=space)).has_images


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.float32])
def test_discrete_values_of_any_type_are_categories(dtype):
    values = torch.tensor([[2, 1], [0, 0]], dtype=dtype)
    few = DiscreteEncoder(spaces.MultiDiscrete([3, 2], dtype=np.uint8))
    assert few(values).tolist() == [[0, 0, 1, 0, 1], [1, 0, 0, 1, 0]]
    many = DiscreteEncoder(spaces.MultiDiscrete([70, 2], dtype=np.uint8))
    assert torch.equal(many(values)[0], many.embedding.weight[[2, 71]].flatten())


def test_networks_of_one_factory_share_their_statistics_and_nothing_else():
    space = spaces.Dict(a=spaces.Box(-9, 9, (2,)), b=spaces.Discrete(2))
    factory = NetworkFactory(space, (8,), normalize=True)
    first, second = factory.network(1), factory.network(1)
    assert list(factory.norms) == ["a"]
    norms = [m for net in (first, second) for m in net.modules() if isinstance(m, RunningNorm)]
    assert norms[0] is norms[1] is factory.norms["a"]
    assert not {id(p) for p in first.parameters()} & {id(p) for p in second.parameters()}
    factory.norms["a"].update(torch.randn(50, 2) * 3 + 4)
    out = first(torch.randn(50, 2) * 3 + 4, torch.zeros(50, dtype=torch.int64))
    assert out.shape == (50, 1)


def test_one_line_replaces_a_piece():
    class Own(nn.Module):
        out_features = 84

        def forward(self, x):
            return x.float().mean((-1, -2))

    space = spaces.Dict(image=IMAGE, state=spaces.Box(-1, 1, (2,)))
    factory = NetworkFactory(space, (8,), encoder={"image": Own()})
    image, state = torch.zeros(4, 84, 84, 3, dtype=torch.uint8), torch.zeros(4, 2)
    assert factory.network(2)(image, state).shape == (4, 2)
    impala = NetworkFactory(space, (8,), encoder="impala").network(2)
    assert sum(isinstance(m, nn.Conv2d) for m in impala.modules()) == 15
    whole = NetworkFactory(spaces.Box(-1, 1, (4,)), (8,), encoder=mlp(4, 6)).network(2)
    assert whole(torch.zeros(2, 5, 4)).shape == (2, 5, 2)
    made = NetworkFactory(spaces.Box(-1, 1, (4,)), (8,), encoder=lambda s: mlp(s.shape[0], 6))
    assert made.network(2)(torch.zeros(3, 4)).shape == (3, 2)


def test_a_module_is_used_once_and_copied_with_new_weights():
    body = mlp(4, 6)
    factory = NetworkFactory(spaces.Box(-1, 1, (4,)), (8,), encoder=body)
    first, second = factory.network(1), factory.network(1)
    assert any(m is body for m in first.modules())
    assert not any(m is body for m in second.modules())
    weights = [dict(net.named_parameters())["encoder.module.0.weight"] for net in (first, second)]
    assert not torch.equal(*weights)


class Two(nn.Module):
    def forward(self, a, b):
        return torch.cat([a, b], -1)


@pytest.mark.parametrize(
    "encoder",
    [
        nn.Sequential(nn.Linear(4, 8), nn.GroupNorm(2, 8), nn.LayerNorm(8), nn.Dropout(0.0)),
        nn.LazyLinear(5),
        {"observation": nn.Sequential(nn.Flatten(), nn.Linear(4, 3))},
    ],
)
def test_networks_of_many_kinds_are_taken(encoder):
    factory = NetworkFactory(spaces.Box(-1, 1, (4,)), (8,), encoder=encoder)
    first, second = factory.network(2), factory.network(2)
    for network in (first, second):
        assert network(torch.zeros(3, 5, 4)).shape == (3, 5, 2)
    assert not {id(p) for p in first.parameters()} & {id(p) for p in second.parameters()}


def test_several_arrays_are_joined_for_a_network_that_takes_one():
    space = spaces.Dict(a=spaces.Box(-1, 1, (2,)), b=spaces.Box(-1, 1, (3,)))
    inputs = torch.zeros(6, 2), torch.zeros(6, 3)
    for encoder in (Two(), nn.Linear(5, 3)):
        assert NetworkFactory(space, (8,), encoder=encoder).network(2)(*inputs).shape == (6, 2)


@pytest.mark.parametrize(
    ("encoder", "message"),
    [
        ("impalla", "network='impalla' is unknown. Did you mean impala"),
        (nn.Linear(5, 2), r"does not map observations {'observation': \[2, 4\]} to features"),
        (nn.Unflatten(1, (2, 2)), r"to features \[2, n\]"),
        ({"imag": nn.Identity()}, "imag.*observation"),
        ({"observation": "impala"}, "{.observation.: .impala.}: The names .* are for images"),
        (3, "network made 3, which is no torch.nn.Module: give a module"),
        (nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8)), "BatchNorm1d.* at '1'.*GroupNorm"),
        (lambda space: nn.Dropout(0.25), "Dropout.*0.25.* leave out dropout"),
        (nn.Sequential(nn.Unflatten(1, (1, 4)), nn.LSTM(4, 4, 2, dropout=0.2)), "LSTM.* at '1'"),
        (nn.InstanceNorm1d(4, track_running_stats=True), "InstanceNorm1d.*GroupNorm"),
    ],
)
def test_a_network_that_does_not_fit_is_refused_in_one_line(encoder, message):
    with pytest.raises(ConfigError, match=message) as error:
        NetworkFactory(spaces.Box(-1, 1, (4,)), encoder=encoder).network(2)
    assert "\n" not in str(error.value)
