"""Each form in which TorchRL's trainer saves itself is read."""

from __future__ import annotations

import shutil

import pytest
import torch
import torchrl.trainers as theirs
from saved_there import FORMS, HOOKS, Parts, prioritized, same, same_priorities, save
from torchrl.checkpoint import Checkpoint, StateDictCheckpointAdapter
from torchrl.data import Categorical
from torchrl.modules import QValueActor
from torchrl.objectives import DQNLoss as TorchRLDQNLoss

import hooktrainer
from hooktrainer import CheckpointError, StateMismatchError, Trainer, VectorCollector
from hooktrainer.networks import EpsilonGreedy, QNetwork
from hooktrainer.objectives import DQNLoss, SoftUpdate
from hooktrainer.replay import ReplayBuffer
from hooktrainer.testing import tiny_trainer
from hooktrainer.torchrl import checkpoint as formats

pytestmark = [
    pytest.mark.filterwarnings("ignore:The collector, a torchrl"),
    pytest.mark.filterwarnings("ignore:No target network updater"),
]


def same_rows(one, other) -> bool:
    rows = (buffer[:].flatten_keys(".").to_dict() for buffer in (one, other))
    return same(*rows)


@pytest.mark.parametrize("form", FORMS)
def test_with_torchrls_hooks_every_state_is_taken_over(form, saved):
    path, there = saved[form]
    here = Parts(1, theirs, total_frames=140)
    trainer = here.register(Trainer(**here.arguments))
    with pytest.warns(UserWarning, match="taken over but") as caught:
        trainer.load_from_file(path)
    assert str(caught[0].message).splitlines()[1:] == [
        "  the random state, which is not saved there"
    ]
    assert (trainer.collected_frames, trainer.optim_count) == (100, 15)
    assert same(dict(here.loss.state_dict()), dict(there.loss.state_dict()))
    assert same(here.optimizer.state_dict()["state"], there.optimizer.state_dict()["state"])
    assert same(dict(here.estimator.state_dict()), dict(there.estimator.state_dict()))
    for name in here.hooks.keys() - {"replay_buffer"}:
        assert same(here.hooks[name].state_dict(), there.hooks[name].state_dict()), name
    assert same_rows(here.buffer, there.buffer)
    trainer.train()
    assert (trainer.collected_frames, len(here.buffer)) == (140, 60)


@pytest.mark.parametrize("form", FORMS)
def test_with_our_hooks_every_state_is_taken_over(form, saved):
    path, there = saved[form]
    here = Parts(1, hooktrainer, total_frames=140)
    trainer = here.register(Trainer(**here.arguments))
    assert set(HOOKS) <= set(trainer.registry.modules)
    with pytest.warns(UserWarning, match="taken over but\n  the random state, which") as caught:
        trainer.load_from_file(path)
    assert len(str(caught[0].message).splitlines()) == 2
    hooks, stats = here.hooks, there.hooks["reward_normalizer"]._reward_stats
    assert hooks["clear_cuda_cache"].count == 5
    assert hooks["count_frames_log"].frame_count == 100
    assert hooks["reward_normalizer"].mean.item() == pytest.approx(stats["mean"].item())
    assert hooks["reward_normalizer"].std.item() == pytest.approx(stats["std"].item(), abs=1e-3)
    assert hooks["early_stopping"].best_score == there.hooks["early_stopping"].best_score
    assert hooks["early_stopping"].state_dict()["_last_improvement_frame"] == 20
    assert hooks["lr_scheduler"].scheduler.last_epoch == 5
    assert hooks["update_weights"].counter == 5
    assert hooks["recorder"].state_dict()["_count"] == 5
    trainer.train()
    assert trainer.collected_frames == 140


@pytest.mark.parametrize("form", FORMS)
def test_our_own_buffer_is_filled(form, saved):
    path, there = saved[form]
    here = Parts(1, hooktrainer, total_frames=140)
    buffer = ReplayBuffer(200, batch_size=8, keys=["observation", ("next", "reward")])
    trainer = Trainer(**here.arguments)
    hooktrainer.ReplayBufferTrainer(buffer).register(trainer, "replay_buffer")
    with pytest.warns(UserWarning, match="no hook has this name here"):
        trainer.load_from_file(path)
    assert len(buffer) == 60
    # The oldest first: TorchRL's ring holds the last 60 of 100, from its cursor on.
    newest = there.buffer[:]["observation"].roll(-(100 % 60), 0)
    assert buffer.state_dict()["storage"][:60]["observation"].equal(newest)
    trainer.shutdown()


@pytest.mark.usefixtures("trees")
@pytest.mark.parametrize("module", [theirs, hooktrainer])
@pytest.mark.parametrize("form", ["directory", "archive"])
def test_priorities_are_taken_over(form, module, tmp_path):
    there = save(form, tmp_path / form, prioritized())
    here = Parts(1, module, total_frames=140, sampler=prioritized())
    trainer = here.register(Trainer(**here.arguments))
    with pytest.warns(UserWarning, match="taken over but\n  the random state, which") as caught:
        trainer.load_from_file(tmp_path / form)
    assert len(str(caught[0].message).splitlines()) == 2
    assert same_priorities(here.buffer, there.buffer)
    assert here.buffer.sampler._sum_tree.query(0, 100) > 100
    trainer.train()


@pytest.mark.usefixtures("trees")
@pytest.mark.parametrize("form", ["torch", "memmap", "torchsnapshot"])
def test_a_pickled_tree_is_refused(form, tmp_path):
    save(form, tmp_path / form, prioritized())
    with pytest.raises(CheckpointError, match=r"_torchrl\.Sum.*save it there with checkpoint="):
        tiny_trainer().load_from_file(tmp_path / form)


@pytest.mark.parametrize("form", ["memmap", "torchsnapshot"])
def test_stored_sequences_keep_their_batch_size(form, tmp_path):
    there = save(form, tmp_path / form, length=5)
    here = Parts(1, theirs, total_frames=140, length=5)
    trainer = here.register(Trainer(**here.arguments))
    with pytest.warns(UserWarning, match="taken over but\n  the random state, which"):
        trainer.load_from_file(tmp_path / form)
    assert here.buffer.sample().batch_size == there.buffer.sample().batch_size == (8, 5)
    trainer.train()


def test_some_components_only(tmp_path):
    here = Parts(0, theirs)
    here.optimizer.param_groups[0]["lr"] = 0.5
    checkpoint = Checkpoint(
        trainer_state=CountersOf(70, 12),
        optimizer=here.optimizer,
        save_components={"trainer_state", "optimizer"},
    )
    checkpoint.save(tmp_path / "some")
    other = Parts(1, hooktrainer)
    trainer = Trainer(**other.arguments)
    before = {k: v.clone() for k, v in other.loss.state_dict().items()}
    with pytest.warns(UserWarning, match="what was not saved: collector, loss_module"):
        trainer.load_from_file(tmp_path / "some")
    assert (trainer.collected_frames, trainer.optim_count) == (70, 12)
    assert other.optimizer.param_groups[0]["lr"] == 0.5
    assert same(before, dict(other.loss.state_dict()))
    trainer.shutdown()


class CountersOf:
    def __init__(self, frames, steps):
        self.counters = {"collected_frames": frames, "_optim_count": steps}

    def state_dict(self):
        return self.counters

    def load_state_dict(self, state): ...


class Everything:
    """A state with one of every type that TorchRL's schema has a word for."""

    def __init__(self):
        import collections
        import pathlib

        import numpy as np

        self.state = {
            "tensor": torch.arange(3),
            "empty": torch.empty(0, 2),
            "flags": torch.tensor([True, False]),
            "array": np.arange(4.0).reshape(2, 2),
            "scalar": np.float32(1.5),
            "ordered": collections.OrderedDict(a=(1, [2.5, None]), b={"x"}),
            "frozen": frozenset({1}),
            "slice": slice(1, None),
            "range": range(1, 9, 2),
            "size": torch.Size([2, 3]),
            "device": torch.device("cpu"),
            "dtype": torch.float16,
            "path": pathlib.Path("a/b"),
            "bytes": b"\x00\xff",
            "array of bytes": bytearray(b"ab"),
            "complex": 1 + 2j,
            3: "a number as a key",
            "infinite": float("inf"),
        }

    def state_dict(self):
        return self.state

    def load_state_dict(self, state): ...


@pytest.mark.parametrize("container", ["directory", "archive"])
@pytest.mark.parametrize("payload", ["directory", "torch"])
def test_a_state_of_every_type(container, payload, tmp_path):
    thing = Everything()
    if payload == "torch":  # plain data and tensors alone
        thing.state = {k: thing.state[k] for k in ("tensor", "ordered", "size", "device", "bytes")}
        thing.state["ordered"]["b"] = 1
    checkpoint = Checkpoint(format=container)
    checkpoint.register("thing", thing, adapter=StateDictCheckpointAdapter(payload))
    checkpoint.save(tmp_path / "all")
    read = formats.read(tmp_path / "all")["thing"]
    assert list(read) == list(thing.state)
    for key, value in thing.state.items():
        assert type(read[key]) is type(value)
        equal = read[key] == value
        assert equal if isinstance(equal, bool) else equal.all()


def test_a_packed_state_is_skipped_with_a_warning(tmp_path):
    checkpoint = Checkpoint(trainer_state=CountersOf(10, 1))
    checkpoint.register(
        "optimizer", Everything(), adapter=StateDictCheckpointAdapter("consolidated")
    )
    checkpoint.save(tmp_path / "packed")
    trainer = tiny_trainer()
    with pytest.warns(UserWarning, match=r"'optimizer': it is packed; save it with StateDict"):
        trainer.load_from_file(tmp_path / "packed")
    assert trainer.collected_frames == 10


def test_a_hook_with_another_state_is_unchanged_with_a_warning(memmap):
    here = Parts(1, theirs)
    trainer = here.register(Trainer(**here.arguments))
    trainer.register_module("optimizer_2", torch.nn.Linear(2, 4))
    shutil.copytree(memmap / "value_estimator", memmap / "optimizer_2")
    (memmap / "early_stopping/meta.json").write_text('{"best_score": 3}')
    bias = trainer.registry.modules["optimizer_2"].bias.clone()  # which would have been loaded
    with pytest.warns(UserWarning, match="'optimizer_2': its state has another form"):
        trainer.load_from_file(memmap)
    assert trainer.registry.modules["optimizer_2"].bias.equal(bias)
    trainer.shutdown()


def test_into_our_own_parts(saved):
    path, there = saved["torch"]
    q_network = QNetwork(torch.nn.Linear(4, 2))
    loss = DQNLoss(q_network)
    trainer = Trainer(
        collector=VectorCollector(
            "CartPole-v1", EpsilonGreedy(q_network), num_envs=2, frames_per_batch=20
        ),
        total_frames=120,
        optim_steps_per_batch=1,
        loss_module=loss,
        optimizer=torch.optim.Adam(loss.parameters(), lr=1e-2),
        progress_bar=False,
    )
    buffer = ReplayBuffer(200, batch_size=8, keys=loss.in_keys)
    hooktrainer.ReplayBufferTrainer(buffer).register(trainer)
    hooktrainer.TargetNetUpdaterHook(SoftUpdate(loss, tau=0.1)).register(trainer, "other_name")
    with pytest.warns(UserWarning, match="the collector begins new ones"):
        trainer.load_from_file(path)
    theirs = there.loss.state_dict()
    assert q_network.network.weight.equal(theirs["value_network_params.module.0.module.weight"])
    assert loss.target_value_network.network.bias.equal(
        theirs["target_value_network_params.module.0.module.bias"]
    )
    assert same(trainer.optimizer.state_dict()["state"], there.optimizer.state_dict()["state"])
    trainer.train()
    assert trainer.collected_frames == 120


def test_other_networks_are_refused_and_nothing_changes(saved):
    here = Parts(1, theirs)
    wide = torch.nn.Linear(6, 2)
    loss = TorchRLDQNLoss(
        QValueActor(wide, in_keys=["observation"], spec=Categorical(2)),
        action_space="categorical",
        delay_value=True,
    )
    before = {k: v.clone() for k, v in loss.state_dict().items()}
    adam = torch.optim.Adam(loss.parameters())
    trainer = Trainer(**here.arguments | {"loss_module": loss, "optimizer": adam})
    with pytest.raises(StateMismatchError, match=r"\(2, 4\) there, \(2, 6\) here"):
        trainer.load_from_file(saved["torch"][0])
    assert same(before, {k: loss.state_dict()[k] for k in before})
    assert trainer.collected_frames == 0
    trainer.shutdown()
