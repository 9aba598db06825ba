from __future__ import annotations

import torch
from tensordict.nn import TensorDictModule

from hooktrainer import Every, TargetNetUpdaterHook
from hooktrainer.testing import tiny_trainer


def dqn(hard: int | None = None):
    from torchrl.modules import QValueActor
    from torchrl.objectives import DQNLoss, HardUpdate, SoftUpdate

    torch.manual_seed(0)
    net = QValueActor(
        TensorDictModule(torch.nn.Linear(4, 2), ["observation"], ["action_value"]),
        in_keys=["observation"],
        action_space="categorical",
    )
    loss = DQNLoss(net, action_space="categorical", delay_value=True)
    updater = (
        SoftUpdate(loss, eps=0.75)
        if hard is None
        else HardUpdate(loss, value_network_update_interval=hard)
    )
    trainer = tiny_trainer(loss_module=loss, optimizer=torch.optim.SGD(loss.parameters(), lr=1.0))
    TargetNetUpdaterHook(updater).register(trainer)
    return trainer, loss


def flat(parameters) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in parameters.values(True, True)])


def test_a_soft_update_by_hand():
    trainer, loss = dqn()
    targets, values = [], []
    trainer.register_op("post_optim", lambda: values.append(flat(loss.value_network_params)))
    trainer.register_op(
        "post_optim", lambda: targets.append(flat(loss.target_value_network_params))
    )
    start = flat(loss.target_value_network_params)
    trainer.train()
    expected = start
    for value, target in zip(values, targets, strict=True):
        expected = 0.75 * expected + 0.25 * value
        assert torch.allclose(target, expected, atol=1e-5)
    assert not targets[0].equal(start)


def test_now_and_then():
    class Updater:
        steps = 0

        def step(self):
            self.steps += 1

    trainer, updater = tiny_trainer(), Updater()  # 10 optimizer steps
    TargetNetUpdaterHook(updater, every=Every(optim_steps=3)).register(trainer)
    assert "Every(optim_steps=3)" in trainer.describe()
    trainer.train()
    assert updater.steps == 3


class CountingUpdater:
    """A target updater as far as its hook is concerned."""

    def __init__(self) -> None:
        self.counter = 0

    def step(self) -> None:
        self.counter += 1


def example(trainer):
    return TargetNetUpdaterHook(CountingUpdater())
