"""A program is plain data, and does what it says."""

from __future__ import annotations

import pytest
import torch

from hooktrainer import CheckpointError
from hooktrainer.policies.program import Program

X = torch.tensor([[1.0, -2.0], [3.0, 4.0]])


def program(*steps, weights=None, inputs=("x",)):
    description = {"inputs": list(inputs), "steps": list(steps), "outputs": [f"%{steps[-1][0]}"]}
    return Program(description, weights or {})


def test_steps_use_inputs_weights_and_earlier_steps():
    made = program(
        ["wt", "aten.t.default", ["%w"], {}],
        ["y", "aten.mm.default", ["%x", "%wt"], {}],
        ["z", "aten.clamp.default", ["%y", -1.0, {"float": "inf"}], {}],
        weights={"w": torch.tensor([[1.0, 1.0]])},
    )
    assert made(X)[0].tolist() == [[-1.0], [7.0]]


def test_numbers_may_follow_the_batch():
    made = program(["y", "aten.view.default", ["%x", [{"batch": 2}]], {}])
    assert made(X)[0].tolist() == [1.0, -2.0, 3.0, 4.0]
    assert made(X[:1])[0].tolist() == [1.0, -2.0]


def test_types_devices_and_lists_of_values():
    to = {"device": {"device": "cuda:0"}, "dtype": {"dtype": "float64"}}
    made = program(
        ["n", "aten.full.default", [[{"batch": 1}, 1], 5], {"dtype": {"dtype": "float32"}}],
        ["y", "aten.cat.default", [["%x", "%n"], 1], {}],
        ["z", "aten._to_copy.default", ["%y"], to],
    )
    out = made(X)[0]
    assert out.tolist() == [[1.0, -2.0, 5.0], [3.0, 4.0, 5.0]]
    assert (out.dtype, out.device.type) == (torch.float64, "cpu")


def test_an_operator_with_several_results():
    made = program(
        ["parts", "aten.split.Tensor", ["%x", 1, 1], {}],
        ["y", "getitem", ["%parts", 1], {}],
    )
    assert made(X)[0].tolist() == [[-2.0], [4.0]]


@pytest.mark.parametrize(
    "step",
    [
        ["y", "aten.neg.default", ["%nothing"], {}],
        ["x", "aten.neg.default", ["%x"], {}],
        ["y", "aten._to_copy.default", ["%x"], {"dtype": {"dtype": "hub"}}],
        ["y", "aten._to_copy.default", ["%x"], {"dtype": {"code": "1"}}],
        ["y", "aten.neg.default"],
    ],
)
def test_what_is_no_program_is_refused(step):
    with pytest.raises(CheckpointError, match="this is not a program of a policy"):
        program(step)
