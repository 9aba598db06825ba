from __future__ import annotations

import pytest
import torch
from tensordict import TensorDict

from hooktrainer import LogScalar
from hooktrainer.testing import tiny_trainer

REWARDS = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 9.0]]).unsqueeze(-1)


def batch(**extra) -> TensorDict:
    return TensorDict({"next": {"reward": REWARDS}, **extra}, [2, 3])


@pytest.mark.parametrize(
    ("reduction", "value"), [("mean", 4.0), ("sum", 24.0), ("min", 1.0), ("max", 9.0)]
)
def test_reductions(reduction, value):
    out = LogScalar(logname="r", reduction=reduction, include_std=False)(batch())
    assert out == {"r": value, "log_pbar": False}


def test_standard_deviation():
    out = LogScalar(logname="r")(batch())
    # squares of the distances from 4: 9 + 4 + 1 + 0 + 1 + 25 = 40, over 5
    assert out["r_std"].item() == pytest.approx(8**0.5)


def test_values_stay_tensors():
    out = LogScalar(logname="r")(batch())
    assert isinstance(out["r"], torch.Tensor)


def test_padding_is_left_out():
    mask = torch.tensor([[True, True, False], [True, False, False]])
    out = LogScalar(logname="r")(batch(collector={"mask": mask}))
    assert out["r"].item() == pytest.approx(7 / 3)
    assert LogScalar(logname="r", reduction="max")(batch(collector={"mask": mask}))["r"] == 4.0


def test_one_value_has_no_deviation():
    out = LogScalar("x", "x")(TensorDict({"x": torch.ones(1)}, [1]))
    assert set(out) == {"x", "log_pbar"}


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.float16])
def test_any_dtype(dtype):
    out = LogScalar("x", "x")(TensorDict({"x": torch.tensor([0, 1, 1, 0]).to(dtype)}, [4]))
    assert out["x"] == 0.5


def test_the_name_is_the_key_by_default():
    assert "done" in LogScalar("done")(TensorDict({"done": torch.ones(2)}, [2]))


def test_several_in_one_trainer(logger):
    trainer = tiny_trainer(logger=logger, total_frames=10)
    LogScalar(logname="r", log_pbar=True).register(trainer)
    LogScalar(("next", "done"), "done", include_std=False).register(trainer)
    trainer.train()
    row = logger.rows[0][1]
    assert row["done"] == pytest.approx(0.2)
    assert {"r", "r_std"} <= row.keys()
    assert "done_std" not in row
    assert next(iter(trainer.metrics.pbar_names)) == "r"
