from __future__ import annotations

import pytest
import torch
from tensordict import TensorDict

from hooktrainer import ConfigError, UpdateWeights
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


def test_at_the_start_and_after_every_batch():
    assert run(UpdateWeights).when == [0, 1, 2, 3, 4, 5]


def test_every_second_batch():
    assert run(lambda c: UpdateWeights(c, 2)).when == [0, 2, 4]


def test_every_third_optimizer_step():
    collector = run(lambda c: UpdateWeights(c, 3, interval_unit="optim_steps"))
    assert collector.when == [0, 2, 3, 5]  # steps 3, 6 and 9, two a batch


def test_the_collector_reads_its_own_policy_by_default():
    assert {(args, tuple(kw)) for _, args, kw in run(UpdateWeights).received} == {((), ())}


def test_weights_may_be_fetched():
    collector = run(lambda c: UpdateWeights(c, policy_weights_getter=lambda: "weights"))
    assert {args for _, args, _ in collector.received} == {("weights",)}


def test_several_networks_by_their_path_in_the_trainer():
    collector = run(lambda c: UpdateWeights(c, weight_update_map={"policy": "loss_module"}))
    _, _, keywords = collector.received[-1]
    assert isinstance(keywords["weights_dict"]["policy"], TensorDict)
    assert set(keywords["weights_dict"]["policy"].keys()) == {"parameter"}


class Sender:
    def __init__(self) -> None:
        self.sent = 0

    def update_weights(self):
        self.sent += 1


@pytest.mark.parametrize("how", ["sender", "map"])
def test_every_kind_sends_once_at_the_start(how):
    """The weights of a resumed run are not those that the collector was made with."""
    if how == "sender":
        sender = Sender()
        trainer = tiny_trainer()
        UpdateWeights(sender=sender).register(trainer)
        trainer.train()
        assert sender.sent == 6
    else:
        assert run(lambda c: UpdateWeights(c, weight_update_map={"p": "loss_module"})).when == [
            0, 1, 2, 3, 4, 5,
        ]  # fmt: skip


def test_the_count_is_saved():
    sender = Sender()
    one, other = UpdateWeights(sender=Sender(), update_weights_interval=3), None
    one()
    one()
    other = UpdateWeights(sender=sender, update_weights_interval=3)
    other.load_state_dict(one.state_dict())
    other()
    assert sender.sent == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "either a collector or a sender"),
        ({"collector": 1, "sender": 2}, "either a collector or a sender"),
        ({"collector": 1, "update_weights_interval": 0}, "update_weights_interval=0"),
        ({"collector": 1, "interval_unit": "frames"}, "interval_unit='frames'"),
        ({"sender": 1, "weight_update_map": {"a": "b"}}, "leave out"),
        ({"sender": 1, "policy_weights_getter": dict}, "leave out"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ConfigError, match=message):
        UpdateWeights(**arguments)


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


# -- what the conformance tests try ---------------------------------------------------------------


def example(trainer):
    return UpdateWeights(trainer.collector, 2)
