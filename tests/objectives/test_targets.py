from __future__ import annotations

import pytest
import torch
from torch import nn

from hooktrainer.errors import ConfigError
from hooktrainer.networks import QNetwork, mlp
from hooktrainer.objectives import DQNLoss, HardUpdate, SoftUpdate


def make_loss():
    loss = DQNLoss(QNetwork(mlp(4, 2)))
    with torch.no_grad():
        for parameter in loss.value_network.parameters():
            parameter += 1.0
    return loss


def gap(loss):
    weights = (loss.value_network.network[0].weight, loss.target_value_network.network[0].weight)
    return (weights[0] - weights[1]).detach().mean().item()


def test_soft_update_closes_a_fraction_of_the_gap_each_step():
    loss = make_loss()
    updater = SoftUpdate(loss, tau=0.25)
    updater.step()
    assert gap(loss) == pytest.approx(0.75, abs=1e-6)
    updater.step()
    assert gap(loss) == pytest.approx(0.5625, abs=1e-6)


def test_hard_update_copies_at_its_interval_also_after_a_resume():
    loss = make_loss()
    updater = HardUpdate(loss, value_network_update_interval=3)
    updater.step()
    updater.step()
    assert gap(loss) == pytest.approx(1.0, abs=1e-6)
    resumed = HardUpdate(loss, value_network_update_interval=3)
    resumed.load_state_dict(updater.state_dict())
    resumed.step()
    assert gap(loss) == 0.0


def test_a_smaller_interval_than_the_saved_counter_copies_at_the_next_step():
    loss = make_loss()
    resumed = HardUpdate(loss, value_network_update_interval=3)
    resumed.load_state_dict({"counter": 7})
    resumed.step()
    assert gap(loss) == 0.0
    assert resumed.counter == 0


def test_buffers_of_the_network_follow_as_well():
    network = nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2, track_running_stats=True))
    loss = DQNLoss(QNetwork(network))
    network[1].running_mean += 1.0
    network[1].num_batches_tracked += 4
    SoftUpdate(loss, tau=0.5).step()
    target = loss.target_value_network.network[1]
    assert target.running_mean.tolist() == [0.5, 0.5]
    assert target.num_batches_tracked == 4


def test_impossible_fractions_and_intervals_are_refused():
    with pytest.raises(ConfigError, match=r"tau=1\.5"):
        SoftUpdate(make_loss(), tau=1.5)
    with pytest.raises(ConfigError, match="value_network_update_interval=0"):
        HardUpdate(make_loss(), value_network_update_interval=0)
