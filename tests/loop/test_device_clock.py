"""The device clock with made-up events: no accelerator is needed, or waited for."""

from __future__ import annotations

import pytest
import torch

from hooktrainer.loop.lifecycle import DeviceClock, time_device
from hooktrainer.loop.timing import Timing


class Device:
    """An accelerator that passes a mark when it is told to."""

    def __init__(self):
        self.marks = []
        self.passed = 0

    def mark(self):
        event = FakeEvent(self, len(self.marks))
        self.marks.append(event)
        return event


class FakeEvent:
    """The n-th mark is passed at n² milliseconds."""

    def __init__(self, device, index):
        self.device = device
        self.index = index

    def query(self):
        return self.index < self.device.passed

    def elapsed_time(self, end_event):
        assert self.query()
        assert end_event.query()
        return float(end_event.index**2 - self.index**2)


@pytest.fixture
def device():
    return Device()


@pytest.fixture
def timing(device):
    timing = Timing()
    timing.listeners = (DeviceClock(device.mark),)
    return timing


def test_device_time_of_a_phase(device, timing):
    for name in ("collect", "optimize", "collect"):
        with timing.phase(name):
            pass
    device.passed = 6
    timing.start_window(0, 0)
    report = timing.close_window(frames=10, batches=1)
    assert report["time/device/collect"] == pytest.approx((1 + 25 - 16) / 1000)
    assert report["time/device/optimize"] == pytest.approx((9 - 4) / 1000)


def test_unfinished_work_is_reported_in_a_later_window(device, timing):
    with timing.phase("collect"):
        pass
    with timing.phase("optimize"):
        pass
    device.passed = 3  # optimize is under way
    first = timing.close_window(frames=10, batches=1)
    assert first["time/device/collect"] == pytest.approx(0.001)
    assert "time/device/optimize" not in first
    device.passed = 4
    second = timing.close_window(frames=20, batches=2)
    assert second["time/device/optimize"] == pytest.approx(0.005)
    assert second["time/device/collect"] == 0.0


def test_a_nested_phase_is_subtracted_from_the_outer_one(device, timing):
    with timing.phase("hooks"), timing.phase("checkpoint"):
        pass
    device.passed = 4
    report = timing.close_window(frames=10, batches=1)
    assert report["time/device/checkpoint"] == pytest.approx((4 - 1) / 1000)
    assert report["time/device/hooks"] == pytest.approx((1 + 9 - 4) / 1000)


@pytest.mark.parametrize("loss", [torch.nn.Linear(1, 1), torch.nn.Identity(), lambda batch: batch])
def test_no_device_clock_without_cuda(loss):
    timing = Timing()
    time_device(timing, loss)
    assert timing.listeners == ()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_work_of_a_cuda_device_is_timed():
    timing = Timing()
    time_device(timing, torch.nn.Linear(1, 1, device="cuda"))
    with timing.phase("optimize"):
        torch.randn(2_000, 2_000, device="cuda") @ torch.randn(2_000, 2_000, device="cuda")
    torch.cuda.synchronize()
    assert timing.close_window(frames=1, batches=1)["time/device/optimize"] > 0
