from __future__ import annotations

import torch

from hooktrainer.networks import mlp, orthogonal_init


def test_orthogonal_init_has_the_gains_asked_for():
    network = orthogonal_init(mlp(4, 2, (8,)), gain=2.0, output_gain=0.5)
    first, last = network[0], network[-1]
    torch.testing.assert_close(first.weight.T @ first.weight, 4.0 * torch.eye(4))
    torch.testing.assert_close(last.weight @ last.weight.T, 0.25 * torch.eye(2))
    assert not first.bias.any()
    assert not last.bias.any()
