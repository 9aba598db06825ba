"""What the tests of off-policy losses share: networks, a batch, comparing with TorchRL."""

from __future__ import annotations

import torch
from tensordict import TensorDict
from torch import nn

from hooktrainer.networks import ValueNetwork, mlp


def make_critics(number: int = 2) -> list[ValueNetwork]:
    """Q-functions of 3 observed and 2 action features."""
    return [ValueNetwork(mlp(5, 1), ["observation", "action"]) for _ in range(number)]


def make_batch(size: int = 32) -> TensorDict:
    terminated = torch.rand(size, 1) < 0.3
    following = TensorDict(
        observation=torch.randn(size, 3),
        reward=torch.randn(size, 1),
        done=terminated,
        terminated=terminated,
        batch_size=[size],
    )
    return TensorDict(
        observation=torch.randn(size, 3),
        action=torch.rand(size, 2) * 2 - 1,
        next=following,
        batch_size=[size],
    )


def total(losses: TensorDict) -> torch.Tensor:
    return sum(value for key, value in losses.items() if key.startswith("loss"))


def gradients(module: nn.Module) -> dict[str, torch.Tensor]:
    """Name to gradient, which is set to None."""
    found = {n: p.grad.clone() for n, p in module.named_parameters() if p.grad is not None}
    module.zero_grad()
    return found


def trained_by(loss_module: nn.Module, key: str) -> set[str]:
    """Names of the networks that one loss reaches."""
    loss_module.zero_grad()
    loss_module(make_batch())[key].backward()
    return {name.split(".")[0] for name in gradients(loss_module)}


def assert_equal_gradients(ours: nn.Module, theirs: nn.Module, names: dict[str, str]) -> None:
    """Compare gradients with those of a TorchRL loss.

    Args:
        ours: Our loss, after its backward.
        theirs: TorchRL's, likewise; its ensembles are stacked.
        names: Name of each of our networks to that of TorchRL's parameters.
    """
    mine = gradients(ours)
    for network, params in names.items():
        stacked = getattr(theirs, params)
        members = [n for n, _ in getattr(ours, network).named_parameters()]
        if members[0].startswith("0."):
            numbers = sorted({name.split(".")[0] for name in members})
            for name in (n.removeprefix("0.") for n in members if n.startswith("0.")):
                together = torch.stack([mine[f"{network}.{i}.{name}"] for i in numbers])
                expected = stacked.get(tuple(name.split("."))).grad
                torch.testing.assert_close(together, expected, atol=1e-4, rtol=1e-3)
        else:
            for name in members:
                expected = stacked.get(tuple(name.split("."))).grad
                mine_ = mine[f"{network}.{name}"]
                torch.testing.assert_close(mine_, expected, atol=1e-4, rtol=1e-3)
