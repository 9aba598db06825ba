from __future__ import annotations

import numpy as np
import pytest
import torch
from tensordict import TensorDict

from hooktrainer import Latest, Samples
from hooktrainer.loop import Metrics


@pytest.mark.parametrize(
    "value",
    [
        2,
        2.0,
        np.float32(2),
        np.int64(2),
        np.array(2.0),
        np.array([2.0]),
        torch.tensor(2.0),
        torch.tensor([2]),
        torch.tensor([[2.0]], dtype=torch.float16),
        torch.tensor(2.0, requires_grad=True),
    ],
    ids=repr,
)
def test_scalars_of_all_kinds(value):
    metrics = Metrics()
    metrics.log({"a": value})
    assert metrics.close_window() == {"a": 2.0}


@pytest.mark.parametrize("value", ["x", None, [1.0], torch.zeros(2), np.zeros(2), {}], ids=repr)
def test_what_is_no_scalar_is_refused_by_name(value):
    with pytest.raises(TypeError, match="'a'"):
        Metrics().log({"a": value})


def test_means_are_added_up_in_double_precision():
    metrics = Metrics()
    metrics.log({"a": torch.tensor(1e8)})
    for _ in range(1000):
        metrics.log({"a": torch.tensor(1.0)})
    assert metrics.close_window()["a"] == pytest.approx((1e8 + 1000) / 1001, rel=1e-12)


def test_a_value_changed_in_place_afterwards_is_logged_as_it_was():
    metrics, counter = Metrics(), torch.zeros(())
    for _ in range(3):  # 1, 2, 3
        metrics.log({"a": counter.add_(1)})
    assert metrics.latest("a") == 3.0
    assert metrics.close_window() == {"a": 2.0}


def test_samples_count_one_each():
    metrics = Metrics()
    metrics.log({"return": Samples(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))})
    metrics.log({"return": Samples(torch.tensor([10]))})
    assert metrics.latest("return") == 10.0
    assert metrics.close_window() == {"return": 4.0}  # 20 over 5


def test_no_sample_yet_is_no_value_after_a_resume_either():
    class Away(torch.Tensor):
        is_cpu = False

    metrics, again = Metrics(), Metrics()
    none = torch.zeros(2, dtype=torch.bool).as_subclass(Away)
    metrics.log({"return": Samples(torch.ones(2), none)})
    again.load_state_dict(metrics.state_dict())
    assert metrics.latest("return") is again.latest("return") is None


def test_a_long_window_is_bounded_and_exact():
    metrics = Metrics()
    for value in range(1000):
        metrics.log({"a": torch.tensor(float(value)), "b": value})
    assert len(metrics.state_dict()["series"]["a"]["pending"]) < 300
    assert metrics.close_window() == {"a": 499.5, "b": 499.5}


def test_losses_are_named_by_group():
    metrics = Metrics()
    losses = TensorDict(
        {
            "loss": torch.tensor(1.0),
            "loss_actor": torch.tensor(2.0),
            "entropy": torch.tensor([3.0, 5.0]),
        },
        [],
    )
    metrics.log_losses(losses)
    assert metrics.close_window() == {"loss/loss": 1.0, "loss/actor": 2.0, "train/entropy": 4.0}


@pytest.mark.parametrize("at", [1, 255, 256, 257, 400])
def test_an_open_window_survives_a_save_bit_for_bit(at):
    values = torch.rand(500)

    def fill(metrics: Metrics, part: torch.Tensor) -> None:
        for value in part:
            metrics.log({"a": value, "b": float(value), "n": Latest(3), "log_pbar": True})

    whole, first, second = Metrics(), Metrics(), Metrics()
    fill(whole, values)
    fill(first, values[:at])
    second.load_state_dict(first.state_dict())
    fill(second, values[at:])
    assert second.close_window() == whole.close_window()
    assert second.pbar_names == whole.pbar_names
    assert second.reported == whole.reported
