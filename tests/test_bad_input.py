"""Each wrong input gives one clear error, before any training where that can be known."""

from __future__ import annotations

import inspect

import pytest
import torch
import torchrl.trainers as theirs
from tensordict import TensorDict
from torchrl.trainers.algorithms import PPOTrainer, SACTrainer

from hooktrainer import ConfigError, HookError, Trainer, VectorCollector
from hooktrainer.objectives import GAE, DQNLoss
from hooktrainer.optim import FlatAdam
from hooktrainer.testing import FakeCollector, ScriptedLoss, tiny_trainer

COUNTS = [
    "total_frames",
    "frame_skip",
    "optim_steps_per_batch",
    "num_epochs",
    "save_trainer_interval",
    "log_interval",
]


def test_an_unknown_argument_names_the_nearest():
    with pytest.raises(TypeError, match=r"no argument 'total_frame'. Did you mean total_frames"):
        Trainer(total_frame=1)


def arguments_of_torchrls_trainers() -> set[str]:
    of_configurations = {"hooks", "create_env_fn", "actor_network", "critic_network"}
    kinds = (theirs.Trainer, PPOTrainer, SACTrainer)
    names = {name for kind in kinds for name in inspect.signature(kind.__init__).parameters}
    return (names | of_configurations) - set(inspect.signature(Trainer.__init__).parameters)


@pytest.mark.parametrize("name", sorted(arguments_of_torchrls_trainers()))
def test_an_argument_of_torchrls_trainers_names_its_replacement(name):
    with pytest.raises(TypeError, match=rf"no argument '{name}'. [A-Z].*\.$") as raised:
        Trainer(**{name: None})
    assert "It takes" not in str(raised.value)
    assert "Did you mean" not in str(raised.value)


@pytest.mark.parametrize("name", COUNTS)
@pytest.mark.parametrize("value", [0, -1, 1.5, "10", True], ids=repr)
def test_counts_are_positive_integers(name, value):
    with pytest.raises(ConfigError, match=f"{name}={value!r}: pass a positive integer"):
        tiny_trainer(**{name: value})


@pytest.mark.parametrize("name", ["clip_norm", "grace"])
@pytest.mark.parametrize("value", [0, -0.5, float("nan"), "1", True], ids=repr)
def test_bounds_are_positive(name, value):
    with pytest.raises(ConfigError, match=f"{name}={value!r}: pass a positive number"):
        tiny_trainer(**{name: value})


@pytest.mark.parametrize("value", [-1, 1.5, "1", True, 2**63], ids=repr)
def test_a_seed_is_an_integer_that_every_generator_takes(value):
    with pytest.raises(ConfigError, match=f"seed={value!r}: pass an integer"):
        tiny_trainer(seed=value)


OF_OTHERS = torch.optim.SGD(torch.nn.Linear(2, 2).parameters(), lr=0.1)
LIST = [TensorDict({}, [1]), {"x": torch.zeros(1)}]


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"collector": 3}, r"collector=3 is not iterable.*TensorDicts"),
        ({"collector": LIST}, r"collector\[1\].* a dict of 'x', not a TensorDict"),
        ({"loss_module": 5, "optimizer": None}, "loss_module=5 is not callable"),
        ({"optimizer": ScriptedLoss()}, r"is not a torch\.optim\.Optimizer"),
        ({"optimizer": OF_OTHERS}, r"optimizer \(SGD\) shares no parameter with loss_module"),
    ],
)
def test_parts_that_do_not_fit_are_refused_at_once(parts, message):
    with pytest.raises(ConfigError, match=message):
        tiny_trainer(**parts)


@pytest.mark.parametrize("batch", [{"x": torch.zeros(3)}, (torch.zeros(3),), [], None], ids=type)
def test_a_collector_that_yields_no_tensordict_is_refused_before_any_hook(batch):
    class Bad(FakeCollector):
        def _batch(self):
            return batch

    calls = []
    trainer = tiny_trainer(collector=Bad())
    trainer.register_op("batch_process", calls.append)
    name = type(batch).__name__
    with pytest.raises(ConfigError, match=f"(?s)collector's batch.* {name}.*, not a Tens"):
        trainer.train()
    assert calls == []
    assert trainer.optim_count == 0
    assert trainer.collector.closed == 1


def test_a_loss_that_announces_no_loss_key_is_refused_at_once():
    loss = ScriptedLoss()
    loss.out_keys = ["entropy", "kl"]
    with pytest.raises(ConfigError, match=r"ScriptedLoss computes \['entropy', 'kl'\]"):
        tiny_trainer(loss_module=loss)


def test_a_loss_that_returns_no_loss_key_is_refused_at_the_first_step():
    loss = ScriptedLoss(key="entropy")
    trainer = tiny_trainer(loss_module=loss)
    with pytest.raises(HookError, match=r"no key that begins with loss .*\['entropy'\]"):
        trainer.train()
    assert loss.parameter.item() == 0.0
    assert trainer.collector.closed == 1


@pytest.mark.parametrize("as_what", [dict, lambda td: td["loss"], lambda td: None])
def test_a_loss_that_returns_no_tensordict_is_refused_at_the_first_step(as_what):
    class Bad(ScriptedLoss):
        def forward(self, batch):
            return as_what(super().forward(batch))

    trainer = tiny_trainer(loss_module=Bad())
    with pytest.raises(HookError, match=r"loss_module.* not a TensorDict"):
        trainer.train()
    assert trainer.collector.closed == 1


def test_an_endless_inner_loop_is_refused():
    trainer = tiny_trainer(optim_steps_per_batch=None)
    with pytest.raises(ConfigError, match="no epoch would end"):
        trainer.train()


def test_a_refused_constructor_does_not_close_the_collector():
    collector = FakeCollector()
    with pytest.raises(ConfigError):
        tiny_trainer(collector=collector, total_frames=0)
    assert collector.closed == 0
    assert collector.yielded == 0


def test_the_optimizer_of_a_network_inside_a_torchrl_loss_is_accepted():
    from tensordict.nn import TensorDictModule
    from torchrl.modules import OneHotCategorical, ProbabilisticActor, ValueOperator
    from torchrl.objectives import ClipPPOLoss

    actor = ProbabilisticActor(
        TensorDictModule(torch.nn.Linear(4, 2), ["observation"], ["logits"]),
        in_keys=["logits"],
        distribution_class=OneHotCategorical,
    )
    critic = ValueOperator(torch.nn.Linear(4, 1), ["observation"])
    loss = ClipPPOLoss(actor, critic)
    tiny_trainer(loss_module=loss, optimizer=torch.optim.Adam(actor.parameters()))


@pytest.mark.parametrize(
    "make",
    [
        lambda: GAE(gamma=1.5, lmbda=0.95, value_network=None),
        lambda: GAE(gamma=0.9, lmbda=-1, value_network=None),
        lambda: DQNLoss(torch.nn.Linear(1, 1), gamma=float("nan")),
        lambda: FlatAdam([torch.nn.Parameter(torch.zeros(2))], lr=-1.0),
        lambda: VectorCollector("CartPole-v1", num_envs=2, frames_per_batch=4, seed=-1),
    ],
)
def test_rates_and_fractions_out_of_their_range_are_refused(make):
    with pytest.raises(ConfigError, match=r"(gamma|lmbda|lr|seed)="):
        make()
