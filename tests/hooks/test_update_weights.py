from __future__ import annotations

import pytest
import torch
from tensordict import TensorDict

from hooktrainer import UpdateWeights
from hooktrainer.testing import FakeCollector, tiny_trainer


class Receiving(FakeCollector):
    """A collector that keeps the weights it is sent, and when."""

    def __init__(self) -> None:
        super().__init__()
        self.received = []

    def update_policy_weights_(self, *args, **kwargs):
        self.received.append((self.yielded, args, kwargs))

    @property
    def when(self) -> list[int]:
        return [batches for batches, _, _ in self.received]


def run(hook_of, **arguments):
    collector = Receiving()
    trainer = tiny_trainer(collector=collector, **arguments)
    hook_of(collector).register(trainer)
    trainer.train()
    return collector


@pytest.mark.parametrize(
    ("hook_of", "when"),
    [
        (UpdateWeights, [0, 1, 2, 3, 4, 5]),
        (lambda c: UpdateWeights(c, weight_update_map={"p": "loss_module"}), [0, 1, 2, 3, 4, 5]),
        (lambda c: UpdateWeights(c, 2), [0, 2, 4]),
        # Steps 3, 6 and 9, two a batch:
        (lambda c: UpdateWeights(c, 3, interval_unit="optim_steps"), [0, 2, 3, 5]),
    ],
    ids=["every batch", "mapped", "every second batch", "every third step"],
)
def test_weights_are_sent_at_the_start_and_at_the_interval(hook_of, when):
    assert run(hook_of).when == when


def test_several_networks_by_their_path_in_the_trainer():
    collector = run(lambda c: UpdateWeights(c, weight_update_map={"policy": "loss_module"}))
    _, _, keywords = collector.received[-1]
    assert isinstance(keywords["weights_dict"]["policy"], TensorDict)
    assert set(keywords["weights_dict"]["policy"].keys()) == {"parameter"}


@pytest.mark.filterwarnings("ignore::FutureWarning")  # what torchrl 0.15 will add to environments
def test_a_torchrl_collector_acts_with_the_trained_weights():
    from tensordict.nn import TensorDictModule
    from torchrl.collectors import Collector
    from torchrl.envs.libs.gym import GymEnv

    policy = TensorDictModule(torch.nn.Linear(4, 2), ["observation"], ["action"])
    for p in policy.parameters():
        torch.nn.init.zeros_(p)
    collector = Collector(
        lambda: GymEnv("CartPole-v1", device="cpu"),
        policy,
        frames_per_batch=5,
        total_frames=15,
    )

    class Loss(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.policy = policy

        def forward(self, td):
            weight = sum(p.sum() for p in self.policy.parameters())
            return TensorDict({"loss": -weight}, [])

    loss = Loss()
    trainer = tiny_trainer(
        collector=collector,
        loss_module=loss,
        optimizer=torch.optim.SGD(loss.parameters(), lr=1.0),
        total_frames=15,
        optim_steps_per_batch=1,
    )
    UpdateWeights(collector).register(trainer)
    acted = []
    trainer.register_op("pre_steps_log", lambda td: acted.append(td["action"].mean().item()))
    trainer.train()
    assert acted[0] == 0.0
    assert acted[1] != 0.0


def example(trainer):
    return UpdateWeights(trainer.collector, 2)
